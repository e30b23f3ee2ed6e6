"""The measure over the evaluation grid: curves along one coordinate and maps over two (paper 003, figure 3)."""

from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import change
from ablate.dashboards.data.grid_context import Appearance, in_order
from ablate.dashboards.data.seed_averages import over_seeds, paired_change
from ablate.dashboards.figures.canvas import finite, ratio_ticks, rope_of, value_axis
from ablate.dashboards.figures.heat import draw_heat, heat_ramp
from ablate.dashboards.figures.lines import Drawing, draw_lines, of_cells
from ablate.dashboards.theme.styles import MUTED, ROPE
from ablate.store import Store
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.database.queries import agrees


def coordinates(store: Store, grid: str, name: str) -> dict[str, list[float]]:
    """Where the evaluation `name` of a grid was taken: every coordinate with its values in rising order."""
    values = store.sql(
        "SELECT e.key, list_sort(list(DISTINCT e.value)) FROM (SELECT unnest(map_entries(point)) AS e FROM v_final "
        "WHERE grid = $grid AND name = $name AND source = 'evaluation') GROUP BY e.key ORDER BY e.key",
        {"grid": grid, "name": name},
    )
    return dict(values.iter_rows())


def list_varying(at: dict[str, list[float]]) -> list[str]:
    """The `coordinates` with several values, those with most first."""
    return sorted((name for name, values in at.items() if len(values) > 1), key=lambda name: -len(at[name]))


def average_points(
    store: Store, grid: str, measure: GridMeasure, axes: Sequence[str], cells: Sequence[str], *, paired: bool = False
) -> pl.DataFrame:
    """An evaluation of `cells` over one coordinate or two, the others as in the measure's point, averaged over seeds.

    With `paired` it is the paired change from the baseline in units of the scale: log ratios, of odds, or differences.

    Returns:
        cell, x, perhaps y, n, lost, value, low, high (see `ablate.dashboards.data.seed_averages`); by cell in the given
        order, then y, then x.
    """
    view, value = ("v_pair", paired_change(measure.scale)) if paired else ("v_final", "value")
    coordinates = dict(zip("xy", axes, strict=False))
    columns = ", ".join(f"point[$axis_{key}] AS {key}" for key in coordinates)
    present = " AND ".join(f"point[$axis_{key}] IS NOT NULL" for key in coordinates)
    condition, parameters = agrees({name: at for name, at in measure.point.items() if name not in axes})
    source = (
        f"SELECT cell, trial, {columns}, avg({value}) AS value FROM {view} WHERE grid = $grid AND name = $name "
        f"AND source = 'evaluation' AND list_contains($cells, cell) AND {present} AND {condition} GROUP BY ALL"
    )
    bindings = {"grid": grid, "name": measure.name, "cells": [*cells], **parameters}
    bindings |= {f"axis_{key}": axis for key, axis in coordinates.items()}
    scale = "linear" if paired else measure.scale
    averages = store.sql(over_seeds(source, ["cell", *coordinates], scale), bindings)
    return in_order(averages, cells, *reversed(coordinates))


def draw_error_by_shift(
    frame: pl.DataFrame, appearance: Appearance, measure: GridMeasure, along: str, title: str
) -> go.Figure:
    """One line with a band per cell of `average_points`; a thin rule marks the point of the measure of the grid."""
    drawing = Drawing(height=420, markers=True, width=2)
    rows = frame.rename({"cell": "series"})
    figure = draw_lines(rows, of_cells(appearance), x=along, y=title, scale=measure.scale, drawing=drawing)
    return _mark_judged_point(figure, frame, measure, along)


def draw_change_by_shift(frame: pl.DataFrame, appearance: Appearance, measure: GridMeasure, along: str) -> go.Figure:
    """As `draw_error_by_shift` of paired changes, with the whole margin that counts as equal in sight about zero."""
    words = Drawing(height=380, markers=True, width=2, words=lambda value: change(value, measure.scale))
    rows = frame.rename({"cell": "series"})
    figure = draw_lines(rows, of_cells(appearance), x=along, y="change from the baseline", drawing=words)
    rope = rope_of(measure)
    figure.add_hrect(y0=-rope, y1=rope, fillcolor=ROPE + "26", line={"width": 0}, layer="below")
    figure.add_hline(y=0, line={"color": ROPE, "width": 1}, layer="below")
    axis = value_axis(frame, "linear").get("range", (0.0, 0.0))
    ends = [*axis, *finite(frame["value"].to_list()), -1.25 * rope, 1.25 * rope]
    span = [min(ends), max(ends)]
    if span[0] < span[1]:
        ticks = {} if measure.scale == "linear" else ratio_ticks(max(map(abs, span)), each_side=6)
        figure.update_yaxes(range=span, **ticks)
    return _mark_judged_point(figure, frame, measure, along)


def _mark_judged_point(figure: go.Figure, frame: pl.DataFrame, measure: GridMeasure, along: str) -> go.Figure:
    if along in measure.point:
        note = {"text": "compared here", "yanchor": "top", "xshift": 5, "font": {"color": MUTED, "size": 12}}
        figure.add_vline(measure.point[along], line={"color": MUTED, "width": 1, "dash": "dot"}, annotation=note)
    levels = frame["x"].unique().sort().to_list()
    ticks = {"tickvals": levels, "ticktext": [f"{level:g}" for level in levels]} if len(levels) <= 12 else {}
    return figure.update_xaxes(**ticks)


def shift_map(store: Store, grid: str, measure: GridMeasure, axes: Sequence[str], cells: Sequence[str]) -> pl.DataFrame:
    """The measure of `cells` over two coordinates of its evaluation grid, and their paired change from the baseline.

    Returns:
        cell, x, y, n, value (average over seeds), change (mean paired log ratio on the log scale, else difference;
        null for the baseline); by cell in the given order, then y, then x.
    """
    keys = ["cell", "x", "y"]
    values, changes = (average_points(store, grid, measure, axes, cells, paired=paired) for paired in (False, True))
    changes = changes.select(*keys, change="value")
    return values.select(*keys, "n", "value").join(changes, on=keys, how="left", maintain_order="left")


def draw_shift_maps(
    frame: pl.DataFrame, appearance: Appearance, measure: GridMeasure, axes: Sequence[str], column: str
) -> go.Figure:
    """The map of each cell on one scale of colours; `column` is "value" or "change"."""
    if column == "change":
        ramp = heat_ramp(frame[column], "change", diverging=True)
        ticks = {} if measure.scale == "linear" else ratio_ticks(ramp.high)
        ramp = ramp._replace(low_is_better=measure.better == "lower", ticks=ticks)
        ramp = ramp._replace(words=lambda value: change(value, measure.scale))
    else:
        ramp = heat_ramp(frame[column], measure.name, log=measure.scale == "log")
    cells = frame.select("x", "y", panel=pl.col("cell").replace_strict(appearance.names), value=column)
    return draw_heat(cells if cells["panel"].n_unique() > 1 else cells.drop("panel"), ramp, x=axes[0], y=axes[1])
