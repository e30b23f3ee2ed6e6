"""A table of a paper with one's own results in its places."""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from dashboards.data.formatting import count
from dashboards.data.grid_context import GridContext
from dashboards.figures.table import table_latex, table_sheet
from dashboards.papers.cell_matching import Apart, Levels, Placed, apart, levels, place, speaks
from dashboards.papers.columns import columns_of
from dashboards.papers.derived_metrics import Measured, Measuring, find_values, list_needed_names, measuring, tasks_of
from dashboards.papers.item import Drawn, Item
from store.analysis.our_results import Own
from store.analysis.published_matching import alike, differs, format_size
from store.export.cells import Missing, within_noise
from store.published.tables import PublishedCell, cells
from store.statistics import MIN_PAIRS, Scale, summarise, t_interval
from store.statistics.scales import back, forward

ALPHA: Final = 0.05
_ROUNDING: Final = 1e-12
_MOST_CELLS: Final = 200
"""Cells that compete for the best of a column; pairs of more take too long, and nothing of them is bold."""


class Beside(NamedTuple):
    """A printed cell and what stands in its place."""

    cell: PublishedCell
    own: Own | None
    alike: int
    """Cells of the grid that could stand there; that does which could in most places of the table, then the first."""
    got: Measured
    size: str = ""
    """Where the table tells sizes of models apart and the grid does not: that one's own is another, in words."""


def printed_table(paper: str, number: int) -> list[PublishedCell]:
    """The cells of a table, both halves of one that has two."""
    wanted = f"T{number}"
    return [each for each in cells() if each.paper == paper and each.paper_table.partition("-")[0] == wanted]


def pair_with_own(about: GridContext, table: Sequence[PublishedCell]) -> list[Beside]:
    """Every cell of a table with what the grid has for it."""
    given, by_cell = measuring(about, table), levels(about)
    found: list[Beside] = []
    for half in dict.fromkeys(cell.paper_table for cell in table):
        part = [cell for cell in table if cell.paper_table == half]
        places = _Places(part, apart(part), given, by_cell)
        placed = [places.of(cell) for cell in part]
        often = Counter(own.cell for each in placed for own in each.cells)
        found += [places.pair(cell, each, often) for cell, each in zip(part, placed, strict=True)]
    return found


class _Places(NamedTuple):
    table: Sequence[PublishedCell]
    told: Apart
    given: Measuring
    by_cell: Levels

    def of(self, cell: PublishedCell) -> Placed:
        return place(cell, self.told, self.given.about, self.given.found, self.by_cell)

    def pair(self, cell: PublishedCell, placed: Placed, often: Mapping[str, int]) -> Beside:
        if not placed.cells:
            return Beside(cell, None, 0, Measured({}, why=placed.why))
        own = max(placed.cells, key=lambda each: often[each.cell])
        got = find_values(cell, own, self._softmax(cell, own), self.given)
        return Beside(cell, own, len(placed.cells), got, self._size(cell, own))

    def _size(self, cell: PublishedCell, own: Own) -> str:
        told = "model" in self.told.facts and self.told.operators
        if not told or any(speaks(axis, "model") for axis in self.given.about.header["axes"]):
            return ""
        if cell.parameters is not None and alike(cell.parameters, own.parameters):
            return ""
        here = f"{format_size(own.parameters)} parameters" if own.parameters else "of unknown size"
        return f"not {cell.model}: the same cell beside every size, {here}"

    def _softmax(self, cell: PublishedCell, own: Own) -> Own | None:
        """The softmax that a derived value is against: the grid's whose spec is the same else."""
        if cell.measurement is not None or tasks_of(cell):
            return None
        plain = (each for each in self.given.found.cells.values() if self._is_softmax(each))
        return next((each for each in plain if each.rest == own.rest), None)

    def _is_softmax(self, own: Own) -> bool:
        return ("softmax", ()) in self.given.found.operators.get(own.cell, ())


def frame(about: GridContext, found: Sequence[Beside]) -> pl.DataFrame:
    """One row per printed cell.

    Returns:
        row, column, printed, unit, measurement, point, cell (the label of one's own), n, planned, mean (on the log
        scale the geometric one), spread (the longer half of a 95 % t interval over seeds, from three on), low, high:
        in the printed unit; scale; missing, why, best, differs, notes, trust, mark, size, note (size and what was
        chosen among several cells or points).
    """
    progress = {row["cell"]: row for row in about.store.progress(about.grid).iter_rows(named=True)}
    best = _best(found, progress)
    rows = [_row(each, progress, best=i in best) for i, each in enumerate(found)]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _row(each: Beside, progress: Mapping[str, Mapping[str, Any]], *, best: bool) -> tuple[Any, ...]:
    cell, own, _, got, size = each
    state = progress.get(own.cell) if own is not None else None
    runs = _usable(cell, got)
    mean, low, high = _average(list(runs.values()), cell.scale)
    spread = None if mean is None or low is None or high is None else max(high - mean, mean - low)
    missing, why = (None, None) if runs else _missing(got, state)
    where = cell.paper_table.partition("-")[2]
    rows = f"{cell.row_label} ({where})" if where else cell.row_label
    return (
        *(rows, cell.column_label, cell.printed, cell.unit, cell.measurement or cell.metric, got.point),
        *(own.label if own else None, len(runs), state["planned"] if state else 0, mean, spread, low, high, cell.scale),
        *(missing, why, best, differs(cell, own) if own else None, list(cell.notes), cell.trust, cell.mark),
        size or None,
        _note(each) if runs else None,
    )


def _average(values: Sequence[float], scale: Scale) -> tuple[float | None, float | None, float | None]:
    """The mean and its interval, computed on the scale; of fewer than three values there is no interval."""
    if not values:
        return None, None, None
    summary = summarise(forward(np.array(values, dtype=np.float64), scale))
    mean = float(summary.mean)
    if len(values) < MIN_PAIRS:
        return back(mean, scale), None, None
    flat = float(summary.sd) <= _ROUNDING * max(abs(mean), 1.0 if scale == "log" else 0.0)
    low, high = (mean, mean) if flat else map(float, t_interval(summary, ALPHA))
    return back(mean, scale), back(low, scale), back(high, scale)


def _note(each: Beside) -> str | None:
    """Note that the model has another size, or that several cells or points match."""
    several = f"1 of {each.alike} cells: {each.own.label}" if each.own is not None and each.alike > 1 else ""
    points = f"1 of {each.got.points} points: {each.got.point}" if each.got.points > 1 else ""
    return "; ".join(filter(None, (each.size, several, points))) or None


def _missing(got: Measured, state: Mapping[str, Any] | None) -> tuple[Missing, str]:
    if state is None:
        return "unmeasured", got.why
    if state["running"] or state["pending"]:
        return "unfinished", f"{state['pending'] + state['running']} of {count(state['planned'], 'run')} not finished"
    if state["failed"] or got.runs:
        return "failed", f"{state['failed']} of {count(state['planned'], 'run')} failed; no other has a usable value"
    return "unmeasured", got.why


def _best(found: Sequence[Beside], progress: Mapping[str, Mapping[str, Any]]) -> set[int]:
    """Places of what is not shown to be worse than the best among cells that the paper compares."""
    groups: dict[Hashable, list[int]] = {}
    of_models = apart([each.cell for each in found]).operators
    for i, each in enumerate(found):
        if each.own is not None and each.cell.better is not None:
            groups.setdefault(_compared_group(each.cell, of_models=of_models), []).append(i)
    best: set[int] = set()
    for places in groups.values():
        first = {_cell(found[i]): i for i in reversed(places)}
        if not 1 < len(first) <= _MOST_CELLS:
            continue
        cell = found[places[0]].cell
        runs = [_usable_runs(found[i], progress) for i in first.values()]
        kept = within_noise(runs, cell.scale, cell.better or "lower", ALPHA)
        winners = {own for k, own in enumerate(first) if k in kept}
        best |= {i for i in places if _cell(found[i]) in winners}
    return best


def _cell(each: Beside) -> str:
    return each.own.cell if each.own is not None else ""


def _compared_group(cell: PublishedCell, *, of_models: bool) -> Hashable:
    """Return the key of the cells among which a table marks the best: quantity, and model if it has operators."""
    shots = cell.setup.get("shots"), cell.setup.get("layer from the end")
    model = cell.model if of_models else None
    return cell.paper_table, cell.metric, tuple(sorted(cell.point.items())), model, shots


def _usable_runs(each: Beside, progress: Mapping[str, Mapping[str, Any]]) -> Mapping[int, float]:
    runs = _usable(each.cell, each.got)
    return {} if progress[_cell(each)]["failed"] or len(runs) < len(each.got.runs) else runs


def _usable(cell: PublishedCell, got: Measured) -> dict[int, float]:
    """Values that are finite and that the scale of the cell can take."""
    log = cell.scale == "log"
    return {seed: value for seed, value in got.runs.items() if math.isfinite(value) and (value > 0 or not log)}


def draw_printed(about: GridContext, paper: str, number: int) -> Drawn:
    """The table of a paper with one's own results in its places; signs with a reason where there is none."""
    table = printed_table(paper, number)
    found = frame(about, pair_with_own(about, table))
    if found["mean"].is_null().all():
        reasons = found["why"].drop_nulls().value_counts(sort=True)["why"].to_list()
        return Drawn(data=found, message=f"The campaign has nothing of it: {reasons[0]}.")
    caption = f"{own_words(about, table)} {_SIGNS}"
    size = ""
    if found["size"].is_not_null().any():
        size = " The grid has one size of model, which stands beside every printed size."
    few = ""
    if (found["n"].is_between(1, found["planned"] - 1)).any():
        few = " a/b: a of b planned seeds have a value."
    latex = (
        f"The layout of {paper}, table {number}, with results of one's own: every number is of the grid {about.grid}, "
        f"none is printed in the paper. {caption}{few}{size}"
    )
    return Drawn(caption, found, sheet=table_sheet(found, columns_of(table)), latex=table_latex(found, latex))


def own_words(about: GridContext, table: Sequence[PublishedCell]) -> str:
    """Explain one's own numbers in a table."""
    logs = {cell.scale == "log" for cell in table if cell.value is not None}
    mean = "Geometric means" if logs == {True} else "Means"
    some = " (geometric where the table spans decades)" if logs == {True, False} else ""
    half = "the longer half" if True in logs else "half"
    of_logs = " of logarithms" if logs == {True} else ""
    planned = len(about.header["seeds"])
    return (
        f"{mean} over seeds{some}, {planned} planned, in the printed unit; ± is {half} of the 95 % t interval over "
        f"seeds{of_logs}, from three seeds on."
    )


_SIGNS: Final = (
    "Bold: not shown to be worse than the best of its group (paired t tests by seed, Holm). Nothing is bold if no "
    "difference is shown. × failed, … not finished, – not measured."
)


def printed_item(paper: str, number: int, title: str, shows: str, spec: str = "") -> Item:
    """A table of which `store.published` has every printed cell."""
    table = printed_table(paper, number)
    names = [name for cell in table for name in list_needed_names(cell)]
    make = partial(draw_printed, paper=paper, number=number)
    return Item(paper, "table", number, title, shows, tuple(dict.fromkeys(names)), make, spec)


_SCHEMA: Final[dict[str, Any]] = {
    **dict.fromkeys(("row", "column", "printed", "unit", "measurement", "point", "cell"), pl.String),
    **dict.fromkeys(("n", "planned"), pl.Int64),
    **dict.fromkeys(("mean", "spread", "low", "high"), pl.Float64),
    **dict.fromkeys(("scale", "missing", "why"), pl.String),
    "best": pl.Boolean,
    "differs": pl.String,
    "notes": pl.List(pl.Int64),
    **dict.fromkeys(("trust", "mark", "size", "note"), pl.String),
}
