"""Figures of 004, When Attention Sink Emerges, which are of several measurements or of axes of the grid."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from dashboards.data.grid_context import MOST_CURVES, GridContext
from dashboards.figures.heat import draw_heat, heat_ramp
from dashboards.figures.histogram import draw_bars
from dashboards.figures.lines import Drawing, Panel, Series, draw_two_axes, of_cells
from dashboards.figures.training import curves
from dashboards.papers.drawing import OVER_SEEDS, draw_lines, draw_with_legend, join_parts, lacking
from dashboards.papers.formulas import PREFIX, SHIFTED, masks
from dashboards.papers.item import Drawn
from dashboards.papers.reading import (
    Point,
    loss_words,
    named_series,
    read_evaluation,
    read_final,
    read_probe,
    split_cells,
)

_EPS: Final = (0.2, 0.3, 0.4)
_SINK: Final[Point] = {"eps": 0.3, "position": 1.0}  # the metric of 004: token 1, above 0.3
_LENGTH: Final = 64  # the length at which 004 probes
_SHARE: Final = "sink share"
_NAMED_EPS: Final = f"eps {_SINK['eps']:g}"


def _numbers(cells: pl.DataFrame) -> pl.DataFrame:
    """The rows of `split_cells` whose level is a positive number, which is x."""
    found = cells.with_columns(x=pl.col("level").cast(pl.Float64, strict=False))
    return found.filter(pl.col("x").is_finite() & (pl.col("x") > 0))


def sinks_by_length(about: GridContext) -> Drawn:
    """004, figure 1. A to C: a panel per model, a line per eps over lengths; D: a bar per model at a usual length."""
    cells = _numbers(split_cells(about, "length"))
    if cells.is_empty():
        return Drawn(message="The grid has no axis for the length at which sinks are looked for.")
    parts = [
        read_final(about, "sink_share", at={**_SINK, "eps": eps})
        .join(cells, on="series")
        .select("rest", "x", "n", "value", "low", "high", series=pl.lit(f"eps = {eps:g}"))
        for eps in _EPS
    ]
    found = pl.concat(parts).sort("series", "x")
    if found.is_empty():
        return lacking("sink_share")
    models = [name for name in dict.fromkeys(cells["rest"]) if name in set(found["rest"])]
    panels = [
        Panel(found.filter(pl.col("rest") == name).drop("rest"), f"{_SHARE}, {name}".rstrip(", "))
        for name in models[:MOST_CURVES]
    ]
    drawing = Drawing(260, 2, log_x=True, markers=True)
    lines = draw_lines(panels, named_series([f"eps = {eps:g}" for eps in _EPS]), x="length", drawing=drawing)
    usual = min(set(found["x"]), key=lambda x: (abs(math.log(x / _LENGTH)), x))
    kept = found.filter((pl.col("x") == usual) & (pl.col("series") == f"eps = {_SINK['eps']:g}"))
    bars = kept.sort(pl.col("rest").cast(pl.Enum(models))).select(
        pl.lit("bar").alias("series"), pl.col("rest").alias("group"), "n", "value", "low", "high"
    )
    figure = draw_bars(bars, named_series(["bar"]), x="model", y=f"{_SHARE} at length {usual:g}")
    first = f" By length: the first {len(panels)} of {len(models)} models." if len(models) > len(panels) else ""
    caption = (
        f"Share of heads whose mean attention to token 1 exceeds eps, mean over seeds; lengths on a log axis. Bars: "
        f"{_NAMED_EPS} at length {usual:g}, in the grid's order of models. Band and error bar: 95 % t interval over "
        f"seeds.{first}"
    )
    return join_parts({"By length": lines, "By model": Drawn(data=bars, figure=figure)}, caption)


def sinks_by_position(about: GridContext) -> Drawn:
    """004, figure 3: masks, and below them the share of heads with a sink by position."""
    mask = masks()
    heat = Drawn(data=mask, figure=draw_heat(mask, heat_ramp(mask["value"]), x="key", y="query", height=200))
    found = read_probe(about, "sink_share", "position", at={"eps": _SINK["eps"]})
    by_formula = f"Masks by formula, with a prefix of {PREFIX} tokens and a window of {SHIFTED} keys."
    if found.is_empty():
        return heat._replace(caption=by_formula, message=lacking("sink_share").message)
    lines = draw_lines([Panel(found, _SHARE)], of_cells(about.look), x="position", drawing=Drawing(280, markers=True))
    share = f"Line: share of heads with a sink at a position, {_NAMED_EPS}, mean over seeds."
    return join_parts({"Masks": heat, "Sinks by position": lines}, f"{by_formula} {share} {OVER_SEEDS}")


def sinks_by_domain(about: GridContext) -> Drawn:
    """004, figure 7. Bars: a group per domain of the text, a bar per model."""
    cells = split_cells(about, "domain")
    if cells.is_empty():
        return Drawn(message="The grid has no axis for the domain of the text.")
    found = read_final(about, "sink_share", at=_SINK).join(cells, on="series", maintain_order="left")
    if found.is_empty():
        return lacking("sink_share")
    rows = found.select(pl.col("level").alias("group"), pl.col("rest").alias("series"), "n", "value", "low", "high")
    series = named_series(rows["series"].to_list())
    caption = f"Bar: share of heads with a sink at token 1, {_NAMED_EPS}, mean over seeds, with its 95 % t interval."
    return draw_with_legend(caption, rows, draw_bars(rows, series, x="domain", y=_SHARE), series)


def loss_and_sinks(about: GridContext) -> Drawn:
    """004, figure 2. A: over steps; B to D: over the learning rate, the data, the window, if the grid varies them."""
    panels = {
        "Over training": _over_steps(about, ""),
        "Learning rate": _over_steps(about, "learning rate"),
        "Data": _over_levels(about, "training tokens"),
        "Window": _over_levels(about, "window"),
    }
    kept = {title: part for title, part in panels.items() if part.figure is not None}
    if not kept:
        return lacking("loss", "sink_share")
    caption = (
        "Left axis: training loss in full lines with round marks, validation loss (not by learning rate) dotted with "
        f"{loss_words(about, 'open ones')}. Right axis, dashed lines and squares: share of heads with a sink "
        f"at token 1, {_NAMED_EPS}. Means over seeds. {OVER_SEEDS}"
    )
    return join_parts(kept, caption, 2)


def _over_steps(about: GridContext, fact: str) -> Drawn:
    """Loss and sinks over steps: of the baseline with validation loss, or of every level of the axis about `fact`."""
    usual = about.baseline or about.drawn[0]
    names = {usual: about.look.names[usual]}
    if fact:
        cells = _varying(about, fact).iter_rows()
        names = {cell: f"{fact} {level}" for cell, level, _ in cells if cell in about.drawn}
    loss = curves(about.store, about.grid, "loss", list(names), scale="linear").frame
    parts = [
        loss,
        read_evaluation(about, "validation_loss").clear() if fact else read_evaluation(about, "validation_loss"),
        read_probe(about, "sink_share", "step", at=_SINK),
    ]
    named = pl.col("series").replace_strict(names, default="", return_dtype=pl.String)
    kept = [part.filter(pl.col("series").is_in(list(names))).with_columns(named) for part in parts]
    return _two_axes(kept, _by_colour(list(names.values())), "training step")


def _over_levels(about: GridContext, fact: str) -> Drawn:
    """Final values along the levels of an axis of numbers."""
    cells = _numbers(_varying(about, fact)).select("series", "x")
    if cells["x"].n_unique() < 2:
        return Drawn()
    ends = "at the end of training"
    parts = [
        read_final(about, name, at=at).join(cells, on="series").with_columns(series=pl.lit(ends)).sort("x")
        for name, at in (("loss", None), ("validation_loss", None), ("sink_share", _SINK))
    ]
    return _two_axes(parts, _by_colour([ends]), fact)


def _by_colour(names: Sequence[str]) -> dict[str, Series]:
    """Series that differ in colour alone: dashes and marks tell the quantities apart."""
    plain = {"dash": "solid", "marker": "line-ew"}
    return {name: each._replace(style=each.style._replace(**plain)) for name, each in named_series(names).items()}


def _varying(about: GridContext, fact: str) -> pl.DataFrame:
    """The rows of `split_cells` that differ from the first in the level alone."""
    cells = split_cells(about, fact)
    return cells.filter(pl.col("rest") == pl.col("rest").first())


def _two_axes(parts: Sequence[pl.DataFrame], series: Mapping[str, Series], x: str) -> Drawn:
    """Training loss, and validation loss if it was measured, beside sinks."""
    loss, validation, sink = parts
    if loss.is_empty() or sink.is_empty():
        return Drawn()
    left = {"loss": loss} | ({"validation loss": validation} if validation.height else {})
    figure = draw_two_axes(left, {_SHARE: sink}, series, x=x)
    data = [found.with_columns(of=pl.lit(title)) for title, found in {**left, _SHARE: sink}.items()]
    return Drawn(data=pl.concat(data, how="diagonal_relaxed"), figure=figure, legend=series)


def norms_of_first(about: GridContext) -> Drawn:
    """004, figure 6: token 1 and the others, of the baseline.

    Block l has the keys and values of layer l - 1, counted from 0.
    """
    pairs = (
        ("norm of hidden states", "activation_first", "activation_others", "depth"),
        ("norm of keys", "first_key_norm", "other_key_norm", "layer"),
        ("norm of values", "first_value_norm", "other_value_norm", "layer"),
        ("cosine of query and key", "first_qk_cosine", "other_qk_cosine", "layer"),
    )
    shown = about.baseline or about.drawn[0]
    panels = []
    for title, first, others, x in pairs:
        parts = [
            read_probe(about, name, x)
            .filter(pl.col("series") == shown)
            .with_columns(pl.col("x") + (x == "layer"), series=pl.lit(token))
            for token, name in (("token 1", first), ("others", others))
        ]
        panels.append(Panel(pl.concat(parts, how="diagonal"), title))
    if all(panel.found.is_empty() for panel in panels):
        return lacking(*[name for _, first, others, _ in pairs for name in (first, others)])
    caption = (
        f"Shown: {about.look.names[shown]}. Line: mean over heads and seeds. Hidden states are outputs of a block (0: "
        f"inputs of the first). {OVER_SEEDS} The paper also has the products q k and |q| |k|, which no probe records."
    )
    return draw_lines(panels, named_series(["token 1", "others"]), x="block", caption=caption, drawing=Drawing(260, 2))
