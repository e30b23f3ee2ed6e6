"""Figures 3 and 5 of 000: sums of the weights of a query, of operators whose sums are not always 1."""

import polars as pl

from dashboards.data.formatting import join_words
from dashboards.data.grid_context import GridContext
from dashboards.figures.heat import heat_ramp
from dashboards.papers.drawing import cells_as_panels, draw_maps, lacking
from dashboards.papers.figures import draw_counts
from dashboards.papers.item import Drawn
from dashboards.papers.reading import read_final, read_probe, split_cells

_ONE = 1e-6
"""Sums that are as near to 1 as that are 1."""


def weight_sums(about: GridContext) -> Drawn:
    """000, figure 3: counts of all layers, with the recorded mean and median."""
    found, left = _select(about, read_probe(about, "weight_sum_count", "sum"))
    if found.is_empty():
        return _nothing("weight_sum_count", left)
    mean, median = (
        read_final(about, f"weight_sum_{name}").select("series", pl.col("value").alias(name))
        for name in ("mean", "median")
    )
    caption = (
        "Bars: queries per layer and run, mean over layers and seeds. Full rule: mean; dashed rule: median, each of a "
        f"layer's queries, averaged over layers and seeds.{left}"
    )
    rules = mean.join(median, on="series", how="full", coalesce=True)
    return draw_counts(about, found, rules, ("sum of the weights of a query", "queries per layer"), caption)


def weight_sums_by_head(about: GridContext) -> Drawn:
    """000, figure 5: sums by layer and head, on a scale from 0 to 1."""
    found, left = _select(about, read_probe(about, "weight_sum", "head"))
    if found.is_empty():
        return _nothing("weight_sum", left)
    caption = (
        "Sum of the weights of a row, mean over queries and seeds, unscaled. The paper divides the sum of its sink "
        f"variant by 1 less the sink's weight, and scales to 0 to 1.{left}"
    )
    panels = cells_as_panels(about, found)
    greatest = max(1.0, *panels["value"].drop_nulls().to_list())
    ramp = heat_ramp(panels["value"], "sum of weights")._replace(low=0.0, high=greatest)
    return draw_maps(panels, ramp, x="head", y="layer", caption=caption)


def _nothing(name: str, left: str) -> Drawn:
    return Drawn(message=left.strip()) if left else lacking(name)


def _select(about: GridContext, found: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The rows of the largest model whose sums are not always 1, and a sentence about the others."""
    sums = read_final(about, "weight_sum").select("series", sum="value")
    fixed = set(sums.filter((pl.col("sum") - 1).abs() < _ONE)["series"])
    said = []
    if names := [about.look.names[cell.cell] for cell in about.cells if cell.cell in fixed]:
        kinds = list(dict.fromkeys(cell.operator for cell in about.cells if cell.cell in fixed))
        said.append(f"Left out: {join_words(kinds if len(kinds) < len(names) else names)}, whose weights sum to 1.")
    kept = found.filter(~pl.col("series").is_in(list(fixed)))
    models = split_cells(about, "model")
    there = models.filter(pl.col("series").is_in(kept["series"].to_list()))
    if there["level"].n_unique() > 1:
        largest = there["level"].to_list()[-1]
        kept = kept.filter(pl.col("series").is_in(there.filter(pl.col("level") == largest)["series"].to_list()))
        said.append(f"Shown: the last model, {largest}.")
    return kept, "".join(f" {each}" for each in said)
