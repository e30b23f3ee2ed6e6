"""Energy that devices have used, where a counter of theirs can be read; a device without one gives no number.

Processors: the counters of the Linux powercap framework (RAPL), in microjoules, which begin anew at a limit after
minutes to hours. Since 2020 they are for root alone on most systems. GPUs: NVIDIA's management library, which counts
millijoules since the driver was loaded (Volta and later). Both count the whole device, whoever uses it.
"""

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol, final

import torch

POWERCAP: Final = Path("/sys/class/powercap")
LOOK_S: Final = 10.0
"""How often a counter is read, so that no limit is passed twice unseen."""


class Meter(Protocol):
    """A counter of one device."""

    def joules(self) -> float:
        """Used since it was made, in joules.

        Raises:
            OSError: it cannot be read.
        """


@final
class Rapl:
    """The counter of one processor package, a folder of the powercap framework."""

    def __init__(self, zone: Path) -> None:
        self._file = zone / "energy_uj"
        self._limit = int((zone / "max_energy_range_uj").read_text())
        self._last, self._used = self._read(), 0

    def joules(self) -> float:
        """See `Meter`; right as long as the counter begins anew once at most between two readings."""
        now = self._read()
        self._used += now - self._last + (self._limit if now < self._last else 0)
        self._last = now
        return self._used / 1e6

    def _read(self) -> int:
        return int(self._file.read_text())


@final
class Nvidia:
    """The counter of one GPU; `library` is NVML, `uuid` the GPU's, such as "GPU-...".

    Raises:
        OSError: the GPU has none.
    """

    def __init__(self, library: Any, uuid: str) -> None:
        self._library, self._handle = library, ctypes.c_void_p()
        self._ask(library.nvmlInit_v2())
        self._ask(library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._handle)))
        self._first = self._read()

    def joules(self) -> float:
        """See `Meter`."""
        return (self._read() - self._first) / 1e3

    def _read(self) -> int:
        found = ctypes.c_ulonglong()
        self._ask(self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(found)))
        return found.value

    @staticmethod
    def _ask(status: int) -> None:
        if status:
            raise OSError(f"NVML says {status}")


def processors(root: Path = POWERCAP) -> list[Meter] | None:
    """A meter per processor package; None where one of them cannot be read, or there are none."""
    zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if ":" not in zone.name.removeprefix("intel-rapl:")]
    try:
        packages = [zone for zone in zones if (zone / "name").read_text().startswith("package")]
        found: list[Meter] = [Rapl(zone) for zone in packages]
    except (OSError, ValueError):
        return None
    return found or None


def gpus(uuids: Sequence[str]) -> list[Meter] | None:
    """A meter per GPU; None where one of them cannot be read."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return [Nvidia(library, uuid) for uuid in uuids]
    except (OSError, AttributeError):  # no such library, or an older one
        return None


def meters(device: torch.device, count: int) -> list[Meter] | None:
    """What measures a trial on `device`, or on the first `count` GPUs of this machine; None where nothing does."""
    if device.type != "cuda":
        return processors()
    if count > 1 and torch.cuda.device_count() < count:  # each rank is shown a device of its own alone
        return None
    first = torch.cuda.current_device() if count == 1 else 0
    uuids = [str(torch.cuda.get_device_properties(first + at).uuid) for at in range(count)]
    return gpus([uuid if uuid.startswith("GPU-") else f"GPU-{uuid}" for uuid in uuids])


@final
class Energy:
    """What `meters` count from now on."""

    def __init__(self, meters: Sequence[Meter] | None) -> None:
        self._meters = meters
        self._looked = time.monotonic()

    def look(self) -> None:
        """Read the counters if that is due; cheap, called every step."""
        if self._meters is not None and time.monotonic() - self._looked >= LOOK_S:
            self.joules()

    def joules(self) -> float | None:
        """Used so far; None where a counter cannot be read, or could not be once."""
        if self._meters is None:
            return None
        self._looked = time.monotonic()
        try:
            return sum(meter.joules() for meter in self._meters)
        except (OSError, ValueError):
            self._meters = None
            return None
