"""Load of the machine in training, as metrics of a trial: processor cores, memory, and use of the GPU."""

import os
import sys
import time
from pathlib import Path
from typing import Any, Final, final

import pynvml

SAMPLE_S: Final = 10.0
"""Seconds between two samples; a shorter attempt has none."""
_STATM: Final = Path("/proc/self/statm")


@final
class SystemLoad:
    """Measures the load since the sample before."""

    def __init__(self) -> None:
        self._at, self._cpu_s = time.monotonic(), time.process_time()

    def sample(self) -> dict[str, float]:
        """Return `system.*` by name; empty until `SAMPLE_S` have passed, and without what cannot be measured."""
        passed = time.monotonic() - self._at
        if passed < SAMPLE_S:
            return {}
        values = {"system.cpu_cores": (time.process_time() - self._cpu_s) / passed}
        self._at, self._cpu_s = time.monotonic(), time.process_time()
        if _STATM.exists():
            values["system.memory_bytes"] = float(int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        torch: Any = sys.modules.get("torch")
        return values | (_gpu(torch.cuda) if torch is not None and torch.cuda.is_initialized() else {})


def _gpu(cuda: Any) -> dict[str, float]:
    """Return what this process holds of its GPU, and the share of time in which the GPU computed for anybody."""
    held = {"system.gpu_memory_bytes": float(cuda.memory_reserved())}
    try:
        return {**held, "system.gpu_utilisation": cuda.utilization() / 100}
    except (pynvml.NVMLError, RuntimeError):  # a driver or a part of a GPU that does not tell
        return held
