"""Origin of a file: the project, an installed package, or the user."""

import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType

PROJECT = Path(__file__).resolve().parents[2]
ROOMS = ("grid", "variants", "runners", "store", "dashboards")
FACADE = ("ablate.py", "ablate.pyi")
"""The files beside the rooms: one import for users."""

_PACKAGES = frozenset({"site-packages", "dist-packages"})
"""Also those that `sysconfig` does not name: of the user, of the system below a virtual environment, of a module."""


def room_of(module: ModuleType) -> str | None:
    """The project's room that `module` belongs to; None where it is not the project's."""
    room = module.__name__.partition(".")[0]
    file = getattr(module, "__file__", None)
    return room if room in (*ROOMS, "ablate") and file is not None and is_project(file) else None


@cache
def is_project(file: str) -> bool:
    """Whether `file` lies in one of the project's rooms."""
    path = Path(file).resolve()
    return any(path.is_relative_to(PROJECT / name) for name in (*ROOMS, *FACADE))


@cache
def is_installed(file: str) -> bool:
    """Whether `file` is Python's own, an installed package's, or no file at all (as code made while running is)."""
    path = Path(file)
    if is_project(file):
        return False
    return not path.is_file() or not _PACKAGES.isdisjoint(path.parts) or any(map(path.is_relative_to, _places()))


@cache
def _places() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
