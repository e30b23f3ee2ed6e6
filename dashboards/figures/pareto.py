"""Trade-offs: the measure of every cell against what it costs, with the steps along which no cell has both better."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import count, number, plain
from dashboards.data.grid_context import CellLook, in_order
from dashboards.data.seed_averages import Scale
from dashboards.figures.canvas import canvas, error_bars, finite, is_cut as goes_on, one_line, points, value_axis
from dashboards.theme.styles import INK, MUTED, REST
from store import Store
from store.analysis.pareto import Quantity, read_objectives
from store.analysis.verdicts import GridMeasure
from store.statistics import Objective, Paired, pareto as standings, summarise, t_interval
from store.statistics.paired_differences import Floats, or_null
from store.statistics.scales import ROUNDING, back, forward

_SIZES: Final = {"on the front": 13, "not told apart": 10, "dominated": 9}
Row = Mapping[str, Any]
_FAINT: Final = "66"
_BAR: Final = "73"
_MOST_NAMES: Final = 12


class TradeOffs(NamedTuple):
    """Cells in two objectives."""

    frame: pl.DataFrame
    """Cells in the grid's order: cell, label, n (seeds with both values), planned, failed, lacks (seeds that another
    has). Objectives: x, x_low, x_high, value, low, high. Also step (see `on_steps`), standing, dominated_by,
    inconclusive, note."""
    x: Objective
    y: Objective


def trade_offs(store: Store, grid: str, measure: GridMeasure, against: Quantity, cells: Sequence[str]) -> TradeOffs:
    """The measure of `cells` against one quantity: averages over the seeds that have both, with t intervals.

    Averages are of logarithms or log odds where an objective has such a scale. Raises as
    `store.analysis.pareto.pareto`.
    """
    found = read_objectives(store, grid, [against], measure=measure._asdict())
    words = standings(found.values, found.objectives, alpha=found.alpha, forbidden=found.forbidden)
    y, x = found.objectives
    kept = found.values.drop_nulls([x.column, y.column]).filter(
        pl.col(x.column).is_finite() & pl.col(y.column).is_finite()
    )
    rows = [
        (cell, *_average(part[x.column], x, measure.alpha), *_average(part[y.column], y, measure.alpha))
        for (cell,), part in kept.group_by("cell", maintain_order=True)
    ]
    names = ("x", "x_low", "x_high", "value", "low", "high")
    frame = pl.DataFrame(rows, schema={"cell": pl.String, **dict.fromkeys(names, pl.Float64)}, orient="row")
    lost = (pl.col("status") == "failed") | (pl.col(y.column).is_not_null() & ~pl.col(y.column).is_finite())
    seeds = found.values.group_by("cell").agg(pl.len().alias("planned"), lost.sum().alias("failed"))
    frame = words.join(seeds.join(frame, on="cell"), on="cell", how="inner", maintain_order="left")
    steps = on_steps(frame["x"].to_list(), frame["value"].to_list(), x, y)
    frame = frame.with_columns(lacks=kept["seed"].n_unique() - pl.col("n"), step=pl.Series(steps, dtype=pl.Boolean))
    first = ("cell", "label", "n", "planned", "failed", "lacks")
    frame = frame.select(*first, *names, "step", "standing", "dominated_by", "inconclusive", "note")
    return TradeOffs(in_order(frame, cells), x, y)


def _average(values: pl.Series, of: Objective, alpha: float) -> tuple[float | None, float | None, float | None]:
    summary = summarise(forward(values.cast(pl.Float64).to_numpy(), of.scale))
    low, high = t_interval(Paired(*(np.asarray(part) for part in summary)), alpha)
    centre, one, other = (or_null(back(float(each), of.scale)) for each in (summary.mean, low, high))
    return centre, one, other


def on_steps(xs: Sequence[float | None], ys: Sequence[float | None], x: Objective, y: Objective) -> list[bool]:
    """Whether no other cell is at least as good in both and better in one; what differs by rounding alone is equal."""
    whole = np.array([xs, ys], dtype=np.float64)
    known = np.flatnonzero(np.isfinite(whole).all(0))
    points = list(zip(_ranks(whole[0, known], x), _ranks(whole[1, known], y), strict=True))
    best: dict[tuple[int, int], bool] = {}
    lowest = len(points)
    for point in sorted(set(points)):  # by x, of equal x the best y first
        best[point] = point[1] < lowest
        lowest = min(lowest, point[1])
    on = {int(at) for at, point in zip(known, points, strict=True) if best[point]}
    return [at in on for at in range(len(xs))]


def _ranks(values: Floats, of: Objective) -> list[int]:
    """The place of every value, the best one's 0; the same where neighbours differ by rounding alone."""
    signed = values if of.better == "lower" else -values
    order = np.argsort(signed, kind="stable")
    inside = signed[order]
    apart = np.diff(inside) > ROUNDING * np.maximum(np.abs(inside[1:]), np.abs(inside[:-1]))
    ranks = np.zeros(values.size, dtype=np.int64)
    ranks[order[1:]] = np.cumsum(apart)
    return [int(rank) for rank in ranks]


def is_cut(found: TradeOffs, log: tuple[bool, bool]) -> bool:
    """True if a bar reaches beyond the frame, on axes that are logarithmic or not."""
    return any(goes_on(frame, _SCALES[of]) for frame, of in zip(_sides(found.frame), log, strict=True))


_SCALES: Final[Mapping[bool, Scale]] = {True: "log", False: "linear"}


def _sides(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The values on both axes with the intervals that are drawn: of cells on the line."""
    drawn = frame.with_columns(pl.when("step").then(pl.col("x_low", "x_high", "low", "high")))
    return drawn.select(value="x", low="x_low", high="x_high"), drawn.select("value", "low", "high")


def draw_trade_offs(found: TradeOffs, look: CellLook, titles: tuple[str, str], log: tuple[bool, bool]) -> go.Figure:
    """A point with both intervals per cell; dominated ones are faint, those that lack seeds of others are ringed, and
    the line steps from best to best.

    Args:
        found: the cells.
        look: of the cells.
        titles: of the axes, x and y, without the arrows.
        log: which of the two axes are logarithmic.
    """
    figure = canvas(480, x=_arrow(titles[0], found.x, "←", "→"), y=_arrow(titles[1], found.y, "↓", "↑"))
    best = found.frame.filter(pl.col("step")).sort("x")
    figure.add_scatter(
        x=best["x"].to_list(),
        y=best["value"].to_list(),
        mode="lines",
        # a step holds the value of the cell with the better x until the next one comes
        line={"color": INK, "width": 2.5, "shape": "hv" if found.x.better == "lower" else "vh"},
        hoverinfo="skip",
        legendgroup="steps",
    )
    names = {cell: one_line(look.names[cell], 30) for cell in best["cell"]} if best.height <= _MOST_NAMES else {}
    for group, rows in _alike(found.frame.drop_nulls(["x", "value"]).to_dicts(), look).items():
        figure.add_trace(_points(rows, group, look, names))
        if lacking := [row for row in rows if row["lacks"]]:
            ring = {"symbol": "circle-open", "size": 22, "color": MUTED, "line": {"width": 1.5}}
            xs, ys = ([row[axis] for row in lacking] for axis in ("x", "value"))
            rings = points(xs, ys, REST, marker=ring, name="lacks seeds of others", hoverinfo="skip")
            figure.add_trace(rings.update(legendgroup=group.partition(":")[0]))
    across, up = _sides(found.frame)
    figure.update_xaxes(**value_axis(across, _SCALES[log[0]]), zeroline=False)
    return figure.update_yaxes(**value_axis(up, _SCALES[log[1]]))


def _arrow(title: str, of: Objective, down: str, up: str) -> str:
    return f"{title} ({down} better)" if of.better == "lower" else f"{title} (better {up})"


def _alike(rows: Sequence[Row], look: CellLook) -> dict[str, list[Row]]:
    """Cells with a style of their own one by one; the others together, so that a thousand of them stay quick."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        alone = look.styles[row["cell"]] != REST
        groups.setdefault(row["cell"] if alone else f"rest: {row['standing']}", []).append(row)
    return groups


def _points(rows: Sequence[Row], group: str, look: CellLook, names: Mapping[str, str]) -> go.Scatter:
    style, standing = look.styles[rows[0]["cell"]], rows[0]["standing"]
    color = style.color + (_FAINT if standing == "dominated" else "")
    columns = {name: [row[name] for row in rows] for name in ("x", "value")}
    ends = ("x_low", "x_high", "low", "high")
    columns |= {name: [row[name] if row["step"] else None for row in rows] for name in ends}
    bar: dict[str, Any] = {"color": style.color + _BAR, "thickness": 1.2, "width": 3}
    return points(
        columns["x"],
        columns["value"],
        style,
        [_describe(row, look) for row in rows],
        error_x=error_bars(columns["x"], columns["x_low"], columns["x_high"], **bar),
        error_y=error_bars(columns["value"], columns["low"], columns["high"], **bar),
        mode="markers+text",
        text=[names.get(row["cell"], "") for row in rows],
        textposition="top right",
        textfont={"color": MUTED, "size": 12},
        legendgroup=group.partition(":")[0],
        marker={"size": _SIZES[standing], "color": color, "line": {"color": color, "width": 1.5}},
    )


def _describe(row: Row, look: CellLook) -> str:
    by = f" by {plain(', '.join(row['dominated_by'][:3]))}" if row["dominated_by"] else ""
    failed = f", {row['failed']} failed" if row["failed"] else ""
    return (
        f"{plain(look.names[row['cell']])}<br>{_span(row, 'value', ('low', 'high'))}"
        f"<br>{_span(row, 'x', ('x_low', 'x_high'))}"
        f"<br>{row['n']} of {count(row['planned'], 'seed')}{failed}<br>{row['standing']}{by}"
    )


def _span(row: Row, mean: str, ends: tuple[str, str]) -> str:
    known = len(finite([row[end] for end in ends])) == len(ends)
    return number(row[mean]) + (f" ({number(row[ends[0]])} to {number(row[ends[1]])})" if known else "")
