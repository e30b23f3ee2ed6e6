"""A grid: a base trial, axes, rules and seeds, and its trials in execution order."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, final

from pydantic import InstanceOf

from ablate.grid.axis import Dimension, Scalar
from ablate.grid.baselines import Agreement, find_baselines
from ablate.grid.budget import Budgets
from ablate.grid.columns import Columns
from ablate.grid.control import CellTrial, ControlCell, Controls, Wanted, check_wanted, find_controls
from ablate.grid.enumeration import Cell, CellEnumerator, CellPosition, Pruned
from ablate.grid.errors import SpecError
from ablate.grid.experiment import Experiment, require_experiment
from ablate.grid.longer import LongerCell, check_longer, find_longer
from ablate.grid.measure import LearningCriterion, Measure
from ablate.grid.names import require_slug, some
from ablate.grid.own_methods import ask
from ablate.grid.part import Part
from ablate.grid.row_info import RowInfo, header_rows
from ablate.grid.rule import CellRule
from ablate.grid.spec import Spec
from ablate.grid.suggestions import suggest_name
from ablate.grid.values import MOST_LABEL, require_text, require_whole

HEADER_SCHEMA = 1
VARIANCES = ["own", "shared"]

_FIELDS: tuple[tuple[str, Any, str], ...] = (
    ("seeds", Iterable, "a list of whole numbers, such as range(5)"),
    ("baseline", Mapping | None, "{axis name: label}"),
    ("measure", Measure | None, "a Measure(...)"),
    ("learned", LearningCriterion | None, "a LearningCriterion(...)"),
)


class Planned(NamedTuple):
    """One trial of a grid, as a plan stores it."""

    trial: Experiment
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
    control: str | None = None
    """The kind of explanation of a control; None for other cells."""
    tune: tuple[str, ...] = ()
    """Names of the nuisance axes that apply to the cell: it is compared at its own best level of these."""
    longer: str | None = None
    """The key of the cell that this one trains longer; None for other cells."""


class GridCount(NamedTuple):
    """Results of the enumeration of all cells, with a key and an address per cell."""

    cells: list[tuple[bytes, CellPosition]]
    pruned: Pruned
    baseline: str | None
    baselines: dict[str, str]
    """Cell -> its baseline, if the grid has several."""
    rows: dict[str, dict[str, Any]]
    """Title, unit and lower bound of recorded values by name, as trials say in `row_infos()`."""


@final
@dataclass(frozen=True, eq=False)
class Grid:
    """A base trial and the changes to it; every cell runs once per seed.

    `name` is part of file names and, with _ for -, of a view in SQL. `axes` multiply; `rules` leave cells out.
    `baseline` selects the cell to compare with, as {axis name: label or value}. If several cells have these levels,
    each other cell is compared with the one that has its levels on all other axes. `measure` says what is compared.
    `controls` adds the simplest explanations of what cells change: "auto" for all that their trials offer, or a list of
    labels of these and of `ControlChange`. `learned` says which runs learned, where some do not. `longer=2` adds the
    baseline and the best variant, trained twice as long, once a run finds in the campaign which variant is the best.
    `a | b` has the cells of both. Raises `SpecError` at once for an invalid grid, and during enumeration for an
    invalid cell.
    """

    name: str
    base: Experiment
    axes: Sequence[Dimension] = ()
    rules: Sequence[CellRule] = ()
    seeds: Iterable[int] = range(5)
    baseline: Mapping[str, object] | None = None
    measure: Measure | None = None
    controls: Wanted = ()
    """Cells that are no variants: the simplest explanations, each with the kind of what it explains."""
    learned: LearningCriterion | None = None
    """Where runs learn or do not, tables show how often, and how well once they have."""
    variance: Literal["own", "shared"] = "own"
    """Whether comparisons share degrees of freedom; a choice before any result, for 3 to 5 seeds."""
    longer: int | None = None
    """Cells that are no variants: a baseline and the best variant, trained so many times as long."""
    chosen: tuple[str, ...] = ()
    """Which cells these are, by key; a run finds them in its campaign."""
    joined: tuple["Grid", ...] = ()
    """Further grids of a union; made by `|`."""
    overrides: tuple[str, ...] = ()
    """Changes from the command line, already made; see `ablate.grid.overrides`."""
    of: str | None = None
    """Name of the grid in the spec file, if changes of its base made this one."""

    def __post_init__(self) -> None:
        require_slug(self.name)
        require_experiment(self.name, self.base)
        for what, kinds, maker in (("axes", Dimension, "over(...)"), ("rules", CellRule, "forbid(...)")):
            value = getattr(self, what)
            if not isinstance(value, list | tuple) or not all(isinstance(one, kinds) for one in value):
                raise SpecError(f"grid {self.name!r} has {what}={value!r}; give a list of {maker}")
        for what, kind, example in _FIELDS:
            value = getattr(self, what)
            if not isinstance(value, kind) or isinstance(value, str):
                raise SpecError(f"grid {self.name!r} has {what}={value!r}; give {example}")
        seeds = tuple(require_whole(seed, f"a seed of grid {self.name!r}") for seed in self.seeds)
        if not seeds or len(set(seeds)) < len(seeds):
            raise SpecError(
                f"grid {self.name!r} has the seeds {some([repr(seed) for seed in seeds], 5) or 'none'}; give at least "
                "one, and each once"
            )
        object.__setattr__(self, "seeds", seeds)
        check_wanted(self.name, self.controls)
        if self.variance not in VARIANCES:
            hint = suggest_name(str(self.variance), VARIANCES)
            raise SpecError(f"grid {self.name!r} has variance={self.variance!r}; write 'own' or 'shared'{hint}")
        for part in self.parts:
            part.check()
        self._check_axes()
        check_longer(self.name, self.base, self.longer, compares=self.measure is not None and bool(self.baseline))

    def cells(self) -> Iterator[Planned]:
        """Yield the first trial of every cell, in order of declaration (the last axis fastest)."""
        for cell in self._cells.all(Counter()):
            row = self.columns.row(cell.place.part, cell.picks)
            yield self._plan_trial(cell, cell.trial, row, next(iter(self.seeds)))
        yield from self._added.values()

    def enumerate(self) -> Iterator[Planned]:
        """Yield every trial cell by cell in one pass."""
        for cell in self._cells.all(Counter()):
            row = self.columns.row(cell.place.part, cell.picks)
            for number, seed in enumerate(self.seeds):
                trial = self._cells.build(cell.place.part, cell.picks, seed) if number else cell.trial
                yield self._plan_trial(cell, trial, row, seed)
        for added in self._added.values():
            for seed in self.seeds:
                yield _with_seed(added, seed)

    def trials(self) -> Iterator[Planned]:
        """Yield every trial in execution order: all cells with the first seed, then with the second, and so on.

        Within a seed, cells come in the pseudo-random order of their keys, so a grid that stops half way is balanced;
        controls and cells that are trained longer come last.
        All cells are built before the first trial; `enumerate` does not.
        """
        for seed in self.seeds:
            for key, place in self.enumeration.cells:
                picks = self.parts[place.part].picks(place.address)
                trial = self._cells.build(place.part, picks, seed)
                cell = Cell(place, picks, self.columns.label(place.part, picks), trial, key.hex())
                yield self._plan_trial(cell, trial, self.columns.row(place.part, picks), seed)
            for added in sorted(self._added):
                yield _with_seed(self._added[added], seed)

    def header(self) -> dict[str, Any]:
        """Return the content of `grids/<name>.json`: the grid as JSON data with counts. It enumerates all cells."""
        seeds, counts = list(self.seeds), self.enumeration
        cells = len(counts.cells) + len(self._added)
        return {
            "schema": HEADER_SCHEMA,
            "grid": self.name,
            "cells": cells,
            "trials": cells * len(seeds),
            "seeds": seeds,
            "axes": self.columns.header(),
            "rules": [
                {"reason": rule.reason, "count": counts.pruned[number, at]}
                for number, part in enumerate(self.parts)
                for at, rule in enumerate(part.rules)
            ],
            "baseline": counts.baseline,
            **({"baselines": counts.baselines, "matched": self._matched} if counts.baselines else {}),
            "measure": None if self.measure is None else self.measure.data(),
            "base": self.base.data(),
            **({"overrides": list(self.overrides)} if self.overrides else {}),
            **({"of": self.of} if self.of else {}),
            **({"rows": counts.rows} if counts.rows else {}),
            **({"controls": self.offered.data()} if self.measure and self.baseline else {}),
            **({"learned": self.learned.data()} if self.learned else {}),
            **({"variance": self.variance} if self.variance != "own" else {}),
            **({"longer": self._data_of_longer()} if self.longer else {}),
        }

    def __or__(self, other: "Grid") -> "Grid":
        """Join the cells of both grids, equal ones once, under the name a-b.

        Seeds, measure, variance, `longer` and what says that runs learned must be the same.
        """
        for what in ("seeds", "measure", "learned", "variance", "longer"):
            mine, its = getattr(self, what), getattr(other, what)
            if mine != its:
                raise SpecError(
                    f"{self.name!r} has {what}={mine!r} and {other.name!r} has {its!r}; grids of a union have one"
                )
        if self.baseline and other.baseline and dict(self.baseline) != dict(other.baseline):
            raise SpecError(
                f"{self.name!r} and {other.name!r} have different baselines; a union has one, leave one out"
            )
        if self.controls and other.controls and self.controls != other.controls:
            raise SpecError(
                f"{self.name!r} and {other.name!r} have different controls; a union has one list, leave one out"
            )
        name, baseline = f"{self.name}-{other.name}", self.baseline or other.baseline
        controls = self.controls or other.controls
        return replace(self, name=name, baseline=baseline, controls=controls, joined=(*self.joined, other))

    def named(self, name: str, *, baseline: Mapping[str, object] | None = None) -> "Grid":
        """Return the grid under another name and, if given, with another baseline."""
        return self.changed(name=name, baseline=baseline or self.baseline)

    def changed(self, **fields: Any) -> "Grid":
        """Return the grid with other values of its fields: `grid.changed(seeds=range(9), baseline={"lr": 0.001})`.

        Raises SpecError for an unknown field, and for the base, axes or rules of a union, which has several.
        """
        own = ["base", "axes", "rules"]
        known = ["name", "seeds", "baseline", "measure", "controls", "learned", "variance", "longer"]
        known += [] if self.joined else own
        for name in fields:
            if self.joined and name in own:
                raise SpecError(f"the union {self.name!r} has several {name}; change those of its grids before |")
            if name not in known:
                raise SpecError(f"a grid has no field {name!r}; it has {', '.join(known)}{suggest_name(name, known)}")
        return replace(self, **fields)

    def _check_axes(self) -> None:
        """Raise `SpecError` unless the baseline names axes that are compared, and one of the axes is."""
        names = self.columns.names
        for name in self.baseline or ():
            if name not in names:
                known = ", ".join(names) or "none"
                raise SpecError(f"the baseline of grid {self.name!r} names {name!r}, which is no axis; it has {known}")
            if name in self.columns.tuned:
                raise SpecError(
                    f"the baseline of grid {self.name!r} names {name!r}, which is tuned; leave it, or tune=True, out"
                )
        if names and names == self.columns.tuned:
            raise SpecError(
                f"grid {self.name!r} tunes all its axes ({', '.join(names)}), so none is compared; leave tune=True "
                "out, or add an axis"
            )

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
    def enumeration(self) -> GridCount:
        """Every cell in execution order, the counts of the rules, and the baseline's key. It enumerates all cells."""
        pruned: Pruned = Counter()
        cells, agreed = [], list[Agreement]()
        rows: dict[RowInfo, None] = {}
        budgets = Budgets(self.name, self.columns)
        for cell in self._cells.all(pruned):
            budgets.add(cell)
            cells.append((bytes.fromhex(cell.key), cell.place))
            infos = ask(cell.trial.row_infos, tuple[InstanceOf[RowInfo], ...], "a list of RowInfo(name, unit)")
            rows |= dict.fromkeys(infos)
            if self.baseline:
                part, picks = cell.place.part, cell.picks
                count = sum(self.columns.equals(part, picks, *wanted) for wanted in self.baseline.items())
                row = self.columns.row(part, picks)
                others, tuned = (tuple(row[name] for name in names) for names in (self._matched, self.columns.tuned))
                agreed.append(Agreement(count, cell.label, cell.key, others, tuned))
        baseline, baselines = None, dict[str, str]()
        if self.baseline:
            baseline, baselines = find_baselines(self.name, self.baseline, self.columns, agreed)
        return GridCount(sorted(cells), pruned, baseline, baselines, header_rows(rows))

    @cached_property
    def comparisons(self) -> int:
        """Number of comparisons with a baseline; cells that differ on nuisance axes alone are one. It is the family."""
        counts, columns = self.enumeration, self.columns
        compared = [name for name in columns.names if name not in columns.tuned]
        settings = {}
        for key, place in counts.cells:
            row = columns.row(place.part, self.parts[place.part].picks(place.address))
            settings[key.hex()] = tuple(row[name] for name in compared)
        bases = {*counts.baselines.values()} or {str(counts.baseline)} & settings.keys()
        return len({*settings.values()} - {settings[base] for base in bases})

    @property
    def controlled(self) -> Controls:
        """The controls that the grid has; none without `controls`."""
        return self.offered if self.controls else Controls()

    @cached_property
    def offered(self) -> Controls:
        """The controls of its cells: those that it has, and those that are missing. It enumerates all cells.

        Raises `SpecError` for `controls` without a measure and a baseline, or that do not fit or are of no cell.
        """
        if self.measure is None or self.baseline is None:
            if not self.controls:
                return Controls()
            raise SpecError(f"grid {self.name!r} has controls, and no measure or no baseline to explain; add both")
        cells = self._cell_trials()
        several, only = self.enumeration.baselines, str(self.enumeration.baseline)
        bases = several or dict.fromkeys((cell for cell in cells if cell != only), only)
        pairs = ((cells[cell], cells[base]) for cell, base in bases.items())
        return find_controls(pairs, {cell: each.label for cell, each in cells.items()}, self.measure, self.controls)

    @cached_property
    def lengthened(self) -> tuple[dict[str, str], dict[str, LongerCell]]:
        """Each chosen cell with the same trained longer, by key, and those of the latter that the grid has not."""
        if self.longer is None or not self.chosen:
            return {}, {}
        cells, paths = self._cell_trials(), {axis["name"]: axis["path"] for axis in self.columns.header()}
        labels = {key: each.label for key, each in cells.items()} | {
            key: each.label for key, each in self.controlled.cells.items()
        }
        return find_longer([cells[key] for key in self.chosen if key in cells], labels, paths, self.longer)

    def _cell_trials(self) -> dict[str, CellTrial]:
        return {
            each.key: CellTrial(each.key, each.label, each.trial, self.columns.row(each.place.part, each.picks))
            for each in self._cells.all(Counter())
        }

    def _data_of_longer(self) -> dict[str, Any]:
        of, added = self.lengthened
        return {"factor": self.longer, "of": of, "added": sorted(added)}

    @property
    def _matched(self) -> list[str]:
        """Axes on which a cell agrees with its baseline if there are several."""
        return [name for name in self.columns.names if name not in (*(self.baseline or ()), *self.columns.tuned)]

    @cached_property
    def _cells(self) -> CellEnumerator:
        return CellEnumerator(self.name, self.parts, self.columns, next(iter(self.seeds)))

    def _plan_trial(self, cell: Cell, trial: Experiment, row: Mapping[str, Scalar], seed: int) -> Planned:
        operator = getattr(trial, "operator", None)
        named = operator.label if isinstance(operator, Spec) else cell.label or self.name
        require_text(cell.label or named, f"grid {self.name!r}: the label of a cell", MOST_LABEL)
        tune = tuple(name for name in self.columns.tuned if row[name] is not None)
        return Planned(trial, trial.key, cell.key, seed, cell.label or named, named, row, tune=tune)

    @cached_property
    def _added(self) -> dict[str, Planned]:
        """The first trials of the cells that are no variants: controls, and cells that are trained longer."""
        cells: dict[str, ControlCell | LongerCell] = {**self.controlled.cells, **self.lengthened[1]}
        added, header = dict[str, Planned](), self.columns.header()
        for key, cell in cells.items():
            operator = getattr(cell.trial, "operator", None)
            named = operator.label if isinstance(operator, Spec) else cell.label
            require_text(cell.label, f"grid {self.name!r}: the label of an added cell", MOST_LABEL)
            if isinstance(cell, LongerCell):
                planned = Planned(cell.trial, cell.trial.key, key, 0, cell.label, named, cell.levels, longer=cell.of)
            else:  # a control has its baseline's levels, and none on the axes that make the baseline one
                changed = {*(self.baseline or ()), *(axis["name"] for axis in header if cell.changes(axis["path"]))}
                levels = {name: None if name in changed else level for name, level in cell.levels.items()}
                planned = Planned(cell.trial, cell.trial.key, key, 0, cell.label, named, levels, cell.control.kind)
            added[key] = _with_seed(planned, next(iter(self.seeds)))
        return added


def _with_seed(planned: Planned, seed: int) -> Planned:
    trial = planned.trial.changed(seed=seed)
    return planned._replace(trial=trial, key=trial.key, seed=seed)
