"""Trade-offs: the measure of every cell against what it costs, with the steps along which no cell has both better."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import count, number, plain
from ablate.dashboards.data.grid_context import CellLook, in_order
from ablate.dashboards.data.seed_averages import Scale
from ablate.dashboards.figures.canvas import canvas, finite, one_line, points, value_axis
from ablate.dashboards.theme.styles import MUTED, REST, shared_style
from ablate.store import Store
from ablate.store.analysis.pareto import Quantity, read_objectives
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.state import State
from ablate.store.statistics import Objective, pareto as standings, summarise, t_interval
from ablate.store.statistics.paired_differences import or_null
from ablate.store.statistics.scales import back, forward

_SIZES: Final = {"on the front": 13, "inconclusive": 10, "dominated": 9}
_SCALES: Final[Mapping[bool, Scale]] = {True: "log", False: "linear"}
_MOST_NAMES: Final = 12
_FRAME: Final = (1000, 400)  # pixels of the usual frame, in which names are placed
_LETTER: Final = (7, 16)  # pixels of a letter of a name
_RADIUS: Final = 8  # pixels of a point
_BESIDE: Final = ("top right", "bottom right", "top left", "bottom left")
FRONT: Final = shared_style(MUTED, "8px,3px", "line-ew")
"""The line along the best, which has dashes and no marker, since cells in `REST` are grey, too."""
Row = Mapping[str, Any]


class TradeOffs(NamedTuple):
    """Cells in two objectives."""

    frame: pl.DataFrame
    """Cells in the grid's order: cell, label, n (seeds with both values), planned, failed, infinite (finished, and the
    measure is not finite), lacks (seeds that another has). Objectives: x, x_low, x_high, value, low, high. Also step
    (see `on_steps`), standing, dominated_by, inconclusive, note."""
    x: Objective
    y: Objective


def trade_offs(store: Store, grid: str, measure: GridMeasure, against: Quantity, cells: Sequence[str]) -> TradeOffs:
    """The measure of `cells` against one quantity: averages over the seeds that have both, with t intervals.

    Averages are of logarithms or log odds where an objective has such a scale. Raises as
    `ablate.store.analysis.pareto.pareto`.
    """
    found = read_objectives(store, grid, [against], measure=measure._asdict())
    words = standings(found.values, found.objectives, alpha=found.alpha, forbidden=found.forbidden)
    y, x = found.objectives
    finite_y = pl.col(y.column).is_finite()
    kept = found.values.drop_nulls([x.column, y.column]).filter(pl.col(x.column).is_finite() & finite_y)
    rows = [
        (cell, *_average(part[x.column], x, measure.alpha), *_average(part[y.column], y, measure.alpha))
        for (cell,), part in kept.group_by("cell", maintain_order=True)
    ]
    names = ("x", "x_low", "x_high", "value", "low", "high")
    frame = pl.DataFrame(rows, schema={"cell": pl.String, **dict.fromkeys(names, pl.Float64)}, orient="row")
    failed = pl.col("state") == State.FAILED
    infinite = ~failed & pl.col(y.column).is_not_null() & ~finite_y
    counts = (pl.len().alias("planned"), failed.sum().alias("failed"), infinite.sum().alias("infinite"))
    seeds = found.values.group_by("cell").agg(*counts)
    frame = words.join(seeds.join(frame, on="cell"), on="cell", how="inner", maintain_order="left")
    steps = on_steps(frame["x"].to_list(), frame["value"].to_list(), x, y)
    frame = frame.with_columns(lacks=kept["seed"].n_unique() - pl.col("n"), step=pl.Series(steps, dtype=pl.Boolean))
    first = ("cell", "label", "n", "planned", "failed", "infinite", "lacks")
    frame = frame.select(*first, *names, "step", "standing", "dominated_by", "inconclusive", "note")
    return TradeOffs(in_order(frame, cells), x, y)


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


def draw_trade_offs(found: TradeOffs, look: CellLook, titles: tuple[str, str], log: tuple[bool, bool]) -> go.Figure:
    """A point per cell, whose tooltip has both intervals, and the line that steps from best to best.

    Dominated cells are faint, those that lack seeds of others are ringed. `titles` are of the axes x and y, without
    arrows; `log` says which of them are logarithmic.
    """
    figure = canvas(480, x=_arrow(titles[0], found.x, "←", "→"), y=_arrow(titles[1], found.y, "↓", "↑"))
    best = found.frame.filter(pl.col("step")).sort("x")
    # a step holds the value of the cell with the better x until the next one comes
    shape: Literal["hv", "vh"] = "hv" if found.x.better == "lower" else "vh"
    line = {"color": FRONT.color, "width": 2, "dash": FRONT.dash, "shape": shape}
    x, y = best["x"].to_list(), best["value"].to_list()
    figure.add_scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", legendgroup="steps")
    named = best["cell"].to_list() if best.height <= _MOST_NAMES else []
    names = dict(zip(named, one_line([look.names[cell] for cell in named], 30), strict=True))
    none = pl.lit(None, pl.Float64)
    values = [found.frame.select(value=name, low=none, high=none) for name in ("x", "value")]
    axes = [value_axis(each, _SCALES[of]) for each, of in zip(values, log, strict=True)]
    sides = place_names(found.frame, names, axes, shape)
    groups: dict[str, list[Row]] = {}  # cells without a style of their own together: a thousand of them stay quick
    for row in found.frame.drop_nulls(["x", "value"]).to_dicts():
        alone = look.styles[row["cell"]] != REST
        groups.setdefault(row["cell"] if alone else f"rest: {row['standing']}", []).append(row)
    for group, rows in groups.items():
        key = group.partition(":")[0]
        figure.add_trace(_points(rows, look, names, sides).update(legendgroup=key))
        if lacking := [row for row in rows if row["lacks"]]:
            ring = {"symbol": "circle-open", "size": 22, "color": MUTED, "line": {"width": 1.5}}
            xs, ys = ([row[axis] for row in lacking] for axis in ("x", "value"))
            rings = points(xs, ys, REST, marker=ring, name="lacks seeds of others", hoverinfo="skip")
            figure.add_trace(rings.update(legendgroup=key))
    return figure.update_xaxes(**axes[0], zeroline=False).update_yaxes(**axes[1])


def place_names(
    found: pl.DataFrame, names: Mapping[str, str], axes: Sequence[Mapping[str, Any]], shape: str = "hv"
) -> dict[str, str]:
    """The side of its point where each name lies in the frame and on nothing else; a name without one has none.

    No other point is as near to a name as its own. Names keep off each other, off all points, and off the line of cells
    with `names`, which steps in `shape`.
    """
    placed = dict[str, str]()
    if not all("range" in axis for axis in axes):
        return placed
    places = {
        cell: [_pixels(value, axis, size) for value, axis, size in zip(at, axes, _FRAME, strict=True)]
        for cell, *at in found.select("cell", "x", "value").iter_rows()
        if len(finite(at)) == 2
    }
    taken = [(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS) for x, y in places.values()]
    line = sorted(places[cell] for cell in names if cell in places)
    for (x, y), (u, v) in pairwise(line):
        corner = (u, y) if shape == "hv" else (x, v)
        for a, b in ((x, y), (u, v)):
            taken.append((min(a, corner[0]), min(b, corner[1]), max(a, corner[0]), max(b, corner[1])))
    for cell in (cell for cell in places if cell in names):
        (x, y), width, height = places[cell], _LETTER[0] * len(names[cell]), _LETTER[1]
        for side in _BESIDE:
            left = x + (8 if "right" in side else -8 - width)
            low = y + (2 if "top" in side else -2 - height)
            box = (left, low, left + width, low + height)
            clear = (box[2] <= a or c <= box[0] or box[3] <= b or d <= box[1] for a, b, c, d in taken)
            apart = (_gap(box, at) > _gap(box, places[cell]) for at in places.values() if at != places[cell])
            if left >= 0 and box[2] <= _FRAME[0] and all(clear) and all(apart):
                placed[cell] = side
                taken.append(box)
                break
    return placed


def _gap(box: tuple[float, float, float, float], at: Sequence[float]) -> float:
    """How far a point lies from a box: left, low, right, high."""
    (left, low, right, high), (x, y) = box, at
    return math.hypot(max(left - x, 0, x - right), max(low - y, 0, y - high))


def _pixels(value: float, axis: Mapping[str, Any], size: int) -> float:
    """Where a value stands on an axis of `size` pixels."""
    units = math.log10(value) if axis["type"] == "log" else value
    return float(size * (units - axis["range"][0]) / np.ptp(axis["range"]))


def _arrow(title: str, of: Objective, down: str, up: str) -> str:
    return f"{title} ({down} better)" if of.better == "lower" else f"{title} (better {up})"


def _points(rows: Sequence[Row], look: CellLook, names: Mapping[str, str], sides: Mapping[str, str]) -> go.Scatter:
    style, standing = look.styles[rows[0]["cell"]], rows[0]["standing"]
    color = style.color + ("66" if standing == "dominated" else "")
    x, y = ([row[name] for row in rows] for name in ("x", "value"))
    found = points(x, y, style, mode="markers+text")
    return found.update(
        customdata=[[row["cell"], _describe(row, look)] for row in rows],
        hovertemplate="%{customdata[1]}<extra></extra>",
        text=[names[row["cell"]] if row["cell"] in sides else "" for row in rows],
        textposition=[sides.get(row["cell"], _BESIDE[0]) for row in rows],
        textfont={"color": MUTED, "size": 12},
        marker={"size": _SIZES[standing], "color": color, "line": {"color": color, "width": 1.5}},
    )


def _describe(row: Row, look: CellLook) -> str:
    spans = [number(row["value"]), number(row["x"])]
    for i, (low, high) in enumerate((("low", "high"), ("x_low", "x_high"))):
        if len(finite([row[low], row[high]])) == 2:
            spans[i] += f" ({number(row[low])} to {number(row[high])})"
    seeds = f"{row['n']} of {count(row['planned'], 'seed')}" + (f", {row['failed']} failed" if row["failed"] else "")
    seeds += f", {row['infinite']} without a finite value" if row["infinite"] else ""
    by = f" by {plain(', '.join(row['dominated_by'][:3]))}" if row["dominated_by"] else ""
    return "<br>".join([plain(look.names[row["cell"]]), *spans, seeds, f"{row['standing']}{by}"])
