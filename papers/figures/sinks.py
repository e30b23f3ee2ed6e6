"""Figures of 004, When Attention Sink Emerges, which are of several measurements or of axes of the grid."""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from ablate.dashboards.data.grid_context import GridContext
from ablate.dashboards.figures.lines import Drawing, Panel, Series, draw_two_axes, of_cells
from ablate.dashboards.figures.training import curves
from ablate.papers.figures.drawing import OVER_SEEDS, draw_lines, join_parts, lacking
from ablate.papers.figures.item import Drawn
from ablate.papers.figures.reading import (
    Point,
    loss_words,
    named_series,
    read_evaluation,
    read_final,
    read_probe,
    split_cells,
)

_SINK: Final[Point] = {"eps": 0.3, "position": 1.0}  # the metric of 004: token 1, above 0.3
_DATA: Final = "training tokens"
_SHARE: Final = "sink share"
_NAMED_EPS: Final = f"eps {_SINK['eps']:g}"


def sinks_by_position(context: GridContext) -> Drawn:
    """004, figure 3: the share of heads with a sink by position."""
    shares = read_probe(context, "sink_share", "position", at={"eps": _SINK["eps"]})
    if shares.is_empty():
        return lacking("sink_share")
    caption = f"Line: share of heads with a sink at a position, {_NAMED_EPS}, mean over seeds. {OVER_SEEDS}"
    drawing = Drawing(280, markers=True)
    return draw_lines(
        [Panel(shares, _SHARE)], of_cells(context.appearance), x="position", caption=caption, drawing=drawing
    )


def loss_and_sinks(context: GridContext) -> Drawn:
    """004, figure 2. A: over steps; B and C: over the learning rate and the data, if the grid varies them."""
    panels = {
        "Over training": _over_steps(context, ""),
        "Learning rate": _over_steps(context, "learning rate"),
        "Data": _over_data(context),
    }
    kept = {title: part for title, part in panels.items() if part.figure is not None}
    if not kept:
        return lacking("loss", "sink_share")
    caption = (
        "Left axis: training loss in full lines with round marks, validation loss (not by learning rate) dotted with "
        f"{loss_words(context, 'open ones')}. Right axis, dashed lines and squares: share of heads with a sink "
        f"at token 1, {_NAMED_EPS}. Means over seeds. {OVER_SEEDS}"
    )
    return join_parts(kept, caption, 2)


def _over_steps(context: GridContext, fact: str) -> Drawn:
    """Loss and sinks over steps: of the baseline with validation loss, or of every level of the axis about `fact`."""
    usual = context.baseline or context.drawn[0]
    names = {usual: context.appearance.names[usual]}
    if fact:
        cells = _varying(context, fact).iter_rows()
        names = {cell: f"{fact} {level}" for cell, level, _ in cells if cell in context.drawn}
    loss = curves(context.store, context.grid, "loss", list(names), scale="linear").frame
    parts = [
        loss,
        read_evaluation(context, "validation_loss").clear() if fact else read_evaluation(context, "validation_loss"),
        read_probe(context, "sink_share", "step", at=_SINK),
    ]
    named = pl.col("series").replace_strict(names, default="", return_dtype=pl.String)
    kept = [part.filter(pl.col("series").is_in(list(names))).with_columns(named) for part in parts]
    return _two_axes(kept, _by_colour(list(names.values())), "training step")


def _over_data(context: GridContext) -> Drawn:
    """Final values along the levels of the axis about the tokens of training."""
    levels = _varying(context, _DATA).select("series", x=pl.col("level").cast(pl.Float64, strict=False))
    cells = levels.filter(pl.col("x").is_finite() & (pl.col("x") > 0))
    if cells["x"].n_unique() < 2:
        return Drawn()
    ends = "at the end of training"
    parts = [
        read_final(context, name, at=at).join(cells, on="series").with_columns(series=pl.lit(ends)).sort("x")
        for name, at in (("loss", None), ("validation_loss", None), ("sink_share", _SINK))
    ]
    return _two_axes(parts, _by_colour([ends]), _DATA)


def _by_colour(names: Sequence[str]) -> dict[str, Series]:
    """Series that differ in colour alone: dashes and marks tell the quantities apart."""
    plain = {"dash": "solid", "marker": "line-ew"}
    return {name: each._replace(style=each.style._replace(**plain)) for name, each in named_series(names).items()}


def _varying(context: GridContext, fact: str) -> pl.DataFrame:
    """The rows of `split_cells` that differ from the first in the level alone."""
    cells = split_cells(context, fact)
    return cells.filter(pl.col("rest") == pl.col("rest").first())


def _two_axes(parts: Sequence[pl.DataFrame], series: Mapping[str, Series], x: str) -> Drawn:
    """Training loss, and validation loss if it was measured, beside sinks."""
    loss, validation, sink = parts
    if loss.is_empty() or sink.is_empty():
        return Drawn()
    left = {"loss": loss} | ({"validation loss": validation} if validation.height else {})
    figure = draw_two_axes(left, {_SHARE: sink}, series, x=x)
    data = [frame.with_columns(of=pl.lit(title)) for title, frame in {**left, _SHARE: sink}.items()]
    return Drawn(data=pl.concat(data, how="diagonal_relaxed"), figure=figure, legend=series)
