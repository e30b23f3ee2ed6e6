"""Histograms of the gallery, of bins that runs have counted already."""

from collections.abc import Mapping

import polars as pl

from dashboards.data.grid_context import GridContext
from dashboards.figures.histogram import draw_histogram, of_bins
from dashboards.figures.lines import Series
from dashboards.papers.data import read_final, read_measurement, read_probe, series_of
from dashboards.papers.drawing import add_counts, lacking, name_series
from dashboards.papers.item import Drawn


def counted_sums(about: GridContext) -> Drawn:
    """Draw the sums of the weights of queries (000, figure 3): counts of all layers, with mean and median."""
    found = read_probe(about, "weight_sum_count", "sum")
    if found.is_empty():
        return lacking("weight_sum_count")
    counts, _ = of_bins(found)
    rules = (
        read_final(about, "weight_sum_mean")
        .select("series", mean="value")
        .join(
            read_final(about, "weight_sum_median").select("series", median="value"),
            on="series",
            how="full",
            coalesce=True,
        )
    )
    series = series_of(about)
    figure = draw_histogram(counts, rules, series, x="sum of the weights of a query", y="queries per layer")
    caption = (
        "Bars: queries per layer and run, mean over layers and seeds. Full rule: mean; dashed rule: median, each of a "
        "layer's queries, averaged over layers and seeds."
    )
    data = name_series(counts.join(rules, on="series", how="left"), series)
    return Drawn(add_counts(caption, found), data, figure, legend=_used(series, counts))


def counted_norms(about: GridContext) -> Drawn:
    """How many tokens have an embedding of which norm (003, figure 8), on a log axis.

    No probe counts them: who has embeddings records the evaluation `embedding_norm_count` at {"norm": middle of a bin}
    with a run of one's own.
    """
    found = read_measurement(about, "embedding_norm_count", "norm")
    if found.is_empty():
        drawn = lacking("embedding_norm_count")
        own = "No probe here counts them; a run of your own can record the evaluation at {norm}, once per bin."
        return drawn._replace(message=f"{drawn.message} {own}")
    counts, rules = of_bins(found)
    series = series_of(about)
    figure = draw_histogram(counts, rules, series, x="norm of the embedding", y="tokens (log axis)", log=True)
    data = name_series(counts.join(rules, on="series", how="left"), series)
    caption = "Bars: tokens per bin, mean over seeds. Full rule: mean; dashed rule: median, of bins."
    return Drawn(add_counts(caption, found), data, figure, legend=_used(series, counts))


def _used(series: Mapping[str, Series], counts: pl.DataFrame) -> dict[str, Series]:
    return {key: each for key, each in series.items() if key in set(counts["series"])}
