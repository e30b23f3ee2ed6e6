"""Limits of a cluster: array sizes, partitions, GPUs, accounts, QOS and the number of queued tasks.

Read for each submission from scontrol, sinfo, squeue and, with accounting, sacctmgr. sbatch may know more limits.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.slurm.scheduler import ENDED, ask, seconds, user


@final
@dataclass(frozen=True)
class Partition:
    """A partition, and the largest amounts of its nodes."""

    name: str
    default: bool
    state: str
    """UP; DOWN: jobs wait; INACTIVE or DRAIN: no job may be queued."""
    max_time_s: int | None
    """None: unlimited."""
    nodes: int
    cpus: int = 0
    memory_mb: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Most GPUs of one node, by type; "" for GPUs without a type."""
    limiting_qos: str = ""
    """The QOS that limits all its jobs; empty: none."""


class QueuedTasks(NamedTuple):
    """Tasks that the controller keeps: of all users, also ended ones, and of this user."""

    all: int
    by_account: Mapping[str, int]
    by_qos: Mapping[str, int]
    by_partition: Mapping[str, int]


class Association(NamedTuple):
    """This user's right to use an account."""

    account: str
    partition: str
    """Empty: all partitions."""
    max_submit: int | None
    """Most tasks in the queue."""
    default_qos: str


@final
@dataclass(frozen=True)
class Limits:
    """The limits for this user, now."""

    max_array_size: int
    """Upper bound of array indices; 0 or 1: arrays are off."""
    max_array_tasks: int | None
    max_jobs: int
    """MaxJobCount: tasks of all users must be fewer."""
    partitions: Mapping[str, Partition]
    queued: QueuedTasks
    associations: tuple[Association, ...] | None = None
    """None: accounting is off or not enforced."""
    qualities: Mapping[str, int | None] = field(default_factory=dict)
    """Most tasks of one user in the queue, by QOS; None: no limit."""
    default_account: str | None = None
    problems: tuple[str, ...] = ()

    @property
    def accounts(self) -> tuple[str, ...] | None:
        """The accounts of this user; None: any name is allowed."""
        if self.associations is None:
            return None
        return tuple(dict.fromkeys(each.account for each in self.associations))

    @property
    def default_partition(self) -> Partition | None:
        """The partition of jobs that name none."""
        return next((each for each in self.partitions.values() if each.default), None)

    @property
    def array_size(self) -> int:
        """Most tasks of an array; 1: arrays are off."""
        most = self.max_array_size if self.max_array_tasks is None else min(self.max_array_size, self.max_array_tasks)
        return max(most, 1)

    def room(self, account: str | None = None, qos: str | None = None, partition: str | None = None) -> "Room":
        """Return how many more tasks may be queued, and which limit says so."""
        cluster = Room(
            self.max_jobs - 1 - self.queued.all,
            f"the cluster keeps fewer than {self.max_jobs} jobs (MaxJobCount), and ended ones count for some minutes",
        )
        rooms = [cluster, *self._user_rooms(account or self.default_account, qos, partition)]
        least = min(rooms, key=lambda each: each.tasks)
        return least._replace(tasks=max(least.tasks, 0))

    def _user_rooms(self, account: str | None, qos: str | None, partition_name: str | None) -> list["Room"]:
        """Return this user's limit by SLURM's precedence: the partition's QOS, the job's QOS, the account."""
        partition = self.partitions.get(partition_name) if partition_name else self.default_partition
        rights = [
            each
            for each in self.associations or ()
            if each.account == account and each.partition in {"", partition.name if partition else ""}
        ]
        job_qos = qos or next((each.default_qos for each in rights if each.default_qos), "normal")
        used = [(partition.limiting_qos, self.queued.by_partition.get(partition.name, 0))] if partition else []
        for name, count in [*used, (job_qos, self.queued.by_qos.get(job_qos, 0))]:
            most = self.qualities.get(name)
            if most is not None:
                limit = f"QOS {name} allows {most} jobs of a user (MaxSubmitJobsPerUser)"
                return [Room(most - count, limit)]
        return [
            Room(
                right.max_submit - self.queued.by_account.get(right.account, 0),
                f"account {account} allows {right.max_submit} jobs of a user (MaxSubmitJobs)",
            )
            for right in rights
            if right.max_submit is not None
        ]


class Room(NamedTuple):
    """Free places in the queue, and the limit that says so."""

    tasks: int
    because: str


def arrays(tasks: int, limits: Limits) -> list[int]:
    """Split `tasks` workers into few arrays of equal size; return their sizes."""
    count = -(-tasks // limits.array_size)
    return [tasks // count + (number < tasks % count) for number in range(count)]


def read_limits() -> Limits:
    """Read the limits of the cluster. Raises EnvironmentProblem if SLURM is not installed, or does not answer."""
    config = settings(_need("scontrol", "show", "config"))
    options = settings(config.get("SchedulerParameters", "").replace(",", "\n"))
    shown = partitions(_need("scontrol", "-o", "show", "partition"), _need("sinfo", "-h", "-o", "%R|%c|%m|%G"))
    me = user()
    listed = ask("squeue", "-r", "-h", "-t", "all", "-o", "%u|%a|%q|%P|%T")
    permission = _read_permission(config, me)
    problems = (f"what is queued is not known: {listed.problem}",) if listed.problem else ()
    return Limits(
        max_array_size=_number(config.get("MaxArraySize")) or 0,
        max_array_tasks=_number(options.get("max_array_tasks")),
        max_jobs=_number(config.get("MaxJobCount")) or 10_000,
        partitions=shown,
        queued=count_queued(listed.text, me),
        **{**permission, "problems": (*problems, *permission.get("problems", ()))},
    )


def limits_if_known() -> Limits:
    """Read the limits; on a machine without a cluster, return SLURM's defaults without a partition."""
    try:
        return read_limits()
    except EnvironmentProblem as problem:
        reason = f"the cluster's limits and queue are not known, and arrays have SLURM's default size: {problem}"
        return Limits(1001, None, 1_000_000, {}, QueuedTasks(0, {}, {}, {}), problems=(reason,))


def _read_permission(config: Mapping[str, str], me: str) -> dict[str, Any]:
    """Read what accounting allows this user, if the cluster enforces it, as fields of `Limits`."""
    enforced = set(config.get("AccountingStorageEnforce", "").split(","))
    if not enforced & {"associations", "limits", "safe", "qos", "all"}:
        return {}
    rows, levels = ask("sacctmgr", *_RIGHTS.format(user=me).split()), ask("sacctmgr", *_QUALITIES.split())
    if problem := rows.problem or levels.problem:
        return {"problems": (f"accounts and QOS are not known: {problem}",)}
    rights, account = associations(rows.text, config.get("ClusterName", ""))
    qualities = qos_levels(levels.text)
    if not enforced & {"limits", "safe", "all"}:  # names are checked, numbers are not
        rights = tuple(right._replace(max_submit=None) for right in rights)
        qualities = dict.fromkeys(qualities)
    return {"associations": rights, "qualities": qualities, "default_account": account}


_RIGHTS = "-nP show user {user} withassoc format=DefaultAccount,Cluster,Account,Partition,MaxSubmitJobs,DefaultQOS"
_QUALITIES = "-nP show qos format=Name,MaxSubmitJobsPerUser"


def settings(text: str) -> dict[str, str]:
    """Parse `Key = value` lines of `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def partitions(shown: str, nodes: str) -> dict[str, Partition]:
    """Parse `scontrol -o show partition` and sinfo's groups of equal nodes: `partition|cores|MiB|gres`."""
    groups = [row for line in nodes.splitlines() if len(row := line.split("|")) == 4]
    found = {}
    for line in shown.splitlines():
        values = dict(re.findall(r"(\S+?)=(\S*)", line))
        if "PartitionName" not in values:
            continue
        name = values["PartitionName"]
        own = [row for row in groups if row[0] == name]
        most: Counter[str] = Counter()
        for row in own:
            most |= gpus(row[3])  # the larger count of each type
        found[name] = Partition(
            name=name,
            default=values.get("Default") == "YES",
            state=values.get("State", "UP"),
            max_time_s=seconds(values.get("MaxTime", "")),
            nodes=_number(values.get("TotalNodes")) or 0,
            cpus=max((_number(row[1]) or 0 for row in own), default=0),
            memory_mb=max((_number(row[2]) or 0 for row in own), default=0),
            gpus=dict(most),
            limiting_qos=values.get("QoS", "N/A").replace("N/A", ""),
        )
    return found


def count_queued(text: str, me: str) -> QueuedTasks:
    """Count squeue's lines `user|account|QOS|partition|state`; ended jobs that SLURM keeps count in `all` only."""
    rows = [tuple(row) for line in text.splitlines() if len(row := line.split("|")) == 5]
    mine = [row for row in rows if row[0] == me and row[4] not in ENDED]
    by_account, by_qos, by_partition = (dict(Counter(row[column] for row in mine)) for column in (1, 2, 3))
    return QueuedTasks(len(rows), by_account, by_qos, by_partition)


def associations(text: str, cluster: str) -> tuple[tuple[Association, ...], str | None]:
    """Parse the rights of a user on `cluster` and the default account from sacctmgr."""
    rows = [row for line in text.splitlines() if len(row := line.split("|")) == 6 and row[1] == cluster]
    rights = tuple(
        Association(account, partition, _number(most), default) for _, _, account, partition, most, default in rows
    )
    return rights, next((row[0] for row in rows if row[0]), None)


def qos_levels(text: str) -> dict[str, int | None]:
    """Parse the QOS from sacctmgr."""
    rows = (row for line in text.splitlines() if len(row := line.split("|")) == 2)
    return {name: _number(most) for name, most in rows}


def gpus(gres: str) -> Counter[str]:
    """Count GPUs by type in a list such as `gpu:a100:4(S:0-1),gpu:h100:2,shard:8`."""
    counts: Counter[str] = Counter()
    for kind, count in re.findall(r"(?:^|,)gpu:(?:([^:,()]+):)?(\d+)", gres):
        counts[kind] += int(count)
    return counts


def _need(program: str, *arguments: str) -> str:
    said = ask(program, *arguments)
    if said.problem:
        raise EnvironmentProblem(
            f"a cluster's limits are read before anything is submitted; {said.problem}; "
            "log in to a machine of the cluster, or wait for its controller"
        )
    return said.text


def _number(text: str | None) -> int | None:
    match = re.match(r"\d+", text.strip()) if text else None
    return int(match[0]) if match else None
