"""Batch scripts and job arrays: submitit writes the scripts, sbatch reads them from stdin.

The record of the submission keeps the scripts.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, final

from submitit.helpers import clean_env
from submitit.slurm.slurm import SlurmExecutor

from ablate.grid.errors import AblateError, EnvironmentProblem, SpecError
from ablate.runners.attempts.submission_record import Array, job_name
from ablate.runners.attempts.worker_logs import logs
from ablate.runners.backends.slurm.scheduler import ask
from ablate.runners.backends.slurm.spec import Resources, Slurm
from ablate.store.files.layout import Layout

MOST_DEATHS = 10
"""A task is not queued again after so many deaths and refusals since its worker last left in good order.

Restarts by SLURM itself do not count.
"""

MOST_REFUSALS = 3
"""Nodes that may refuse a worker; each is excluded."""

TEARDOWN = ["exit $?"]
"""Lines after the worker; submitit's comment before them keeps the worker's status."""

_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
"""SLURM variables of the environment that choose the cluster and the user."""

_PATIENCE_S = 120.0
"""Time limit of sbatch; it waits by itself while the controller is busy."""


class Room(NamedTuple):
    """How many tasks the queue takes, and in sbatch's words why no more."""

    tasks: int
    because: str


@final
class Arrays(SlurmExecutor):
    """Writes and submits the scripts of a submission; `tree` are the shell lines that extract its code on a node."""

    def __init__(self, layout: Layout, submission: str, slurm: Slurm, tree: Sequence[str], *, single: bool) -> None:
        folder = logs(layout, submission)
        if re.search(r"[%\\\n]", str(folder.absolute())):
            raise SpecError(
                f"the path {folder} has % or \\ or a line break, which mean something to SLURM; choose another campaign"
            )
        super().__init__(folder)
        self._submission = submission
        self._root = layout.root.absolute()
        self._slurm, self._tree, self._single = slurm, tree, single

    @classmethod
    def affinity(cls) -> int:
        """Let submitit write scripts also on a machine without SLURM."""
        return 1

    def script(self, number: int, array: Array, at_once: int, resources: Resources) -> str:
        """Return the script of an array of class `number`, or of a job if the cluster has no arrays."""
        slurm = self._slurm
        self.update_parameters(
            job_name=job_name(self._submission, slurm.option("job-name")),
            partition=resources.partition,
            account=slurm.account,
            qos=slurm.qos,
            constraint=slurm.constraint,
            exclude=slurm.exclude,
            time=resources.time,
            cpus_per_task=resources.cpus,
            signal_delay_s=slurm.signal_s,
            array_parallelism=at_once,
            wckey=None,
            stderr_to_stdout=True,
            setup=setup_lines(
                slurm.setup,
                _tree_on_nodes(self._tree, slurm, resources.nodes),
                logs=self.folder.absolute(),
                partition=resources.partition,
                exclude=slurm.exclude,
            ),
            teardown=TEARDOWN,
            nodes=resources.nodes,
            srun_args=[
                "--open-mode=append",
                "--export=ALL",
                f"--cpus-per-task={resources.cpus}",
                *(["--nodes=1", "--ntasks=1", "--relative=0"] if resources.nodes > 1 else ()),
            ],
            additional_parameters=_additional(slurm, resources),
        )
        self.parameters.pop("map_count", None)
        if not self._single:
            self.parameters["map_count"] = array.tasks
        words = [
            *_interpreter(slurm),
            "-u",
            "-m",
            "ablate.runners.backends.slurm.node",
            str(self._root),
            self._submission,
        ]
        text = self._make_submission_file_text(shlex.join([*words, str(number), str(array.first)]), "")
        return f"{text}\n"

    def room(self, script: str, tasks: int) -> "Room":
        """Ask sbatch, without queueing, how many of `tasks` tasks of the script it takes; a full queue takes fewer.

        Raises SpecError or EnvironmentProblem if bash cannot read the script, or sbatch refuses it for another reason.
        """
        _require_readable(script)
        taken, refused, size, because = 0, tasks + 1, tasks, ""
        while refused - taken > 1:
            said = self._refusal(script, size)
            if said is None:
                taken = size
            else:
                refused, because = size, said
            size = (taken + refused) // 2
        return Room(taken, because)

    def _refusal(self, script: str, tasks: int) -> str | None:
        """Return in sbatch's words why the queue takes less than `tasks` tasks; None if it takes them."""
        try:
            sbatch(script, "--test-only", *([] if self._single else [f"--array=0-{tasks - 1}"]))
        except Refused as refused:
            if re.search(_NO_ROOM, str(refused)):
                return _own_words(str(refused))
            if not re.search(_PASSING, str(refused)):
                raise self._explain(str(refused), script) from None
        return None

    def queue(self, script: str) -> int:
        """Queue the script; return the job. Raises SpecError or EnvironmentProblem if sbatch refuses it."""
        try:
            answer = sbatch(script)
        except Refused as refused:
            raise self._explain(str(refused), script) from None
        named = re.search(r"^Submitted batch job (\d+)", answer, re.MULTILINE)  # a banner may come before it
        if named is None:
            raise EnvironmentProblem(
                f"sbatch accepted the workers and named no job; it said {answer.strip() or 'nothing'!r}; see whether "
                "the sbatch on PATH is SLURM's own"
            )
        return int(named[1])

    def _explain(self, said: str, script: str) -> AblateError:
        """Return why sbatch refused; excluded nodes may be the reason."""
        excluded = self._slurm.exclude
        if excluded is None or not re.search(_TOO_MUCH, said):
            return in_words(said)
        own = _own_words(said)
        partition = re.findall(r"^#SBATCH (--partition=\S+)", script, re.MULTILINE)
        nodes = ask("sinfo", "--noheader", "--Node", *partition, "--format=%N")
        without = ask("scontrol", "show", "hostnames", excluded)
        known = nodes.problem is None and without.problem is None
        if known and set(nodes.text.split()) <= set(without.text.split()):
            return SpecError(f"--exclude {excluded} leaves no node to train on; exclude fewer (sbatch: {own})")
        return SpecError(
            f"no node that --exclude {excluded} leaves has that many GPUs, cores or that much memory; exclude fewer, "
            f"or lower --gpus, --cpus or --mem (sbatch: {own})"
        )


def setup_lines(
    user: Sequence[str], tree: Sequence[str], *, logs: Path, partition: str | None, exclude: str | None
) -> list[str]:
    """Return the lines before the worker; `tree` extracts the code and `logs` holds the file of deaths.

    `partition` is the request (None: the cluster's default). `exclude` lists the nodes that the user excludes.
    """
    values = {
        "ablate_logs": str(logs),
        "ablate_most_deaths": str(MOST_DEATHS),
        "ablate_most_refusals": str(MOST_REFUSALS),
        "ablate_excluded": exclude or "",
    }
    first = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    first.append(f"ablate_partitions={shlex.quote(partition) if partition else '$SLURM_JOB_PARTITION'}")
    shell = (files(__package__) / "worker.sh").read_text(encoding="utf-8").splitlines()
    return [*first, *shell, *user, "trap - ERR", *tree, "ablate_began=yes"]


def _require_readable(script: str) -> None:
    """Refuse a script that bash cannot parse; the reason is in the user's `setup`."""
    if shutil.which("bash") is None:  # a login node need not have what nodes have
        return
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = " ".join(re.sub(r"^\S*bash: (line \d+: )?", "", line) for line in done.stderr.strip().splitlines())
        raise SpecError(f"the lines of setup are no shell that bash can read ({said}); correct --setup or setup=")


def _interpreter(slurm: Slurm) -> list[str]:
    """Return the command that starts Python on nodes.

    A user's command may run Python as its child, and SLURM signals both. The command must survive what Python handles.
    """
    return ["bash", "-c", 'trap "" TERM USR2; exec "$@"', "python", *slurm.python] if slurm.python else [sys.executable]


def _tree_on_nodes(tree: Sequence[str], slurm: Slurm, nodes: int) -> list[str]:
    """Return the lines that extract the code; on several nodes, they also say how ranks start on the other ones."""
    if nodes == 1:
        return list(tree)
    names = {"ABLATE_NODES": str(nodes), "ABLATE_PYTHON": shlex.join(_interpreter(slurm))}
    exports = [f"export {name}={shlex.quote(value)}" for name, value in names.items()]
    extract = ["srun", f"--nodes={nodes}", "--ntasks-per-node=1", "--export=ALL", "bash", "-c", "\n".join(tree)]
    return [*exports, f"{shlex.join(extract)} || exit $?", *tree] if tree else exports


def _additional(slurm: Slurm, resources: Resources) -> dict[str, str | bool]:
    options: dict[str, str | bool] = {name.replace("_", "-"): value or True for name, value in slurm.extra.items()}
    options.pop("job-name", None)
    if resources.gpus:
        kind = f"{resources.gpu_type}:" if resources.gpu_type else ""
        options[slurm.gpu_option] = f"{'gpu:' if slurm.gpu_option == 'gres' else ''}{kind}{resources.gpus}"
    if resources.mem is not None:
        options["mem"] = f"{resources.mem}M"
    return {**options, "ntasks": str(resources.nodes), "requeue": True, "signal": f"USR2@{slurm.signal_s}"}


def require_commands() -> None:
    """Raise EnvironmentProblem on a machine without SLURM's commands."""
    missing = [name for name in ("sbatch", "srun", "squeue", "scontrol", "scancel") if shutil.which(name) is None]
    if missing:
        raise EnvironmentProblem(
            f"{missing[0]} is not among the commands here, and --on slurm runs on a login node of the cluster; use "
            "--on local, or log in there (a `module load slurm` may be needed); --dry-run works without"
        )


@final
class Refused(Exception):
    """sbatch refused a script, in these words."""


def sbatch(script: str, *options: str) -> str:
    """Run sbatch on a script and return its answer; works within a job, too.

    Raises:
        Refused: sbatch refused the script.
        EnvironmentProblem: sbatch gave no answer.
    """
    with clean_env():
        environment = dict(os.environ)
    environment |= {name: os.environ[name] for name in _KEPT if name in os.environ}
    try:
        done = subprocess.run(
            ["sbatch", *options],
            input=script,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except FileNotFoundError:
        require_commands()
        raise
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace")
        full = " or keeps as many jobs as MaxJobCount allows, where finished ones count for some minutes"
        raise EnvironmentProblem(
            f"sbatch gave no answer within {_PATIENCE_S:g} s; the controller is too busy"
            f"{full if 'unable to accept job' in said else ''}; try again later"
            f"{f' (sbatch: {_own_words(said)})' if said else ''}"
        ) from None
    if done.returncode != 0:
        raise Refused(done.stderr.strip() or done.stdout.strip())
    return done.stdout


_TOO_MUCH = r"[Mm]emory|CPU count|processors|node configuration is not available|configuration not available"

_NO_ROOM = "MaxSubmit|GrpSubmit|Resource temporarily unavailable"
"""The last is MaxJobCount, of which ended jobs count for some minutes."""

_PASSING = "not available now|Required node not available|Job dependency|down, drained or reserved"

_NO_CONTACT = (
    r"[Uu]nable to contact|[Cc]onnection (refused|timed out)|timed out|controller|configuration source|"
    r"Unable to process configuration|[Tt]ransport|Zero Bytes|unable to accept job|[Mm]unge|authenticat"
)
_ASSOCIATIONS = "`sacctmgr show assoc user=$USER` lists yours"
_WORDS: tuple[tuple[str, type[AblateError], str], ...] = (
    (_NO_ROOM, EnvironmentProblem,
     "you have as many jobs in the queue as you may; wait, cancel some, or lower --workers"),
    (r"[Ii]nvalid partition|No partition specified", SpecError, "there is no such partition; `sinfo -s` lists them"),
    (r"Invalid account|account/partition combination", SpecError,
     f"the account is not one you may use there; {_ASSOCIATIONS}"),
    (r"Invalid qos", SpecError, f"the qos is not one you may use; {_ASSOCIATIONS}"),
    (r"[Rr]equested time limit|MaxWall|TimeLimit", SpecError,
     "the time limit is longer than the partition or qos allows; lower --time"),
    (r"Invalid job array", SpecError, "the cluster takes no array of this size; lower --workers"),
    (r"Invalid feature", SpecError, "no node has what --constraint asks for; `sinfo -o '%N %f'` lists features"),
    (r"Invalid node name", SpecError, "--exclude names a node that does not exist; `sinfo -N` lists them"),
    (r"generic resource|[Gg][Rr][Ee][Ss]|TRES", SpecError,
     "no node has such GPUs; `sinfo -o '%P %G'` lists what each partition has"),
    (r"reservation", SpecError, "the reservation does not exist, or is not yours"),
    (_TOO_MUCH, SpecError,
     "no node of the partition has that many GPUs, cores or that much memory; lower --gpus, --cpus or --mem"),
    (r"QOS|[Aa]ssoc", EnvironmentProblem, "the account or qos does not allow so much; lower what is asked for"),
    (_NO_CONTACT, EnvironmentProblem, "SLURM's controller cannot be reached; try again later"),
    (r"unrecognized option|invalid option", SpecError, "extra={...} names an option that sbatch does not have"),
)  # fmt: skip
"""Patterns of sbatch's messages, kinds of errors, and explanations; the first match counts."""


def in_words(said: str) -> AblateError:
    """Return sbatch's message as an error: an explanation and its own words."""
    own = _own_words(said)
    for pattern, kind, words in _WORDS:
        if re.search(pattern, said):
            return kind(f"{words} (sbatch: {own})")
    return EnvironmentProblem(f"sbatch refused the workers: {own or 'it did not say why'}")


def _own_words(said: str) -> str:
    lines = " / ".join(line.strip() for line in said.splitlines() if line.strip())
    return re.sub(r"(sbatch: )?(error: )?(Batch job submission failed: |allocation failure: )?", "", lines)
