"""What is asked of a SLURM cluster: a spec that people keep in a file, next to their grids.

slurm = Slurm(partition="gpu", time="8h", gpus=1, per_gpu=4, workers=32, setup=("module load cuda/12.8",))
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, final

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from grid.errors import SpecError
from grid.frozen import FROZEN
from grid.spec import Spec
from runners.provenance.specfile import spec_module_name

_TIME = re.compile(r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?")
_CLOCK = re.compile(r"(?:(?P<d>\d+)-)?(?P<h>\d+):(?P<m>\d\d):(?P<s>\d\d)")
_MEMORY = re.compile(r"(?P<count>\d+)(?P<unit>[MGT])B?")
_WORD = re.compile(r"[^\s'\"]+")
_MEGABYTES = {"M": 1, "G": 1024, "T": 1024 * 1024}
_OURS = frozenset({
    "account", "array", "comment", "constraint", "cpus-per-task", "error", "exclude", "gpus", "gpus-per-node", "gres",
    "job-name", "mem", "nodes", "ntasks", "open-mode", "output", "partition", "qos", "requeue", "signal", "time",
})  # fmt: skip
"""Options of sbatch that `Slurm` has fields for, or that every script has."""

_DEFEATING = {
    "chdir": "workers start in the directory of the submission",
    "clusters": "one cluster is asked and followed; SLURM_CLUSTERS chooses it",
    "cpus-per-gpu": "cores are cpus=",
    "export": "workers need the environment of the submission",
    "export-file": "workers need the environment of the submission",
    "get-user-env": "workers need the environment of the submission",
    "gid": "workers write as the user who submits",
    "gpus-per-socket": "GPUs are gpus=",
    "gpus-per-task": "GPUs are gpus=",
    "help": "nothing would be queued",
    "hold": "jobs are held until all are known, and released then",
    "ignore-pbs": "the script has no such lines",
    "input": "workers read nothing",
    "mem-per-cpu": "memory is mem=",
    "mem-per-gpu": "memory is mem=",
    "no-requeue": "workers are queued again when their time is over",
    "ntasks-per-core": "a job is one worker",
    "ntasks-per-gpu": "a job is one worker",
    "ntasks-per-node": "a job is one worker",
    "ntasks-per-socket": "a job is one worker",
    "parsable": "the answer of sbatch is read",
    "quiet": "the answer of sbatch is read",
    "test-only": "nothing would be queued",
    "tres-per-task": "GPUs are gpus=, cores cpus=",
    "uid": "workers write as the user who submits",
    "usage": "nothing would be queued",
    "version": "nothing would be queued",
    "wait": "--wait of ablate follows",
    "wrap": "the script is the harness's",
}
"""Options of sbatch with which workers would not work as the rest of the harness expects, and why."""


def minutes(text: str) -> int:
    """A time limit in minutes: `90m`, `8h`, `1d12h`, or as SLURM writes it: `08:00:00`, `1-12:00:00`.

    Raises:
        ValueError: it is none of these, or nothing.
    """
    found = _TIME.fullmatch(text) or _CLOCK.fullmatch(text)
    parts = {name: int(value) for name, value in found.groupdict().items() if value} if found else {}
    total = parts.get("d", 0) * 1440 + parts.get("h", 0) * 60 + parts.get("m", 0) + (parts.get("s", 0) > 0)
    if total <= 0:
        raise ValueError(f"a time limit is written 90m, 8h, 1d12h or 08:00:00; got {text!r}")
    return total


def megabytes(text: str) -> int:
    """Memory in MiB: `500M`, `16G`, `16GB`, `1T`.

    Raises:
        ValueError: it is not written so.
    """
    found = _MEMORY.fullmatch(text)
    if found is None or int(found["count"]) == 0:
        raise ValueError(f"memory is written 500M, 16G or 1T; got {text!r}")
    return int(found["count"]) * _MEGABYTES[found["unit"]]


def _checked_time(text: str) -> str:
    minutes(text)
    return text


def _checked_memory(text: str) -> str:
    megabytes(text)
    return text


Time = Annotated[str, AfterValidator(_checked_time)]
Memory = Annotated[str, AfterValidator(_checked_memory)]


def _checked_word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise ValueError(f"SLURM's names are one word without quotes; got {text!r}")
    return text


Word = Annotated[str, AfterValidator(_checked_word)]
"""One word, as SLURM's names are."""
Line = Annotated[str, Field(pattern=r"\A[^\n\r]*\z")]


@final
class Needs(Spec):
    """What trials need that are like `where`: dotted paths of the trial and the values they have there.

    Given fields replace those of the `Slurm` spec, also those that options of the command line have replaced there.
    """

    where: Annotated[Mapping[str, Any], FROZEN]
    partition: Word | None = None
    time: Time | None = None
    gpus: NonNegativeInt | None = None
    gpu_type: Word | None = None
    cpus: PositiveInt | None = None
    mem: Memory | None = None
    per_gpu: PositiveInt | Literal["auto"] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.where:
            raise ValueError("Needs are of some trials: where={'model.width': 1024}; for all trials say it in Slurm")
        return self


@final
class Slurm(Spec):
    """One array of workers per resource class; a worker trains one trial after another until its time is over."""

    partition: Word | None = None
    """None: the cluster's default. Of several, `gpu,old`, SLURM takes the first that has room; one must do."""
    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    exclude: Word | None = None
    """Nodes that no worker is sent to, as SLURM writes node lists."""
    time: Time = "4h"
    """Time limit of a worker; one that reaches it saves, is queued again and goes on."""
    gpus: NonNegativeInt = 1
    """Per worker; 0 trains on the CPU."""
    gpu_type: Word | None = None
    cpus: PositiveInt | None = None
    """Per worker; None: one per trial and one more."""
    mem: Memory | None = None
    """Per worker; None: what the cluster gives."""
    workers: PositiveInt | None = None
    """Array tasks in all; None: as many as the estimated work fills to half their time limit."""
    per_gpu: PositiveInt | Literal["auto"] = 1
    """Trials side by side on one GPU (without GPUs: in one worker).

    "auto": as many as fit, by the memory that the first one needs.
    """
    max_parallel: PositiveInt | None = None
    """Workers that run at the same time; None: as many as the cluster allows.

    The arrays of a submission (one per class of trials, more where the cluster takes no large ones) share it by their
    sizes once, and each has one at least; the share of an array that has ended goes to no other.
    """
    setup: tuple[str, ...] = ()
    """Shell lines before Python starts: modules, environment variables."""
    signal_s: Annotated[int, Field(ge=1, le=65535)] = 120
    """Seconds before the time limit at which workers save and leave."""
    heartbeat_s: PositiveFloat = 15.0
    """Seconds between signs of life of an attempt; after six without one, others take the trial over."""
    oom: Literal["fail", "halve", "bigger"] = "fail"
    """A trial out of memory has failed; "halve": goes on with half the micro-batch; "bigger": when it is tried again it
    is given twice the `mem`, or twice the share of a GPU by fewer trials side by side."""
    extra: Annotated[Mapping[Word, Line], FROZEN] = {}
    """Further options of sbatch, by their long names: {"reservation": "course"}."""
    needs: tuple[Needs, ...] = ()
    """Trials that need something else; the first whose `where` fits counts."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for needs in (None, *self.needs):
            limit = minutes((needs and needs.time) or self.time)
            if limit * 60 <= self.signal_s:
                raise ValueError(
                    f"workers save {self.signal_s} s before the time limit, and that is {limit} min; raise time or "
                    "lower signal_s"
                )
        for name in self.extra:
            _require_extra(name)
        for needs in (None, *self.needs):
            gpus = self.gpus if needs is None or needs.gpus is None else needs.gpus
            kind = self.gpu_type if needs is None else needs.gpu_type
            if kind is not None and gpus == 0:
                raise ValueError(f"gpu_type={kind!r} asks for GPUs and gpus=0 for none; leave one of them out")
        return self


def _require_extra(name: str) -> None:
    """Refuse an option that is not for `extra`, also when it is shortened, as sbatch lets people do.

    Raises:
        ValueError: it is one.
    """
    beginning = name.replace("_", "-")
    if beginning not in _DEFEATING and any(option.startswith(beginning) for option in _OURS):
        raise ValueError(f"extra is for what Slurm has no field for; {name!r} has one, or is set by the harness")
    option = next((option for option in sorted(_DEFEATING) if option.startswith(beginning)), None)
    if option is not None:
        raise ValueError(f"extra cannot have {name!r}: {_DEFEATING[option]}")


def cluster_of(path: Path | str) -> Slurm | None:
    """Return the `Slurm` that the loaded spec file defines; None if it defines none.

    Raises:
        SpecError: it defines two different ones.
    """
    found: dict[str, Slurm] = {}
    for variable, value in vars(sys.modules[spec_module_name(path)]).items():
        if isinstance(value, Slurm) and not variable.startswith("_") and all(value != each for each in found.values()):
            found[variable] = value
    if len(found) > 1:
        raise SpecError(
            f"{path}: a spec file has at most one Slurm, and this has {', '.join(found)}; "
            "begin the names of the others with _"
        )
    return next(iter(found.values()), None)
