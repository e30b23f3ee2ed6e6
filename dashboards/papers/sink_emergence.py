"""Figures and tables of 004, When Attention Sink Emerges."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import polars as pl

from dashboards.data.grid_context import MOST_CURVES, GridContext
from dashboards.figures.bars import draw_bars
from dashboards.figures.dual_axis import Side, draw_dual_axis
from dashboards.figures.heat import draw_heat, heat_ramp
from dashboards.figures.lines import Drawing, Panel, Series
from dashboards.figures.panels import place_side_by_side
from dashboards.figures.training import curves
from dashboards.papers.data import (
    by_level,
    in_unit,
    loss_unit,
    named_series,
    read_evaluation,
    read_final,
    read_probe,
    series_of,
)
from dashboards.papers.drawing import OVER_SEEDS, add_counts, drawn_lines, join_parts, lacking, look_of, name_series
from dashboards.papers.item import Drawn, Item, figure_item
from dashboards.papers.paper_tables import printed_item

PAPER: Final = "004"
LENGTH: Final = 64
"""At which the paper looks for sinks."""
EPS: Final = (0.2, 0.3, 0.4)
SINK: Final[Mapping[str, float]] = {"eps": 0.3, "position": 1.0}
"""The paper's metric: token 1, above 0.3."""
DOCUMENTS: Final = (5, 9, 3, 11, 4)
"""Tokens of five toy documents."""
WINDOW: Final = 8
PREFIX, SHIFTED = 4, 3
"""The toy masks: tokens of a prefix, keys of a window."""
_SHARE: Final = "sink share"
_VALIDATION: Final = "validation_loss"
_ENDS: Final = "at the end of training"


def _by_length(about: GridContext) -> Drawn:
    """A to C: a panel per model, a line per eps over lengths; D: a bar per model, at the length nearest to 64."""
    lengths, models = by_level(about, "length")
    numbers = {cell: float(text) for cell, text in lengths.items() if _is_number(text) and float(text) > 0}
    if not numbers:
        return Drawn(message="The grid has no axis for the length at which sinks are looked for.")
    parts = []
    for eps in EPS:
        found = read_final(about, "sink_share", at={**SINK, "eps": eps}).filter(pl.col("series").is_in(list(numbers)))
        x = pl.col("series").replace_strict(numbers, default=None, return_dtype=pl.Float64)
        model = pl.col("series").replace_strict(models, default="", return_dtype=pl.String)
        parts.append(found.with_columns(x=x, model=model, series=pl.lit(f"eps = {eps:g}")))
    found = pl.concat(parts).filter(pl.col("value").is_not_null()).sort("series", "x")
    if found.is_empty():
        return lacking("sink_share")
    names = [name for name in dict.fromkeys(models.values()) if name in set(found["model"])]
    series = named_series([f"eps = {eps:g}" for eps in EPS])
    panels = [
        Panel(found.filter(pl.col("model") == name).drop("model"), f"{_SHARE}, {name}".rstrip(", "))
        for name in names[:MOST_CURVES]
    ]
    usual = min(set(found["x"]), key=lambda x: (abs(math.log(x / LENGTH)), x))
    kept = found.filter((pl.col("x") == usual) & (pl.col("series") == f"eps = {SINK['eps']:g}"))
    kept = kept.sort(pl.col("model").replace_strict({name: i for i, name in enumerate(names)}))
    bars = kept.select(pl.lit("bar").alias("series"), pl.col("model").alias("group"), "n", "value", "low", "high")
    drawing = Drawing(260, 2, log_x=True, markers=True)
    lines = drawn_lines(panels, series, x="length", caption="", drawing=drawing)
    bar_series = named_series(["bar"])
    drawn = draw_bars(bars, look_of(bar_series), x="model", y=f"{_SHARE} at length {usual:g}")
    figure = place_side_by_side([("By length", lines.figure), ("By model", drawn)] if lines.figure else [], 1)
    caption = (
        "Share of heads whose mean attention to token 1 exceeds eps, mean over seeds; lengths on a log axis. Bars: eps "
        f"{SINK['eps']:g} at length {usual:g}, in the grid's order of models. Band and error bar: 95 % t interval over "
        "seeds."
    )
    caption += f" By length: the first {len(panels)} of {len(names)} models." if len(names) > len(panels) else ""
    return join_parts([("by length", lines), ("by model", Drawn(data=bars, legend={}))], figure, caption)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _dynamics(about: GridContext) -> Drawn:
    """A: over steps; B to D: where the grid varies the learning rate, the data, the window."""
    panels = [("Over training", _over_steps(about, "")), ("Learning rate", _over_steps(about, "learning rate"))]
    panels += [
        (title, _over_levels(about, fact)) for title, fact in (("Data", "training tokens"), ("Window", "window"))
    ]
    kept = [(title, drawn) for title, drawn in panels if drawn.figure is not None]
    if not kept:
        return lacking("loss", "sink_share")
    caption = (
        "Left axis: training loss in full lines with round marks, validation loss (not by learning rate) dotted with "
        f"{in_unit('open ones', loss_unit(about))}. Right axis, dashed lines and squares: share of heads with a sink "
        f"at token 1, eps {SINK['eps']:g}. Means over seeds. {OVER_SEEDS}"
    )
    figure = place_side_by_side([(title, drawn.figure) for title, drawn in kept if drawn.figure is not None], 2)
    return join_parts(kept, figure, caption)


def _over_steps(about: GridContext, fact: str) -> Drawn:
    """Loss and sinks over steps: of the baseline with validation loss, or of every level of the axis about `fact`."""
    usual = about.baseline or about.drawn[0]
    levels = {cell: f"{fact} {text}" for cell, text in by_level(about, fact)[0].items()} if fact else {}
    level = levels if fact else {usual: about.look.names[usual]}
    kept = [cell for cell in about.drawn if cell in _alone(about, fact, level)]
    sink = read_probe(about, "sink_share", "step", at=SINK).filter(pl.col("series").is_in(kept))
    found = curves(about.store, about.grid, "loss", kept, scale="linear").frame
    if not kept or found.is_empty() or sink.is_empty():
        return Drawn()
    series = named_series(list(dict.fromkeys(level[cell] for cell in kept)))
    names = pl.col("series").replace_strict(level, default="")
    loss = found.rename({"cell": "series", "step": "x"}).with_columns(names)
    losses = (
        [loss]
        if fact
        else [loss, read_evaluation(about, _VALIDATION).filter(pl.col("series") == usual).with_columns(names)]
    )
    return _dual(losses, sink.with_columns(names), series, "training step")


def _over_levels(about: GridContext, fact: str) -> Drawn:
    """Draw final values along the levels of an axis of numbers."""
    level = by_level(about, fact)[0]
    numbers = {cell: float(level[cell]) for cell in _alone(about, fact, level) if _is_number(level.get(cell, ""))}
    if len(set(numbers.values())) < 2:
        return Drawn()
    sides = []
    for name, at in (("loss", None), (_VALIDATION, None), ("sink_share", SINK)):
        found = read_final(about, name, at=at).filter(pl.col("series").is_in(list(numbers)))
        x = pl.col("series").replace_strict(numbers, default=None, return_dtype=pl.Float64)
        sides.append(found.with_columns(x=x, series=pl.lit(_ENDS)).sort("x"))
    loss, validation, sink = sides
    if loss.is_empty() or sink.is_empty():
        return Drawn()
    return _dual([loss, validation], sink, named_series([_ENDS]), fact)


def _alone(about: GridContext, fact: str, level: Mapping[str, str]) -> Sequence[str]:
    """The cells that differ from the first in this axis alone; where there is no such axis, those that have a level."""
    if not fact or not level:
        return list(level)
    rest = by_level(about, fact)[1]
    first = rest[next(iter(rest))]
    return [cell for cell in level if rest[cell] == first]


def _dual(losses: Sequence[pl.DataFrame], sink: pl.DataFrame, series: Mapping[str, Series], x: str) -> Drawn:
    """Training loss, and validation loss where it is among `losses` and was measured, beside sinks."""
    left = [Side(name, found) for name, found in zip(("loss", "validation loss"), losses, strict=False) if found.height]
    figure = draw_dual_axis(left, Side(_SHARE, sink), look_of(series), x=x)
    data = [side.found.with_columns(of=pl.lit(side.title)) for side in (*left, Side(_SHARE, sink))]
    return Drawn(data=pl.concat(data, how="diagonal_relaxed"), figure=figure, legend=series)


def masks() -> pl.DataFrame:
    """Return panel, x (key), y (query, from above) and value (1 if visible) of a prefix and a window of last keys."""
    pairs = [(query, key) for query in range(1, WINDOW + 1) for key in range(1, WINDOW + 1)]
    rows = [("prefix", key, str(query), float(key <= max(query, PREFIX))) for query, key in pairs]
    rows += [("shifted window", key, str(query), float(query - SHIFTED < key <= query)) for query, key in pairs]
    return pl.DataFrame(rows, schema=["panel", "x", "y", "value"], orient="row")


def _positions(about: GridContext) -> Drawn:
    mask = masks()
    heat = draw_heat(mask, heat_ramp(mask["value"]), x="key", y="query", height=200)
    found = read_probe(about, "sink_share", "position", at={"eps": SINK["eps"]})
    masks_ = ("masks", Drawn(data=mask, figure=heat))
    by_formula = f"Masks by formula, with a prefix of {PREFIX} tokens and a window of {SHIFTED} keys."
    if found.is_empty():
        return Drawn(by_formula, mask, heat, message=lacking("sink_share").message)
    drawing = Drawing(280, markers=True)
    lines = drawn_lines([Panel(found, _SHARE)], series_of(about), x="position", caption="", drawing=drawing)
    figure = place_side_by_side([("Masks", heat), ("Sinks by position", lines.figure)] if lines.figure else [], 1)
    share = f"Line: share of heads with a sink at a position, eps {SINK['eps']:g}, mean over seeds."
    caption = f"{by_formula} {share} {OVER_SEEDS}"
    return join_parts([masks_, ("sinks", lines)], figure, caption)


def _ratios(about: GridContext, names: Sequence[str]) -> Drawn:
    panels = [Panel(read_probe(about, name, "depth"), _RATIOS[name]) for name in names]
    if all(panel.found.is_empty() for panel in panels):
        return lacking(*names)
    unnormed = " Post-norm models alone have values before a block's norm." if names[1:] else ""
    caption = (
        "Line: ratio of the norm of hidden states of token 1 to the mean of the others after each block (0: what "
        f"enters the first), mean over seeds.{unnormed} {OVER_SEEDS}"
    )
    return drawn_lines(panels, series_of(about), x="block", caption=caption, drawing=Drawing(320, len(panels)))


_RATIOS: Final = {
    "activation_ratio": "norm of token 1 over the others",
    "unnormed_activation_ratio": "the same before the block's norm",
}


def packing() -> pl.DataFrame:
    """Toy documents one after the other, cut into windows: x (position), y (window, from above), value (document)."""
    tokens = [number for number, length in enumerate(DOCUMENTS, start=1) for _ in range(length)]
    rows = [(i % WINDOW + 1, str(i // WINDOW + 1), float(number)) for i, number in enumerate(tokens)]
    return pl.DataFrame(rows, schema=["x", "y", "value"], orient="row")


def _packing(about: GridContext) -> Drawn:
    del about
    found = packing()
    caption = (
        f"How documents of {', '.join(map(str, DOCUMENTS))} tokens fill windows of {WINDOW}: the right half of the "
        "figure, by construction. Its left half names the parts of a block, which are nothing to measure."
    )
    figure = draw_heat(found, heat_ramp(found["value"], "document"), x="position", y="window")
    return Drawn(caption, found, figure)


def _norms(about: GridContext) -> Drawn:
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
        first_block = 1 if x == "layer" else 0
        parts = [
            read_probe(about, name, x)
            .filter(pl.col("series") == shown)
            .with_columns(pl.col("x") + first_block, series=pl.lit(who))
            for who, name in (("token 1", first), ("others", others))
        ]
        panels.append(Panel(pl.concat(parts), title))
    if all(panel.found.is_empty() for panel in panels):
        return lacking(*[name for _, first, others, _ in pairs for name in (first, others)])
    caption = (
        f"Shown: {about.look.names[shown]}. Line: mean over heads and seeds. Hidden states are outputs of a block (0: "
        f"inputs of the first). {OVER_SEEDS} The paper also has the products q k and |q| |k|, which no probe records."
    )
    series = named_series(["token 1", "others"])
    return drawn_lines(panels, series, x="block", caption=caption, drawing=Drawing(260, 2))


def _domains(about: GridContext) -> Drawn:
    domain, model = by_level(about, "domain")
    found = read_final(about, "sink_share", at=SINK).filter(pl.col("series").is_in(list(domain)))
    if found.is_empty():
        return lacking("sink_share") if domain else Drawn(message="The grid has no axis for the domain of the text.")
    rows = found.select(
        pl.col("series").replace_strict(domain, return_dtype=pl.String).alias("group"),
        pl.col("series").replace_strict(model, return_dtype=pl.String),
        *("n", "value", "low", "high"),
    ).filter(pl.col("value").is_not_null())
    series = named_series(list(dict.fromkeys(rows["series"])))
    caption = (
        f"Bar: share of heads with a sink at token 1, eps {SINK['eps']:g}, mean over seeds, with its 95 % t interval."
    )
    figure = draw_bars(rows, look_of(series), x="domain", y=_SHARE)
    return Drawn(add_counts(caption, rows), name_series(rows, series), figure, legend=series)


_figure = partial(figure_item, PAPER)
_table = partial(printed_item, PAPER)
_SHARES: Final = ("sink_share",)
_BOTH: Final = ("activation_first", "activation_others", "first_key_norm", "other_key_norm", "first_qk_cosine")

ITEMS: Final[Sequence[Item]] = (
    _figure(1, "Sinks by length and size", "x length, a line per eps; a bar per model", _SHARES, _by_length),
    _figure(
        2,
        "Loss and sinks",
        "two axes: over steps, learning rates, data, windows",
        ("loss", _VALIDATION, *_SHARES),
        _dynamics,
    ),
    _figure(3, "Masks and where sinks are", "masks; x position, y sink share", _SHARES, _positions),
    _figure(
        4,
        "Massive activations",
        "x block, y ratio of norms; many series",
        tuple(_RATIOS)[:1],
        partial(_ratios, names=tuple(_RATIOS)[:1]),
    ),
    _figure(5, "Packing of documents", "by construction: position x window", (), _packing),
    _figure(6, "What makes the first key one", "x block; norms and cosines", _BOTH, _norms),
    _figure(7, "Sinks by domain", "bars: domains x models", _SHARES, _domains),
    _figure(
        8,
        "Massive activations of variants",
        "x block, y ratio of norms, after and before the norm that ends a block",
        tuple(_RATIOS),
        partial(_ratios, names=tuple(_RATIOS)),
    ),
    _table(1, "Weight decay", "rows: sink share, loss; columns: weight decay"),
    _table(2, "Position encodings", "rows: sink share, loss; columns: encodings"),
    _table(3, "Attention biases", "rows: designs; columns: sink shares, loss"),
    _table(4, "Kernels and normalisers", "rows: operators; columns: sink share, loss"),
    _table(5, "Public models", "rows: models; columns: input, tuning"),
    _table(6, "Batch sizes", "rows: sink share, loss; columns: batch"),
    _table(7, "A fixed token", "rows: positions; columns: where the token is", "specs/sinks.py"),
    _table(8, "Activations of the feed-forward part", "rows: activations; columns: sink share, loss"),
    _table(9, "Heads", "rows: sink share, loss; columns: heads"),
    _table(10, "Fixed value biases", "columns: norm and direction"),
    _table(11, "Biases shared over heads", "columns: bias and sharing"),
    _table(12, "Softmax that sums to alpha", "columns: alpha"),
    _table(13, "All kernels and normalisers", "rows: operators; columns: sink share, loss"),
    _table(14, "Sigmoid by learning rate and decay", "columns: learning rate, weight decay"),
)
