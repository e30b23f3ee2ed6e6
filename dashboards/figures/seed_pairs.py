"""Two cells compared seed by seed, and item by item."""

from typing import Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import change, count, in_odds, number, plain
from dashboards.data.grid_context import CellLook
from dashboards.figures.canvas import break_name, canvas, points, value_axis
from dashboards.theme.styles import DIVERGING, INK, MUTED, ROPE, Style
from store import Store
from store.analysis.explain_verdict import item_differences
from store.analysis.verdicts import GridMeasure, runs
from store.statistics.scales import forward

GAIN: Final = (DIVERGING[0], "solid")
LOSS: Final = (DIVERGING[-1], "dot")
"""Colour and dash of the lines of seeds on which the cell is better, and worse."""


def pair_runs(store: Store, grid: str, measure: GridMeasure, cell: str, baseline: str) -> pl.DataFrame:
    """The finished runs of two cells by seed.

    Returns:
        seed, value, baseline_value (null where that run has none), difference in units of the scale (log ratios, of
        odds, or plain; null unless both are there and the scale takes them).
    """
    found = runs(store, grid, measure).filter(pl.col("status") == "ok", pl.col("value").is_finite())
    ours, theirs = (found.filter(pl.col("cell") == each).select("seed", "value") for each in (cell, baseline))
    both = ours.join(theirs.rename({"value": "baseline_value"}), on="seed", how="full", coalesce=True).sort("seed")
    one, other = (
        forward(both[name].cast(pl.Float64).fill_null(float("nan")).to_numpy(), measure.scale)
        for name in ("value", "baseline_value")
    )
    return both.with_columns(pl.Series("difference", one - other).fill_nan(None))


def draw_paired(
    found: pl.DataFrame, look: CellLook, cells: tuple[str, str], measure: GridMeasure, title: str
) -> go.Figure:
    """Two columns of points, the baseline left; a line joins the runs of one seed.

    `cells` are the keys of the cell and of the baseline.
    """
    figure = canvas(380, y=title)
    for value, base in found.drop_nulls(["value", "baseline_value"]).select("value", "baseline_value").iter_rows():
        better = value < base if measure.better == "lower" else value > base
        color, dash = GAIN if better else LOSS
        line = {"line": {"color": color, "dash": dash, "width": 1.6}, "legendgroup": "gain" if better else "loss"}
        figure.add_scatter(x=[0, 1], y=[base, value], mode="lines", hoverinfo="skip", **line)
    for place, cell, column in ((0, cells[1], "baseline_value"), (1, cells[0], "value")):
        rows = found.drop_nulls(column)
        style = look.styles[cell]
        told = [_describe(row, column, measure) for row in rows.iter_rows(named=True)]
        figure.add_trace(points([place] * rows.height, rows[column], style, told, marker_size=10))
    names = [break_name(look.names[cell]) for cell in reversed(cells)]
    figure.update_xaxes(range=[-0.5, 1.5], tickvals=[0, 1], ticktext=names, tickfont={"color": INK}, ticks="")
    values = pl.concat([found[name].alias("value") for name in ("value", "baseline_value")]).drop_nulls()
    ends = pl.DataFrame({"value": values}).with_columns(low=pl.col("value"), high=pl.col("value"))
    figure.update_yaxes(**value_axis(ends, measure.scale))
    return figure


def _describe(row: dict[str, float | None], column: str, measure: GridMeasure) -> str:
    words = f"seed {row['seed']}: {number(row[column])}"
    if column != "value" or row["difference"] is None:
        return words
    return f"{words}<br>{change(row['difference'], measure.scale)}{in_odds(measure.scale)}"


MOST_POINTS: Final = 600
"""More items are drawn at evenly spaced ranks, the first and the last among them."""


def items(store: Store, grid: str, measure: GridMeasure, cells: tuple[str, str]) -> pl.DataFrame:
    """The difference of the first of `cells` from the second by item, averaged over the seeds that they share.

    Returns:
        rank (from 1, the least difference first), item, seeds, difference, in the unit of the measure; see
        `store.analysis.explain_verdict.item_differences`.
    """
    found = item_differences(store, grid, measure, cells)
    by_item = found.group_by("item").agg(pl.len().alias("seeds"), pl.col("difference").mean())
    return by_item.sort("difference", "item").with_row_index("rank", offset=1).cast({"rank": pl.Int64})


def thin_items(found: pl.DataFrame) -> pl.DataFrame:
    """The rows of `items` that a picture shows."""
    if found.height <= MOST_POINTS:
        return found
    step = (found.height - 1) / (MOST_POINTS - 1)
    return found[[round(i * step) for i in range(MOST_POINTS)]]


def draw_items(found: pl.DataFrame, style: Style, title: str) -> go.Figure:
    """A point per item that is `thin_items`, by rank; the dashed rule is the mean of all."""
    shown = thin_items(found)
    figure = canvas(340, x="items, by their difference", y=title)
    figure.add_hline(y=0, line={"color": ROPE, "width": 1})
    mean = found["difference"].mean()
    if isinstance(mean, float):
        figure.add_hline(y=mean, line={"color": MUTED, "width": 1, "dash": "dash"})
    told = [
        f"{plain(str(item))}<br>{number(difference)}<br>{count(seeds, 'seed')}"
        for item, difference, seeds in shown.select("item", "difference", "seeds").iter_rows()
    ]
    return figure.add_trace(points(shown["rank"], shown["difference"], style, told, marker_size=6))
