"""Where training moved the learned numbers of the operators, layer by layer and head by head."""

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.grid_context import CellLook, in_order
from dashboards.data.seed_averages import over_seeds
from dashboards.figures.canvas import break_name, canvas, error_bars
from store import Store

PREFIX: Final = "number."
_SPREAD: Final = 0.6  # share of the distance between two layers


def numbers(store: Store, grid: str, cells: Sequence[str]) -> pl.DataFrame:
    """Every learned number of `cells` at the last step of their ok trials, averaged over seeds.

    Returns:
        cell, name (without the prefix "number."), layer, head (-1 where all heads share it), n, lost, value, low,
        high; by cell in the given order, then name, layer, head.
    """
    source = f"""
        SELECT g.cell, substr(p.name, {len(PREFIX) + 1}) AS name, coalesce(p.layer, -1) AS layer,
               coalesce(p.head, -1) AS head, p.value
        FROM v_probe p JOIN grid_trial g USING (trial) JOIN trial t USING (trial)
        WHERE g.grid = $grid AND t.status = 'ok' AND starts_with(p.name, '{PREFIX}')
        QUALIFY p.step = max(p.step) OVER (PARTITION BY p.trial, p.name)
    """
    found = store.sql(over_seeds(source, ["cell", "name", "layer", "head"], "linear"), {"grid": grid})
    return in_order(found, cells, "name", "layer", "head")


def draw_numbers(found: pl.DataFrame, look: CellLook) -> go.Figure:
    """One number: a point with its interval per cell, layer and head; heads stand side by side within their layer."""
    figure = canvas(300, x="layer")
    cells, heads = list(dict.fromkeys(found["cell"])), found["head"].max()
    slots = (int(heads) + 1 if isinstance(heads, int) and heads >= 0 else 1) * len(cells)
    for (cell,), rows in found.group_by("cell", maintain_order=True):
        style, key = look.styles[str(cell)], str(cell)
        turn = cells.index(key)
        x = [
            layer + _SPREAD * ((max(head, 0) * len(cells) + turn + 0.5) / slots - 0.5)
            for layer, head in rows.select("layer", "head").rows()
        ]
        value = rows["value"]
        figure.add_trace(
            go.Scatter(
                x=x,
                y=value.to_list(),
                mode="markers",
                name=break_name(look.names[key]),
                legendgroup=key,
                marker={"symbol": style.marker, "size": 8, "color": style.color},
                error_y=error_bars(value, rows["low"], rows["high"], style.color, thickness=1.4, width=3),
                customdata=rows.select(
                    pl.when(pl.col("head") < 0)
                    .then(pl.lit("all heads"))
                    .otherwise("head " + pl.col("head").cast(pl.String)),
                    "n",
                ).rows(),
                hovertemplate="%{y:.3g}<br>%{customdata[0]}, n %{customdata[1]}",
            )
        )
    layers = found["layer"].unique().sort().to_list()
    figure.update_xaxes(tickvals=layers, ticktext=["all" if layer < 0 else str(layer) for layer in layers], ticks="")
    return figure
