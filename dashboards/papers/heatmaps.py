"""Maps of the gallery: layer x head, and two coordinates of an evaluation, a panel per cell."""

from collections.abc import Mapping

import polars as pl

from dashboards.data.grid_context import GridContext, in_order
from dashboards.data.seed_averages import Scale, over_seeds
from dashboards.figures import probe_curves
from dashboards.figures.heat import heat_ramp
from dashboards.papers.drawing import drawn_heat, lacking
from dashboards.papers.item import Drawn
from store.database.queries import agrees


def by_head(about: GridContext, name: str) -> pl.DataFrame:
    """A probe by layer and head over seeds: panel (the cell's name), x (head), y (layer), n, value."""
    if name not in probe_curves.names(about.store, about.grid):
        return pl.DataFrame(schema={"panel": pl.String, "value": pl.Float64})
    found = probe_curves.by_head(about.store, probe_curves.ProbeReading(about.grid, name, {}), about.drawn)
    return found.select(_panel(about), x="head", y="layer", n="n", value="value").filter(pl.col("value").is_not_null())


def by_points(
    about: GridContext,
    name: str,
    axes: tuple[str, str],
    *,
    at: Mapping[str, float] | None = None,
    scale: Scale = "linear",
) -> pl.DataFrame:
    """An evaluation over two coordinates of its points, over seeds: panel, x, y, n, value."""
    condition, parameters = agrees(at or {})
    rows = (
        "SELECT cell, point[$across] AS x, point[$up] AS y, avg(value) AS value FROM v_final WHERE grid = $grid "
        "AND name = $name AND source = 'evaluation' AND point[$across] IS NOT NULL AND point[$up] IS NOT NULL "
        f"AND {condition} GROUP BY cell, trial, point[$across], point[$up]"
    )
    given = {"grid": about.grid, "name": name, "across": axes[0], "up": axes[1], **parameters}
    found = in_order(about.store.sql(over_seeds(rows, ["cell", "x", "y"], scale), given), about.drawn, "y", "x")
    return found.select(_panel(about), "x", "y", "n", "value").filter(pl.col("value").is_not_null())


def _panel(about: GridContext) -> pl.Expr:
    return pl.col("cell").replace_strict(dict(about.look.names), default=None, return_dtype=pl.String).alias("panel")


def error_map(about: GridContext, name: str, axes: tuple[str, str], title: str, caption: str) -> Drawn:
    """A map of an error over two coordinates, one scale for all cells."""
    found = by_points(about, name, axes)
    if found.is_empty():
        return lacking(name)
    return drawn_heat(found, heat_ramp(found["value"], title), x=axes[0], y=axes[1], caption=caption)
