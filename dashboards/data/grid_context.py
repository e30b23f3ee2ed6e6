"""One grid of an open store, with the names and styles of its cells."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from ablate.dashboards.data.formatting import BETWEEN
from ablate.dashboards.data.user_errors import catch_user_error
from ablate.dashboards.theme.styles import REST, CellStyle, Style, cell_styles
from ablate.store import Store
from ablate.store.analysis.judge import judge
from ablate.store.analysis.once import once
from ablate.store.analysis.row_labels import unit_of
from ablate.store.analysis.tuned_verdicts import ComparedRuns, nuisance_axes
from ablate.store.analysis.verdicts import GridMeasure, matched_axes, measure_of
from ablate.store.files.plans import added_cells
from ablate.store.state import State

MOST_CURVES: Final = 9  # more curves in one picture cannot be told apart
MOST_LEADING: Final = 5  # variants in a picture of curves with bands, until the reader adds more
MOST_STYLED: Final = 40  # more cells in one picture have no style of their own
MOST_ROWS: Final = 32  # more rows of cells, or of levels, in one picture cannot be read


class Appearance(NamedTuple):
    """How cells appear in every figure: by cell key."""

    names: Mapping[str, str]
    styles: Mapping[str, Style]


class GridContext(NamedTuple):
    """One grid of an open store."""

    store: Store
    grid: str
    header: Mapping[str, Any]
    measure: GridMeasure | None  # the measure that judges the grid; None if it names none, or none that its runs have
    problem: str | None  # why the measure that the grid names is of no use
    cells: Sequence[CellStyle]  # the baseline first, then in the order of the axes' levels
    appearance: Appearance
    drawn: Sequence[str]  # keys of the cells that pictures of single cells show (`worth_drawing`)

    @property
    def unit(self) -> str:
        """Unit of the measure; empty if it has none."""
        return unit_of(self.header, str((self.header["measure"] or {}).get("name") or ""))

    @property
    def baseline(self) -> str | None:
        """Its cell key."""
        cell: str | None = self.header["baseline"]
        return cell

    @property
    def compared(self) -> Sequence[CellStyle]:
        """Its variants and baselines: all cells but controls and those that are trained longer."""
        added = added_cells(self.header)
        return [cell for cell in self.cells if cell.cell not in added]

    @property
    def baselines(self) -> Mapping[str, str]:
        """The baseline of each cell, by key; empty if the grid has none."""
        return baselines_by_cell(self.header, self.cells)

    @property
    def baseline_label(self) -> str | None:
        """How the headline calls the baseline: with all of its levels, which other sentences leave out."""
        label = self.appearance.names.get(self.baseline or "")
        return f"the baseline ({label})" if self.baseline_name == "the baseline" else self.baseline_name

    @property
    def baseline_name(self) -> str | None:
        """How sentences call the baseline."""
        best = f" at its best {', '.join(tuned)}" if (tuned := nuisance_axes(self.header)) else ""
        if self.header.get("baselines"):
            matched = ", ".join(matched_axes(self.store, self.grid))
            same = f" of the same {matched}" if matched else ""
            return f"the baseline{same}{best}"
        name = None if self.baseline is None else self.appearance.names.get(self.baseline)
        return "the baseline" if name and name.count(BETWEEN) > 1 else name and f"{name}{best}"


def name_settings(context: GridContext, runs: ComparedRuns) -> GridContext:
    """The grid with one cell for each tuned setting, named without the levels chosen, and their baselines."""
    if not runs.choices:
        return context
    names = {**context.appearance.names, **dict(runs.values.select("cell", "label").iter_rows())}
    cells = [cell for cell in context.cells if runs.stands_for.get(cell.cell, cell.cell) == cell.cell]
    several = {"": runs.baseline} if isinstance(runs.baseline, str) else dict(runs.baseline)
    if len(bases := {*several.values()}) == 1:
        header = {**context.header, "baseline": bases.pop(), "baselines": {}}
    else:
        header = {**context.header, "baseline": runs.stands_for.get(context.baseline or ""), "baselines": several}
    return context._replace(header=header, cells=cells, appearance=context.appearance._replace(names=names))


def appearance_of(context: GridContext, cells: Collection[str]) -> Appearance:
    """How a picture of all cells shows them: each in its style, or of more than `MOST_STYLED` only `cells`."""
    if len(context.cells) <= MOST_STYLED:
        return context.appearance
    styles = {cell: style if cell in cells else REST for cell, style in context.appearance.styles.items()}
    return context.appearance._replace(styles=styles)


def baselines_by_cell(header: Mapping[str, Any], cells: Sequence[CellStyle]) -> Mapping[str, str]:
    """Return the baseline of each cell, by key: its own, or that of the grid."""
    several: Mapping[str, str] = header.get("baselines") or {}
    return several or ({cell.cell: header["baseline"] for cell in cells} if header["baseline"] else {})


@once
def campaign_styles(store: Store) -> Mapping[str, Style]:
    """The style of every cell of the campaign by its key, and of every operator by its name: that of its first cell.

    They follow the plan alone, so a cell looks alike on every page, in every grid, and whatever is shown beside it.
    """
    grids = store.grids()
    cells = dict[str, CellStyle]()
    for grid in grids:
        cells |= {cell.cell: cell for cell in _cells(store, grid) if cell.cell not in cells}
    styles = cell_styles([*cells.values()], store.grid(grids[0])["baseline"] if grids else None)
    return {cell.operator: styles[cell.cell] for cell in reversed(cells.values())} | styles


@once
def _cells(store: Store, grid: str) -> list[CellStyle]:
    listed = store.sql(
        "SELECT cell, min(label) AS label, min(operator) AS operator, min(axes::VARCHAR) AS axes FROM grid_trial "
        "WHERE grid = $grid GROUP BY cell ORDER BY min(position)",
        {"grid": grid},
    )
    rows = [(CellStyle(*row[:3]), json.loads(row[3])) for row in listed.iter_rows()]
    return in_grid_order(store.grid(grid), rows)


def grid_context(store: Store, grid: str, styles: Mapping[str, Style], most: int = MOST_CURVES) -> GridContext:
    """The grid `grid` of `store`, in the styles of its campaign (`campaign_styles`); `most` cells are drawn."""
    header, cells = store.grid(grid), _cells(store, grid)
    measure, averaged, problem = None, None, None
    if "name" in (header["measure"] or {}):
        measure, problem = catch_user_error(lambda: measure_of(store, grid, None))
    if measure is not None:
        judged = measure
        averaged, problem = catch_user_error(lambda: averages(store, grid, judged))
        measure = None if averaged is None else measure
    own = baselines_by_cell(header, cells)
    drawn = worth_drawing(cells, own, averaged, measure, most)
    names = {cell.cell: cell.label or cell.operator for cell in cells}
    appearance = Appearance(names, {key: styles[key] for key in names})
    return GridContext(store, grid, header, measure, problem, cells, appearance, drawn)


def in_grid_order(header: Mapping[str, Any], cells: Sequence[tuple[CellStyle, Mapping[str, Any]]]) -> list[CellStyle]:
    """Cells with the values of their axes, sorted: the baseline first, then as the grid lists the levels.

    (They run in another order, which is shuffled on purpose.) A cell to which an axis does not apply comes first.
    """

    ranks = {axis["name"]: {label: at for at, label in enumerate(axis["labels"])} for axis in header["axes"]}

    def place(pair: tuple[CellStyle, Mapping[str, Any]]) -> tuple[object, ...]:
        cell, axes = pair
        levels = [(rank, axes.get(name)) for name, rank in ranks.items()]
        places = [rank.get(level if isinstance(level, str) else json.dumps(level), -1) for rank, level in levels]
        return cell.cell != header["baseline"], places

    return [cell for cell, _ in sorted(cells, key=place)]


def in_order(frame: pl.DataFrame, cells: Sequence[str], *then: str, by: str = "cell") -> pl.DataFrame:
    """The rows whose column `by` is one of `cells`, in their order, then by the columns `then`."""
    place = {cell: i for i, cell in enumerate(cells)}
    kept = frame.filter(pl.col(by).is_in(list(cells)))
    return kept.sort(pl.col(by).replace_strict(place, default=None, return_dtype=pl.Int64), *then)


def best_first(frame: pl.DataFrame, measure: GridMeasure) -> pl.DataFrame:
    """Sort rows such as verdicts by `difference`, the best first and those without one last."""
    return frame.sort("difference", descending=measure.better == "higher", nulls_last=True, maintain_order=True)


@once
def averages(store: Store, grid: str, measure: GridMeasure) -> pl.DataFrame:
    """The measure of every cell over its ok trials, in the order of the plan: cell, n, value.

    `value` is the geometric mean on the log scale, the rate of the mean log odds on the logit scale, else the mean.
    It is null if the scale cannot take a value, or one is not finite.
    """
    runs = store.final(grid, measure.name, measure.point).filter(pl.col("state") == State.DONE)
    value = pl.col("value")
    positive = pl.when(value > 0).then(value).log().mean().exp()
    odds = (value / (1 - value)).log().mean().exp()
    mean = {
        "log": pl.when((value > 0).all()).then(positive),
        "logit": pl.when(((value > 0) & (value < 1)).all()).then(odds / (1 + odds)),
        "linear": value.mean(),
    }[measure.scale]
    known = pl.when(value.is_finite().all()).then(mean)
    return runs.group_by("cell", maintain_order=True).agg(value.count().alias("n"), known.alias("value"))


def leading_cells(context: GridContext) -> tuple[list[str], int] | None:
    """Return the best `MOST_LEADING` variants with their baselines, and how many variants there are.

    Levels are the ones that verdicts choose; what is shown to be better comes first, what has no verdict last. None if
    nothing can be judged.
    """
    judged, _ = catch_user_error(lambda: judge(context.store, context.grid).rows)
    if judged is None or judged.is_empty() or context.measure is None:
        return None
    ranks = {"better": 0, "no verdict": 2}
    order = pl.col("verdict").replace_strict(ranks, default=1, return_dtype=pl.Int8)
    ranked = best_first(judged, context.measure).sort(order, maintain_order=True)
    kept: set[str] = set()
    for cell, base in ranked.select("cell", "baseline").iter_rows():
        kept = kept | {cell, base} if len(kept | {cell, base}) <= MOST_LEADING + 1 else kept
    return [cell.cell for cell in context.cells if cell.cell in kept], judged.height


def worth_drawing(
    cells: Sequence[CellStyle],
    baselines: Mapping[str, str],
    averaged: pl.DataFrame | None,
    measure: GridMeasure | None,
    most: int = MOST_CURVES,
) -> list[str]:
    """The cells that pictures of single cells show: all, or the best by `averaged` (`averages`) and their baselines."""
    keys = [cell.cell for cell in cells]
    if len(keys) <= most:
        return keys
    ranked: list[str] = []
    if averaged is not None and measure is not None:
        known = averaged.drop_nulls("value")
        ranked = known.sort("value", descending=measure.better == "higher", maintain_order=True)["cell"].to_list()
    kept: set[str] = set()
    for key in dict.fromkeys([*ranked, *keys]):
        with_baseline = kept | {key, baselines.get(key, key)}
        if len(with_baseline) > most:
            break
        kept = with_baseline
    return [key for key in keys if key in kept]
