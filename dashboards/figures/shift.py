"""Error against one coordinate of the evaluation grid, a curve per cell (paper 003, figure 3, left)."""

from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.canvas import band, broken, canvas, value_axis
from dashboards.html import plain
from dashboards.seeds import at, over_seeds
from dashboards.subject import Look, in_order
from dashboards.theme import MUTED
from store import Store
from store.verdicts import Measure


def coordinates(store: Store, grid: str, name: str) -> dict[str, list[float]]:
    """Where the evaluation `name` of a grid was taken: every coordinate with its values in rising order."""
    found = store.sql(
        """
        WITH points AS (
            SELECT DISTINCT point FROM v_final WHERE grid = $grid AND name = $name AND source = 'evaluation'
        )
        SELECT DISTINCT e.key AS key, e.value AS value
        FROM (SELECT unnest(map_entries(point)) AS e FROM points) ORDER BY key, value
        """,
        {"grid": grid, "name": name},
    )
    values: dict[str, list[float]] = {}
    for key, value in found.iter_rows():
        values.setdefault(key, []).append(value)
    return values


def error_by_shift(store: Store, grid: str, measure: Measure, along: str, cells: Sequence[str]) -> pl.DataFrame:
    """The measure of `cells` along one coordinate, the others as in the measure's point, averaged over seeds.

    Returns:
        cell, x, n, lost, value, low, high (see `dashboards.seeds`); by cell in the given order, then x.
    """
    fixed = {name: value for name, value in measure.point.items() if name != along}
    condition, parameters = at(fixed)
    source = (
        "SELECT cell, point[$along] AS x, value FROM v_final WHERE grid = $grid AND name = $name "
        f"AND source = 'evaluation' AND point[$along] IS NOT NULL AND {condition}"
    )
    given = {"grid": grid, "name": measure.name, "along": along, **parameters}
    found = store.sql(over_seeds(source, ["cell", "x"], measure.scale), given)
    return in_order(found, cells, "x")


def draw_error_by_shift(found: pl.DataFrame, look: Look, measure: Measure, along: str, title: str) -> go.Figure:
    """One line with a band per cell; a thin rule marks the point at which the grid is judged."""
    figure = canvas(420, x=plain(along), y=plain(title))
    for (cell,), rows in found.group_by("cell", maintain_order=True):
        _curve(figure, str(cell), rows, look)
    figure.update_yaxes(**value_axis(found, measure.scale))
    judged = measure.point.get(along)
    if judged is not None:
        figure.add_vline(x=judged, line={"color": MUTED, "width": 1, "dash": "dot"})
        figure.add_annotation(
            x=judged,
            y=1,
            yref="paper",
            text="judged here",
            showarrow=False,
            xanchor="left",
            yanchor="top",
            xshift=5,
            font={"color": MUTED, "size": 12},
        )
    levels = found["x"].unique().sort().to_list()
    if len(levels) <= 12:
        figure.update_xaxes(tickvals=levels, ticktext=[f"{level:g}" for level in levels])
    return figure


def _curve(figure: go.Figure, cell: str, rows: pl.DataFrame, look: Look) -> None:
    style, name = look.styles[cell], plain(look.names[cell])
    x = rows["x"].to_list()
    figure.add_trace(band(x, rows["low"].to_list(), rows["high"].to_list(), style.band(), cell))
    figure.add_trace(
        go.Scatter(
            x=x,
            y=rows["value"].to_list(),
            mode="lines+markers",
            name=broken(name),
            legendgroup=cell,
            line={"color": style.color, "dash": style.dash, "width": 2},
            marker={"symbol": style.marker, "size": 8, "color": style.color},
            customdata=rows.select("low", "high", "n").rows(),
            hovertemplate="%{x:g}: %{y:.3g}<br>%{customdata[0]:.3g} to %{customdata[1]:.3g}, n %{customdata[2]}",
        )
    )
