"""Names of earlier releases in spec files and records.

In release 0.1 `ablate.grid.Grid` was `grid.Grid`, which it still is unless a user's module is called `grid`. Modules of
the room `training` were in `runners`.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Final, final

from ablate.runners.provenance.origin import is_project

ROOMS: Final = ("grid", "variants", "runners", "store", "dashboards")
"""Packages of release 0.1."""

_MOVED: Final = {
    **{
        f"ablate.runners.{name}": f"ablate.training.{name}"
        for name in ("tasks", "optimisers", "probes", "evaluations", "trial", "controls", "posthoc")
    },
    "ablate.runners.training.loop": "ablate.training.loop.train",
    "ablate.runners.training": "ablate.training.loop",
}


def current_name(module: str) -> str:
    """Return today's name of a module of the package."""
    for old, new in _MOVED.items():
        if module == old or module.startswith(f"{old}."):
            return new + module.removeprefix(old)
    return module


@final
class _EarlierNames(MetaPathFinder, Loader):
    """Is asked first: in the root of a clone, the folder `grid` would be a second package with the same classes."""

    folder = Path()
    """The directory of the latest spec file."""
    others: tuple[str, ...] = ()
    """Directories of other spec files."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        del path  # the parent is an alias
        if current_name(name) != name:
            return spec_from_loader(name, self)
        room, _, below = name.partition(".")
        if room not in ROOMS or (below and not _is_alias(room)):
            return None
        return (None if below else self._find_users(name, target)) or spec_from_loader(name, self)

    def _find_users(self, name: str, target: ModuleType | None) -> ModuleSpec | None:
        places = [place for place in sys.path if place not in self.others]
        places = [place for place in places if not is_project(f"{place or Path.cwd()}/{name}/__init__.py")]
        spec = PathFinder.find_spec(name, places, target)
        plain = spec is not None and spec.origin is None  # a folder, which may also be of data, such as a campaign's
        return None if plain and not any((self.folder / name).rglob("*.py")) else spec

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = import_module(current_name(name if name.startswith("ablate.") else f"ablate.{name}"))


def _is_alias(name: str) -> bool:
    return sys.modules[name] is sys.modules.get(f"ablate.{name}")


_FINDER = _EarlierNames()


def allow_earlier_names(folder: Path, others: Iterable[Path]) -> None:
    """Let a spec file in `folder` use them; forget those of files in `others`, since it may have modules so called."""
    _FINDER.folder, _FINDER.others = folder, tuple(str(each) for each in others if each != folder)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    for name in sorted((each for each in sys.modules.copy() if each.partition(".")[0] in ROOMS), reverse=True):
        module = sys.modules[name]
        places = map(str, (getattr(module, "__file__", None), *getattr(module, "__path__", ())))
        if _is_alias(name) or any(place.startswith(_FINDER.others) for place in places):
            del sys.modules[name]
