"""Room for a campaign: a directory that can be written, on a disk that is not full."""

import os
import shutil
from pathlib import Path

from grid.errors import EnvironmentProblem

_LEAST_BYTES = 64 << 20


def require_room(root: Path) -> None:
    """Refuse a place for a campaign that is read-only or full; nothing is written to find out.

    Raises:
        EnvironmentProblem: it is.
    """
    place = next(each for each in (root, *root.parents) if each.exists())
    if not place.is_dir():
        raise EnvironmentProblem(f"a campaign is a directory, and {place} is a file; choose another place")
    if not os.access(place, os.W_OK | os.X_OK) or os.statvfs(place).f_flag & os.ST_RDONLY:
        raise EnvironmentProblem(f"{place} cannot be written to; choose another campaign directory")
    free = shutil.disk_usage(place).free
    if free < _LEAST_BYTES:
        raise EnvironmentProblem(
            f"a campaign needs {_LEAST_BYTES >> 20} MB of free disk and {place} has {free >> 20} MB; free some space, "
            "or choose another campaign directory"
        )
