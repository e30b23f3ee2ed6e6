"""How many trials fit side by side on one device, by the memory that the first one needed."""

import os
from collections.abc import Callable, Sequence
from typing import final

from runners.provenance.nvidia_smi import ask_gpus

MOST_SIDE_BY_SIDE = 16
USED_OF_DEVICE = 0.9
CONTEXT_BYTES = 600 << 20
"""What a process needs on a GPU before its first tensor, which its own count leaves out."""


def side_by_side(trial_bytes: int, device_bytes: int, cpus: int) -> int:
    """Trials of `trial_bytes` each that a device of `device_bytes` holds with a tenth to spare, `cpus` to share.

    At least one, which may then not fit; at most one per CPU, and `MOST_SIDE_BY_SIDE`.
    """
    fits = int(USED_OF_DEVICE * device_bytes) // max(1, trial_bytes)
    return max(1, min(fits, cpus, MOST_SIDE_BY_SIDE))


def slots(groups: Sequence[str | None], per_group: int) -> list[str | None]:
    """The CUDA_VISIBLE_DEVICES of each worker: every group of devices `per_group` times, in turn."""
    return list(groups) * per_group


def device_groups(devices: Sequence[str], per_trial: int) -> list[str | None]:
    """The devices of a task, cut into groups for trials that need `per_trial` each; one None where it has none."""
    if not devices:
        return [None]
    whole = range(0, len(devices) - per_trial + 1, per_trial)
    return [",".join(devices[first : first + per_trial]) for first in whole] or [",".join(devices)]


@final
class Packing:
    """`auto`: one trial per group of devices first, then as many as the first one's memory allows.

    `cpus` is how many trials have a processor, `memory_bytes` what the host gives the task; None: all it has. What
    people should know is told.
    """

    def __init__(
        self,
        groups: Sequence[str | None],
        cpus: int,
        memory_bytes: int | None,
        told: Callable[[str], None],
    ) -> None:
        self._groups = groups
        self._told = told
        self._cpus = max(1, cpus // len(groups))
        self._memory_bytes = memory_bytes
        self._decided = False

    def grows(self, trial_bytes: int | None) -> list[str | None]:
        """A trial of the class needed so much: the slots that are added, once; none where it did not say."""
        if self._decided or not trial_bytes:
            return []
        self._decided = True
        devices = [device for group in self._groups for device in (group or "").split(",") if device]
        if not devices:
            room = side_by_side(trial_bytes, self._memory_bytes or _host_bytes(), self._cpus)
            return slots(self._groups, room - 1)
        sizes = _gpu_bytes(devices)
        if sizes is None:
            self._told(
                f"nvidia-smi does not tell the memory of GPU {', '.join(devices)}, so one trial is trained on it at a "
                "time; --per-gpu N trains N side by side"
            )
            return []
        return slots(self._groups, side_by_side(trial_bytes + CONTEXT_BYTES, min(sizes), self._cpus) - 1)


def _host_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _gpu_bytes(devices: Sequence[str]) -> list[int] | None:
    """Memory of each of the GPUs, named as in CUDA_VISIBLE_DEVICES; None where nvidia-smi does not know one of them."""
    rows = [row for row in ask_gpus("index", "uuid", "memory.total") or [] if len(row) == 3]
    known = [(index, uuid, int(size) << 20) for index, uuid, size in rows if size.isdecimal()]
    found = [
        next((size for index, uuid, size in known if device == index or _begins(uuid, device)), None)
        for device in devices
    ]
    sizes = [size for size in found if size is not None]
    return sizes if len(sizes) == len(devices) else None


def _begins(uuid: str, device: str) -> bool:
    """Whether `device` is a GPU by its UUID, which CUDA lets people shorten."""
    return device.startswith("GPU-") and uuid.startswith(device)
