"""Turn frames into figures of the papers, or into a sentence if there is nothing to draw."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import count, join_words
from ablate.dashboards.data.grid_context import GridContext
from ablate.dashboards.data.seed_averages import Scale
from ablate.dashboards.figures.heat import Ramp, draw_heat
from ablate.dashboards.figures.lines import PLAIN, Drawing, Panel, Series, draw_panels, of_cells
from ablate.dashboards.figures.panels import place_side_by_side
from ablate.papers.figures.item import Drawn
from ablate.papers.figures.reading import Spread, named_series, read_probe, split_cells

OVER_SEEDS: Final = "Band: 95 % t interval over seeds."
_BANDS: Final[Mapping[Spread, str]] = {
    "seeds": OVER_SEEDS,
    "heads": "Band: one standard deviation over heads, each averaged over seeds; it is no interval over seeds.",
}
_LAYERS: Final = "Layers count from 0."
_TITLES: Final = {"step": "training step", "query": "position of the query", "depth": "block"}
"""Titles of axes, where the coordinate has another name."""


def lacking(*names: str) -> Drawn:
    """There is nothing to draw: no run has these measurements."""
    return Drawn(message=f"No finished run of this grid has {join_words([f'`{name}`' for name in names])} yet.")


def draw_with_legend(
    caption: str, data: pl.DataFrame, figure: go.Figure, series: Mapping[str, Series], counted: str = "seed"
) -> Drawn:
    """A figure with its legend, the names of series in its data, and n in its caption: "n = 1 to 3 seeds"."""
    counts = sorted(set(data["n"].drop_nulls())) if "n" in data.columns else []
    if counts:
        least = f"{counts[0]} to " if len(counts) > 1 else ""
        caption += f" n = {least}{count(counts[-1], counted)}."
    if "series" in data.columns:
        data = data.with_columns(pl.col("series").replace({key: each.name for key, each in series.items()}))
    return Drawn(caption, data, figure, legend=series)


def draw_lines(
    panels: Sequence[Panel],
    series: Mapping[str, Series],
    *,
    x: str,
    caption: str = "",
    drawing: Drawing = PLAIN,
    counted: str = "seed",
) -> Drawn:
    """Lines in one panel or several, without empty ones; `counted` is what n counts: "seed" or "head"."""
    kept = [panel for panel in panels if not panel.frame.is_empty()]
    shown = {name: series[name] for panel in kept for name in panel.frame["series"].unique(maintain_order=True)}
    rows = [panel.frame.select(pl.lit(panel.y).alias("panel"), pl.all()) for panel in kept]
    data = pl.concat(rows, how="diagonal_relaxed")
    caption = f"{caption} {_LAYERS}" if x == "layer" else caption
    return draw_with_legend(caption, data, draw_panels(kept, shown, x=x, drawing=drawing), shown, counted)


def draw_maps(frame: pl.DataFrame, ramp: Ramp, *, x: str, y: str, caption: str = "") -> Drawn:
    """A heat map, a panel for every `panel` of the frame."""
    data = frame.filter(pl.col("value").is_not_null()).drop("reason", strict=False)
    caption = f"{caption} {_LAYERS}" if y == "layer" else caption
    return draw_with_legend(caption, data, draw_heat(frame, ramp, x=x, y=y), {})


def cells_as_panels(context: GridContext, frame: pl.DataFrame) -> pl.DataFrame:
    """A frame of cells over x and y, with the names of cells as panels."""
    panel = pl.col("series").replace_strict(dict(context.appearance.names), return_dtype=pl.String).alias("panel")
    return frame.select(panel, "x", "y", "n", "value")


def join_parts(parts: Mapping[str, Drawn], caption: str, columns: int = 1) -> Drawn:
    """Several drawings as titled panels of one: their data under each other, their legends together."""
    figures = [(title, part.figure) for title, part in parts.items() if part.figure is not None]
    kept = {title: part.data for title, part in parts.items() if part.data.height}
    rows = [part.select(pl.lit(name).alias("part"), pl.all()) for name, part in kept.items()]
    data = pl.concat(rows, how="diagonal_relaxed")
    legend = {key: each for part in parts.values() for key, each in part.legend.items()}
    return draw_with_legend(caption, data, place_side_by_side(figures, columns), legend)


def by_model(
    context: GridContext, frame: pl.DataFrame, title: str, scale: Scale
) -> tuple[list[Panel], dict[str, Series], Drawing]:
    """A panel for each level of the axis about models, a series for other choices; without that axis one of all."""
    cells = split_cells(context, "model")
    if cells["level"].n_unique() < 2:
        return [Panel(frame, title, scale)], of_cells(context.appearance), PLAIN
    rows = frame.join(cells, on="series", maintain_order="left").with_columns(series="rest").drop("rest")
    parts = [(level, rows.filter(pl.col("level") == level)) for level in cells["level"].unique(maintain_order=True)]
    panels = [Panel(part.drop("level"), f"{title}, {level}", scale) for level, part in parts if part.height]
    drawing = PLAIN if len(panels) == 1 else Drawing(300, min(len(panels), 3))
    return panels, named_series(cells["rest"].to_list()), drawing


class ProbeLines(NamedTuple):
    """Lines of probes: a panel for each."""

    panels: Mapping[str, str]  # title by the name of the probe
    x: str  # the coordinate along which the lines run
    caption: str
    spread: Spread = "seeds"
    last: bool = False  # true if only the last layer of each model counts
    factor: float = 1
    models: bool = False  # true if there is a panel for each model, of one probe
    height: int = 400

    def draw(self, context: GridContext) -> Drawn:
        scaled = pl.col("value", "low", "high") * self.factor
        read = partial(read_probe, context, x=self.x, spread=self.spread, last=self.last)
        panels = [Panel(read(name).with_columns(scaled), title) for name, title in self.panels.items()]
        if all(panel.frame.is_empty() for panel in panels):
            return lacking(*self.panels)
        series, drawing = of_cells(context.appearance), Drawing(self.height, min(len(panels), 2))
        if self.models:
            panels, series, drawing = by_model(context, panels[0].frame, panels[0].y, "linear")
        caption, x = f"{self.caption} {_BANDS[self.spread]}", _TITLES.get(self.x, self.x)
        return draw_lines(panels, series, x=x, caption=caption, drawing=drawing, counted=self.spread.removesuffix("s"))
