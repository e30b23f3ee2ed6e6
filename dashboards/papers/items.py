"""All items: 35 figures and 38 tables, and what draws each."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Final

import polars as pl

from dashboards.data.grid_context import GridContext
from dashboards.data.user_errors import Unknown
from dashboards.figures.lines import Panel
from dashboards.figures.probe_curves import names
from dashboards.papers.attention_maps import attention_panels
from dashboards.papers.design_table import draw_design
from dashboards.papers.drawing import (
    ProbeLines,
    drawn_lines,
    errors_map,
    heads_map,
    lacking,
    norms_histogram,
    sums_histogram,
    training_lines,
)
from dashboards.papers.formulas import activation_lines, base_function_lines, heads_bars, packing_map, profile_bars
from dashboards.papers.item import Drawn, Item, PrintedPoints
from dashboards.papers.paper_tables import draw_printed, list_needs
from dashboards.papers.reading import read_probe, series_of
from dashboards.papers.several_readings import (
    boundaries,
    errors_by_shift,
    loss_and_sinks,
    norms_of_first,
    ranges,
    sinks_by_domain,
    sinks_by_length,
    sinks_by_position,
)


def _by_class(about: GridContext) -> Drawn:
    """002, figure 3: a panel per class of token."""
    recorded = [name.split(".", 2) for name in names(about.store, about.grid) if name.startswith("token_class.")]
    if not recorded:
        return lacking("token_class.BY.CLASS")
    by = recorded[0][1]
    classes = sorted(
        (each for _, told_by, each in recorded if told_by == by),
        key=lambda each: (_CLASSES.index(each) if each in _CLASSES else len(_CLASSES), each),
    )
    panels = {f"token_class.{by}.{each}": f"share, {each}" for each in classes}
    caption = f"Line: mean share of the attention over heads, by class of token as told by {by}."
    return ProbeLines(panels, "layer", caption, "heads", height=260).draw(about)


_CLASSES: Final = ("special_punctuation", "content", "function", "other")
"""The panels (a) to (d) of figure 3."""


def _last_entropy(about: GridContext) -> Drawn:
    """002, figure 4: the band has a measurement of its own."""
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


_RATIO: Final = {"activation_ratio": "norm of token 1 over the others"}
_RATIOS: Final = {**_RATIO, "unnormed_activation_ratio": "the same before the block's norm"}
_RATIO_WORDS: Final = (
    "Line: ratio of the norm of hidden states of token 1 to the mean of the others after each block (0: what enters "
    "the first), mean over seeds.{}"
)


_MAKERS: Final[Mapping[str, Callable[[GridContext], Drawn]]] = {
    "000-figure-1": profile_bars,
    "000-figure-2": ProbeLines(
        {"qk_logit_mean": "mean logit, nats"}, "step", "Line: mean over layers, heads and seeds.", models=True
    ).draw,
    "000-figure-3": sums_histogram,
    "000-figure-4": ProbeLines(
        {"first_token_weight": "weight on token 1"}, "layer", "Line: mean over heads and seeds.", models=True
    ).draw,
    "000-figure-5": partial(
        heads_map,
        name="weight_sum",
        title="sum of weights",
        caption="Sum of the weights of a row, mean over queries and seeds, unscaled. The paper divides the sum of its "
        "sink variant by 1 less the sink's weight, and scales to 0 to 1.",
    ),
    "000-figure-6": ProbeLines(
        {"entropy": "entropy, nats"},
        "layer",
        "Line: mean over heads and seeds; weights beside a sink are first made shares of what is left for keys.",
        models=True,
    ).draw,
    "000-figure-7": partial(training_lines, name="loss", y="loss"),
    "000-figure-8": partial(training_lines, name="grad_norm", y="gradient norm"),
    "000-figure-9": partial(attention_panels, layer="middle", most=30),
    "000-figure-10": partial(training_lines, name="loss", y="loss", begin=7 / 9),
    "000-figure-11": activation_lines,
    "001-table-": draw_design,
    "002-figure-1": ProbeLines(
        {"first_token_weight": "weight on token 1"},
        "query",
        "Line: mean over heads of each model's last layer.",
        spread="heads",
        last=True,
    ).draw,
    "002-figure-2": heads_bars,
    "002-figure-3": _by_class,
    "002-figure-4": _last_entropy,
    "002-figure-5": ProbeLines(
        {"first_token_negative": "negative scores to token 1, %"},
        "layer",
        "Line: mean over heads.",
        spread="heads",
        factor=100,
    ).draw,
    "003-figure-1": boundaries,
    "003-figure-2": partial(
        attention_panels,
        layer="last",
        more=" The paper's prompt ends in a value of 70; here it is a sequence that the probe kept.",
    ),
    "003-figure-3": errors_by_shift,
    "003-figure-4": partial(errors_map, quantifier="every", widest=30),
    "003-figure-5": partial(errors_map, quantifier="some", widest=30),
    "003-figure-6": partial(errors_map, quantifier="some", widest=10),
    "003-figure-7": partial(errors_map, quantifier="every", widest=10),
    "003-figure-8": norms_histogram,
    "003-figure-9": ranges,
    "003-figure-10": base_function_lines,
    "003-figure-11": errors_by_shift,
    "004-figure-1": sinks_by_length,
    "004-figure-2": loss_and_sinks,
    "004-figure-3": sinks_by_position,
    "004-figure-4": ProbeLines(_RATIO, "depth", _RATIO_WORDS.format(""), height=320).draw,
    "004-figure-5": packing_map,
    "004-figure-6": norms_of_first,
    "004-figure-7": sinks_by_domain,
    "004-figure-8": ProbeLines(
        _RATIOS, "depth", _RATIO_WORDS.format(" Post-norm models alone have values before a block's norm."), height=320
    ).draw,
}
_PRINTED: Final = {"003-figure-3": PrintedPoints(1, "sigma_f"), "003-figure-11": PrintedPoints(6, "sigma_f")}


def _read_items() -> Iterator[Item]:
    lines = files("dashboards.papers").joinpath("items.csv").read_text(encoding="utf-8").splitlines()
    for row in csv.DictReader(lines):
        paper, number, key = row["paper"], int(row["number"] or 0), f"{row['paper']}-{row['kind']}-{row['number']}"
        if key in _MAKERS:
            needs, make = row["needs"].split(), _MAKERS[key]
        else:
            needs, make = list_needs(paper, number), partial(draw_printed, paper=paper, number=number)
        kind: Any = row["kind"]
        words = (row["title"], row["shows"])
        yield Item(paper, kind, number or None, *words, needs, make, row["spec"], _PRINTED.get(key))


ITEMS: Final[Sequence[Item]] = tuple(_read_items())
"""By paper, its figures first: the rows of items.csv."""


def item(paper: str, kind: str, number: int | None) -> Item:
    """One of them. Raises Unknown, naming what the paper has."""
    of_paper = [each for each in ITEMS if each.paper == paper]
    for each in of_paper:
        if (each.kind, each.number) == (kind, number):
            return each
    raise Unknown(f"paper {paper!r} has no such item; it has {', '.join(each.name for each in of_paper) or 'none'}")
