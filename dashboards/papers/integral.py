"""Figures and tables of 002, Integral Transformer."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

import polars as pl

from dashboards.data.grid_context import GridContext
from dashboards.figures.bars import draw_bars
from dashboards.figures.lines import Drawing, Panel
from dashboards.figures.probe_curves import names
from dashboards.papers.data import named_series, read_probe, series_of
from dashboards.papers.drawing import OVER_HEADS, drawn_lines, lacking, look_of
from dashboards.papers.item import Drawn, Item, figure_item
from dashboards.papers.paper_tables import printed_item

PAPER: Final = "002"
SIGNALS: Final = (
    (2.5, 0.4, 1.2, -0.3, 0.1),
    (1.9, 1.1, 0.2, 0.5, -0.6),
    (3.0, -0.2, 1.6, 0.3, 0.4),
    (1.4, 0.9, 1.0, -0.8, 0.2),
)
"""Logits of four signals for one query of a toy row."""
LAMBDA: Final = 0.5
"""Factor of the second softmax in the difference of two."""


def heads() -> pl.DataFrame:
    """Weights of one row by the rules of the paper's figure 2: group (key), series, n, value, low, high.

    softmax(a_1); softmax(a_1) - lambda softmax(a_2); softmax of the mean over the signals (equation 7).
    """
    one, other = _softmax(SIGNALS[0]), _softmax(SIGNALS[1])
    rules = {
        "softmax of one signal": one,
        "difference of two": [a - LAMBDA * b for a, b in zip(one, other, strict=True)],
        "softmax of their mean": _softmax([sum(each) / len(SIGNALS) for each in zip(*SIGNALS, strict=True)]),
    }
    rows = [(name, str(key), weight) for name, weights in rules.items() for key, weight in enumerate(weights, start=1)]
    found = pl.DataFrame(rows, schema=["series", "group", "value"], orient="row")
    ends = (pl.lit(None, pl.Float64).alias(name) for name in ("low", "high"))
    return found.with_columns(pl.lit(None, pl.Int64).alias("n"), *ends)


def _softmax(logits: Sequence[float]) -> list[float]:
    powers = [math.exp(each) for each in logits]
    return [each / sum(powers) for each in powers]


def _heads(about: GridContext) -> Drawn:
    del about
    found = heads()
    series = named_series(list(dict.fromkeys(found["series"])))
    caption = (
        "The three heads that the paper draws as a scheme, on a row of logits by formula: nothing here is measured. "
        f"Four signals; the difference is of the first two, with lambda {LAMBDA:g}."
    )
    return Drawn(caption, found, draw_bars(found, look_of(series), x="key", y="weight"), legend=series)


def _first_token(about: GridContext) -> Drawn:
    found = read_probe(about, "first_token_weight", "query", spread="heads", last=True)
    if found.is_empty():
        return lacking("first_token_weight")
    caption = f"Line: mean over heads of each model's last layer. {OVER_HEADS}"
    panels = [Panel(found, "weight on token 1")]
    return drawn_lines(panels, series_of(about), x="position of the query", caption=caption, each="head")


def _classes(about: GridContext) -> Drawn:
    recorded = [name for name in names(about.store, about.grid) if name.startswith("token_class.")]
    if not recorded:
        return lacking("token_class.BY.CLASS")
    by = recorded[0].split(".")[1]
    chosen = sorted((name for name in recorded if name.split(".")[1] == by), key=_place)
    panels = [
        Panel(read_probe(about, name, "layer", spread="heads"), f"share, {name.split('.', 2)[2]}") for name in chosen
    ]
    caption = f"Line: mean share of the attention over heads, by class of token as told by {by}. {OVER_HEADS}"
    return drawn_lines(panels, series_of(about), x="layer", caption=caption, drawing=Drawing(260, 2), each="head")


_CLASSES: Final = ("special_punctuation", "content", "function", "other")
"""The panels (a) to (d) of figure 3."""


def _place(name: str) -> tuple[int, str]:
    """Where a class has its panel; classes of another kind follow by name."""
    of = name.split(".", 2)[2]
    return _CLASSES.index(of) if of in _CLASSES else len(_CLASSES), of


def _entropy(about: GridContext) -> Drawn:
    found = read_probe(about, "entropy_last", "layer").drop("low", "high")
    if found.is_empty():
        return lacking("entropy_last")
    spread = read_probe(about, "entropy_last_sd", "layer").select("series", "x", sd="value")
    both = found.join(spread, on=["series", "x"], how="left", maintain_order="left").with_columns(
        low=pl.col("value") - pl.col("sd"), high=pl.col("value") + pl.col("sd")
    )
    caption = (
        "Line: mean over heads, sequences and seeds. Band: one standard deviation over sequences of the mean over "
        "heads; it is no interval over seeds."
    )
    return drawn_lines([Panel(both.drop("sd"), "entropy, nats")], series_of(about), x="layer", caption=caption)


def _negative(about: GridContext) -> Drawn:
    found = read_probe(about, "first_token_negative", "layer", spread="heads")
    if found.is_empty():
        return lacking("first_token_negative")
    percent = found.with_columns(pl.col("value", "low", "high") * 100)
    caption = f"Line: mean over heads. {OVER_HEADS}"
    panels = [Panel(percent, "negative scores to token 1, %")]
    return drawn_lines(panels, series_of(about), x="layer", caption=caption, each="head")


_figure = partial(figure_item, PAPER)
_table = partial(printed_item, PAPER)

ITEMS: Final[Sequence[Item]] = (
    _figure(
        1, "Weight on the first token", "x position of the query; last layer", ("first_token_weight",), _first_token
    ),
    _figure(2, "Three heads", "bars: weight per key by each kind of head", (), _heads),
    _figure(3, "Attention by class of token", "x layer; a panel per class", ("token_class.BY.CLASS",), _classes),
    _figure(4, "Entropy of the last token", "x layer, y entropy", ("entropy_last", "entropy_last_sd"), _entropy),
    _figure(5, "Negative scores", "x layer, y share of negative scores", ("first_token_negative",), _negative),
    _table(1, "Zero-shot accuracy", "rows: size and operator; columns: tasks"),
    _table(2, "Accuracy by depth of placement", "columns: which layers"),
    _table(3, "Accuracy by heads and signals", "columns: heads and signals"),
    _table(4, "Accuracy by backbone", "columns: backbone and operator"),
    _table(5, "Ranks above softmax's", "rows: operators; columns: size and layer from the end"),
    _table(6, "Long contexts", "rows: sets; columns: operators"),
    _table(7, "Baselines of others", "rows: models; columns: tasks"),
    _table(8, "What a signal is", "rows: softmax output or logits; columns: tasks"),
    _table(9, "Placement, by task", "rows: which layers; columns: tasks"),
    _table(10, "Heads and signals, by task", "rows: heads and signals; columns: tasks"),
    _table(11, "Softmax by heads", "rows: heads; columns: tasks"),
    _table(12, "Backbones, by task", "rows: backbone and operator; columns: tasks"),
)
