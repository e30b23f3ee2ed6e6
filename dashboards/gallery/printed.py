"""A table of a paper with one's own results in its places."""

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from dashboards.figures.table import table_latex, table_sheet
from dashboards.gallery.item import Drawn, Item
from dashboards.gallery.measuring import Measured, Measuring, measured, measuring, tasks_of
from dashboards.gallery.placing import Apart, Levels, Placed, apart, levels, place, speaks
from dashboards.subject import Subject
from dashboards.words import count
from store.export.cells import Missing, within_noise
from store.published.own import Own
from store.published.reading import Cell, cells
from store.published.setting import alike, differs, sized
from store.statistics import summarise, t_interval
from store.statistics.paired import Paired

ALPHA: Final = 0.05
_ROUNDING: Final = 1e-12
_MOST_CELLS: Final = 200
"""Cells that compete for the best of a column; pairs of more take too long, and nothing of them is bold."""


class Beside(NamedTuple):
    """A printed cell and what stands in its place."""

    cell: Cell
    own: Own | None
    others: int
    """Further cells of the grid that could stand there; the first in the grid's order does."""
    got: Measured
    size: str = ""
    """Where the table tells sizes of models apart and the grid does not: that one's own is another, in words."""


def printed_table(paper: str, number: int) -> list[Cell]:
    """The cells of a table, both halves of one that has two."""
    wanted = f"T{number}"
    return [each for each in cells() if each.paper == paper and each.paper_table.partition("-")[0] == wanted]


def beside(about: Subject, table: Sequence[Cell]) -> list[Beside]:
    """Every cell of a table with what the grid has for it."""
    given, by_cell = measuring(about, table), levels(about)
    found: list[Beside] = []
    for half in dict.fromkeys(cell.paper_table for cell in table):
        part = [cell for cell in table if cell.paper_table == half]
        placed = _Places(part, apart(part), given, by_cell)
        found += [placed.beside(cell) for cell in part]
    return found


class _Places(NamedTuple):
    table: Sequence[Cell]
    told: Apart
    given: Measuring
    by_cell: Levels

    def of(self, cell: Cell) -> Placed:
        return place(cell, self.told, self.given.about, self.given.found, self.by_cell)

    def beside(self, cell: Cell) -> Beside:
        placed = self.of(cell)
        if not placed.cells:
            return Beside(cell, None, 0, Measured({}, why=placed.why))
        own = placed.cells[0]
        got = measured(cell, own, self._softmax(cell, own), self.given)
        return Beside(cell, own, len(placed.cells) - 1, got, self._size(cell, own))

    def _size(self, cell: Cell, own: Own) -> str:
        told = "model" in self.told.facts and self.told.operators
        if not told or any(speaks(axis, "model") for axis in self.given.about.header["axes"]):
            return ""
        if cell.parameters is not None and alike(cell.parameters, own.parameters):
            return ""
        here = f"{sized(own.parameters)} parameters" if own.parameters else "of unknown size"
        return f"not {cell.model}: the same cell beside every size, {here}"

    def _softmax(self, cell: Cell, own: Own) -> Own | None:
        """The softmax that a derived value is against: that of the table, else the grid's with the same spec else."""
        if cell.measurement is not None or tasks_of(cell):
            return None
        plain = [each for each in self.given.found.cells.values() if self._is_softmax(each)]
        same = [each for each in plain if each.rest == own.rest]
        return next(iter(same or plain), None)

    def _is_softmax(self, own: Own) -> bool:
        return ("softmax", ()) in self.given.found.operators.get(own.cell, ())


def frame(about: Subject, found: Sequence[Beside]) -> pl.DataFrame:
    """One row per printed cell.

    Returns:
        row, column, printed, unit, measurement, point, cell (the label of one's own), n, planned, mean, spread (half of
        a 95 % t interval over seeds), low, high: in the printed unit; missing, why, best, differs, notes, trust, size.
    """
    progress = {row["cell"]: row for row in about.store.progress(about.grid).iter_rows(named=True)}
    best = _best(found, progress)
    rows = [_row(each, progress, best=i in best) for i, each in enumerate(found)]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _row(each: Beside, progress: Mapping[str, Mapping[str, Any]], *, best: bool) -> tuple[Any, ...]:
    cell, own, _, got, size = each
    state = progress.get(own.cell) if own is not None else None
    runs = _finite(got.runs)
    summary = summarise(np.array(list(runs.values()), dtype=np.float64)) if runs else None
    mean = float(summary.mean) if summary else None
    low, high = _interval(summary) if summary and len(runs) > 1 else (None, None)
    spread = None if mean is None or low is None else mean - low
    missing, why = (None, None) if runs else _missing(got, state)
    label = own.label if own else None
    where = cell.paper_table.partition("-")[2]
    rows = f"{cell.row_label} ({where})" if where else cell.row_label
    return (
        *(rows, cell.column_label, cell.printed, cell.unit, cell.measurement or cell.metric, got.point, label),
        *(len(runs), state["planned"] if state else 0, mean, spread, low, high, missing, why, best),
        *(differs(cell, own) if own else None, list(cell.notes), cell.trust, size or None),
    )


def _interval(summary: Paired) -> tuple[float, float]:
    """Of the mean; of values that are equal but for rounding that value."""
    if float(summary.sd) <= _ROUNDING * abs(float(summary.mean)):
        return float(summary.mean), float(summary.mean)
    low, high = t_interval(summary, ALPHA)
    return float(low), float(high)


def _missing(got: Measured, state: Mapping[str, Any] | None) -> tuple[Missing, str]:
    if state is None:
        return "unmeasured", got.why
    if state["running"] or state["pending"]:
        return "unfinished", f"{state['pending'] + state['running']} of {count(state['planned'], 'run')} not finished"
    if state["failed"] or got.runs:
        return "failed", f"{state['failed']} of {count(state['planned'], 'run')} failed; no other has a finite value"
    return "unmeasured", got.why


def _best(found: Sequence[Beside], progress: Mapping[str, Mapping[str, Any]]) -> set[int]:
    """Places of what is not shown to be worse than the best among cells that the paper compares."""
    groups: dict[Hashable, list[int]] = {}
    of_models = apart([each.cell for each in found]).operators
    for i, each in enumerate(found):
        if each.own is not None and each.cell.better is not None:
            groups.setdefault(_compared(each.cell, of_models=of_models), []).append(i)
    best: set[int] = set()
    for places in groups.values():
        first = {_cell(found[i]): i for i in reversed(places)}
        if not 1 < len(first) <= _MOST_CELLS:
            continue
        cell = found[places[0]].cell
        runs = [_judged(found[i], progress) for i in first.values()]
        kept = within_noise(runs, cell.scale, cell.better or "lower", ALPHA)
        winners = {own for k, own in enumerate(first) if k in kept}
        best |= {i for i in places if _cell(found[i]) in winners}
    return best


def _cell(each: Beside) -> str:
    return each.own.cell if each.own is not None else ""


def _compared(cell: Cell, *, of_models: bool) -> Hashable:
    """What cells share among which a table looks for the best: a quantity, and the model where it has operators."""
    shots = cell.setup.get("shots"), cell.setup.get("layer from the end")
    model = cell.model if of_models else None
    return cell.paper_table, cell.metric, tuple(sorted(cell.point.items())), model, shots


def _judged(each: Beside, progress: Mapping[str, Mapping[str, Any]]) -> Mapping[int, float]:
    runs = _finite(each.got.runs)
    return {} if progress[_cell(each)]["failed"] or len(runs) < len(each.got.runs) else runs


def _finite(runs: Mapping[int, float]) -> dict[int, float]:
    return {seed: value for seed, value in runs.items() if value - value == 0}


def draw_printed(about: Subject, paper: str, number: int) -> Drawn:
    """The table of a paper with one's own results in its places; signs with a reason where there is none."""
    table = printed_table(paper, number)
    found = frame(about, beside(about, table))
    if found["mean"].is_null().all():
        reasons = found["why"].drop_nulls().value_counts(sort=True)["why"].to_list()
        return Drawn(data=found, message=f"The campaign has nothing of it: {reasons[0]}.")
    caption = (
        "Means over seeds in the printed unit; ± is half the 95 % t interval over seeds. Bold: not shown to be worse "
        "than the best of what the table compares (paired t tests by seed, Holm); where nothing is told apart, nothing "
        "is bold. × failed, … not finished, – not measured."
    )
    title = f"{paper}, table {number}"
    if found["size"].is_not_null().any():
        title += "; the grid has one size of model, which stands beside every printed size"
    return Drawn(caption, found, sheet=table_sheet(found), latex=table_latex(found, title))


def printed_item(paper: str, number: int, title: str, shows: str, spec: str = "") -> Item:
    """A table of which `store.published` has every printed cell."""
    table = printed_table(paper, number)
    names = [name for cell in table for name in ([cell.measurement] if cell.measurement else tasks_of(cell))]
    make = partial(draw_printed, paper=paper, number=number)
    return Item(paper, "table", number, title, shows, tuple(dict.fromkeys(names)), make, spec)


_SCHEMA: Final[dict[str, Any]] = {
    **dict.fromkeys(("row", "column", "printed", "unit", "measurement", "point", "cell"), pl.String),
    **dict.fromkeys(("n", "planned"), pl.Int64),
    **dict.fromkeys(("mean", "spread", "low", "high"), pl.Float64),
    **dict.fromkeys(("missing", "why"), pl.String),
    "best": pl.Boolean,
    "differs": pl.String,
    "notes": pl.List(pl.Int64),
    "trust": pl.String,
    "size": pl.String,
}
