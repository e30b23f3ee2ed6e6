"""Item by item: by how much a cell and the baseline differ on each item that both were judged by."""

from typing import Final

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.canvas import canvas
from dashboards.html import plain
from dashboards.theme import MUTED, ROPE, Style
from dashboards.words import count, number
from store import Store
from store.verdicts import Measure
from store.why import item_differences

MOST_POINTS: Final = 600
"""More items are drawn at evenly spaced ranks, the first and the last among them."""


def items(store: Store, grid: str, measure: Measure, cells: tuple[str, str]) -> pl.DataFrame:
    """The difference of the first of `cells` from the second by item, averaged over the seeds that they share.

    Returns:
        rank (from 1, the least difference first), item, seeds, difference, in the unit of the measure; see
        `store.why.item_differences`.
    """
    found = item_differences(store, grid, measure, cells)
    by_item = found.group_by("item").agg(pl.len().alias("seeds"), pl.col("difference").mean())
    return by_item.sort("difference", "item").with_row_index("rank", offset=1).cast({"rank": pl.Int64})


def drawn(found: pl.DataFrame) -> pl.DataFrame:
    """The rows of `items` that a picture shows."""
    if found.height <= MOST_POINTS:
        return found
    step = (found.height - 1) / (MOST_POINTS - 1)
    return found[[round(i * step) for i in range(MOST_POINTS)]]


def draw_items(found: pl.DataFrame, style: Style, title: str) -> go.Figure:
    """A point per item that is `drawn`, by rank; the dashed rule is the mean of all."""
    shown = drawn(found)
    figure = canvas(340, x="items, by their difference", y=title)
    figure.add_hline(y=0, line={"color": ROPE, "width": 1})
    mean = found["difference"].mean()
    if isinstance(mean, float):
        figure.add_hline(y=mean, line={"color": MUTED, "width": 1, "dash": "dash"})
    told = [
        f"{plain(str(item))}<br>{number(difference)}<br>{count(seeds, 'seed')}"
        for item, difference, seeds in shown.select("item", "difference", "seeds").iter_rows()
    ]
    figure.add_trace(
        go.Scatter(
            x=shown["rank"].to_list(),
            y=shown["difference"].to_list(),
            mode="markers",
            marker={"symbol": style.marker, "size": 6, "color": style.color},
            customdata=told,
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    return figure
