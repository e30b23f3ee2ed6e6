"""Figures of 003, Scaled Signed Averaging, of the squared error under shift and of predictions at the boundaries."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from dashboards.data.grid_context import GridContext
from dashboards.figures.heat import heat_ramp
from dashboards.figures.lines import Drawing, Panel, Series
from dashboards.papers.drawing import OVER_SEEDS, cells_as_panels, drawn_heat, drawn_lines, join_parts, lacking
from dashboards.papers.item import Drawn
from dashboards.papers.reading import read_measurement, series_of
from dashboards.theme.styles import REST

_PREDICTION: Final = "boundary_prediction"
_TARGET: Final = "target"
USUAL: Final = 10.0
"""The largest |x| of the middle panel of figure 9."""


def boundaries(about: GridContext) -> Drawn:
    """Figure 1: the steepest function that was asked for, a panel per model."""
    slopes = _slopes(about)
    if not slopes:
        return lacking(_PREDICTION)
    found = read_measurement(about, _PREDICTION, "x", at={"a": slopes[-1]})
    panels = [
        Panel(_add_target(rows, slopes[-1]), f"prediction, {about.look.names[str(cell)]}")
        for (cell,), rows in found.group_by("series", maintain_order=True)
    ]
    return _drawn(about, panels, f"Asked for: {slopes[-1]:g} x.")


def ranges(about: GridContext) -> Drawn:
    """Figure 9: the least slope at high x, the steepest at usual and at low x; all models in each."""
    slopes = _slopes(about)
    if not slopes:
        return lacking(_PREDICTION)
    shown = [
        (slopes[0], "high", pl.col("x") >= 0),
        (slopes[-1], "usual", pl.col("x").abs() <= USUAL),
        (slopes[-1], "low", pl.col("x") <= 0),
    ]
    panels = []
    for slope, words, where in shown:
        found = read_measurement(about, _PREDICTION, "x", at={"a": slope}).filter(where)
        panels.append(Panel(_add_target(found, slope), f"prediction of {slope:g} x, {words} x"))
    return _drawn(about, panels, f"Usual x are those within {USUAL:g} of 0.", own=True)


def _slopes(about: GridContext) -> list[float]:
    found = about.store.sql(
        "SELECT DISTINCT point['a'] AS a FROM v_final WHERE grid = $grid AND name = $name ORDER BY a",
        {"grid": about.grid, "name": _PREDICTION},
    )
    return found["a"].drop_nulls().to_list()


def _add_target(found: pl.DataFrame, slope: float) -> pl.DataFrame:
    truth = found.select(pl.col("x").unique().sort()).select(
        pl.lit(_TARGET).alias("series"), "x", value=slope * pl.col("x")
    )
    return pl.concat([truth, found], how="diagonal")


def _drawn(about: GridContext, panels: Sequence[Panel], words: str, *, own: bool = False) -> Drawn:
    series = {_TARGET: Series("target", REST), **series_of(about)}
    caption = f"Line: mean prediction over prompts and seeds, and the target: what was asked for. {words} {OVER_SEEDS}"
    drawing = Drawing(300, min(len(panels), 3), own_x=own)
    return drawn_lines(panels, series, x="x", caption=caption, drawing=drawing)


def errors_by_shift(about: GridContext) -> Drawn:
    """Both halves of figures 3 and 11: the curve at sigma_x = 1, and the maps."""
    curve = read_measurement(about, "mse", "sigma_f", at={"sigma_x": 1.0}, scale="log")
    if curve.is_empty():
        return lacking("mse")
    words = "squared error"
    line = drawn_lines([Panel(curve, words, "log")], series_of(about), x="sigma_f", caption="", drawing=Drawing(300))
    found = cells_as_panels(about, read_measurement(about, "mse", "sigma_f", "sigma_x", scale="log"))
    heat = drawn_heat(found, heat_ramp(found["value"], words, log=True), x="sigma_f", y="sigma_x", caption="")
    caption = f"Geometric means over seeds. {OVER_SEEDS} Maps share one logarithmic scale of colours."
    return join_parts([("At sigma_x = 1", line), ("Over both shifts", heat)], caption)
