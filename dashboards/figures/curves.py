"""Training curves: a metric by step, the average of a cell's seeds with its interval."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import plotly.graph_objects as go
import polars as pl

from dashboards.data.grid_context import CellLook, in_order
from dashboards.data.seed_averages import Scale, over_seeds
from dashboards.figures.lines import Drawing, draw_lines, of_cells
from store import Store

BUCKETS: Final = 60
_DRAWING: Final = Drawing(width=1.6)


class Curves(NamedTuple):
    """Curves as buckets of steps."""

    frame: pl.DataFrame
    """cell, step (the first of its bucket), n, lost, value, low, high."""
    width: int
    """Steps that one point averages over."""
    last: int
    """Steps that the last point averages over: it takes what is left over, so it is never less than the others."""


def curves(
    store: Store, grid: str, name: str, cells: Sequence[str], *, scale: Scale = "log", buckets: int = BUCKETS
) -> Curves:
    """The training metric `name` of `cells`: the mean of each bucket of steps per trial, then over seeds.

    Failed trials are left out, as in every average; trials that have not finished count as far as they went, so `n`
    may fall along a curve. Values that are not finite are left out of a bucket. Buckets begin at the first step.
    """
    of = (
        "v_metric m JOIN grid_trial g USING (trial) JOIN trial t USING (trial) "
        "WHERE g.grid = $grid AND m.name = $name AND t.status IS DISTINCT FROM 'failed'"
    )
    given = {"grid": grid, "name": name}
    first, last = store.sql(f"SELECT min(m.step), max(m.step) FROM {of}", given).row(0)
    if first is None:
        first, last = 0, 0
    steps = last - first + 1
    width = -(-steps // buckets)
    full = steps // width
    step = f"{first} + least((m.step - {first}) // {width}, {full - 1}) * {width}"
    source = (
        f"SELECT g.cell, {step} AS step, avg(m.value) AS value FROM {of} AND isfinite(m.value) "
        f"GROUP BY g.cell, m.trial, {step}"
    )
    found = store.sql(over_seeds(source, ["cell", "step"], scale), given)
    return Curves(in_order(found.drop_nulls("value"), cells, "step"), width, steps - (full - 1) * width)


def draw_curves(found: Curves, look: CellLook, *, title: str, scale: Scale = "log") -> go.Figure:
    """One line with a band per cell."""
    frame = found.frame.rename({"cell": "series", "step": "x"})
    return draw_lines(frame, of_cells(look), x="training step", y=title, scale=scale, drawing=_DRAWING)
