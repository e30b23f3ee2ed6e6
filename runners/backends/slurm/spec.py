"""Requests to a SLURM cluster: `Slurm`, written in a spec file next to the grids.

slurm = Slurm(partition="gpu", time="8h", gpus=1, per_gpu=4, workers=32, setup=("module load cuda/12.8",))
"""

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from ablate.grid.errors import SpecError
from ablate.grid.frozen import FROZEN
from ablate.grid.spec import Spec, field_names
from ablate.runners.provenance.code import spec_module_name

_TIME = re.compile(r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?")
_CLOCK = re.compile(r"(?:(?P<d>\d+)-)?(?P<h>\d+):(?P<m>\d\d):(?P<s>\d\d)")
_MEMORY = re.compile(r"(?P<count>\d+)(?P<unit>[MGT])B?")
_BUDGET = re.compile(r"\s*(?P<hours>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>gpu|cpu)-?h\s*", re.IGNORECASE)
_MEBIBYTES = {"M": 1, "G": 1024, "T": 1024 * 1024}

_FORBIDDEN = frozenset({
    "account", "array", "constraint", "cpus-per-task", "error", "exclude", "gpus", "gpus-per-node", "gres", "mem",
    "nodes", "ntasks", "open-mode", "output", "partition", "qos", "requeue", "signal", "time",
    "chdir", "clusters", "cpus-per-gpu", "export-file", "get-user-env", "gid", "gpus-per-socket",
    "gpus-per-task", "help", "hold", "ignore-pbs", "input", "mem-per-gpu", "no-requeue",
    "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "parsable", "quiet", "test-only",
    "tres-per-task", "uid", "usage", "version", "wait", "wrap",
})  # fmt: skip
"""Options of sbatch that `Slurm` has fields for, that every script has, or that would break submission or workers."""

_ALLOWED = ("comment", "export", "job-name", "mem-per-cpu")
"""Options that `extra` may have by their full names, though the group above has longer ones."""


def minutes(text: str) -> int:
    """Convert `90m`, `8h`, `1d12h`, or SLURM's form `08:00:00`, `1-12:00:00` to minutes; else raise ValueError."""
    match = _TIME.fullmatch(text) or _CLOCK.fullmatch(text)
    parts = {name: int(value) for name, value in match.groupdict().items() if value} if match else {}
    total = parts.get("d", 0) * 1440 + parts.get("h", 0) * 60 + parts.get("m", 0) + (parts.get("s", 0) > 0)
    if total <= 0:
        raise ValueError(f"{text!r} is no time limit; write 90m, 8h, 1d12h or 08:00:00")
    return total


def mebibytes(text: str) -> int:
    """Convert memory such as `500M`, `16G`, `16GB`, `1T` to MiB; else raise ValueError."""
    match = _MEMORY.fullmatch(text)
    if match is None or int(match["count"]) == 0:
        raise ValueError(f"{text!r} is no memory; write 500M, 16G or 1T")
    return int(match["count"]) * _MEBIBYTES[match["unit"]]


def read_budget(text: str) -> dict[str, Any]:
    """Parse a budget, such as `200gpuh` or `40 cpuh`, to hours and unit; raise SpecError if it is none."""
    match = _BUDGET.fullmatch(text)
    if match is None or float(match["hours"]) == 0:
        raise SpecError(
            f"the budget {text!r} is no number of hours above 0 and their unit; write such as 200gpuh or 40cpuh"
        )
    return {"hours": float(match["hours"]), "unit": f"{match['unit'].lower()}h"}


def _check_word(text: str) -> str:
    if not re.fullmatch(r"[^\s'\"]+", text):
        raise ValueError(f"{text!r} is no name for SLURM; write one word without quotes")
    return text


_REMOVED = {
    "auto": "per_gpu='auto' was removed; say a number of trials, such as per_gpu=4",
    "bigger": "oom='bigger' was removed; ask for more mem, a lower per_gpu or a larger gpu_type, and `ablate retry`",
}
"""Values of earlier releases, and what to write instead."""


def _refuse_removed(value: object) -> object:
    if isinstance(value, str) and value in _REMOVED:
        raise ValueError(_REMOVED[value])
    return value


def without_removed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record without values of earlier releases, for which defaults then stand."""
    return {name: value for name, value in fields.items() if not isinstance(value, str) or value not in _REMOVED}


PerGpu = Annotated[PositiveInt, BeforeValidator(_refuse_removed)]
Time = Annotated[str, AfterValidator(lambda text: minutes(text) and text)]
Memory = Annotated[str, AfterValidator(lambda text: mebibytes(text) and text)]
Word = Annotated[str, AfterValidator(_check_word)]
Line = Annotated[str, Field(pattern=r"\A[^\n\r]*\z")]
Words = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: shlex.split(value) if isinstance(value, str) else value)
]


class WorkerFields(Spec):
    """Fields of `Slurm` that may differ between trials; None: not set."""

    model_config = ConfigDict(use_attribute_docstrings=True)  # the help of the command's options

    partition: Word | None = None
    """Default the cluster's own. SLURM takes the first of gpu,old that has room."""
    time: Time | None = None
    """Time limit of a worker: 90m, 8h, 1d12h.

    A worker that reaches it saves, is queued again and goes on.
    """
    gpus: NonNegativeInt | None = None
    """Per worker and node; 0 trains on the CPU."""
    nodes: PositiveInt | None = None
    """Nodes of a worker, which share each trial.

    `execution.gpus` counts the GPUs of all of them.
    """
    gpu_type: Word | None = None
    """Such as h100."""
    cpus: PositiveInt | None = None
    """Per worker; default one per trial and one more."""
    mem: Memory | None = None
    """Per worker: 16G. Default the cluster's own.

    Its administrators fit it to its nodes.
    """
    per_gpu: PerGpu | None = None
    """Trials side by side on one GPU (without GPUs: in one worker)."""


@final
class Needs(WorkerFields):
    """Fields of the request for the trials that match `where`; they also take precedence over command-line flags."""

    where: Annotated[Mapping[str, Any], FROZEN]
    """Dotted paths of the trial and their values."""

    @model_validator(mode="after")
    def _require_where(self) -> Self:
        if not self.where:
            raise ValueError(
                "where is empty, and Needs are of some trials; write such as where={'model.width': 1024}, or say it in "
                "Slurm for all"
            )
        return self


@final
class Slurm(WorkerFields):
    """A request for arrays of workers, one per resource class; each worker trains trials until its time limit."""

    account: Word | None = None
    """Account that is charged."""
    qos: Word | None = None
    """Quality of service."""
    constraint: Word | None = None
    """Features that nodes must have."""
    exclude: Word | None = None
    """Nodes that get no worker, as SLURM writes node lists."""
    time: Time = "4h"
    gpus: NonNegativeInt = 1
    nodes: PositiveInt = 1
    workers: PositiveInt | None = None
    """Array tasks in total; None: as many as the estimated work fills to half their time limit."""
    per_gpu: PerGpu = 1
    max_parallel: PositiveInt | None = None
    """Workers that run at the same time; default as many as the cluster allows.

    The arrays of a submission share it by their sizes, at least one each. An array that ends passes its share to no
    other.
    """
    setup: tuple[str, ...] = ()
    """Shell lines before Python starts; each option is a line."""
    python: Words = ()
    """Command that starts Python on nodes: "apptainer exec --nv image.sif python"; (): the Python that submits."""
    gpu_option: Literal["gres", "gpus-per-node", "gpus"] = "gres"
    """Option of sbatch that asks for GPUs."""
    signal_s: Annotated[int, Field(ge=1, le=65535)] = 120
    """Seconds before the time limit at which workers save and leave."""
    heartbeat_s: PositiveFloat = 15.0
    """Seconds between heartbeats of an attempt; after six without one, others take over the trial."""
    oom: Annotated[Literal["fail", "halve"], BeforeValidator(_refuse_removed)] = "fail"
    """A trial out of memory has failed; "halve": it continues with half the micro-batch."""
    extra: Annotated[Mapping[Word, Line], FROZEN] = {}
    """Further options of sbatch, by their long names: {"reservation": "course"}.

    The names of jobs begin with "job-name", or with "ablate".
    """
    needs: tuple[Needs, ...] = ()
    """Exceptions for some trials; the first whose `where` matches counts."""

    @model_validator(mode="after")
    def _require_consistent(self) -> Self:
        rules = (
            (
                minutes(self.time) * 60 <= self.signal_s,
                f"workers save {self.signal_s} s before the time limit, and that is {minutes(self.time)} min; raise "
                "time or lower signal_s",
            ),
            (
                self.gpu_type is not None and self.gpus == 0,
                f"gpu_type={self.gpu_type!r} asks for GPUs and gpus=0 for none; leave one of them out",
            ),
            (
                self.nodes > 1 and self.per_gpu != 1,
                f"nodes={self.nodes} gives one trial all nodes of a worker, and per_gpu={self.per_gpu} packs several "
                "into it; leave one of them out",
            ),
            (
                self.nodes > 1 and self.gpu_option == "gpus",
                f"gpus counts the GPUs of each of nodes={self.nodes}, and sbatch's --gpus those of all; say "
                "gpu_option='gpus-per-node'",
            ),
            (
                self.mem is not None and self.option("mem-per-cpu") is not None,
                f"mem={self.mem!r} and extra's mem-per-cpu both ask for memory; leave one of them out",
            ),
        )
        for is_broken, sentence in rules:
            if is_broken:
                raise ValueError(sentence)
        for name in self.extra:
            _require_extra(name)
        for needs in self.needs:
            try:
                self.with_needs(needs)
            except SpecError as error:
                raise ValueError(str(error)) from error
        return self

    def option(self, name: str) -> str | None:
        """Return the value of an option in `extra`; None if it is not there."""
        return next((value for key, value in self.extra.items() if key.replace("_", "-") == name), None)

    def with_needs(self, needs: Needs) -> "Slurm":
        own = {name: getattr(needs, name) for name in field_names(WorkerFields)}
        return self.override(needs=(), **{name: value for name, value in own.items() if value is not None})

    def override(self, **fields: Any) -> "Slurm":
        """Return the request with `fields` replaced; gpus=0 also removes the GPU type."""
        if fields.get("gpus") == 0:
            fields.setdefault("gpu_type", None)
        return self.changed(**fields)


def recorded_request(data: Mapping[str, Any]) -> Slurm:
    """Read the request in the record of a submission, also of an earlier release. Raises ValidationError."""
    needs = [without_removed(each) for each in data.get("needs", ())]
    return Slurm.model_validate({**without_removed(data), "needs": needs})


def _require_extra(name: str) -> None:
    """Refuse an option that `extra` must not have; sbatch accepts shortened options."""
    start = name.replace("_", "-")
    if start not in _ALLOWED and any(option.startswith(start) for option in (*_FORBIDDEN, *_ALLOWED)):
        raise ValueError(
            f"extra cannot have {name!r}: Slurm has a field for it, every script has it, workers would not work with "
            "it, or its name is shortened"
        )


def cluster_of(path: Path | str) -> Slurm | None:
    """Return the `Slurm` that the loaded spec file defines; None if it defines none.

    Raises SpecError if it defines two different ones.
    """
    requests: dict[str, Slurm] = {}
    for variable, value in vars(sys.modules[spec_module_name(path)]).items():
        if isinstance(value, Slurm) and not variable.startswith("_") and value not in requests.values():
            requests[variable] = value
    if len(requests) > 1:
        raise SpecError(
            f"{path}: {', '.join(requests)} are several Slurm, and a spec file has at most one; begin the names of the "
            "others with _"
        )
    return next(iter(requests.values()), None)


@final
@dataclass(frozen=True)
class Resources:
    """Resources of one worker."""

    partition: str | None
    """One, or several as SLURM lists them: `gpu,old`."""
    time: int
    """Minutes."""
    gpus: int
    gpu_type: str | None
    cpus: int
    mem: int | None
    """MiB; None: the cluster's default."""
    per_gpu: int = 1
    per_trial: int = 1
    """GPUs of one trial; without GPUs, its processes."""
    nodes: int = 1
    """Nodes of a trial; the amounts above are those of each."""

    @property
    def per_node(self) -> int:
        """GPUs or processes of one trial on each node."""
        return self.per_trial // self.nodes

    @property
    def slots(self) -> int:
        """Trials side by side in a worker."""
        return max(1, self.gpus // self.per_node) * self.per_gpu if self.gpus else self.per_gpu
