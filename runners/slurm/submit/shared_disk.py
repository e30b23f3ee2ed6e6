"""Whether nodes can see a campaign, as far as a login node can tell: some places are never shared."""

import os
from pathlib import Path

_OF_A_HOST = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))


def unshared(root: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """Why the campaign `root` is likely on this machine alone, in a sentence; None where nothing speaks for it."""
    place, kind = _mounted(root, mounts)
    if kind in _OF_A_HOST:
        why = f"it is on {kind}, the memory of this machine"
    elif (below := next((each for each in _TEMPORARY if root.is_relative_to(each)), None)) and not (
        place is not None and place.is_relative_to(below)
    ):
        why = f"{below} is on a disk of this machine as a rule"
    else:
        return None
    return (
        f"nodes may not see the campaign {root}: {why}, and workers that cannot write there end with 0:53 and no word; "
        "choose a --campaign on a file system that nodes share"
    )


def _mounted(root: Path, mounts: Path) -> tuple[Path | None, str]:
    """Where the file system of `root` is mounted, and of what kind it is; what is mounted last there counts."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None, ""
    found: tuple[Path | None, str] = (None, "")
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        place = Path(os.fsdecode(fields[1].encode().decode("unicode_escape").encode("latin-1")))
        if root.is_relative_to(place) and (found[0] is None or len(place.parts) >= len(found[0].parts)):
            found = place, fields[2]
    return found
