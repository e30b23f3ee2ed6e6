"""Overrides of a grid on the command line: "training.steps=100" changes its base trial, "seeds=0..9" its seeds."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from grid.axis import Axis
from grid.builder import Builder
from grid.errors import SpecError
from grid.grid import Grid
from grid.part import Part
from grid.path import steps
from grid.spec import Spec, field_names, not_a_field
from grid.suggestions import suggest_name

SEEDS = "seeds"


def override(grid: Grid, texts: Sequence[str]) -> Grid:
    """Return `grid` with the overrides `texts`, each PATH=VALUE or seeds=VALUES; they are recorded in its header.

    A value is JSON, another number such as .5 or 1_000, or a text. All changes of a base are made at once, so its
    validators see the final trial only.
    Raises `SpecError` for a path that does not exist or that an axis sets, and for an invalid value.
    """
    if not texts:
        return grid
    given = _parse(texts)
    seeds = _seeds(given.pop(SEEDS)) if SEEDS in given else grid.seeds
    parts = iter([_change_base(grid.name, part, given) for part in grid.parts])
    return replace(_rebase(grid, parts, seeds), overrides=tuple(texts))


def _parse(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not all(step.isidentifier() for step in path.split(".")):
            raise SpecError(f"an override is PATH=VALUE, such as training.steps=100 or seeds=0..9; got {text!r}")
        if path in found:
            raise SpecError(f"a field is overridden once; {path!r} is given as {found[path]!r} and as {value!r}")
        found[path] = value
    return found


def _seeds(text: str) -> tuple[int, ...]:
    """Read seeds: `0..9` are ten, `0,2,5` three."""
    found: list[int] = []
    for part in text.strip("[]").split(","):
        first, dots, last = part.partition("..")
        try:
            found += range(int(first), int(last if dots else first) + 1)
        except ValueError:
            raise SpecError(f"seeds are written seeds=0..9 or seeds=0,2,5; got {text!r}") from None
        if dots and int(first) > int(last):
            raise SpecError(f"seeds are written seeds=0..9, the first before the last; got {text!r}")
    return tuple(found)


def _change_base(grid: str, part: Part, given: dict[str, str]) -> Spec:
    for path in given:
        for axis in part.axes:
            if path == axis.path or path.startswith(f"{axis.path}."):
                raise SpecError(
                    f"override {path!r}: the axis {axis.path!r} of grid {grid!r} sets it to {', '.join(axis.labels)}; "
                    "change the axis in the spec file"
                )
        _require_field(part.base, path)
    changes = [Axis(path, (_value(text),), (text,)) for path, text in given.items()]
    try:
        return Builder(part.base, changes).trial([0] * len(changes), part.base.seed)  # type: ignore[attr-defined]
    except SpecError as error:
        raise SpecError(f"override of grid {grid!r}: {error}") from error


def _value(text: str) -> object:
    for read in (json.loads, int, float):
        with suppress(ValueError):
            return read(text)
    return text


def _require_field(base: Spec, path: str) -> None:
    if path == "seed":
        raise SpecError("override 'seed': the seeds of a grid are replicates of each cell; write seeds=0 or seeds=0..9")
    owner: object = base
    for name in steps(path):
        if not isinstance(owner, Spec):
            raise SpecError(f"override {path!r}: {owner!r} has no fields, so it has no {name!r}; shorten the path")
        if name not in field_names(type(owner)):
            told = not_a_field(name, type(owner))
            seeds = suggest_name(path, [SEEDS]) if "did you mean" not in told else ""
            raise SpecError(f"override {path!r}: {told}{seeds}")
        owner = getattr(owner, name)


def _rebase(grid: Grid, bases: Iterator[Spec], seeds: Any) -> Grid:
    """Return `grid` with new bases, in the order of its parts, and new seeds."""
    base = next(bases)
    return replace(grid, base=base, seeds=seeds, joined=tuple(_rebase(each, bases, seeds) for each in grid.joined))
