"""Peak memory of an attempt: of the accelerator if one is in use, else of this process."""

import resource
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


def reset_peak_memory() -> None:
    """Reset the peak, so that a process measures each of its trials; on Linux only."""
    with suppress(OSError):  # some containers forbid it; the peak is then that of all trials so far
        _CLEAR.write_text("5")  # 5: the peak of the resident set, and nothing else
    cuda = _cuda()
    if cuda is not None:
        cuda.reset_peak_memory_stats()


def peak_memory_bytes() -> int:
    """Return the bytes at the peak since the last reset."""
    cuda = _cuda()
    if cuda is not None:
        return int(cuda.max_memory_allocated())
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def release_cached_memory() -> None:
    """Release cached memory of the accelerator."""
    cuda = _cuda()
    if cuda is not None:
        cuda.empty_cache()


def oom_kills(proc: Path = Path("/proc/self/cgroup"), mounts: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Count processes of the control group that the system killed for lack of memory; None if unknown."""
    try:
        groups = dict(line.split(":", 2)[1:] for line in proc.read_text().splitlines())
    except (OSError, ValueError):
        return None
    v1 = next((path for names, path in groups.items() if "memory" in names.split(",")), None)
    mount, file = (mounts, "memory.events") if v1 is None else (mounts / "memory", "memory.oom_control")
    group = mount / (groups.get("", "") if v1 is None else v1).lstrip("/")
    group = group if group.is_dir() else mount  # a container may see its own group as the root
    try:
        lines = (group / file).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _cuda() -> ModuleType | None:
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None
