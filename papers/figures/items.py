"""All items: 24 figures that a grid of `papers/grids` measures, 38 tables, and what draws each."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Final

from ablate.dashboards.data.grid_context import GridContext
from ablate.papers.figures import figures, sinks
from ablate.papers.figures.drawing import ProbeLines
from ablate.papers.figures.item import Drawn, Item, PrintedPoints
from ablate.papers.figures.paper_tables import draw_design, draw_printed, list_needs

_OVER_HEADS: Final = "Line: mean over heads and seeds"
_FIRST: Final = {"first_token_weight": "weight on token 1"}
_RATIO: Final = {"activation_ratio": "norm of token 1 over the others"}
_RATIOS: Final = {**_RATIO, "unnormed_activation_ratio": "the same before the block's norm"}
_RATIO_WORDS: Final = (
    "Line: ratio of the norm of hidden states of token 1 to the mean of the others after each block (0: what enters "
    "the first), mean over seeds."
)
_ENTROPY: Final = f"{_OVER_HEADS}; weights beside a sink are first made shares of what is left for keys."
_POST_NORM: Final = " Post-norm models alone have values before a block's norm."
_LOGITS: Final = {"qk_logit_mean": "mean logit, nats"}
_NEGATIVE: Final = {"first_token_negative": "negative scores to token 1, %"}
_LAST: Final = "Line: mean over heads of each model's last layer."
_PROMPT: Final = " The paper's prompt ends in a value of 70; here it is a sequence that the probe kept."

_MAKERS: Final[Mapping[str, Callable[[GridContext], Drawn]]] = {
    "000-figure-2": ProbeLines(_LOGITS, "step", "Line: mean over layers, heads and seeds.", models=True).draw,
    "000-figure-3": figures.weight_sums,
    "000-figure-4": ProbeLines(_FIRST, "layer", f"{_OVER_HEADS}.", models=True).draw,
    "000-figure-5": figures.weight_sums_by_head,
    "000-figure-6": ProbeLines({"entropy": "entropy, nats"}, "layer", _ENTROPY, models=True).draw,
    "000-figure-7": partial(figures.training_lines, name="loss", y="loss"),
    "000-figure-8": partial(figures.training_lines, name="grad_norm", y="gradient norm"),
    "000-figure-9": partial(figures.attention_panels, layer="middle", most=30),
    "000-figure-10": partial(figures.training_lines, name="loss", y="loss", begin=7 / 9),
    "001-table-": draw_design,
    "002-figure-1": ProbeLines(_FIRST, "query", _LAST, "heads", last=True).draw,
    "002-figure-3": figures.token_classes,
    "002-figure-4": figures.last_entropy,
    "002-figure-5": ProbeLines(_NEGATIVE, "layer", "Line: mean over heads.", "heads", factor=100).draw,
    "003-figure-1": figures.boundaries,
    "003-figure-2": partial(figures.attention_panels, layer="last", more=_PROMPT),
    "003-figure-3": figures.errors_by_shift,
    "003-figure-4": partial(figures.errors_map, quantifier="every"),
    "003-figure-5": partial(figures.errors_map, quantifier="some"),
    "003-figure-9": partial(figures.boundaries, ranges=True),
    "003-figure-11": figures.errors_by_shift,
    "004-figure-2": sinks.loss_and_sinks,
    "004-figure-3": sinks.sinks_by_position,
    "004-figure-4": ProbeLines(_RATIO, "depth", _RATIO_WORDS, height=320).draw,
    "004-figure-8": ProbeLines(_RATIOS, "depth", _RATIO_WORDS + _POST_NORM, height=320).draw,
}
_PRINTED: Final = {"003-figure-3": PrintedPoints(1, "sigma_f"), "003-figure-11": PrintedPoints(6, "sigma_f")}


def _read_items() -> Iterator[Item]:
    lines = files("ablate.papers.figures").joinpath("items.csv").read_text(encoding="utf-8").splitlines()
    for row in csv.DictReader(lines):
        paper, number, key = row["paper"], int(row["number"] or 0), f"{row['paper']}-{row['kind']}-{row['number']}"
        if key in _MAKERS:
            needs, make = row["needs"].split(), _MAKERS[key]
        else:
            needs, make = list_needs(paper, number), partial(draw_printed, paper=paper, number=number)
        kind: Any = row["kind"]
        words = (row["title"], row["shows"])
        yield Item(paper, kind, number or None, *words, needs, make, row["spec"], _PRINTED.get(key))


ITEMS: Final[Sequence[Item]] = tuple(_read_items())  # by paper, its figures first: the rows of items.csv
