"""How much memory an attempt needed at most: of the accelerator where one is in use, else of this process."""

import resource
import sys
from pathlib import Path
from types import ModuleType

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


def reset_peak_memory() -> None:
    """Forget the peak so far, so that a warm process can tell its trials apart (Linux; elsewhere the peak is kept)."""
    if _CLEAR.exists():
        _CLEAR.write_text("5")  # 5: the peak of the resident set, and nothing else
    cuda = _cuda()
    if cuda is not None:
        cuda.reset_peak_memory_stats()


def peak_memory_bytes() -> int:
    """Bytes at the peak since the last reset."""
    cuda = _cuda()
    if cuda is not None:
        return int(cuda.max_memory_allocated())
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _cuda() -> ModuleType | None:
    """`torch.cuda` where this process has loaded and uses it."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None
