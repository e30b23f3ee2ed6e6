"""Figures of the papers that are closed forms: nothing of them is measured."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from dashboards.data.grid_context import GridContext
from dashboards.data.seed_averages import Scale
from dashboards.figures.heat import draw_heat, heat_ramp
from dashboards.figures.histogram import draw_bars
from dashboards.figures.lines import Drawing, draw_lines
from dashboards.papers.drawing import draw_with_legend
from dashboards.papers.item import Drawn
from dashboards.papers.reading import named_series

LOGITS: Final = (3.0, 1.0, 0.5, 0.2, 0.0, -0.4)
"""Logits of the toy row of 000. The first key stands out, as first tokens do."""
SCALE: Final = 0.6  # alpha of the toy row
MEAN: Final = 0.9  # its running mean
SINK: Final = 2.0  # the logit of the sink of the toy row
SIGNALS: Final = (
    (2.5, 0.4, 1.2, -0.3, 0.1),
    (1.9, 1.1, 0.2, 0.5, -0.6),
    (3.0, -0.2, 1.6, 0.3, 0.4),
    (1.4, 0.9, 1.0, -0.8, 0.2),
)
"""Logits of four signals for one query of the toy row of 002."""
LAMBDA: Final = 0.5  # factor of the second softmax in the difference of two
DOCUMENTS: Final = (5, 9, 3, 11, 4)  # tokens of five toy documents of 004
WINDOW: Final = 8  # tokens of the toy masks of 004
PREFIX: Final = 4  # tokens of the prefix
SHIFTED: Final = 3  # keys of the window
_POWERS: Final = (1.1, 1.5, 2.0)
_BY_FORMULA: Final = "nothing here is measured."


def _softmax(logits: Sequence[float], sink: float = -math.inf) -> list[float]:
    powers = [math.exp(each) for each in logits]
    return [each / (math.exp(sink) + sum(powers)) for each in powers]


def _weights(rules: Mapping[str, Sequence[float]]) -> pl.DataFrame:
    """series, group (the key, from 1), value."""
    rows = [(name, str(key), weight) for name, row in rules.items() for key, weight in enumerate(row, start=1)]
    return pl.DataFrame(rows, schema=["series", "group", "value"], orient="row")


def profile() -> pl.DataFrame:
    """Weights of one row by the three rules of 000, figure 1.

    softmax w_j; with a sink of logit S, exp(a_j) / (exp(S) + sum exp(a)); affine alpha w_j + (mean - alpha) / N.
    """
    plain = _softmax(LOGITS)
    affine = [SCALE * each + (MEAN - SCALE) / len(plain) for each in plain]
    rules = {"softmax": plain, "attention sink": _softmax(LOGITS, SINK), "affine-scaled": affine}
    return _weights({f"{name}, sum {sum(row):.2f}": row for name, row in rules.items()})


def heads() -> pl.DataFrame:
    """Weights of one row by the rules of 002, figure 2.

    softmax(a_1); softmax(a_1) - lambda softmax(a_2); softmax of the mean over the signals (equation 7).
    """
    one, other = _softmax(SIGNALS[0]), _softmax(SIGNALS[1])
    return _weights(
        {
            "softmax of one signal": one,
            "difference of two": [a - LAMBDA * b for a, b in zip(one, other, strict=True)],
            "softmax of their mean": _softmax([sum(each) / len(SIGNALS) for each in zip(*SIGNALS, strict=True)]),
        }
    )


def activations() -> pl.DataFrame:
    """Equations 10 and 11 of 000: series, x, value."""
    x = pl.Series([i / 10 for i in range(-100, 101)])
    curves = {"sigmoid": 1 / (1 + (-x).exp()), "linear clipping": (0.1 * x + 0.5).clip(0.0, 1.0)}
    return pl.concat(pl.DataFrame({"series": name, "x": x, "value": value}) for name, value in curves.items())


def base_functions() -> pl.DataFrame:
    """Equation 5 of 003, (1 + b |x|) ** (n sgn x) at b = 1, and the exponential: series, x, value."""
    places = [i / 20 for i in range(-80, 81)]
    rows = [("exp", x, math.exp(x)) for x in places]
    rows += [(f"SSA, n = {n:g}", x, (1 + abs(x)) ** math.copysign(n, x)) for n in _POWERS for x in places]
    return pl.DataFrame(rows, schema=["series", "x", "value"], orient="row")


def masks() -> pl.DataFrame:
    """Return panel, x (key), y (query, from above) and value (1 if visible) of a prefix and a window of last keys."""
    pairs = [(query, key) for query in range(1, WINDOW + 1) for key in range(1, WINDOW + 1)]
    rows = [("prefix", key, str(query), float(key <= max(query, PREFIX))) for query, key in pairs]
    rows += [("shifted window", key, str(query), float(query - SHIFTED < key <= query)) for query, key in pairs]
    return pl.DataFrame(rows, schema=["panel", "x", "y", "value"], orient="row")


def packing() -> pl.DataFrame:
    """Toy documents one after the other, cut into windows: x (position), y (window, from above), value (document)."""
    tokens = [number for number, length in enumerate(DOCUMENTS, start=1) for _ in range(length)]
    rows = [(i % WINDOW + 1, str(i // WINDOW + 1), float(number)) for i, number in enumerate(tokens)]
    return pl.DataFrame(rows, schema=["x", "y", "value"], orient="row")


def profile_bars(_: GridContext) -> Drawn:
    """000, figure 1."""
    caption = (
        f"A row of logits {', '.join(f'{each:g}' for each in LOGITS)} by formula: {_BY_FORMULA} Sink logit {SINK:g}; "
        f"scale {SCALE:g} with running mean {MEAN:g}."
    )
    return _bars(profile(), caption)


def heads_bars(_: GridContext) -> Drawn:
    """002, figure 2."""
    caption = (
        f"The three heads that the paper draws as a scheme, on a row of logits by formula: {_BY_FORMULA} "
        f"Four signals; the difference is of the first two, with lambda {LAMBDA:g}."
    )
    return _bars(heads(), caption)


def _bars(found: pl.DataFrame, caption: str) -> Drawn:
    series = named_series(found["series"].to_list())
    return draw_with_legend(caption, found, draw_bars(found, series, x="key", y="weight"), series)


def activation_lines(_: GridContext) -> Drawn:
    """000, figure 11."""
    return _lines(activations(), "x", "scale")


def base_function_lines(_: GridContext) -> Drawn:
    """003, figure 10; b is 1."""
    return _lines(base_functions(), "logit", "f (log axis)", "log", " with b = 1")


def _lines(found: pl.DataFrame, x: str, y: str, scale: Scale = "linear", more: str = "") -> Drawn:
    series = named_series(found["series"].to_list())
    figure = draw_lines(found, series, x=x, y=y, scale=scale, drawing=Drawing(340))
    return draw_with_legend(f"By formula{more}: {_BY_FORMULA}", found, figure, series)


def packing_map(_: GridContext) -> Drawn:
    """004, figure 5."""
    found = packing()
    caption = (
        f"How documents of {', '.join(map(str, DOCUMENTS))} tokens fill windows of {WINDOW}: the right half of the "
        "figure, by construction. Its left half names the parts of a block, which are nothing to measure."
    )
    return Drawn(caption, found, draw_heat(found, heat_ramp(found["value"], "document"), x="position", y="window"))
