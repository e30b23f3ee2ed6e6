"""Job arrays through submitit: its executor writes the script and reads sbatch's answer; no pickle, no file.

The command of a task is a module and four words, so nothing has to be serialised; sbatch reads the script from stdin,
and the record of the submission keeps it.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple, final

from submitit.core.utils import FailedSubmissionError
from submitit.helpers import clean_env
from submitit.slurm.slurm import SlurmExecutor

from grid.errors import AblateError, EnvironmentProblem, SpecError
from runners.attempts.submission_record import job_name
from runners.slurm.queue import ask
from runners.slurm.spec import Resources, Slurm
from runners.slurm.submit.worker_script import setup_lines, teardown_lines
from runners.slurm.task_output import logs
from store.files.layout import Layout

_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
"""Of the environment's SLURM variables, those that say which cluster is asked, and as whom."""

_PATIENCE_S = 120.0
"""sbatch waits by itself while the controller is busy."""


class ArrayTasks(NamedTuple):
    """An array of workers of one class."""

    number: int
    """Of the class."""
    first: int
    """The worker that is task 0."""
    tasks: int
    at_once: int


@final
class Arrays(SlurmExecutor):
    """Scripts and jobs of one submission; `tree` are the shell lines that lay out its code on a node."""

    def __init__(self, layout: Layout, submission: str, slurm: Slurm, tree: Sequence[str], *, single: bool) -> None:
        folder = logs(layout, submission)
        if re.search(r"[%\\\n]", str(folder.absolute())):
            raise SpecError(f"SLURM gives % and \\ in a path a meaning of their own; choose another campaign: {folder}")
        require_commands()
        super().__init__(folder)
        self._submission = submission
        self._root = layout.root.absolute()
        self._slurm = slurm
        self._tree = tree
        self._single = single

    def script(self, task: ArrayTasks, resources: Resources) -> str:
        """What sbatch is given for an array, or for a job where arrays are off."""
        slurm = self._slurm
        self.update_parameters(
            job_name=job_name(self._submission),
            partition=resources.partition,
            account=slurm.account,
            qos=slurm.qos,
            constraint=slurm.constraint,
            exclude=slurm.exclude,
            time=resources.time,
            cpus_per_task=resources.cpus,
            gres=_gres(resources),
            signal_delay_s=slurm.signal_s,
            array_parallelism=task.at_once,
            wckey=None,
            stderr_to_stdout=True,
            setup=setup_lines(
                slurm.setup,
                self._tree,
                logs=self.folder.absolute(),
                partition=resources.partition,
                exclude=slurm.exclude,
            ),
            teardown=teardown_lines(),
            srun_args=["--open-mode=append", "--export=ALL", f"--cpus-per-task={resources.cpus}"],
            additional_parameters=_additional(slurm, resources),
        )
        self.parameters.pop("map_count", None)
        if not self._single:
            self.parameters["map_count"] = task.tasks
        words = [sys.executable, "-u", "-m", "runners.slurm.node", str(self._root), self._submission]
        text = self._make_submission_file_text(shlex.join([*words, str(task.number), str(task.first)]), "")
        return f"{text}\n"

    def test(self, script: str) -> None:
        """Ask SLURM whether it would take the script; nothing is queued.

        Raises:
            SpecError, EnvironmentProblem: it would not, or bash cannot read it.
        """
        _require_readable(script)
        try:
            sbatch(script, "--test-only")
        except Refused as refused:
            if not refused.passing:
                raise self._told(refused, script) from None

    def submit_held(self, script: str) -> int:
        """Queue the script, held; its job.

        Raises:
            SpecError, EnvironmentProblem: it was refused, and why.
        """
        try:
            answer = sbatch(script, "--hold")
        except Refused as refused:
            raise self._told(refused, script) from None
        try:
            return int(self._get_job_id_from_submission_command(answer))
        except FailedSubmissionError:
            raise EnvironmentProblem(
                f"sbatch accepted the workers and named no job; it said {answer.strip() or 'nothing'!r}; see whether "
                "the sbatch on PATH is SLURM's own"
            ) from None

    def _told(self, refused: "Refused", script: str) -> AblateError:
        """Why sbatch refused; that nodes are left out is told first where they may be those it looks for."""
        nodes = self._slurm.exclude
        if nodes is None or not re.search(_TOO_MUCH, str(refused)):
            return refused.told
        names = nodes if len(nodes) < _MOST_NAMES else f"{nodes[:_MOST_NAMES]}..."
        own = _own_words(str(refused))
        asked = re.search(r"^#SBATCH --partition=(\S+)", script, re.MULTILINE)
        if _none_left(nodes, asked and asked[1]):
            return SpecError(f"--exclude {names} leaves no node to train on; exclude fewer (sbatch: {own})")
        return SpecError(
            f"no node that --exclude {names} leaves has that many GPUs, cores or that much memory; exclude fewer, or "
            f"lower --gpus, --cpus or --mem (sbatch: {own})"
        )


def _require_readable(script: str) -> None:
    """Refuse what bash cannot read; only the lines of `setup` are not ours.

    Raises:
        SpecError: it cannot.
    """
    bash = shutil.which("bash")
    if bash is None:  # a login node need not have what nodes have
        return
    done = subprocess.run([bash, "-n"], input=script, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = " ".join(re.sub(r"^\S*bash: (line \d+: )?", "", line) for line in done.stderr.strip().splitlines())
        raise SpecError(f"the lines of setup are no shell that bash can read ({said}); mend --setup or setup=")


def _none_left(excluded: str, partition: str | None) -> bool:
    """Whether the partitions (None: the cluster's own) have no node but those excluded, as far as SLURM says."""
    where = [f"--partition={partition}"] if partition else []
    there = ask("sinfo", "--noheader", "--Node", *where, "--format=%N")
    out = ask("scontrol", "show", "hostnames", excluded)
    return there.problem is None and out.problem is None and set(there.text.split()) <= set(out.text.split())


def _gres(resources: Resources) -> str | None:
    kind = f"{resources.gpu_type}:" if resources.gpu_type else ""
    return f"gpu:{kind}{resources.gpus}" if resources.gpus else None


def _additional(slurm: Slurm, resources: Resources) -> dict[str, str | bool]:
    found: dict[str, str | bool] = {name.replace("_", "-"): value or True for name, value in slurm.extra.items()}
    if resources.mem is not None:
        found["mem"] = f"{resources.mem}M"
    return {**found, "ntasks": "1", "requeue": True, "signal": f"USR2@{slurm.signal_s}"}


def require_commands() -> None:
    """Refuse a machine without SLURM's commands.

    Raises:
        EnvironmentProblem: it is one.
    """
    missing = [name for name in ("sbatch", "srun", "squeue", "scontrol", "scancel") if shutil.which(name) is None]
    if missing:
        raise EnvironmentProblem(
            f"--on slurm runs on a login node of the cluster; {missing[0]} is not among the commands here, "
            "use --on local, or log in there (a `module load slurm` may be needed)"
        )


@final
class Refused(Exception):
    """sbatch said no; `told` says it in words, and `passing` that it may say yes later."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.told = in_words(said)
        self.passing = re.search(_PASSING, said) is not None


def sbatch(script: str, *options: str) -> str:
    """What sbatch answers to a script on its stdin, also when this process is itself part of a job.

    Raises:
        Refused: it was refused.
        EnvironmentProblem: there is no answer.
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
    except subprocess.TimeoutExpired:
        raise EnvironmentProblem(
            f"sbatch gave no answer within {_PATIENCE_S:g} s; the controller is too busy, try again later"
        ) from None
    if done.returncode != 0:
        raise Refused(done.stderr.strip() or done.stdout.strip())
    return done.stdout


_TOO_MUCH = r"[Mm]emory|CPU count|processors|node configuration is not available|configuration not available"
_MOST_NAMES = 60

_PASSING = "not available now|Required node not available|Job dependency|down, drained or reserved"

_WORDS: tuple[tuple[str, type[AblateError], str], ...] = (
    (
        r"QOSMaxSubmit|AssocMaxSubmit|AssocGrpSubmit|QOSGrpSubmit|MaxSubmitJob",
        EnvironmentProblem,
        "you have as many jobs in the queue as you may; wait, cancel some, or lower --workers",
    ),
    (r"[Ii]nvalid partition|Invalid partition name", SpecError, "there is no such partition; `sinfo -s` lists them"),
    (
        r"Invalid account|account/partition combination",
        SpecError,
        "the account is not one you may use there; `sacctmgr show assoc user=$USER` lists yours",
    ),
    (r"Invalid qos", SpecError, "the qos is not one you may use; `sacctmgr show assoc user=$USER` lists yours"),
    (
        r"[Rr]equested time limit|MaxWall|TimeLimit",
        SpecError,
        "the time limit is longer than the partition or qos allows; lower --time",
    ),
    (r"Invalid job array", SpecError, "the cluster takes no array of this size; lower --workers"),
    (r"Invalid feature", SpecError, "no node has what --constraint asks for; `sinfo -o '%N %f'` lists features"),
    (r"Invalid node name", SpecError, "--exclude names a node that does not exist; `sinfo -N` lists them"),
    (
        r"generic resource|[Gg][Rr][Ee][Ss]|TRES",
        SpecError,
        "no node has such GPUs; `sinfo -o '%P %G'` lists what each partition has",
    ),
    (r"reservation", SpecError, "the reservation does not exist, or is not yours"),
    (
        _TOO_MUCH,
        SpecError,
        "no node of the partition has that many GPUs, cores or that much memory; lower --gpus, --cpus or --mem",
    ),
    (r"QOS|[Aa]ssoc", EnvironmentProblem, "the account or qos does not allow so much; lower what is asked for"),
    (
        r"[Uu]nable to contact|[Cc]onnection (refused|timed out)|timed out|controller|configuration source|"
        r"Unable to process configuration|[Tt]ransport|Zero Bytes|unable to accept job|[Mm]unge|authenticat",
        EnvironmentProblem,
        "SLURM's controller cannot be reached; try again later",
    ),
    (r"unrecognized option|invalid option", SpecError, "extra={...} names an option that sbatch does not have"),
)


def in_words(said: str) -> AblateError:
    """What sbatch said as one sentence: what it is about, and its own words; unknown ones are passed on."""
    own = _own_words(said)
    for pattern, kind, words in _WORDS:
        if re.search(pattern, said):
            return kind(f"{words} (sbatch: {own})")
    return EnvironmentProblem(f"sbatch refused the workers: {own or 'it did not say why'}")


def _own_words(said: str) -> str:
    lines = " / ".join(line.strip() for line in said.splitlines() if line.strip())
    return re.sub(r"(sbatch: )?(error: )?(Batch job submission failed: |allocation failure: )?", "", lines)
