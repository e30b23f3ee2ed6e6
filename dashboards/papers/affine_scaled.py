"""Figures and tables of 000, Affine-Scaled Attention."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

import polars as pl

from dashboards.data.formatting import count
from dashboards.data.grid_context import GridContext
from dashboards.figures.bars import draw_bars
from dashboards.figures.heat import heat_ramp
from dashboards.figures.training import curves
from dashboards.figures.weights import draw_functions
from dashboards.papers.attention_maps import attention_panels
from dashboards.papers.data import in_unit, loss_unit, named_series, read_probe
from dashboards.papers.drawing import OVER_SEEDS, by_model, drawn_heat, drawn_lines, lacking, look_of, side_by_side
from dashboards.papers.heatmaps import by_head
from dashboards.papers.histograms import counted_sums
from dashboards.papers.item import Drawn, Item, figure_item
from dashboards.papers.paper_tables import printed_item

PAPER: Final = "000"
LOGITS: Final = (3.0, 1.0, 0.5, 0.2, 0.0, -0.4)
"""Logits of the toy row. The first key stands out, as first tokens do."""
SCALE: Final = 0.6
MEAN: Final = 0.9
"""alpha and its running mean of the toy row."""
SINK: Final = 2.0
"""The logit of the sink of the toy row."""
_LATE: Final = 7 / 9
"""Where figure 10 begins: step 7k of 9k."""


def profile() -> pl.DataFrame:
    """Weights of one row by the three rules: group (key), series, n, value, low, high.

    softmax w_j; with a sink of logit S, exp(a_j) / (exp(S) + sum exp(a)); affine alpha w_j + (mean - alpha) / N.
    """
    powers = [math.exp(each) for each in LOGITS]
    plain = [each / sum(powers) for each in powers]
    rules = {
        "softmax": plain,
        "attention sink": [each / (math.exp(SINK) + sum(powers)) for each in powers],
        "affine-scaled": [SCALE * each + (MEAN - SCALE) / len(plain) for each in plain],
    }
    rows = [
        (f"{name}, sum {sum(weights):.2f}", str(key), weight)
        for name, weights in rules.items()
        for key, weight in enumerate(weights, start=1)
    ]
    found = pl.DataFrame(rows, schema=["series", "group", "value"], orient="row")
    return found.with_columns(pl.lit(None, pl.Int64).alias("n"), *(pl.lit(None, pl.Float64).alias(c) for c in _ENDS))


_ENDS: Final = ("low", "high")


def _profile(about: GridContext) -> Drawn:
    del about
    found = profile()
    series = named_series(list(dict.fromkeys(found["series"])))
    caption = (
        f"A row of logits {', '.join(f'{each:g}' for each in LOGITS)} by formula: nothing here is measured. Sink logit "
        f"{SINK:g}; scale {SCALE:g} with running mean {MEAN:g}."
    )
    return Drawn(caption, found, draw_bars(found, look_of(series), x="key", y="weight"), legend=series)


def activations() -> pl.DataFrame:
    """Equations 10 and 11: series, x, value."""
    rows = [
        (name, x / 10, value(x / 10))
        for name, value in (("sigmoid", _sigmoid), ("linear clipping", _clip_linearly))
        for x in range(-100, 101)
    ]
    return pl.DataFrame(rows, schema=["series", "x", "value"], orient="row")


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _clip_linearly(x: float) -> float:
    return min(max(0.1 * x + 0.5, 0.0), 1.0)


def _activations(about: GridContext) -> Drawn:
    del about
    found = activations()
    series = named_series(["sigmoid", "linear clipping"])
    figure = draw_functions(found, look_of(series), x="x", y="scale")
    return Drawn("By formula: nothing here is measured.", found, figure, legend=series)


def _logits(about: GridContext) -> Drawn:
    return _probe_lines(about, "qk_logit_mean", "step", "mean logit, nats", "Line: mean over layers, heads and seeds.")


def _first_token(about: GridContext) -> Drawn:
    return _probe_lines(about, "first_token_weight", "layer", "weight on token 1", "Line: mean over heads and seeds.")


def _entropy(about: GridContext) -> Drawn:
    caption = "Line: mean over heads and seeds; weights beside a sink are first made shares of what is left for keys."
    return _probe_lines(about, "entropy", "layer", "entropy, nats", caption)


def _probe_lines(about: GridContext, name: str, x: str, y: str, caption: str) -> Drawn:
    found = read_probe(about, name, x)
    if found.is_empty():
        return lacking(name)
    panels, series = by_model(about, found, y, "linear")
    axis = "training step" if x == "step" else x
    return drawn_lines(panels, series, x=axis, caption=f"{caption} {OVER_SEEDS}", drawing=side_by_side(panels))


def _heads(about: GridContext) -> Drawn:
    found = by_head(about, "weight_sum")
    if found.is_empty():
        return lacking("weight_sum")
    caption = (
        "Sum of the weights of a row, mean over queries and seeds, unscaled. The paper divides the sum of its sink "
        "variant by 1 less the sink's weight, and scales to 0 to 1."
    )
    return drawn_heat(found, heat_ramp(found["value"], "sum of weights"), x="head", y="layer", caption=caption)


def _training(about: GridContext, name: str, y: str, begin: float = 0.0) -> Drawn:
    found = curves(about.store, about.grid, name, about.drawn, scale="log")
    if found.frame.is_empty():
        return lacking(name)
    rows = found.frame.rename({"cell": "series", "step": "x"})
    last = max(rows["x"])
    rows = rows.filter(pl.col("x") >= begin * last)
    panels, series = by_model(about, rows, y, "log")
    from_ = f" From step {math.ceil(begin * last):,}, where the last two ninths begin." if begin else ""
    line = f"Line: geometric mean over seeds, on a log axis. {OVER_SEEDS}"
    caption = f"{line} Each point averages {count(int(found.width), 'step')}.{from_}"
    return drawn_lines(panels, series, x="training step", caption=caption, drawing=side_by_side(panels))


def _loss(about: GridContext) -> Drawn:
    return _training(about, "loss", in_unit("loss", loss_unit(about)))


def _gradients(about: GridContext) -> Drawn:
    return _training(about, "grad_norm", "gradient norm")


def _late(about: GridContext) -> Drawn:
    return _training(about, "loss", in_unit("loss", loss_unit(about)), _LATE)


def _maps(about: GridContext) -> Drawn:
    return attention_panels(about, layer="middle", most=30)


_figure = partial(figure_item, PAPER)

ITEMS: Final[Sequence[Item]] = (
    _figure(1, "Three ways to weigh a row", "bars: weight per key by softmax, sink and affine scaling", (), _profile),
    _figure(2, "Mean logit in training", "x step, y mean QK logit; a line per operator", ("qk_logit_mean",), _logits),
    _figure(
        3,
        "What the weights of a query sum to",
        "histograms per operator, with mean and median",
        ("weight_sum_count", "weight_sum_mean", "weight_sum_median"),
        counted_sums,
    ),
    _figure(4, "Weight on token 1", "x layer, y weight; a line per operator", ("first_token_weight",), _first_token),
    _figure(5, "Sum of weights by head", "heat map layer x head per operator", ("weight_sum",), _heads),
    _figure(6, "Entropy of attention", "x layer, y entropy; a line per operator", ("entropy",), _entropy),
    _figure(7, "Training loss", "x step, y loss; a panel per size", ("loss",), _loss),
    _figure(8, "Gradient norm", "x step, y norm; a panel per size", ("grad_norm",), _gradients),
    _figure(9, "Attention maps", "query x key, mean over heads; a panel per operator", ("attention_maps",), _maps),
    _figure(10, "Training loss, late", "figure 7 from step 7k of 9k", ("loss",), _late),
    _figure(11, "Two activations of the scale", "closed form", (), _activations),
    printed_item(PAPER, 1, "Loss, perplexity and accuracy", "rows: size and operator; columns: measures"),
    printed_item(PAPER, 2, "Gated attention, with and without affine scaling", "rows: size and operator"),
    printed_item(PAPER, 3, "Mean accuracy by activation", "columns: sigmoid, linear clipping"),
    printed_item(PAPER, 4, "Gradient norms of the first 500 steps", "rows: size and operator; columns: statistics"),
    printed_item(PAPER, 5, "Gradient spikes of the first 500 steps", "rows: size and operator; columns: k"),
)
