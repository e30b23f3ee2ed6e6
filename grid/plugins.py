"""Entry points by which packages add commands, pages, backends and grids; `ablate` registers its own the same way."""

from collections.abc import Callable
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import TypeVar

from ablate.grid.errors import AblateError, EnvironmentProblem

T = TypeVar("T")


def plugins(group: str, notify: Callable[[str], None], name: str | None = None) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name: those of `ablate`, then those of other packages by package.

    A name that two packages use means the first of them. `notify` gets a sentence about the other; if there is a
    plugin called `name`, about that name alone.
    """
    every = sorted(entry_points(group=group), key=lambda each: (_package(each) != "ablate", _package(each), each.name))
    known = {each.name: each for each in reversed(every)}
    for each in every:
        if each is not known[each.name] and (name not in known or each.name == name):
            notify(f"{_describe(each)} is left out: package {_package(known[each.name])!r} has that name")
    return known


def use_plugin(entry: EntryPoint, use: Callable[[EntryPoint], T]) -> T:
    """Return what `use` makes of an entry point. Raise EnvironmentProblem, which names its package, if that fails."""
    try:
        return use(entry)
    except Exception as error:  # whatever code of another package raises
        why = str(error) if isinstance(error, AblateError) else f"{type(error).__name__}: {error}"
        words = f"{_describe(entry)} cannot be used: {why}; install another version of the package, or remove it"
        raise EnvironmentProblem(words) from error


def _describe(entry: EntryPoint) -> str:
    """Return `the page 'x' of package 'y'`."""
    kind = entry.group.removeprefix("ablate.").removesuffix("s")
    return f"the {kind} {entry.name!r} of package {_package(entry)!r}"


def _package(entry: EntryPoint) -> str:
    return _name(entry.dist) if entry.dist else ""


@cache  # each look parses all metadata of the package
def _name(package: Distribution) -> str:
    return package.name
