"""Where training moved the learned numbers of the operators, layer by layer and head by head."""

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.grid_context import CellLook, in_order
from dashboards.data.seed_averages import over_seeds
from dashboards.figures.canvas import break_name, canvas, error_bars, points
from store import Store

_PREFIX: Final = "number."
_SPREAD: Final = 0.6  # share of the distance between two layers


def numbers(store: Store, grid: str, cells: Sequence[str]) -> pl.DataFrame:
    """Every learned number of `cells` at the last step of their ok trials, averaged over seeds.

    Returns:
        cell, name (without the prefix "number."), layer, head (-1 where all heads share it), n, lost, value, low,
        high; by cell in the given order, then name, layer, head.
    """
    source = f"""
        SELECT g.cell, substr(p.name, {len(_PREFIX) + 1}) AS name, coalesce(p.layer, -1) AS layer,
               coalesce(p.head, -1) AS head, p.value
        FROM v_probe p JOIN grid_trial g USING (trial) JOIN trial t USING (trial)
        WHERE g.grid = $grid AND t.status = 'ok' AND starts_with(p.name, '{_PREFIX}')
        QUALIFY p.step = max(p.step) OVER (PARTITION BY p.trial, p.name)
    """
    found = store.sql(over_seeds(source, ["cell", "name", "layer", "head"], "linear"), {"grid": grid})
    return in_order(found, cells, "name", "layer", "head")


def draw_numbers(found: pl.DataFrame, look: CellLook) -> go.Figure:
    """One number: a point with its interval per cell, layer and head; heads stand side by side within their layer."""
    figure = canvas(300, x="layer")
    cells = list(dict.fromkeys(found["cell"]))
    slots = (max(found["head"], default=-1) + 1 or 1) * len(cells)
    for turn, cell in enumerate(cells):
        rows, style = found.filter(pl.col("cell") == cell), look.styles[cell]
        place = (pl.col("head").clip(0) * len(cells) + turn + 0.5) / slots - 0.5
        tooltips = [
            f"{value:.3g}<br>{'all heads' if head < 0 else f'head {head}'}, n {n}"
            for value, head, n in rows.select("value", "head", "n").iter_rows()
        ]
        bars = error_bars(rows["value"], rows["low"], rows["high"], style.color, thickness=1.4, width=3)
        x = rows.select(pl.col("layer") + _SPREAD * place)["layer"]
        names = {"name": break_name(look.names[cell]), "legendgroup": cell}
        figure.add_trace(points(x, rows["value"], style, tooltips, error_y=bars, marker_size=8, **names))
    layers = found["layer"].unique().sort().to_list()
    texts = ["all" if layer < 0 else str(layer) for layer in layers]
    return figure.update_xaxes(tickvals=layers, ticktext=texts, ticks="")
