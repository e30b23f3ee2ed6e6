"""Turn frames into figures of the gallery, or into a sentence if there is nothing to draw.

`ProbeLines` and the functions that take the context first are what most items are made by.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import count, join_words
from dashboards.data.grid_context import MOST_CURVES, GridContext
from dashboards.data.seed_averages import Scale
from dashboards.figures.heat import Ramp, draw_heat, heat_ramp
from dashboards.figures.histogram import draw_histogram, of_bins
from dashboards.figures.lines import PLAIN, Drawing, Panel, Series, draw_panels
from dashboards.figures.panels import place_side_by_side
from dashboards.figures.training import curves
from dashboards.papers.item import Drawn
from dashboards.papers.reading import (
    Spread,
    loss_words,
    named_series,
    read_final,
    read_measurement,
    read_probe,
    series_of,
    split_cells,
)

OVER_SEEDS: Final = "Band: 95 % t interval over seeds."
BANDS: Final = {
    "seeds": OVER_SEEDS,
    "heads": "Band: one standard deviation over heads, each averaged over seeds; it is no interval over seeds.",
}
_LAYERS: Final = "Layers count from 0."
_TITLES: Final = {"step": "training step", "query": "position of the query", "depth": "block"}
"""Titles of axes whose coordinate is called otherwise."""


def lacking(*names: str) -> Drawn:
    """There is nothing to draw: no run has these measurements."""
    return Drawn(message=f"No finished run of this grid has {join_words([f'`{name}`' for name in names])} yet.")


def drawn_lines(
    panels: Sequence[Panel],
    series: Mapping[str, Series],
    *,
    x: str,
    caption: str,
    drawing: Drawing = PLAIN,
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
    data = name_series(pl.concat(parts, how="diagonal_relaxed"), shown)
    return Drawn(add_counts(caption, data, each), data, figure, legend=shown)


def name_series(data: pl.DataFrame, series: Mapping[str, Series]) -> pl.DataFrame:
    """The frame with the names of its series in place of their keys."""
    return data.with_columns(pl.col("series").replace({key: each.name for key, each in series.items()}))


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


def cells_as_panels(about: GridContext, found: pl.DataFrame) -> pl.DataFrame:
    """A frame of cells over x and y, with the names of cells as panels."""
    panel = pl.col("series").replace_strict(dict(about.look.names), return_dtype=pl.String).alias("panel")
    return found.select(panel, "x", "y", "n", "value")


def join_parts(panels: Sequence[tuple[str, Drawn]], caption: str, columns: int = 1) -> Drawn:
    """Several drawings as panels of one, titled: their data under each other, their legends together."""
    drawn = [(title, part.figure) for title, part in panels if part.figure is not None]
    data = [part.data.select(pl.lit(title).alias("part"), pl.all()) for title, part in panels if part.data.height]
    legend = {key: each for _, part in panels for key, each in part.legend.items()}
    together = pl.concat(data, how="diagonal_relaxed")
    return Drawn(add_counts(caption, together), together, place_side_by_side(drawn, columns), legend=legend)


def by_model(
    about: GridContext, found: pl.DataFrame, title: str, scale: Scale
) -> tuple[list[Panel], dict[str, Series], Drawing]:
    """A panel for each level of the axis that tells models apart, in each a series for every other choice.

    Up to three panels stand in a row. Without such an axis all cells are series of one panel.
    """
    cells = split_cells(about, "model")
    if cells["level"].n_unique() < 2:
        return [Panel(found, title, scale)], series_of(about), PLAIN
    rows = found.join(cells, on="series", maintain_order="left").with_columns(series="rest").drop("rest")
    parts = {
        level: rows.filter(pl.col("level") == level).drop("level")
        for level in cells["level"].unique(maintain_order=True)
    }
    panels = [Panel(part, f"{title}, {level}", scale) for level, part in parts.items() if part.height]
    drawing = PLAIN if len(panels) == 1 else Drawing(300, min(len(panels), 3))
    return panels, named_series(cells["rest"].to_list()), drawing


class ProbeLines(NamedTuple):
    """Lines of probes: a panel for each."""

    panels: Mapping[str, str]
    """Title by the name of the probe."""
    x: str
    """The coordinate along which the lines run."""
    caption: str
    spread: Spread = "seeds"
    last: bool = False
    """Whether each model's last layer alone is meant."""
    factor: float = 1
    models: bool = False
    """Whether there is a panel for each model, of one probe."""
    height: int = 400

    def draw(self, about: GridContext) -> Drawn:
        """The figure of a grid."""
        found = {
            title: read_probe(about, name, self.x, spread=self.spread, last=self.last).with_columns(
                pl.col("value", "low", "high") * self.factor
            )
            for name, title in self.panels.items()
        }
        if all(rows.is_empty() for rows in found.values()):
            return lacking(*self.panels)
        drawn, series = [Panel(rows, title) for title, rows in found.items()], series_of(about)
        drawing = Drawing(self.height, min(len(drawn), 2))
        if self.models:
            drawn, series, drawing = by_model(about, drawn[0].found, drawn[0].y, "linear")
        caption, x = f"{self.caption} {BANDS[self.spread]}", _TITLES.get(self.x, self.x)
        return drawn_lines(drawn, series, x=x, caption=caption, drawing=drawing, each=self.spread.removesuffix("s"))


def training_lines(about: GridContext, name: str, y: str, begin: float = 0.0) -> Drawn:
    """A training metric on a log axis, a panel per model, from a share of the steps on."""
    found = curves(about.store, about.grid, name, about.drawn, scale="log")
    if found.frame.is_empty():
        return lacking(name)
    rows = found.frame.rename({"cell": "series", "step": "x"})
    first = begin * max(rows["x"])
    y = loss_words(about, y) if name == "loss" else y
    panels, series, drawing = by_model(about, rows.filter(pl.col("x") >= first), y, "log")
    late = f" From step {math.ceil(first):,}, where the last two ninths begin." if begin else ""
    caption = (
        f"Line: geometric mean over seeds, on a log axis. {OVER_SEEDS} Each point averages "
        f"{count(int(found.width), 'step')}.{late}"
    )
    return drawn_lines(panels, series, x="training step", caption=caption, drawing=drawing)


def heads_map(about: GridContext, name: str, title: str, caption: str) -> Drawn:
    """A probe by layer and head, a panel per cell."""
    found = cells_as_panels(about, read_probe(about, name, "head"))
    if found.is_empty():
        return lacking(name)
    return drawn_heat(found, heat_ramp(found["value"], title), x="head", y="layer", caption=caption)


def errors_map(about: GridContext, quantifier: str, widest: int) -> Drawn:
    """Maps of the cells whose task asks about `quantifier`; `widest` is the greatest sigma of the paper's map."""
    found = about.store.sql(
        "SELECT DISTINCT g.cell FROM grid_trial g JOIN trial t USING (trial) WHERE g.grid = $grid "
        "AND t.spec->>'$.task.quantifier' = $quantifier",
        {"grid": about.grid, "quantifier": quantifier},
    )
    asked = set(found["cell"])
    kept = [cell.cell for cell in about.cells if cell.cell in asked]
    if not kept:
        return Drawn(message=f'No cell of this grid has `task.quantifier` "{quantifier}", which this figure is about.')
    drawn = [cell for cell in about.drawn if cell in asked] or kept[:MOST_CURVES]
    about = about._replace(drawn=drawn)
    errors = cells_as_panels(about, read_measurement(about, "error_rate", "length", "sigma"))
    if errors.is_empty():
        return lacking("error_rate")
    more = f" {count(len(kept) - len(drawn), 'further cell')} not shown." if len(kept) > len(drawn) else ""
    caption = (
        f'Share of wrong answers on the task "{quantifier}", mean over seeds; one scale of colours for all maps. '
        f"Lengths and sigmas are those at which the task was evaluated; the paper's are 10 to 200 and 1 to {widest}."
        f"{more}"
    )
    return drawn_heat(errors, heat_ramp(errors["value"], "error rate"), x="length", y="sigma", caption=caption)


def sums_histogram(about: GridContext) -> Drawn:
    """The sums of the weights of queries (000, figure 3): counts of all layers, with the recorded mean and median."""
    found = read_probe(about, "weight_sum_count", "sum")
    if found.is_empty():
        return lacking("weight_sum_count")
    mean, median = (
        read_final(about, f"weight_sum_{name}").select("series", pl.col("value").alias(name))
        for name in ("mean", "median")
    )
    caption = (
        "Bars: queries per layer and run, mean over layers and seeds. Full rule: mean; dashed rule: median, each of a "
        "layer's queries, averaged over layers and seeds."
    )
    titles = ("sum of the weights of a query", "queries per layer")
    return _drawn_histogram(about, found, mean.join(median, on="series", how="full", coalesce=True), titles, caption)


def norms_histogram(about: GridContext) -> Drawn:
    """How many tokens have an embedding of which norm (003, figure 8), on a log axis."""
    found = read_measurement(about, "embedding_norm_count", "norm")
    if found.is_empty():
        own = "No probe here counts them; a run of your own can record the evaluation at {norm}, once per bin."
        return Drawn(message=f"{lacking('embedding_norm_count').message} {own}")
    caption = "Bars: tokens per bin, mean over seeds. Full rule: mean; dashed rule: median, of bins."
    return _drawn_histogram(about, found, None, ("norm of the embedding", "tokens (log axis)"), caption)


def _drawn_histogram(
    about: GridContext, found: pl.DataFrame, rules: pl.DataFrame | None, titles: tuple[str, str], caption: str
) -> Drawn:
    counts, of_counts = of_bins(found)
    rules = of_counts if rules is None else rules
    series = {key: each for key, each in series_of(about).items() if key in set(counts["series"])}
    log = "(log axis)" in titles[1]
    figure = draw_histogram(counts, rules, series, x=titles[0], y=titles[1], log=log)
    data = name_series(counts.join(rules, on="series", how="left"), series)
    return Drawn(add_counts(caption, found), data, figure, legend=series)


def drawn_figure(caption: str, data: pl.DataFrame, figure: go.Figure, series: Mapping[str, Series]) -> Drawn:
    """A figure by formula, or of bars: nothing of it has to be left out."""
    return Drawn(add_counts(caption, data), name_series(data, series), figure, legend=series)
