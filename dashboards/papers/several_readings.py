"""Figures that are of several measurements or of axes of the grid: of 004, When Attention Sink Emerges, and of 003."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from dashboards.data.grid_context import MOST_CURVES, GridContext
from dashboards.figures.heat import draw_heat, heat_ramp
from dashboards.figures.histogram import draw_bars
from dashboards.figures.lines import Drawing, Panel, Series, draw_two_axes
from dashboards.figures.training import curves
from dashboards.papers.drawing import (
    OVER_SEEDS,
    cells_as_panels,
    drawn_figure,
    drawn_heat,
    drawn_lines,
    join_parts,
    lacking,
)
from dashboards.papers.formulas import PREFIX, SHIFTED, masks
from dashboards.papers.item import Drawn
from dashboards.papers.reading import (
    loss_words,
    named_series,
    read_evaluation,
    read_final,
    read_measurement,
    read_probe,
    series_of,
    split_cells,
)
from dashboards.theme.styles import REST

LENGTH: Final = 64
"""At which the paper looks for sinks."""
EPS: Final = (0.2, 0.3, 0.4)
SINK: Final[Mapping[str, float]] = {"eps": 0.3, "position": 1.0}
"""The paper's metric: token 1, above 0.3."""
_SHARE: Final = "sink share"


def _numbers(cells: pl.DataFrame) -> pl.DataFrame:
    """The rows of `split_cells` whose level is a positive number, which is x."""
    return cells.with_columns(x=pl.col("level").cast(pl.Float64, strict=False)).filter(
        pl.col("x").is_finite() & (pl.col("x") > 0)
    )


def sinks_by_length(about: GridContext) -> Drawn:
    """A to C: a panel per model, a line per eps over lengths; D: a bar per model, at the length nearest to 64."""
    cells = _numbers(split_cells(about, "length"))
    if cells.is_empty():
        return Drawn(message="The grid has no axis for the length at which sinks are looked for.")
    parts = [
        read_final(about, "sink_share", at={**SINK, "eps": eps})
        .join(cells, on="series")
        .select("rest", "x", "n", "value", "low", "high", series=pl.lit(f"eps = {eps:g}"))
        for eps in EPS
    ]
    found = pl.concat(parts).sort("series", "x")
    if found.is_empty():
        return lacking("sink_share")
    names = [name for name in dict.fromkeys(cells["rest"]) if name in set(found["rest"])]
    panels = [
        Panel(found.filter(pl.col("rest") == name).drop("rest"), f"{_SHARE}, {name}".rstrip(", "))
        for name in names[:MOST_CURVES]
    ]
    usual = min(set(found["x"]), key=lambda x: (abs(math.log(x / LENGTH)), x))
    kept = found.filter((pl.col("x") == usual) & (pl.col("series") == f"eps = {SINK['eps']:g}"))
    bars = kept.sort(pl.col("rest").cast(pl.Enum(names))).select(
        pl.lit("bar").alias("series"), pl.col("rest").alias("group"), "n", "value", "low", "high"
    )
    drawing = Drawing(260, 2, log_x=True, markers=True)
    lines = drawn_lines(
        panels, named_series([f"eps = {eps:g}" for eps in EPS]), x="length", caption="", drawing=drawing
    )
    drawn = draw_bars(bars, named_series(["bar"]), x="model", y=f"{_SHARE} at length {usual:g}")
    first = f" By length: the first {len(panels)} of {len(names)} models." if len(names) > len(panels) else ""
    caption = (
        "Share of heads whose mean attention to token 1 exceeds eps, mean over seeds; lengths on a log axis. Bars: eps "
        f"{SINK['eps']:g} at length {usual:g}, in the grid's order of models. Band and error bar: 95 % t interval over "
        f"seeds.{first}"
    )
    return join_parts([("By length", lines), ("By model", Drawn(data=bars, figure=drawn))], caption)


def loss_and_sinks(about: GridContext) -> Drawn:
    """A: over steps; B to D: over the learning rate, the data, the window, if the grid varies them."""
    panels = {
        "Over training": _over_steps(about, ""),
        "Learning rate": _over_steps(about, "learning rate"),
        "Data": _over_levels(about, "training tokens"),
        "Window": _over_levels(about, "window"),
    }
    kept = [(title, drawn) for title, drawn in panels.items() if drawn.figure is not None]
    if not kept:
        return lacking("loss", "sink_share")
    caption = (
        "Left axis: training loss in full lines with round marks, validation loss (not by learning rate) dotted with "
        f"{loss_words(about, 'open ones')}. Right axis, dashed lines and squares: share of heads with a sink "
        f"at token 1, eps {SINK['eps']:g}. Means over seeds. {OVER_SEEDS}"
    )
    return join_parts(kept, caption, 2)


def _over_steps(about: GridContext, fact: str) -> Drawn:
    """Loss and sinks over steps: of the baseline with validation loss, or of every level of the axis about `fact`."""
    if fact:
        cells = _varying(about, fact)
        level = {cell: f"{fact} {name}" for cell, name, _ in cells.iter_rows() if cell in about.drawn}
    else:
        usual = about.baseline or about.drawn[0]
        level = {usual: about.look.names[usual]}
    loss = curves(about.store, about.grid, "loss", list(level), scale="linear").frame
    losses = [
        loss.rename({"cell": "series", "step": "x"}),
        *([] if fact else [read_evaluation(about, "validation_loss")]),
    ]
    named = [
        found.filter(pl.col("series").is_in(list(level))).with_columns(
            pl.col("series").replace_strict(level, default="", return_dtype=pl.String)
        )
        for found in (*losses, read_probe(about, "sink_share", "step", at=SINK))
    ]
    return _two_axes(named[:-1], named[-1], named_series(list(level.values())), "training step")


def _over_levels(about: GridContext, fact: str) -> Drawn:
    """Final values along the levels of an axis of numbers."""
    cells = _numbers(_varying(about, fact)).select("series", "x")
    if cells["x"].n_unique() < 2:
        return Drawn()
    ends = "at the end of training"
    loss, validation, sink = (
        read_final(about, name, at=at).join(cells, on="series").with_columns(series=pl.lit(ends)).sort("x")
        for name, at in (("loss", None), ("validation_loss", None), ("sink_share", SINK))
    )
    return _two_axes([loss, validation], sink, named_series([ends]), fact)


def _varying(about: GridContext, fact: str) -> pl.DataFrame:
    """The rows of `split_cells` that differ from the first in the level alone."""
    cells = split_cells(about, fact)
    return cells.filter(pl.col("rest") == pl.col("rest").first())


def _two_axes(losses: Sequence[pl.DataFrame], sink: pl.DataFrame, series: Mapping[str, Series], x: str) -> Drawn:
    """Training loss, and validation loss if it is among `losses` and was measured, beside sinks."""
    if losses[0].is_empty() or sink.is_empty():
        return Drawn()
    left = {name: found for name, found in zip(("loss", "validation loss"), losses, strict=False) if found.height}
    figure = draw_two_axes(left, {_SHARE: sink}, series, x=x)
    data = [found.with_columns(of=pl.lit(title)) for title, found in {**left, _SHARE: sink}.items()]
    return Drawn(data=pl.concat(data, how="diagonal_relaxed"), figure=figure, legend=series)


def sinks_by_position(about: GridContext) -> Drawn:
    """Masks, and below them the share of heads with a sink by position."""
    mask = masks()
    heat = Drawn(data=mask, figure=draw_heat(mask, heat_ramp(mask["value"]), x="key", y="query", height=200))
    found = read_probe(about, "sink_share", "position", at={"eps": SINK["eps"]})
    by_formula = f"Masks by formula, with a prefix of {PREFIX} tokens and a window of {SHIFTED} keys."
    if found.is_empty():
        return heat._replace(caption=by_formula, message=lacking("sink_share").message)
    drawing = Drawing(280, markers=True)
    lines = drawn_lines([Panel(found, _SHARE)], series_of(about), x="position", caption="", drawing=drawing)
    share = f"Line: share of heads with a sink at a position, eps {SINK['eps']:g}, mean over seeds."
    return join_parts([("Masks", heat), ("Sinks by position", lines)], f"{by_formula} {share} {OVER_SEEDS}")


def norms_of_first(about: GridContext) -> Drawn:
    """Token 1 and the others, of the baseline; block l has the keys and values of layer l - 1, counted from 0."""
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
            .with_columns(pl.col("x") + (x == "layer"), series=pl.lit(who))
            for who, name in (("token 1", first), ("others", others))
        ]
        panels.append(Panel(pl.concat(parts, how="diagonal"), title))
    if all(panel.found.is_empty() for panel in panels):
        return lacking(*[name for _, first, others, _ in pairs for name in (first, others)])
    caption = (
        f"Shown: {about.look.names[shown]}. Line: mean over heads and seeds. Hidden states are outputs of a block (0: "
        f"inputs of the first). {OVER_SEEDS} The paper also has the products q k and |q| |k|, which no probe records."
    )
    series = named_series(["token 1", "others"])
    return drawn_lines(panels, series, x="block", caption=caption, drawing=Drawing(260, 2))


def sinks_by_domain(about: GridContext) -> Drawn:
    """Bars: a group per domain of the text, a bar per model."""
    cells = split_cells(about, "domain")
    if cells.is_empty():
        return Drawn(message="The grid has no axis for the domain of the text.")
    found = read_final(about, "sink_share", at=SINK).join(cells, on="series", maintain_order="left")
    if found.is_empty():
        return lacking("sink_share")
    rows = found.select(pl.col("level").alias("group"), pl.col("rest").alias("series"), "n", "value", "low", "high")
    series = named_series(rows["series"].to_list())
    caption = (
        f"Bar: share of heads with a sink at token 1, eps {SINK['eps']:g}, mean over seeds, with its 95 % t interval."
    )
    return drawn_figure(caption, rows, draw_bars(rows, series, x="domain", y=_SHARE), series)


_PREDICTION: Final = "boundary_prediction"
_TARGET: Final = "target"
_USUAL: Final = 10.0
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
    return _drawn_boundaries(about, panels, f"Asked for: {slopes[-1]:g} x.")


def ranges(about: GridContext) -> Drawn:
    """Figure 9: the least slope at high x, the steepest at usual and at low x; all models in each."""
    slopes = _slopes(about)
    if not slopes:
        return lacking(_PREDICTION)
    shown = [
        (slopes[0], "high", pl.col("x") >= 0),
        (slopes[-1], "usual", pl.col("x").abs() <= _USUAL),
        (slopes[-1], "low", pl.col("x") <= 0),
    ]
    panels = []
    for slope, words, where in shown:
        found = read_measurement(about, _PREDICTION, "x", at={"a": slope}).filter(where)
        panels.append(Panel(_add_target(found, slope), f"prediction of {slope:g} x, {words} x"))
    return _drawn_boundaries(about, panels, f"Usual x are those within {_USUAL:g} of 0.", own=True)


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


def _drawn_boundaries(about: GridContext, panels: Sequence[Panel], words: str, *, own: bool = False) -> Drawn:
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
