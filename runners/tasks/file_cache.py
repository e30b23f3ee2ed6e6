"""What follows from a file alone, found once per process for as long as the file stays as it is."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from grid.errors import EnvironmentProblem

Found = TypeVar("Found")
OfFile = Callable[[Path], Found]


def cache_by_file(entries: int) -> Callable[[OfFile[Found]], OfFile[Found]]:
    """A function of a file that keeps what it found of the last `entries` files; one written since counts anew.

    The function raises EnvironmentProblem where the file cannot be read.
    """

    def decorate(function: OfFile[Found]) -> OfFile[Found]:
        @lru_cache(maxsize=entries)
        def as_of(path: Path, mtime_ns: int, size: int) -> Found:
            del mtime_ns, size  # a file that changed is another entry
            return function(path)

        def found(path: Path) -> Found:
            try:
                about = path.stat()
                return as_of(path, about.st_mtime_ns, about.st_size)
            except OSError as error:
                raise unreadable(path, error) from error

        found.__doc__ = function.__doc__
        return found

    return decorate


def unreadable(path: Path, error: OSError) -> EnvironmentProblem:
    """What is said of a file that the system does not let one read."""
    return EnvironmentProblem(f"cannot read {path}: {error.strerror}; check the file and its permissions")
