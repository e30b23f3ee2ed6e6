"""What one worker of a resource class is given, and what more means after a trial ran out of memory."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, final

from grid.errors import SpecError

PerGpu = int | Literal["auto"]

_ON_A_GPU = re.compile(r"\b(CUDA|HIP)\b")


@final
@dataclass(frozen=True)
class Resources:
    """What one worker is given."""

    partition: str | None
    """One, or several as SLURM lists them: `gpu,old`."""
    time: int
    """Minutes."""
    gpus: int
    gpu_type: str | None
    cpus: int
    mem: int | None
    """MiB; None: what the cluster gives."""
    per_gpu: PerGpu
    per_trial: int = 1
    """GPUs of one trial; without GPUs, its processes."""

    @property
    def slots(self) -> int:
        """Trials side by side in a worker; the least there will be, where it is found out there."""
        side_by_side = 1 if self.per_gpu == "auto" else self.per_gpu
        return max(1, self.gpus // self.per_trial) * side_by_side if self.gpus else side_by_side

    def data(self) -> dict[str, Any]:
        """As it is recorded."""
        return asdict(self)


class Shortage(NamedTuple):
    """How many times the memory it had a trial is to be given: of the host, and of a GPU."""

    host: int = 1
    gpu: int = 1


def shortage(ends: Mapping[Any, Mapping[str, Any]]) -> Shortage:
    """Twice for each submission that a trial ran out of memory in; `ends` are such ends, by submission."""
    on_gpu = sum(_ON_A_GPU.search(str(end.get("message"))) is not None for end in ends.values())
    return Shortage(host=2 ** (len(ends) - on_gpu), gpu=2**on_gpu)


def roomier(resources: Resources, short: Shortage) -> Resources:
    """More for a trial that ran out of memory: `mem` multiplied, and of a GPU's memory a larger share.

    Where no `mem` is given, the host's memory is shared by fewer, too.

    Raises:
        SpecError: there is nothing to multiply or to share differently.
    """
    gpu = short.gpu if resources.gpus else 1
    fewer = max(gpu, short.host if resources.mem is None else 1)
    per_gpu = _fewer(resources.per_gpu, fewer)
    if per_gpu is None and gpu > 1:
        raise SpecError(
            f"oom='bigger' gives a trial that ran out of a GPU's memory {gpu} x its share of it, and with "
            f"per_gpu={resources.per_gpu} there is no larger one; say oom='halve', or another gpu_type without "
            "oom='bigger'"
        )
    if per_gpu is None:
        raise SpecError(
            f"oom='bigger' gives a trial that ran out of memory {fewer} x the memory of its class, and that has "
            "neither mem= to multiply nor enough trials side by side; say mem=, or oom='halve'"
        )
    mem = resources.mem * short.host if resources.mem is not None else None
    return replace(resources, mem=mem, per_gpu=per_gpu)


def _fewer(per_gpu: PerGpu, times: int) -> PerGpu | None:
    """Side by side when each has so many times the share; None where that is less than one trial."""
    if times == 1:
        return per_gpu
    if per_gpu == "auto":
        return 1 if times == 2 else None
    return per_gpu // times or None
