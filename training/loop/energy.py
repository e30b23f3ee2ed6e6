"""Energy that devices used, for all their users: processors by RAPL in microjoules, GPUs by NVML in millijoules.

On most systems only root may read RAPL. NVML counts on Volta and later.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import pynvml
import torch

POWERCAP: Final = Path("/sys/class/powercap")
LOOK_S: Final = 10.0
"""Seconds between readings, so that a counter wraps around at most once."""


@final
class Meter:
    """A counter of energy: `read` returns it, in units of 1 / `per_joule`. At `limit` it wraps around to 0."""

    def __init__(self, read: Callable[[], int], per_joule: float, limit: int = 0) -> None:
        self._read, self._per_joule, self._limit = read, per_joule, limit
        self._last, self._used = read(), 0

    def joules(self) -> float:
        """Return the joules used since the meter was made; correct with at most one wrap between two readings."""
        now = self._read()
        self._used += now - self._last + (self._limit if now < self._last else 0)
        self._last = now
        return self._used / self._per_joule


def processors(root: Path = POWERCAP) -> list[Meter] | None:
    """Return a meter for each processor package; None if there are none, or one cannot be read."""
    zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if ":" not in zone.name.removeprefix("intel-rapl:")]
    try:
        packages = [zone for zone in zones if (zone / "name").read_text().startswith("package")]
        return [rapl(zone) for zone in packages] or None
    except (OSError, ValueError):
        return None


def rapl(zone: Path) -> Meter:
    """Return the meter of a processor package, a folder of the powercap framework."""
    return Meter(lambda: int((zone / "energy_uj").read_text()), 1e6, int((zone / "max_energy_range_uj").read_text()))


def gpus(uuids: Sequence[str]) -> list[Meter] | None:
    """Return a meter for each GPU, by UUIDs such as "GPU-..."; None if one of them cannot be read."""
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        return [Meter(partial(_read_gpu, handle), 1e3) for handle in handles]
    except pynvml.NVMLError:
        return None


def _read_gpu(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))


def meters(device: torch.device, count: int) -> list[Meter] | None:
    """Return the meters of `device`, or of the first `count` GPUs of this machine; None if there are none."""
    if device.type != "cuda":
        return processors()
    if count > 1 and torch.cuda.device_count() < count:  # each rank is shown a device of its own alone
        return None
    first = torch.cuda.current_device() if count == 1 else 0
    uuids = [str(torch.cuda.get_device_properties(first + at).uuid) for at in range(count)]
    return gpus([uuid if uuid.startswith("GPU-") else f"GPU-{uuid}" for uuid in uuids])


@final
class Energy:
    """The sum of some meters."""

    def __init__(self, meters: Sequence[Meter] | None) -> None:
        self._meters = meters
        self._read_at = time.monotonic()

    def read_if_due(self) -> None:
        if self._meters is not None and time.monotonic() - self._read_at >= LOOK_S:
            self.joules()

    def joules(self) -> float | None:
        """Return the joules used so far; None once a counter could not be read."""
        if self._meters is None:
            return None
        self._read_at = time.monotonic()
        try:
            return sum(meter.joules() for meter in self._meters)
        except (OSError, ValueError, pynvml.NVMLError):
            self._meters = None
            return None
