"""How far a grid is: trials by state."""

from typing import Final

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.canvas import broken, canvas, rows_height
from dashboards.subject import Look
from dashboards.theme import INK, STATUS
from store import Store

STATES: Final = ("ok", "failed", "running", "pending")
WORDS: Final = {"ok": "done", "failed": "failed", "running": "running", "pending": "to do"}
MOST_ROWS: Final = 32


def progress(store: Store, grid: str) -> pl.DataFrame:
    """How far each cell of `grid` is: cell, label, operator, planned, ok, failed, running, pending."""
    return store.progress(grid)


def totals(found: pl.DataFrame) -> dict[str, int]:
    """planned, ok, failed, running and pending of the whole grid."""
    return {name: int(found[name].sum()) for name in ("planned", *STATES)}


def draw_progress(found: pl.DataFrame, look: Look) -> go.Figure:
    """A bar per cell, or per operator where there are too many cells."""
    names = [look.names[cell] for cell in found["cell"]]
    rows = found.with_columns(pl.Series("name", names))
    if rows.height > MOST_ROWS:
        rows = rows.with_columns(name="operator").group_by("name", maintain_order=True).agg(pl.col(*STATES).sum())
    figure = canvas(rows_height(rows.height, 26), x="trials")
    places = list(range(rows.height))
    for state in STATES:
        figure.add_trace(
            go.Bar(
                x=rows[state].to_list(),
                y=places,
                orientation="h",
                name=WORDS[state],
                legendgroup=state,
                marker={"color": STATUS[state], "line": {"width": 0}},
                width=0.62,
                hovertemplate=f"%{{x}} {WORDS[state]}<extra></extra>",
            )
        )
    figure.update_layout(barmode="stack")
    figure.update_yaxes(
        range=[rows.height - 0.4, -0.6],
        tickvals=places,
        ticktext=[broken(name) for name in rows["name"]],
        tickfont={"color": INK},
        showgrid=False,
    )
    return figure
