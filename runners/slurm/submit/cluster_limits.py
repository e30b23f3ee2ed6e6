"""What a cluster allows: the size of arrays, partitions, GPUs, accounts and QOS, and how many tasks may be queued.

Read anew for each submission, from one call each of scontrol (two), sinfo, squeue and, where there is accounting,
sacctmgr (two). Limits that a site keeps elsewhere are not seen: sbatch's own answer counts.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

from grid.errors import EnvironmentProblem
from runners.slurm.queue import ask, seconds, user


@final
@dataclass(frozen=True)
class Partition:
    """A queue of the cluster, and the largest of its nodes in each respect."""

    name: str
    default: bool
    state: str
    """UP; or DOWN, where jobs wait and none starts, INACTIVE and DRAIN, where none may be queued."""
    max_time_s: int | None
    """None: unlimited."""
    nodes: int
    cpus: int = 0
    memory_mb: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)
    """The most GPUs of one node, by type; "" is the type of GPUs without one."""
    limiting_qos: str = ""
    """The QOS whose limits hold for all jobs in it; empty: none."""


class QueuedTasks(NamedTuple):
    """Tasks in the queue now, of all users that this one may see."""

    all: int
    by_account: Mapping[str, int]
    """This user's."""
    by_qos: Mapping[str, int]
    """This user's."""
    by_partition: Mapping[str, int]
    """This user's."""


class Association(NamedTuple):
    """A right to use an account, of this user."""

    account: str
    partition: str
    """Empty: all partitions."""
    max_submit: int | None
    """Tasks that may wait or run at once."""
    default_qos: str


class Quality(NamedTuple):
    """A QOS."""

    name: str
    max_submit: int | None
    """Tasks of one user that may wait or run at once."""


@final
@dataclass(frozen=True)
class Limits:
    """What the cluster allows this user, at the time of asking."""

    max_array_size: int
    """Array indices are below this; 0 or 1: there are no arrays."""
    max_array_tasks: int | None
    max_jobs: int
    """Tasks of all users that the controller keeps in mind."""
    partitions: Mapping[str, Partition]
    queued: QueuedTasks
    associations: tuple[Association, ...] | None = None
    """None: there is no accounting, or it is not asked for permission."""
    qualities: Mapping[str, Quality] = field(default_factory=dict)
    default_account: str | None = None
    problems: tuple[str, ...] = ()
    """What could not be read, in words."""

    @property
    def accounts(self) -> tuple[str, ...] | None:
        """The accounts that this user may name; None where any name will do."""
        if self.associations is None:
            return None
        return tuple(dict.fromkeys(each.account for each in self.associations))

    @property
    def default_partition(self) -> Partition | None:
        """Where jobs go that name no partition."""
        return next((each for each in self.partitions.values() if each.default), None)

    @property
    def array_size(self) -> int:
        """The most tasks that one array can have; 1: arrays are off."""
        most = self.max_array_size if self.max_array_tasks is None else min(self.max_array_size, self.max_array_tasks)
        return max(most, 1)

    def asleep(self, partition: str | None) -> str | None:
        """That nothing starts in a partition, or in any of several as SLURM lists them, in a sentence."""
        default = self.default_partition
        names = partition.split(",") if partition else [default.name] if default else []
        found = [self.partitions[name] for name in names if name in self.partitions]
        if not found or any(place.state == "UP" for place in found):
            return None
        said = ", ".join(f"{place.name} is {place.state}" for place in found)
        return f"partition {said}: workers wait there until an administrator sets it UP; `sinfo` shows the others"

    def room(self, account: str | None = None, qos: str | None = None, partition: str | None = None) -> "Room":
        """How many more tasks may be queued for an account and a QOS, and which limit says so."""
        left = Room(self.max_jobs - self.queued.all, f"the cluster keeps {self.max_jobs} jobs (MaxJobCount)")
        rooms = [left, *self._personal(account or self.default_account, qos, partition)]
        least = min(rooms, key=lambda each: each.tasks)
        return Room(max(least.tasks, 0), least.because)

    def _personal(self, account: str | None, qos: str | None, partition: str | None) -> list["Room"]:
        """The one limit of this user that counts: of the partition's QOS, else of the job's, else of the account."""
        place = self.partitions.get(partition) if partition else self.default_partition
        rights = [each for each in self.associations or () if each.account == account]
        rights = [each for each in rights if each.partition in {"", place.name if place else ""}]
        named = qos or next((each.default_qos for each in rights if each.default_qos), "normal")
        mine = self.queued
        used = [(place.limiting_qos, mine.by_partition.get(place.name, 0))] if place else []
        for name, count in [*used, (named, mine.by_qos.get(named, 0))]:
            level = self.qualities.get(name)
            if level is not None and level.max_submit is not None:
                said = f"QOS {name} allows {level.max_submit} jobs of a user (MaxSubmitJobsPerUser)"
                return [Room(level.max_submit - count, said)]
        return [
            Room(
                right.max_submit - mine.by_account.get(right.account, 0),
                f"account {account} allows {right.max_submit} jobs of a user (MaxSubmitJobs)",
            )
            for right in rights
            if right.max_submit is not None
        ]


class Room(NamedTuple):
    """How many more tasks may be queued, and the limit that says so in words."""

    tasks: int
    because: str


def arrays(tasks: int, limits: Limits) -> list[int]:
    """Tasks of each of the arrays that `tasks` workers are split into, as few and as equal as the cluster takes.

    The indices of an array are 0 to its size - 1. Where arrays are off each is 1, for a job that is no array. How many
    tasks may be queued at all is `Limits.room`, and not heeded here.
    """
    count = -(-tasks // limits.array_size)
    return [tasks // count + (number < tasks % count) for number in range(count)]


def read_limits() -> Limits:
    """Ask the cluster.

    Raises:
        EnvironmentProblem: SLURM is not installed here, or its controller does not answer.
    """
    config = settings(_need("scontrol", "show", "config"))
    shown = partitions(_need("scontrol", "-o", "show", "partition"), _need("sinfo", "-h", "-o", "%R|%c|%m|%G"))
    me = user()
    listed = ask("squeue", "-r", "-h", "-o", "%u|%a|%q|%P")
    permission = _permission(config, me)
    problems = [f"what is queued is not known: {listed.problem}"] if listed.problem else []
    return Limits(
        max_array_size=_number(config.get("MaxArraySize")) or 0,
        max_array_tasks=_number(_options(config.get("SchedulerParameters", "")).get("max_array_tasks")),
        max_jobs=_number(config.get("MaxJobCount")) or 10_000,
        partitions=shown,
        queued=counted(listed.text, me),
        associations=permission.rights,
        qualities=permission.qualities,
        default_account=permission.account,
        problems=(*problems, *permission.problems),
    )


class _Permission(NamedTuple):
    rights: tuple[Association, ...] | None = None
    account: str | None = None
    qualities: Mapping[str, Quality] = {}
    problems: tuple[str, ...] = ()


def _permission(config: Mapping[str, str], me: str) -> _Permission:
    """What accounting lets this user do, as far as the cluster asks it."""
    enforced = set(config.get("AccountingStorageEnforce", "").split(","))
    if not enforced & {"associations", "limits", "safe", "qos", "all"}:
        return _Permission()
    rows, levels = ask("sacctmgr", *_RIGHTS.format(user=me).split()), ask("sacctmgr", *_QUALITIES.split())
    if problem := rows.problem or levels.problem:
        return _Permission(problems=(f"accounts and QOS are not known: {problem}",))
    rights, account = associations(rows.text, config.get("ClusterName", ""))
    qualities = qos_levels(levels.text)
    if not enforced & {"limits", "safe", "all"}:  # names are checked, numbers are not
        rights = tuple(right._replace(max_submit=None) for right in rights)
        qualities = {name: level._replace(max_submit=None) for name, level in qualities.items()}
    return _Permission(rights, account, qualities)


_RIGHTS = "-nP show user {user} withassoc format=DefaultAccount,Cluster,Account,Partition,MaxSubmitJobs,DefaultQOS"
_QUALITIES = "-nP show qos format=Name,MaxSubmitJobsPerUser"


def settings(text: str) -> dict[str, str]:
    """The lines `Key = value` of `scontrol show config`."""
    found = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in found}


def partitions(shown: str, nodes: str) -> dict[str, Partition]:
    """The partitions by name, from `scontrol -o show partition` and sinfo's groups of equal nodes."""
    groups: dict[str, list[list[str]]] = {}
    for line in nodes.splitlines():
        name, *fields = line.split("|")
        groups.setdefault(name, []).append(fields)
    found = (_partition(_fields(line), groups) for line in shown.splitlines() if line.startswith("PartitionName="))
    return {partition.name: partition for partition in found}


def counted(text: str, me: str) -> QueuedTasks:
    """Tasks in the queue, from squeue's `user|account|QOS|partition`."""
    rows = [tuple(row) for line in text.splitlines() if len(row := line.split("|")) == 4]
    mine = [row for row in rows if row[0] == me]
    by_account, by_qos, by_partition = (dict(Counter(row[column] for row in mine)) for column in (1, 2, 3))
    return QueuedTasks(len(rows), by_account, by_qos, by_partition)


def associations(text: str, cluster: str) -> tuple[tuple[Association, ...], str | None]:
    """The rights of a user on `cluster`, from sacctmgr, and the account of jobs that name none."""
    rows = [row for line in text.splitlines() if len(row := line.split("|")) == 6 and row[1] == cluster]
    found = tuple(
        Association(account, partition, _number(most), default) for _, _, account, partition, most, default in rows
    )
    return found, next((row[0] for row in rows if row[0]), None)


def qos_levels(text: str) -> dict[str, Quality]:
    """The QOS by name, from sacctmgr."""
    rows = (row for line in text.splitlines() if len(row := line.split("|")) == 2)
    return {name: Quality(name, _number(most)) for name, most in rows}


def gpus(gres: str) -> dict[str, int]:
    """GPUs of a node by type, from a list such as `gpu:a100:4(S:0-1),gpu:h100:2,shard:8`."""
    found: Counter[str] = Counter()
    for kind, count in re.findall(r"(?:^|,)gpu:(?:([^:,()]+):)?(\d+)", gres):
        found[kind] += int(count)
    return dict(found)


def _need(program: str, *arguments: str) -> str:
    said = ask(program, *arguments)
    if said.problem:
        raise EnvironmentProblem(
            f"a cluster's limits are read before anything is submitted; {said.problem}; "
            "log in to a machine of the cluster, or wait for its controller"
        )
    return said.text


def _partition(shown: Mapping[str, str], groups: Mapping[str, Sequence[Sequence[str]]]) -> Partition:
    name = shown["PartitionName"]
    nodes = [row for row in groups.get(name, ()) if len(row) == 3]
    most: dict[str, int] = {}
    for kind, count in (each for row in nodes for each in gpus(row[2]).items()):
        most[kind] = max(most.get(kind, 0), count)
    return Partition(
        name=name,
        default=shown.get("Default") == "YES",
        state=shown.get("State", "UP"),
        max_time_s=seconds(shown.get("MaxTime", "")),
        nodes=_number(shown.get("TotalNodes")) or 0,
        cpus=max((_number(row[0]) or 0 for row in nodes), default=0),
        memory_mb=max((_number(row[1]) or 0 for row in nodes), default=0),
        gpus=most,
        limiting_qos="" if shown.get("QoS", "N/A") == "N/A" else shown["QoS"],
    )


def _fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\S+?)=(\S*)", line))


def _options(text: str) -> dict[str, str]:
    return {key: value for key, _, value in (part.partition("=") for part in text.split(","))}


def _number(text: str | None) -> int | None:
    match = re.match(r"\d+", text.strip()) if text else None
    return int(match[0]) if match else None
