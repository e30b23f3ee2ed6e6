"""Files of a snapshot: content, or the reason to leave one out."""

import os
import posixpath
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from grid.errors import EnvironmentProblem
from store.files.atomic import environment_problem

MOST_BYTES_OF_A_FILE = 5 << 20
MOST_BYTES = 64 << 20
"""Limit for all user files together."""

_LINE_BREAKS = re.compile(r"[\n\r\\]")
"""A list of checksums would have to escape these in names."""


class SnapshotFile(NamedTuple):
    """A file of a snapshot, or a link to a directory of it."""

    data: bytes
    mode: int
    """Permissions of the file it was read from."""
    link: str | None = None


def files_below(directory: Path) -> Iterator[Path]:
    """Files at any depth, apart from what Python compiled, sorted."""
    return (path for path in sorted(directory.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def read_member(path: Path) -> SnapshotFile | None:
    """The file `path`, links followed; None where it has gone since it was listed.

    Raises:
        EnvironmentProblem: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return SnapshotFile(file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise environment_problem("read", path, error) from error


def optional_member(path: Path, top: Path) -> SnapshotFile | str | None:
    """The file `path` below `top` as a member; or why it cannot be one; None where it has gone."""
    if path.is_dir():
        return _link(path, top) or "a link to a directory elsewhere"
    try:
        return read_member(path)
    except EnvironmentProblem:
        return "it cannot be read"


def _link(path: Path, top: Path) -> SnapshotFile | None:
    """A symbolic link to a directory stays a link, unless it leads out of `top`."""
    target = path.readlink().as_posix()
    reached = posixpath.normpath(f"{path.parent.relative_to(top).as_posix()}/{target}")
    return None if target.startswith("/") or reached.startswith("..") else SnapshotFile(b"", 0o777, target)


def size_of(path: Path) -> int | None:
    """Bytes of a file; 0 for a link to a directory; None for what is gone, dangling, or no file, such as a pipe."""
    try:
        about = path.stat()
    except OSError:
        return None
    if stat.S_ISDIR(about.st_mode) and path.is_symlink():
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) else None


def objection(name: str, size: int, total: int) -> str | None:
    """Why a file that is not needed for sure is left out of a snapshot that has `total` bytes so far."""
    if _LINE_BREAKS.search(name):
        return "a line break or backslash in its name"
    if size > MOST_BYTES_OF_A_FILE:
        return f"{size / (1 << 20):.1f} MB, and the most is {MOST_BYTES_OF_A_FILE >> 20}"
    if total + size > MOST_BYTES:
        return f"{size / (1 << 20):.1f} MB, and all files together would be more than {MOST_BYTES >> 20}"
    return None
