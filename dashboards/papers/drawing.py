"""Frames as figures of the gallery, with a sentence where there is nothing to draw."""

from collections.abc import Mapping, Sequence
from typing import Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import count, join_words
from dashboards.data.grid_context import CellLook, GridContext
from dashboards.data.seed_averages import Scale
from dashboards.figures.heat import draw_heat
from dashboards.figures.heat_cells import Ramp
from dashboards.figures.lines import Drawing, Panel, Series, draw_panels
from dashboards.papers.data import by_level, named_series, series_of
from dashboards.papers.item import Drawn

_USUAL: Final = Drawing()
OVER_SEEDS: Final = "Band: 95 % t interval over seeds."
OVER_HEADS: Final = "Band: one standard deviation over heads, each averaged over seeds; it is no interval over seeds."
_LAYERS: Final = "Layers count from 0."


def lacking(*names: str) -> Drawn:
    """There is nothing to draw: no run has these measurements."""
    return Drawn(message=f"No finished run of this grid has {join_words([f'`{name}`' for name in names])} yet.")


def drawn_lines(
    panels: Sequence[Panel],
    series: Mapping[str, Series],
    *,
    x: str,
    caption: str,
    drawing: Drawing = _USUAL,
    each: str = "seed",
) -> Drawn:
    """Lines in one panel or several; those without a point are left out, and `series` may have more than is drawn.

    `each` is what n counts: "seed" or "head".
    """
    kept = [panel for panel in panels if not panel.found.is_empty()]
    used = list(dict.fromkeys(name for panel in kept for name in panel.found["series"]))
    shown = {name: series[name] for name in used}
    figure = draw_panels(kept, shown, x=x, drawing=drawing)
    parts = [panel.found.select(pl.lit(panel.y).alias("panel"), pl.all()) for panel in kept]
    caption = f"{caption} {_LAYERS}" if x == "layer" else caption
    told_ = name_series(pl.concat(parts, how="diagonal"), shown)
    return Drawn(add_counts(caption, told_, each), told_, figure, legend=shown)


def name_series(data: pl.DataFrame, series: Mapping[str, Series]) -> pl.DataFrame:
    """The frame with the names of its series in place of their keys."""
    names = {key: each.name for key, each in series.items()}
    return data.with_columns(pl.col("series").replace(names))


def add_counts(caption: str, data: pl.DataFrame, each: str = "seed") -> str:
    """The caption with the n of what is drawn, least to most: "n = 3 seeds", "n = 1 to 3 seeds"."""
    counts = sorted(set(data["n"].drop_nulls())) if "n" in data.columns else []
    if not counts:
        return caption
    least = f"{counts[0]} to " if len(counts) > 1 else ""
    return f"{caption} n = {least}{count(counts[-1], each)}."


def drawn_heat(found: pl.DataFrame, ramp: Ramp, *, x: str, y: str, caption: str) -> Drawn:
    """A heat map, a panel for every `panel` of the frame."""
    data = found.filter(pl.col("value").is_not_null()).drop("reason", strict=False)
    caption = f"{caption} {_LAYERS}" if y == "layer" else caption
    return Drawn(add_counts(caption, data), data, draw_heat(found, ramp, x=x, y=y))


def by_model(
    about: GridContext, found: pl.DataFrame, title: str, scale: Scale
) -> tuple[list[Panel], dict[str, Series]]:
    """A panel for each level of the axis that tells models apart, in each a series for every other choice.

    Without such an axis all cells are series of one panel.
    """
    level, rest = by_level(about, "model")
    if len(set(level.values())) < 2:
        return [Panel(found, title, scale)], series_of(about)
    names = list(dict.fromkeys(rest[cell.cell] for cell in about.cells if cell.cell in rest))
    told_apart = found.filter(pl.col("series").is_in(list(rest))).with_columns(
        pl.col("series").replace_strict(level, default="–").alias("level"),
        pl.col("series").replace_strict(rest, default="–"),
    )
    parts = {str(key[0]): rows.drop("level") for key, rows in told_apart.group_by("level", maintain_order=True)}
    order = [each for each in dict.fromkeys(level.values()) if each in parts]
    return [Panel(parts[each], f"{title}, {each}", scale) for each in order], named_series(names)


def side_by_side(panels: Sequence[Panel]) -> Drawing:
    """Up to three panels in a row, which is how the papers show sizes of models."""
    return _USUAL if len(panels) == 1 else Drawing(300, min(len(panels), 3))


def look_of(series: Mapping[str, Series]) -> CellLook:
    """The same as names and styles apart."""
    return CellLook({key: each.name for key, each in series.items()}, {key: each.style for key, each in series.items()})


def join_parts(parts: Sequence[tuple[str, Drawn]], figure: go.Figure, caption: str) -> Drawn:
    """Several drawings as one: their data under each other, their legends together."""
    data = [part.data.select(pl.lit(title).alias("part"), pl.all()) for title, part in parts if part.data.height]
    legend = {key: each for _, part in parts for key, each in part.legend.items()}
    together = pl.concat(data, how="diagonal_relaxed")
    return Drawn(add_counts(caption, together), together, figure, legend=legend)
