"""Figures of 000, 002 and 003 that lines of a probe alone do not make."""

import math
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from ablate.dashboards.data.formatting import count, join_words
from ablate.dashboards.data.grid_context import MOST_CURVES, GridContext
from ablate.dashboards.figures.attention import layers_of
from ablate.dashboards.figures.heat import heat_ramp
from ablate.dashboards.figures.histogram import draw_histogram, of_bins
from ablate.dashboards.figures.lines import Drawing, Panel, Series, of_cells
from ablate.dashboards.figures.probe_curves import BINS, names
from ablate.dashboards.figures.training import curves
from ablate.dashboards.theme.styles import REST
from ablate.papers.figures.drawing import (
    OVER_SEEDS,
    ProbeLines,
    by_model,
    cells_as_panels,
    draw_lines,
    draw_maps,
    draw_with_legend,
    join_parts,
    lacking,
)
from ablate.papers.figures.item import Drawn
from ablate.papers.figures.reading import loss_words, read_final, read_measurement, read_probe, split_cells
from ablate.store.analysis.artefacts import arrays, artefacts


def training_lines(context: GridContext, name: str, y: str, begin: float = 0.0) -> Drawn:
    """A training metric on a log axis, a panel per model, from a share of the steps on."""
    averages = curves(context.store, context.grid, name, context.drawn, scale="log")
    if averages.frame.is_empty():
        return lacking(name)
    first = begin * max(averages.frame["x"])
    y = loss_words(context, y) if name == "loss" else y
    panels, series, drawing = by_model(context, averages.frame.filter(pl.col("x") >= first), y, "log")
    late = f" From step {math.ceil(first):,}, where the last two ninths begin." if begin else ""
    words = f"Line: geometric mean over seeds, on a log axis. {OVER_SEEDS} Each point averages"
    caption = f"{words} {count(int(averages.width), 'step')}.{late}"
    return draw_lines(panels, series, x="training step", caption=caption, drawing=drawing)


def weight_sums(context: GridContext) -> Drawn:
    """000, figure 3: counts of all layers, with the recorded mean and median."""
    bins, left = _select(context, read_probe(context, "weight_sum_count", BINS))
    if bins.is_empty():
        return Drawn(message=left.strip()) if left else lacking("weight_sum_count")
    mean, median = (
        read_final(context, f"weight_sum_{name}").select("series", pl.col("value").alias(name))
        for name in ("mean", "median")
    )
    caption = (
        "Bars: queries per layer and run, mean over layers and seeds. Full rule: mean; dashed rule: median, each of a "
        f"layer's queries, averaged over layers and seeds.{left}"
    )
    rules = mean.join(median, on="series", how="full", coalesce=True)
    counts = of_bins(bins)
    series = {key: each for key, each in of_cells(context.appearance).items() if key in set(counts["series"])}
    figure = draw_histogram(counts, rules, series, x="sum of the weights of a query", y="queries per layer")
    data = counts.hstack(bins.select("n")).join(rules, on="series", how="left")
    return draw_with_legend(caption, data, figure, series)


def weight_sums_by_head(context: GridContext) -> Drawn:
    """000, figure 5: sums by layer and head, on a scale from 0 to 1."""
    sums, left = _select(context, read_probe(context, "weight_sum", "head"))
    if sums.is_empty():
        return Drawn(message=left.strip()) if left else lacking("weight_sum")
    caption = (
        "Sum of the weights of a row, mean over queries and seeds, unscaled. The paper divides the sum of its sink "
        f"variant by 1 less the sink's weight, and scales to 0 to 1.{left}"
    )
    panels = cells_as_panels(context, sums)
    greatest = max(1.0, *panels["value"].drop_nulls().to_list())
    ramp = heat_ramp(panels["value"], "sum of weights")._replace(low=0.0, high=greatest)
    return draw_maps(panels, ramp, x="head", y="layer", caption=caption)


def _select(context: GridContext, frame: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The rows of the largest model and of the paper's operators, and sentences about the others.

    Their sums are not always 1. If a kind of operator has variants, the paper's is a learned sink or N of context.
    """
    sums = read_final(context, "weight_sum").select("series", sum="value")
    fixed = set(sums.filter((pl.col("sum") - 1).abs() < 1e-6)["series"])
    said = []
    if names := [context.appearance.names[cell.cell] for cell in context.cells if cell.cell in fixed]:
        kinds = list(dict.fromkeys(cell.operator for cell in context.cells if cell.cell in fixed))
        said.append(f"Left out: {join_words(kinds if len(kinds) < len(names) else names)}, whose weights sum to 1.")
    kept = frame.filter(~pl.col("series").is_in(list(fixed)))
    models = split_cells(context, "model")
    there = models.filter(pl.col("series").is_in(kept["series"].to_list()))
    if there["level"].n_unique() > 1:
        largest = there["level"].to_list()[-1]
        kept = kept.filter(pl.col("series").is_in(there.filter(pl.col("level") == largest)["series"].to_list()))
        said.append(f"Shown: the last model, {largest}.")
    others = set(kept["series"]) - _paper_cells(context, kept["series"].unique())
    if operators := [cell.operator for cell in context.cells if cell.cell in others]:
        kept = kept.filter(~pl.col("series").is_in(list(others)))
        said.append(f"Not in the paper's figure: {join_words(list(dict.fromkeys(operators)))}.")
    return kept, "".join(f" {each}" for each in said)


def _paper_cells(context: GridContext, cells: pl.Series) -> set[str]:
    """Return the cells of each kind of operator that the paper has, or all cells of a kind if it has none of them."""
    operators = context.store.sql(
        "SELECT DISTINCT g.cell, concat(t.spec->>'$.operator.normaliser.kind', t.spec->>'$.operator.rescale.kind') AS "
        "kind, coalesce(json_array_length(t.spec->'$.operator.normaliser.logit.per'), 0) > 0 OR "
        "coalesce(t.spec->>'$.operator.rescale.n', '') = 'context' AS printed "
        "FROM grid_trial g JOIN trial t USING (trial) WHERE g.grid = $grid AND list_contains($cells, g.cell)",
        {"grid": context.grid, "cells": cells.to_list()},
    )
    return set(operators.filter(pl.col("printed") == pl.col("printed").max().over("kind"))["cell"])


_Weights = npt.NDArray[np.float64]
Layer = Literal["middle", "last"]
"""The middle one is the last of the lower half: layer 8 of the 16 that paper 000 shows."""


def attention_panels(context: GridContext, *, layer: Layer, most: int = 64, more: str = "") -> Drawn:
    """Attention maps: the mean over the heads of one layer, a panel per cell.

    They are of the first sequence of the first seed that has any, its first `most` tokens. Key 0 has the weights that
    no token has: of a learned key, of a ground state or a sink.
    """
    maps = {cell: averaged for cell in context.drawn if (averaged := _read_map(context, cell, layer)) is not None}
    if not maps:
        return lacking("attention_maps")
    others = any(other is not None for _, other, _ in maps.values())
    frame = pl.concat(
        _map_cells(weights[:most, :most], other, context.appearance.names[cell], others=others)
        for cell, (weights, other, _) in maps.items()
    )
    layers = join_words(list(dict.fromkeys(words for *_, words in maps.values())))
    first = " Key 0 is no token: a sink, a ground state or a learned key." if others else ""
    caption = (
        f"Weight of each key (across) for each query (down) in {layers}, mean over its heads; the first "
        f"sequence of one seed.{first} The weights of tokens need not sum to 1.{more}"
    )
    ramp = heat_ramp(frame["value"], "weight", diverging=bool((frame["value"] < 0).any()))
    return draw_maps(frame, ramp, x="key", y="query", caption=caption)


def _map_cells(weights: _Weights, other: _Weights | None, name: str, *, others: bool) -> pl.DataFrame:
    """panel, x (key), y (query, from above), value (null for keys that a query cannot see), reason."""
    rows = [
        (name, key, str(query), float(weights[query - 1, key - 1]) if key <= query else None, "masked: a later key")
        for query in range(1, len(weights) + 1)
        for key in range(1, len(weights) + 1)
    ]
    if others:
        why = "masked: it has no weights beside its tokens"
        at = [None if other is None else float(other[query]) for query in range(len(weights))]
        rows = [(name, 0, str(query), value, why) for query, value in enumerate(at, start=1)] + rows
    return pl.DataFrame(rows, schema=["panel", "x", "y", "value", "reason"], orient="row")


def _read_map(context: GridContext, cell: str, layer: Layer) -> tuple[_Weights, _Weights | None, str] | None:
    """The weights of tokens [queries, keys], those of no token [queries], and the layer in words, counted from 1."""
    runs = context.store.sql(
        "SELECT g.trial FROM grid_trial g JOIN trial t USING (trial) WHERE g.grid = $grid AND g.cell = $cell "
        "AND t.state = 'done' ORDER BY g.seed",
        {"grid": context.grid, "cell": cell},
    )
    for trial in runs["trial"]:
        files = artefacts(context.store, trial)
        layers = list(layers_of(files, max((each.step for each in files), default=0)).values())
        if layers:
            place = len(layers) - 1 if layer == "last" else (len(layers) - 1) // 2
            held = arrays(context.store, layers[place])
            first = {name: np.asarray(held[name], dtype=np.float64)[0].mean(0) for name in held}
            others = [first[name] for name in ("extra", "ground") if name in first]
            words = f"layer {place + 1} of {len(layers)}"
            return first["weights"], np.sum(others, axis=0) if others else None, words
    return None


def token_classes(context: GridContext) -> Drawn:
    """002, figure 3: a panel per class of token, those of the paper first."""
    recorded = [name.split(".", 2) for name in names(context.store, context.grid) if name.startswith("token_class.")]
    if not recorded:
        return lacking("token_class.BY.CLASS")
    by = recorded[0][1]
    paper = ("special_punctuation", "content", "function", "other")
    there = sorted(each for _, other, each in recorded if other == by)
    classes = [*(each for each in paper if each in there), *(each for each in there if each not in paper)]
    panels = {f"token_class.{by}.{each}": f"share, {each}" for each in classes}
    caption = f"Line: mean share of the attention over heads, by class of token as told by {by}."
    return ProbeLines(panels, "layer", caption, "heads", height=260).draw(context)


def last_entropy(context: GridContext) -> Drawn:
    """002, figure 4: the band has a measurement of its own."""
    entropy = read_probe(context, "entropy_last", "layer").drop("low", "high")
    if entropy.is_empty():
        return lacking("entropy_last")
    sd = read_probe(context, "entropy_last_sd", "layer").select("series", "x", sd="value")
    ends = {"low": pl.col("value") - pl.col("sd"), "high": pl.col("value") + pl.col("sd")}
    both = entropy.join(sd, on=["series", "x"], how="left", maintain_order="left").with_columns(**ends).drop("sd")
    caption = (
        "Line: mean over heads, sequences and seeds. Band: one standard deviation over sequences of the mean over "
        "heads; it is no interval over seeds."
    )
    return draw_lines([Panel(both, "entropy, nats")], of_cells(context.appearance), x="layer", caption=caption)


_PREDICTION: Final = "boundary_prediction"
_TARGET: Final = "target"
_USUAL: Final = 10.0  # the largest |x| of the middle panel of 003, figure 9


def boundaries(context: GridContext, *, ranges: bool = False) -> Drawn:
    """003, figure 1: the steepest function that was asked for, by a model with a feedforward part and one without.

    They are the baseline and the first model without it; if there is none, every model has a panel.

    With `ranges` it is figure 9: the least slope at high x, the steepest at usual and at low x; all models in each.
    """
    measured = context.store.sql(
        "SELECT DISTINCT point['a'] AS a FROM v_final WHERE grid = $grid AND name = $name ORDER BY a",
        {"grid": context.grid, "name": _PREDICTION},
    )
    slopes = measured["a"].drop_nulls().to_list()
    if not slopes:
        return lacking(_PREDICTION)
    least, most = (read_measurement(context, _PREDICTION, "x", at={"a": slopes[end]}) for end in (0, -1))
    x = pl.col("x")
    parts = [
        (slopes[0], least.filter(x >= 0), f"prediction of {slopes[0]:g} x, high x"),
        (slopes[-1], most.filter(x.abs() <= _USUAL), f"prediction of {slopes[-1]:g} x, usual x"),
        (slopes[-1], most.filter(x <= 0), f"prediction of {slopes[-1]:g} x, low x"),
    ]
    if not ranges:
        most = most.filter(x.abs() <= _USUAL, pl.col("series").is_in(_with_and_without_feedforward(context)))
        by_cell = most.group_by("series", maintain_order=True)
        parts = [(slopes[-1], rows, f"prediction, {context.appearance.names[str(cell)]}") for (cell,), rows in by_cell]
    panels = [Panel(_add_target(rows, slope), title) for slope, rows, title in parts]
    asked = "Usual x are those" if ranges else f"Asked for: {slopes[-1]:g} x, for x"
    words = f"{asked} within {_USUAL:g} of 0."
    caption = f"Line: mean prediction over prompts and seeds, and the target: what was asked for. {words} {OVER_SEEDS}"
    series = {_TARGET: Series("target", REST), **of_cells(context.appearance)}
    drawing = Drawing(300, min(len(panels), 3), own_x=ranges)
    return draw_lines(panels, series, x="x", caption=caption, drawing=drawing)


def _with_and_without_feedforward(context: GridContext) -> list[str]:
    """The baseline, else the first cell with a feedforward part, and the first cell without; all if they are alike."""
    bare_cells = context.store.sql(
        "SELECT g.cell, any_value(t.spec->>'$.model.feedforward') = 'none' AS bare FROM grid_trial g "
        "JOIN trial t USING (trial) WHERE g.grid = $grid GROUP BY g.cell",
        {"grid": context.grid},
    )
    is_bare = dict(bare_cells.iter_rows())
    cells = sorted((cell.cell for cell in context.cells), key=lambda cell: cell != context.baseline)
    firsts = [next((cell for cell in cells if is_bare.get(cell) is bare), None) for bare in (False, True)]
    return cells if None in firsts else [str(cell) for cell in firsts]


def _add_target(predictions: pl.DataFrame, slope: float) -> pl.DataFrame:
    truth = predictions.select(pl.col("x").unique().sort()).with_columns(
        series=pl.lit(_TARGET), value=slope * pl.col("x")
    )
    return pl.concat([truth, predictions], how="diagonal")


def errors_by_shift(context: GridContext) -> Drawn:
    """Both halves of 003, figures 3 and 11: the curve at sigma_x = 1, and the maps."""
    curve = read_measurement(context, "mse", "sigma_f", at={"sigma_x": 1.0}, scale="log")
    if curve.is_empty():
        return lacking("mse")
    words = "squared error"
    line = draw_lines([Panel(curve, words, "log")], of_cells(context.appearance), x="sigma_f", drawing=Drawing(300))
    maps = cells_as_panels(context, read_measurement(context, "mse", "sigma_f", "sigma_x", scale="log"))
    heat = draw_maps(maps, heat_ramp(maps["value"], words, log=True), x="sigma_f", y="sigma_x")
    caption = f"Geometric means over seeds. {OVER_SEEDS} Maps share one logarithmic scale of colours."
    return join_parts({"At sigma_x = 1": line, "Over both shifts": heat}, caption)


def errors_map(context: GridContext, quantifier: str) -> Drawn:
    """Maps of the cells whose task asks about `quantifier`."""
    asked = context.store.sql(
        "SELECT DISTINCT g.cell FROM grid_trial g JOIN trial t USING (trial) WHERE g.grid = $grid "
        "AND t.spec->>'$.task.quantifier' = $quantifier",
        {"grid": context.grid, "quantifier": quantifier},
    )
    kept = [cell.cell for cell in context.cells if cell.cell in set(asked["cell"])]
    if not kept:
        return Drawn(message=f'No cell of this grid has `task.quantifier` "{quantifier}", which this figure is about.')
    shown = [cell for cell in context.drawn if cell in kept] or kept[:MOST_CURVES]
    context = context._replace(drawn=shown)
    errors = cells_as_panels(context, read_measurement(context, "error_rate", "length", "sigma"))
    if errors.is_empty():
        return lacking("error_rate")
    more = f" {count(len(kept) - len(shown), 'further cell')} not shown." if len(kept) > len(shown) else ""
    caption = (
        f'Share of wrong answers on the task "{quantifier}", mean over seeds; one scale of colours for all maps. '
        f"Lengths and sigmas are those at which the task was evaluated; the paper's are 10 to 200 and 1 to 30."
        f"{more}"
    )
    return draw_maps(errors, heat_ramp(errors["value"], "error rate"), x="length", y="sigma", caption=caption)
