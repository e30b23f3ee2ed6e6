"""Room for a campaign: a directory that can be written, on a disk that is not full."""

import errno
import os
import shutil
from pathlib import Path

from ablate.grid.errors import EnvironmentProblem

_LEAST_BYTES = 64 << 20
_FULL_BYTES = 1 << 20
"""With less than that nobody writes a record, let alone a checkpoint."""


def require_disk_space(root: Path) -> None:
    """Refuse a place for a campaign that is read-only or full; nothing is written to find out.

    Raises EnvironmentProblem if it is.
    """
    place = next(each for each in (root, *root.parents) if each.exists())
    if not place.is_dir():
        raise EnvironmentProblem(f"{place} is a file, and a campaign is a directory; choose another place")
    if not os.access(place, os.W_OK | os.X_OK) or os.statvfs(place).f_flag & os.ST_RDONLY:
        raise EnvironmentProblem(f"{place} cannot be written to; choose another campaign directory")
    free = shutil.disk_usage(place).free
    if free < _LEAST_BYTES:
        raise EnvironmentProblem(
            f"{place} has {free >> 20} MB of free disk, and a campaign needs {_LEAST_BYTES >> 20} MB; free some space, "
            "or choose another campaign directory"
        )


def disk_problem(root: Path, error: BaseException | None = None) -> str | None:
    """That the campaign's disk takes no more, in a sentence: it has no room, or `error` says that it was met there."""
    said = str(error) if error is not None and str(root) in str(error) else ""
    met = next((why for why in (errno.ENOSPC, errno.EDQUOT) if os.strerror(why) in said), None)
    try:
        space = os.statvfs(root)
    except OSError:
        return None
    free = space.f_bavail * space.f_frsize
    if met is None and free >= _FULL_BYTES and (space.f_favail or not space.f_files):
        return None
    why = "your quota is used up" if met == errno.EDQUOT else f"{free >> 20} MB are free"
    return f"the campaign's disk is full ({root}: {why}); free some space, and workers go on from what was saved"
