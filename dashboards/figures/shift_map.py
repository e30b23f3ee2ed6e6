"""Where on the evaluation grid a cell gains and loses: a heat map per cell (paper 003, figure 3, right).

The baseline's map shows the measure itself; the others show the paired change from the baseline, which is what the
grid asks about and what the measure's own wide range would hide.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.canvas import finite
from dashboards.figures.heat import draw_heat
from dashboards.figures.heat_cells import Ramp
from dashboards.seeds import over_seeds, paired_change
from dashboards.subject import in_order
from dashboards.words import change, number
from store import Store
from store.queries import agrees
from store.verdicts import Measure


def shift_map(store: Store, grid: str, measure: Measure, axes: tuple[str, str], cells: Sequence[str]) -> pl.DataFrame:
    """The measure of `cells` over two coordinates of its evaluation grid, and their paired change from the baseline.

    Returns:
        cell, x, y, n, value (average over seeds), change (mean paired log ratio on the log scale, else difference;
        null for the baseline); by cell in the given order, then y, then x.
    """
    fixed = {name: value for name, value in measure.point.items() if name not in axes}
    condition, parameters = agrees(fixed)
    given = {"grid": grid, "name": measure.name, "x": axes[0], "y": axes[1], **parameters}
    where = (
        "grid = $grid AND name = $name AND source = 'evaluation' AND point[$x] IS NOT NULL "
        f"AND point[$y] IS NOT NULL AND {condition}"
    )
    columns = "cell, point[$x] AS x, point[$y] AS y"
    values = store.sql(over_seeds(f"SELECT {columns}, value FROM v_final WHERE {where}", _KEYS, measure.scale), given)
    paired = paired_change(measure.scale)
    changes = store.sql(
        f"SELECT {columns}, avg({paired}) AS change FROM v_pair WHERE {where} AND isfinite({paired}) GROUP BY ALL",
        given,
    )
    found = values.select(*_KEYS, "n", "value").join(changes, on=_KEYS, how="left")
    return in_order(found, cells, "y", "x")


PANEL: Final = 280
"""Pixels of a panel where several stand side by side, at least."""
_KEYS = ["cell", "x", "y"]


def ends(found: pl.DataFrame, column: str, *, log: bool) -> tuple[float, float]:
    """The range of colours that all maps of a grid share; symmetric about zero for changes."""
    values = finite(found[column].to_list())
    if column == "change":
        widest = max(map(abs, values), default=0.0) or 1.0
        return -widest, widest
    kept = [math.log10(value) for value in values if value > 0] if log else values
    return (min(kept), max(kept)) if kept else (0.0, 1.0)


def draw_shift_map(
    found: pl.DataFrame, measure: Measure, axes: tuple[str, str], span: tuple[float, float], column: str
) -> go.Figure:
    """The map of one cell, legible in a panel; `column` is "value" or "change", and `span` the colours' from `ends`."""
    log = column == "value" and measure.scale == "log"
    low, high = (10**end for end in span) if log else span
    ramp = Ramp(low, high, diverging=column == "change", log=log, words=lambda v: _words(v, column, measure.scale))
    tall = min(26 * found["y"].n_unique(), 234)
    cells = found.select("x", "y", pl.col(column).alias("value"))
    return draw_heat(cells, ramp, x=axes[0], y=axes[1], height=tall, width=PANEL)


def _words(value: float | None, column: str, scale: str) -> str:
    return change(value, scale) if column == "change" else number(value)


def scale_ends(span: tuple[float, float], column: str, measure: Measure) -> Mapping[str, str]:
    """What stands at the two ends of the colour scale."""
    if column == "change":
        return {"low": change(span[0], measure.scale), "high": change(span[1], measure.scale)}
    back = [10**end if measure.scale == "log" else end for end in span]
    return {"low": number(back[0], 2), "high": number(back[1], 2)}
