"""Trade-offs: the measure of every cell against what it costs, with the steps along which no cell has both better."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import count, number, plain
from ablate.dashboards.data.grid_context import Appearance, in_order
from ablate.dashboards.data.seed_averages import Scale
from ablate.dashboards.figures.canvas import canvas, error_bars, finite, is_cut, one_line, points, value_axis
from ablate.dashboards.theme.styles import MUTED, REST, shared_style
from ablate.store import Store
from ablate.store.analysis.pareto import Quantity, read_objectives, standings
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.state import State
from ablate.store.statistics import Objective, summarise, t_interval
from ablate.store.statistics.paired_differences import or_null
from ablate.store.statistics.scales import back, forward

_FAINT: Final = "59"  # opacity of intervals, which cross each other
_SIZES: Final = {"on the front": 13, "inconclusive": 10, "dominated": 9}
_SCALES: Final[Mapping[bool, Scale]] = {True: "log", False: "linear"}
_FRAME: Final = (720, 400)  # pixels of the narrowest frame, in which names are placed
_AROUND: Final = 80  # pixels beside the frame
_LETTER: Final = (7, 16)  # pixels of a letter of a name
_ENDS: Final = ("x_low", "x_high", "low", "high")
_RADIUS: Final = 8  # pixels of a point
_BESIDE: Final = ("top right", "bottom right", "top left", "bottom left")
FRONT: Final = shared_style(MUTED, "8px,3px", "line-ew")
"""The line along the best, which has dashes and no marker, since cells in `REST` are grey, too."""
Row = Mapping[str, Any]
Box = tuple[float, float, float, float]
"""Left, low, right and high end, in pixels."""


class TradeOffs(NamedTuple):
    """Cells in two objectives."""

    frame: pl.DataFrame
    """Cells in the grid's order: cell, label, n (seeds with both values), planned, failed, infinite (finished, and the
    measure is not finite), lacks (seeds that another has). Objectives: x, x_low, x_high, value, low, high. Also step
    (see `on_steps`), standing, dominated_by, inconclusive, note."""
    x: Objective
    y: Objective
    planned: int
    """Cells, or settings at their best level of the axes that are tuned, with or without values."""


def trade_offs(store: Store, grid: str, measure: GridMeasure, against: Quantity, cells: Sequence[str]) -> TradeOffs:
    """The measure of `cells` against one quantity: averages over the seeds that have both, with t intervals.

    Averages are of logarithms or log odds where an objective has such a scale. Raises as
    `ablate.store.analysis.pareto.pareto`.
    """
    compared = read_objectives(store, grid, [against], measure=measure._asdict())
    words = standings(compared)
    y, x = compared.objectives
    finite_y = pl.col(y.column).is_finite()
    kept = compared.values.drop_nulls([x.column, y.column]).filter(pl.col(x.column).is_finite() & finite_y)
    rows = [
        (cell, *_average(part[x.column], x, measure.alpha), _average(part[y.column], y, measure.alpha)[0])
        for (cell,), part in kept.group_by("cell", maintain_order=True)
    ]
    names = ("x", "x_low", "x_high", "value")
    frame = pl.DataFrame(rows, schema={"cell": pl.String, **dict.fromkeys(names, pl.Float64)}, orient="row")
    failed = pl.col("state") == State.FAILED
    infinite = ~failed & pl.col(y.column).is_not_null() & ~finite_y
    counts = (pl.len().alias("planned"), failed.sum().alias("failed"), infinite.sum().alias("infinite"))
    seeds = compared.values.group_by("cell").agg(*counts)
    frame = words.join(seeds.join(frame, on="cell"), on="cell", how="inner", maintain_order="left")
    steps = on_steps(frame["x"].to_list(), frame["value"].to_list(), x, y)
    frame = frame.with_columns(lacks=kept["seed"].n_unique() - pl.col("n"), step=pl.Series(steps, dtype=pl.Boolean))
    first = ("cell", "label", "n", "planned", "failed", "infinite", "lacks")
    frame = frame.select(*first, *names, "low", "high", "step", "standing", "dominated_by", "inconclusive", "note")
    return TradeOffs(in_order(frame, cells), x, y, seeds.height)


def _average(values: pl.Series, of: Objective, alpha: float) -> list[float | None]:
    summary = summarise(forward(values.cast(pl.Float64).to_numpy(), of.scale))
    return [or_null(back(float(each), of.scale)) for each in (summary.mean, *t_interval(summary, alpha))]


def on_steps(xs: Sequence[float | None], ys: Sequence[float | None], x: Objective, y: Objective) -> list[bool]:
    """Whether no other cell is at least as good in both and better in one; what differs by rounding alone is equal."""

    def cost(value: float | None, of: Objective) -> float | None:
        known = finite([value])
        return float(f"{known[0]:.12g}") * (1 if of.better == "lower" else -1) if known else None

    places = [(cost(across, x), cost(up, y)) for across, up in zip(xs, ys, strict=True)]
    rivals = {(across, up) for across, up in places if across is not None and up is not None}
    best = {(a, b) for a, b in rivals if not any(c <= a and d <= b and (c, d) != (a, b) for c, d in rivals)}
    return [place in best for place in places]


def draw_trade_offs(
    trade_offs: TradeOffs, appearance: Appearance, titles: tuple[str, str], log: tuple[bool, bool]
) -> go.Figure:
    """A point per cell with both intervals, and the line that steps from best to best; names where they have room.

    Cells in `REST` have neither intervals nor names. Dominated cells are faint, those that lack seeds of others are
    ringed. `titles` are of the axes x and y, without arrows; `log` says which of them are logarithmic.
    """
    figure = canvas(480, x=_arrow(titles[0], trade_offs.x, "←", "→"), y=_arrow(titles[1], trade_offs.y, "↓", "↑"))
    best = trade_offs.frame.filter(pl.col("step")).sort("x")
    # a step holds the value of the cell with the better x until the next one comes
    shape: Literal["hv", "vh"] = "hv" if trade_offs.x.better == "lower" else "vh"
    line = {"color": FRONT.color, "width": 2, "dash": FRONT.dash, "shape": shape}
    x, y = best["x"].to_list(), best["value"].to_list()
    figure.add_scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", legendgroup="steps")
    ordered = [*best["cell"], *trade_offs.frame.filter(~pl.col("step"))["cell"]]
    named = [cell for cell in ordered if appearance.styles[cell] != REST]
    names = dict(zip(named, one_line([appearance.names[cell] for cell in named], 30), strict=True))
    frame = _styled_intervals(trade_offs.frame, appearance)
    axes = [value_axis(each, _SCALES[of]) for each, of in zip(_sides(frame), log, strict=True)]
    sides = place_names(frame, names, axes, shape, best["cell"].to_list())
    groups: dict[str, list[Row]] = {}  # cells without a style of their own together: a thousand of them stay quick
    for row in frame.drop_nulls(["x", "value"]).to_dicts():
        alone = appearance.styles[row["cell"]] != REST
        groups.setdefault(row["cell"] if alone else f"rest: {row['standing']}", []).append(row)
    for group, rows in groups.items():
        key = group.partition(":")[0]
        figure.add_trace(_points(rows, appearance, names, sides).update(legendgroup=key))
        if lacking := [row for row in rows if row["lacks"]]:
            ring = {"symbol": "circle-open", "size": 22, "color": MUTED, "line": {"width": 1.5}}
            xs, ys = ([row[axis] for row in lacking] for axis in ("x", "value"))
            rings = points(xs, ys, REST, marker=ring, name="lacks seeds of others", hoverinfo="skip")
            figure.add_trace(rings.update(legendgroup=key))
    figure.update_layout(meta={"least_width": _FRAME[0] + _AROUND} if sides else None)
    return figure.update_xaxes(**axes[0], zeroline=False).update_yaxes(**axes[1])


def _styled_intervals(frame: pl.DataFrame, appearance: Appearance) -> pl.DataFrame:
    """The frame without the intervals of cells in `REST`, whose many bars would cross each other."""
    styled = pl.col("cell").is_in([cell for cell, style in appearance.styles.items() if style != REST])
    return frame.with_columns(pl.when(styled).then(pl.col(end)).alias(end) for end in _ENDS)


def goes_beyond(frame: pl.DataFrame, appearance: Appearance, log: tuple[bool, bool]) -> bool:
    """True if an interval reaches beyond the figure of `draw_trade_offs`."""
    sides = zip(_sides(_styled_intervals(frame, appearance)), log, strict=True)
    return any(is_cut(each, _SCALES[of]) for each, of in sides)


def _sides(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The values and intervals across, and those up."""
    return frame.select(value="x", low="x_low", high="x_high"), frame.select("value", "low", "high")


def place_names(
    frame: pl.DataFrame,
    names: Mapping[str, str],
    axes: Sequence[Mapping[str, Any]],
    shape: str = "hv",
    line: Sequence[str] = (),
) -> dict[str, str]:
    """The side of its point where each name lies in the frame and on nothing else; a name without one has none.

    The first of `names` are placed first. No other point is as near to a name as its own. Names keep off each other,
    off all points, and off the line through the cells `line`, which steps in `shape`; off intervals if there is room.
    """
    placed = dict[str, str]()
    if not all("range" in axis for axis in axes):
        return placed
    places = {
        cell: [_pixels(value, axis, size) for value, axis, size in zip(at, axes, _FRAME, strict=True)]
        for cell, *at in frame.select("cell", "x", "value").iter_rows()
        if len(finite(at)) == 2
    }
    taken = [(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS) for x, y in places.values()]
    for (x, y), (u, v) in pairwise(sorted(places[cell] for cell in line if cell in places)):
        corner = (u, y) if shape == "hv" else (x, v)
        for a, b in ((x, y), (u, v)):
            taken.append((min(a, corner[0]), min(b, corner[1]), max(a, corner[0]), max(b, corner[1])))
    bars = [box for row in frame.to_dicts() if row["cell"] in places for box in _bars(row, places[row["cell"]], axes)]
    for cell in (cell for cell in names if cell in places):
        boxes = dict(_name_boxes(names[cell], places[cell], [at for key, at in places.items() if key != cell]))
        for kept_off in ([*taken, *bars], taken):
            free = [side for side, box in boxes.items() if not any(_overlap(box, other) for other in kept_off)]
            if free:
                placed[cell] = free[0]
                taken.append(boxes[free[0]])
                break
    return placed


def _name_boxes(name: str, at: Sequence[float], others: Sequence[Sequence[float]]) -> Iterator[tuple[str, Box]]:
    """The boxes of a name on each side of its point that lie in the frame and nearer to it than to `others`."""
    (x, y), width, height = at, _LETTER[0] * len(name), _LETTER[1]
    for side in _BESIDE:
        left = x + (8 if "right" in side else -8 - width)
        low = y + (2 if "top" in side else -2 - height)
        box = (left, low, left + width, low + height)
        if (
            left >= 0
            and box[2] <= _FRAME[0]
            and all(_gap(box, each) > _gap(box, at) for each in others if [*each] != [*at])
        ):
            yield side, box


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _bars(row: Row, at: Sequence[float], axes: Sequence[Mapping[str, Any]]) -> list[Box]:
    """Boxes around the intervals of a cell at `at`, in pixels."""
    boxes = []
    for side, (low, high) in enumerate((_ENDS[:2], _ENDS[2:])):
        ends = finite([row.get(low), row.get(high)])
        if len(ends) == 2:
            first, last = (_pixels(end, axes[side], _FRAME[side]) for end in ends)
            boxes.append((at[0] - 1, first, at[0] + 1, last) if side else (first, at[1] - 1, last, at[1] + 1))
    return boxes


def _gap(box: Box, at: Sequence[float]) -> float:
    """How far a point lies from a box: left, low, right, high."""
    (left, low, right, high), (x, y) = box, at
    return math.hypot(max(left - x, 0, x - right), max(low - y, 0, y - high))


def _pixels(value: float, axis: Mapping[str, Any], size: int) -> float:
    """Where a value stands on an axis of `size` pixels."""
    units = math.log10(value) if axis["type"] == "log" else value
    return float(size * (units - axis["range"][0]) / np.ptp(axis["range"]))


def _arrow(title: str, of: Objective, down: str, up: str) -> str:
    return f"{title} ({down} better)" if of.better == "lower" else f"{title} (better {up})"


def _points(
    rows: Sequence[Row], appearance: Appearance, names: Mapping[str, str], sides: Mapping[str, str]
) -> go.Scatter:
    style, standing = appearance.styles[rows[0]["cell"]], rows[0]["standing"]
    color = style.color + ("66" if standing == "dominated" else "")
    x, y = ([row[name] for row in rows] for name in ("x", "value"))
    ends = {end: [row[end] for row in rows] for end in _ENDS}
    bars: dict[str, Any] = {"color": style.color + _FAINT, "thickness": 1, "width": 0}
    marks = points(x, y, style, mode="markers+text")
    return marks.update(
        error_x=error_bars(x, ends["x_low"], ends["x_high"], **bars),
        error_y=error_bars(y, ends["low"], ends["high"], **bars),
        customdata=[[row["cell"], _describe(row, appearance)] for row in rows],
        hovertemplate="%{customdata[1]}<extra></extra>",
        text=[names[row["cell"]] if row["cell"] in sides else "" for row in rows],
        textposition=[sides.get(row["cell"], _BESIDE[0]) for row in rows],
        textfont={"color": MUTED, "size": 12},
        marker={"size": _SIZES[standing], "color": color, "line": {"color": color, "width": 1.5}},
    )


def _describe(row: Row, appearance: Appearance) -> str:
    spans = [number(row["value"]), number(row["x"])]
    for i, (low, high) in enumerate((("low", "high"), ("x_low", "x_high"))):
        if len(finite([row[low], row[high]])) == 2:
            spans[i] += f" ({number(row[low])} to {number(row[high])})"
    seeds = f"{row['n']} of {count(row['planned'], 'seed')}" + (f", {row['failed']} failed" if row["failed"] else "")
    seeds += f", {row['infinite']} without a finite value" if row["infinite"] else ""
    by = f" by {plain(', '.join(row['dominated_by'][:3]))}" if row["dominated_by"] else ""
    return "<br>".join([plain(appearance.names[row["cell"]]), *spans, seeds, f"{row['standing']}{by}"])
