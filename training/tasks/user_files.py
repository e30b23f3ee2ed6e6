"""Paths of the user's files, caches of functions of a file, and the folder of what a machine keeps."""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from ablate.grid.errors import EnvironmentProblem, SpecError

Content = TypeVar("Content")
OfFile = Callable[[Path], Content]


def cache_by_file(entries: int) -> Callable[[OfFile[Content]], OfFile[Content]]:
    """Cache a function of a file for the last `entries` files; a changed file is read again."""

    def decorate(function: OfFile[Content]) -> OfFile[Content]:
        @lru_cache(maxsize=entries)
        def as_of(path: Path, mtime_ns: int, size: int) -> Content:
            del mtime_ns, size  # a file that changed is another entry
            return function(path)

        def read_cached(path: Path) -> Content:
            try:
                status = path.stat()
                return as_of(path, status.st_mtime_ns, status.st_size)
            except OSError as error:
                raise unreadable(path, error) from error

        read_cached.__doc__ = function.__doc__
        return read_cached

    return decorate


def cache_folder() -> Path:
    """Return `$ABLATE_CACHE`, else `ablate` in `$XDG_CACHE_HOME` or `~/.cache`."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "ablate")
    return Path(os.environ.get("ABLATE_CACHE") or home).expanduser()


def unreadable(path: Path, error: OSError) -> EnvironmentProblem:
    """Describe a file that cannot be read."""
    return EnvironmentProblem(f"cannot read {path}: {error.strerror}; check the file and its permissions")


def absolute_path(field: str, path: str) -> str:
    """Make `path` absolute, so that a spec means the same files everywhere; ValueError if it is empty."""
    if not path.strip():
        raise ValueError(f"{field} is {path!r}; name a file or a folder, '.' is the folder you are in")
    return str(Path(path).expanduser().resolve())


def require_hash(known: str | None, actual: object, place: object, field: str = "content_hash") -> None:
    """Raise SpecError if the files at `place` have another hash than the spec."""
    if known != actual:
        raise SpecError(f"{field} is {known} and {place} has {actual}; restore it, or leave {field} out to accept it")
