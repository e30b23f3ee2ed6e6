"""A grid: a base trial, axes, rules and seeds, and its trials in execution order."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, final

from grid.axis import Dimension, Scalar
from grid.columns import Columns
from grid.enumeration import Cell, CellEnumerator, CellPosition, Pruned
from grid.errors import SpecError
from grid.measure import Measure
from grid.names import require_slug
from grid.part import Part
from grid.rule import Rule
from grid.spec import Spec

HEADER_SCHEMA = 1


class Planned(NamedTuple):
    """One trial of a grid, as a plan stores it."""

    trial: Spec
    key: str
    cell: str
    """The key of the trial without its seed."""
    seed: int
    label: str
    """Names the cell within its grid."""
    operator: str
    """Label of the trial's operator, or of the cell if the trial has no operator."""
    axes: Mapping[str, Scalar]
    """Value of the cell on each axis; None if the axis does not apply."""
    turn: tuple[int, str]
    """Sort key of the execution order: index of the seed, then the cell's key."""


class GridCount(NamedTuple):
    """Results of a walk over all cells, with a key and an address per cell."""

    cells: list[tuple[bytes, CellPosition]]
    pruned: Pruned
    baseline: str | None


@final
@dataclass(frozen=True, eq=False)
class Grid:
    """A base trial and the changes to it; every cell runs once per seed.

    `name` is part of file names and, with _ for -, of a view in SQL. `axes` multiply; `rules` leave cells out.
    `baseline` selects the cell to compare with, as {axis name: label or value}. `measure` says what is compared.
    `a | b` has the cells of both. Raises `SpecError` at once for an invalid grid, and during enumeration for an
    invalid cell.
    """

    name: str
    base: Spec
    axes: Sequence[Dimension] = ()
    rules: Sequence[Rule] = ()
    seeds: Iterable[int] = range(5)
    baseline: Mapping[str, object] | None = None
    measure: Measure | None = None
    joined: tuple["Grid", ...] = ()
    """Further grids of a union; made by `|`."""
    overrides: tuple[str, ...] = ()
    """Changes from the command line, already made; see `grid.overrides`."""

    def __post_init__(self) -> None:
        require_slug(self.name)
        for what, kinds, maker in (("axes", Dimension, "over(...)"), ("rules", Rule, "forbid(...)")):
            given = getattr(self, what)
            if not isinstance(given, list | tuple) or not all(isinstance(one, kinds) for one in given):
                raise SpecError(f"the {what} of a grid are a list of {maker}; {self.name!r} has {given!r}")
        _require_kinds(self)
        object.__setattr__(self, "seeds", _distinct(self.name, tuple(self.seeds)))
        for part in self.parts:
            part.check()
        names = self.columns.names
        for name in self.baseline or ():
            if name not in names:
                known = ", ".join(names) or "none"
                raise SpecError(
                    f"a baseline names axes of its grid; {self.name!r} has no axis {name!r}, it has {known}"
                )

    def cells(self) -> Iterator[Planned]:
        """Yield the first trial of every cell, in order of declaration (the last axis fastest)."""
        for planned in self.enumerate():
            if planned.turn[0] == 0:
                yield planned

    def enumerate(self) -> Iterator[Planned]:
        """Yield every trial cell by cell in one pass; sort by `turn` for execution order."""
        for cell in self._cells.all(Counter()):
            row = self.columns.row(cell.place.part, cell.picks)
            for turn in enumerate(self.seeds):
                trial = self._cells.build(cell.place.part, cell.picks, turn[1]) if turn[0] else cell.trial
                yield self._plan_trial(cell, trial, row, turn)

    def trials(self) -> Iterator[Planned]:
        """Yield every trial in execution order: all cells with the first seed, then with the second, and so on.

        Within a seed, cells come in the pseudo-random order of their keys, so a grid that stops half way is balanced.
        This walks over all cells before the first trial; `enumerate` does not.
        """
        for turn in enumerate(self.seeds):
            for key, place in self.survey.cells:
                picks = self.parts[place.part].picks(place.address)
                trial = self._cells.build(place.part, picks, turn[1])
                cell = Cell(place, picks, self.columns.label(place.part, picks), trial, key.hex())
                yield self._plan_trial(cell, trial, self.columns.row(place.part, picks), turn)

    def header(self) -> dict[str, Any]:
        """Return the content of `grids/<name>.json`: the grid as JSON data with counts. Walks over all cells."""
        seeds = list(self.seeds)
        return {
            "schema": HEADER_SCHEMA,
            "grid": self.name,
            "cells": len(self.survey.cells),
            "trials": len(self.survey.cells) * len(seeds),
            "seeds": seeds,
            "axes": self.columns.header(),
            "rules": [
                {"reason": rule.reason, "count": self.survey.pruned[number, at]}
                for number, part in enumerate(self.parts)
                for at, rule in enumerate(part.rules)
            ],
            "baseline": self.survey.baseline,
            "measure": None if self.measure is None else self.measure.data(),
            "base": self.base.data(),
            **({"overrides": list(self.overrides)} if self.overrides else {}),
        }

    def __or__(self, other: "Grid") -> "Grid":
        """Join the cells of both grids, equal ones once, under the name a-b. Seeds and measure must be the same."""
        for what in ("seeds", "measure"):
            mine, its = getattr(self, what), getattr(other, what)
            if mine != its:
                raise SpecError(f"a union has one {what}; {self.name!r} has {mine!r} and {other.name!r} has {its!r}")
        if self.baseline and other.baseline and dict(self.baseline) != dict(other.baseline):
            raise SpecError(f"a union has one baseline; {self.name!r} and {other.name!r} have two, leave one out")
        name, baseline = f"{self.name}-{other.name}", self.baseline or other.baseline
        return replace(self, name=name, baseline=baseline, joined=(*self.joined, other))

    def named(self, name: str, *, baseline: Mapping[str, object] | None = None) -> "Grid":
        """Return the grid under another name and, if given, with another baseline."""
        return replace(self, name=name, baseline=baseline or self.baseline)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The products of the grid: one, or several for a union."""
        own = Part(self.base, tuple(self.axes), tuple(self.rules))
        return (own, *(part for grid in self.joined for part in grid.parts))

    @cached_property
    def columns(self) -> Columns:
        """Columns and labels of the cells."""
        return Columns(self.parts)

    @cached_property
    def survey(self) -> GridCount:
        """Every cell in execution order, the counts of the rules, and the baseline's key. Walks over all cells."""
        pruned: Pruned = Counter()
        found, agreed = [], list[tuple[int, str, str]]()
        for cell in self._cells.all(pruned):
            found.append((bytes.fromhex(cell.key), cell.place))
            if self.baseline:
                part, picks = cell.place.part, cell.picks
                count = sum(self.columns.equals(part, picks, *wanted) for wanted in self.baseline.items())
                agreed.append((count, cell.label, cell.key))
        return GridCount(sorted(found), pruned, self._find_baseline(agreed) if self.baseline else None)

    def _find_baseline(self, agreed: list[tuple[int, str, str]]) -> str:
        """Return the key of the only cell that has every wanted label or value of the baseline.

        `agreed` has for each cell the number of axes on which it agrees, its label and its key.
        """
        wanted = self.baseline or {}
        best = max(count for count, *_ in agreed)
        nearest = [(label, key) for count, label, key in agreed if count == best]
        some = ", ".join(repr(label) for label, _ in nearest[:3]) + (", ..." if len(nearest) > 3 else "")
        told = ", ".join(f"{name}={getattr(value, 'label', value)!r}" for name, value in wanted.items())
        if best < len(wanted):
            raise SpecError(f"the baseline of grid {self.name!r} is one of its cells; no cell has {told}, near: {some}")
        if len(nearest) > 1:
            raise SpecError(f"the baseline of grid {self.name!r} is one cell; {told} selects {some}, name more axes")
        return nearest[0][1]

    @cached_property
    def _cells(self) -> CellEnumerator:
        return CellEnumerator(self.name, self.parts, self.columns, next(iter(self.seeds)))

    def _plan_trial(self, cell: Cell, trial: Spec, row: Mapping[str, Scalar], turn: tuple[int, int]) -> Planned:
        operator = getattr(trial, "operator", None)
        named = operator.label if isinstance(operator, Spec) else cell.label or self.name
        return Planned(trial, trial.key, cell.key, turn[1], cell.label or named, named, row, (turn[0], cell.key))


def _require_kinds(grid: Grid) -> None:
    kinds: tuple[tuple[str, type | tuple[type, ...], str], ...] = (
        ("base", Spec, "a spec, such as Trial(...)"),
        ("seeds", Iterable, "a list of whole numbers, such as range(5)"),
        ("baseline", (Mapping, type(None)), "{axis name: label}"),
        ("measure", (Measure, type(None)), "a Measure(...)"),
    )
    for what, kind, example in kinds:
        given = getattr(grid, what)
        if not isinstance(given, kind) or isinstance(given, str):
            raise SpecError(f"{what} of a grid: {example}; {grid.name!r} has {given!r}")


def _distinct(name: str, seeds: tuple[int, ...]) -> tuple[int, ...]:
    if not seeds or len(set(seeds)) < len(seeds) or any(type(seed) is not int for seed in seeds):
        raise SpecError(
            f"the seeds of a grid are whole numbers, at least one and all different; {name!r} has {seeds!r}"
        )
    return seeds
