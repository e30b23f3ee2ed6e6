"""Failures are outcomes: every kind with its trials, and the failure rate of every cell."""

from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

from dashboards.data.grid_context import CellLook, in_order
from dashboards.figures.canvas import break_name, canvas, rows_height
from dashboards.figures.forest import MOST_ROWS
from dashboards.theme.styles import INK
from store import Store
from store.analysis.verdicts import failure_rates


def rates(store: Store, grid: str, cells: Sequence[str]) -> pl.DataFrame:
    """The failure rate of every cell that has one: cell, ended, failed, rate, low, high (Wilson, 95 %), p_holm.

    The grid needs a baseline and a measure. In the order of `cells`, or where more than fit into a picture have a rate
    the highest ones first.
    """
    found = in_order(failure_rates(store, grid).filter(pl.col("ended") > 0), cells)
    if found.height > MOST_ROWS:
        found = found.sort("rate", descending=True, maintain_order=True).head(MOST_ROWS)
    return found.select("cell", "ended", "failed", "rate", "low", "high", "p_holm")


def draw_rates(found: pl.DataFrame, look: CellLook) -> go.Figure:
    """A point with its interval per cell."""
    figure = canvas(rows_height(found.height, 30), x="share that failed")
    for place, row in enumerate(found.iter_rows(named=True)):
        style = look.styles[row["cell"]]
        figure.add_trace(
            go.Scatter(
                x=[row["rate"]],
                y=[place],
                mode="markers",
                legendgroup=row["cell"],
                marker={"symbol": style.marker, "size": 9, "color": style.color},
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "thickness": 1.8,
                    "width": 5,
                    "color": style.color,
                    "array": [row["high"] - row["rate"]],
                    "arrayminus": [row["rate"] - row["low"]],
                },
                hovertemplate=f"{row['failed']} of {row['ended']}<extra></extra>",
            )
        )
    names = [break_name(look.names[cell]) for cell in found["cell"]]
    figure.update_xaxes(range=[-0.03, 1.03], tickformat=".0%")
    figure.update_yaxes(
        range=[found.height - 0.4, -0.6],
        tickvals=list(range(found.height)),
        ticktext=names,
        showgrid=False,
        tickfont={"color": INK},
    )
    return figure
