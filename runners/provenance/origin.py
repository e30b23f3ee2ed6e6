"""Origin of a file: the project, an installed package, or the user."""

import csv
import os
import sysconfig
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import file_digest
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType

from ablate import ROOMS

PACKAGE = Path(__file__).parents[2]
"""The directory of `ablate`; in a clone, its subpackages are links."""
PLACES = tuple(path.resolve() for path in (PACKAGE, *(PACKAGE / room for room in ROOMS)))
"""Directories of the project's code."""

_BELOW = tuple(f"{place}{os.sep}" for place in PLACES)

_PACKAGES = frozenset({"site-packages", "dist-packages"})
"""Package directories that `sysconfig` may not list, such as the user site."""


def is_project_module(module: ModuleType) -> bool:
    """Return True if `module` belongs to the project, by its name and its file."""
    file = getattr(module, "__file__", None)
    return module.__name__.partition(".")[0] == "ablate" and file is not None and is_project(file)


@cache
def is_project(file: str) -> bool:
    """Return True if `file` belongs to the project."""
    return os.path.realpath(file).startswith(_BELOW)


@cache
def is_installed(file: str) -> bool:
    """Return True for the standard library, installed packages, and code without a file."""
    if is_project(file):
        return False
    return not Path(file).is_file() or not _PACKAGES.isdisjoint(Path(file).parts) or file.startswith(_places())


def innermost_line(frames: Iterable[tuple[str, object]], *, project: bool) -> str:
    """Return `own.py:7`, the last file and line that is not installed; with `project`, also of this project."""
    own = [(file, line) for file, line in frames if not is_installed(file) and (project or not is_project(file))]
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


@cache
def is_standard(file: str) -> bool:
    """Return True for the standard library and code without a file."""
    return not Path(file).is_file() or (_PACKAGES.isdisjoint(Path(file).parts) and file.startswith(_places()[0]))


@cache
def _places() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(f"{paths[name]}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def edited_files(name: str = "ablate") -> list[Path]:
    """List the files of an installed package that are not as its wheel recorded them; an edited one is not hashed."""
    try:
        installed = distribution(name)
    except PackageNotFoundError:  # a source tree on the path that was never installed
        return []
    rows = csv.reader((installed.read_text("RECORD") or "").splitlines())
    hashes = {file: recorded.removeprefix("sha256=") for file, recorded, _ in rows if recorded}
    places = {file: Path(str(installed.locate_file(file))) for file in hashes}
    return [places[file] for file, recorded in hashes.items() if _hash(places[file]) != recorded]


def _hash(path: Path) -> str | None:
    """Return the SHA-256 of a file as wheels record it; None if there is no file."""
    try:
        with path.open("rb") as file:
            return urlsafe_b64encode(file_digest(file, "sha256").digest()).rstrip(b"=").decode()
    except FileNotFoundError:
        return None
