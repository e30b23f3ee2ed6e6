"""Factors: what each axis does, whether axes act together, and a map of the grid over two of them."""

from collections.abc import Sequence
from itertools import combinations
from typing import Final, Literal

import polars as pl

from dashboards.app.measures import MeasuredAddress, judged_by, measure_controls, measure_title, measure_words, unit_of
from dashboards.app.page import AppPage, Key, PageView, Slot, SlotContent, grid_of, memoise
from dashboards.app.pages.factor_map import map_controls, map_of, runs_of
from dashboards.app.parts import WRAP, Control, Pick, columns
from dashboards.data.captions import effects_words, n_words
from dashboards.data.formatting import count, join_words, number, p_value
from dashboards.data.seed_averages import average_words
from dashboards.data.user_errors import catch_user_error, require
from dashboards.figures import effects as effects_figure, half_normal, interactions
from dashboards.figures.canvas import is_cut
from dashboards.theme.styles import Style, level_styles
from store.analysis.effects import analysis, half_normal_data
from store.statistics import Factorial

_MOST_COLUMNS: Final = 800
"""Coefficients of interactions; more take minutes to estimate."""
_MOST_RUNS: Final = 1000
_P_WORDS: Final = "params.value == null ? '–' : params.value < 0.001 ? '< 0.001' : d3.format('.2~g')(params.value)"


class FactorsAddress(MeasuredAddress):
    """The measure, a pair of axes that may act together, and the axes of the map with what holds of the others."""

    pair: str | None = None
    """Two axes as `Pair.key` writes them; None is the pair with the smallest p."""
    x: str | None = None
    """None is the first axis that varies."""
    y: str | None = None
    others: Literal["averaged", "best"] = "averaged"
    fix: tuple[str, ...] = ()
    """Entries AXIS=LEVEL."""
    colours: Literal["log", "linear"] | None = None
    shared: bool = False
    """Whether colours span the whole grid, so that they mean the same for every choice of the others."""
    at: str | None = None
    """A cell of the map."""


@memoise
def _analyse(view: PageView) -> Factorial:
    """The grid's terms; with interactions unless there are too many of them to estimate."""
    about, measure = grid_of(view), judged_by(view)
    sizes = [len(axis["labels"]) - 1 for axis in about.header["axes"]]
    few = sum(a * b for a, b in combinations(sizes, 2)) <= _MOST_COLUMNS
    return analysis(view.store, about.grid, interactions=few, measure=measure._asdict())


def _effects(view: PageView) -> SlotContent:
    about, measure = grid_of(view), judged_by(view)
    found = effects_figure.effects(view.store, about.grid, measure)
    if found.is_empty():
        return SlotContent(message="No axis has two levels with results yet, so there is no effect to show.")
    notes = effects_figure.notes(view.store, about.grid, measure)
    caption = effects_words(measure, unit_of(view), notes)
    return SlotContent(effects_figure.draw_effects(found, measure), caption, found)


def _importance(view: PageView) -> SlotContent:
    found = _analyse(view)
    runs = {
        name: int(rows["n"].sum())
        for (name,), rows in found.means.filter(pl.col("term").is_in(interactions.mains(found))).group_by("term")
    }
    terms = found.terms.sort("order", pl.col("omega_squared"), descending=[False, True], nulls_last=True)
    counts = [runs.get(term, found.runs) for term in terms["term"]]
    rows = terms.select(
        pl.col("term").alias("axis"),
        pl.col("omega_squared").alias("partial omega²"),
        pl.col("omega_low").alias("from"),
        pl.col("omega_high").alias("to"),
        pl.col("f").alias("F"),
        "df",
        pl.col("p_holm").alias("p (Holm)"),
        pl.Series("n", counts, pl.Int64),
        "note",
    )
    measure = judged_by(view)
    error = f" and {found.terms['df_error'][0]} degrees of freedom of error" if found.terms.height else ""
    noise = "" if found.noise is None else f" Noise of a run: standard deviation {number(found.noise)} on this scale."
    caption = (
        f"How much each axis, and each two together, explain of {measure_words(view)}, "
        f"beside all others: F tests over {count(found.runs, 'run')} of {count(found.seeds, 'seed')}, the seed as "
        f"block{error}. Partial omega²: the share of variance that the other terms leave, with its "
        f"{100 - 200 * measure.alpha:g} % interval; below zero where a term does nothing. "
        f"p is adjusted (Holm) over all axes, and over all pairs.{noise}{_sentences(found.notes)}"
    )
    own = {"note": WRAP, "partial omega²": {"width": 150}}
    own["p (Holm)"] = {"valueFormatter": {"function": _P_WORDS}}
    return SlotContent(caption=caption, data=rows, columns=columns(rows, own))


def _matrix(view: PageView) -> SlotContent:
    found, measure = _analyse(view), judged_by(view)
    if len(interactions.mains(found)) < 2:
        return SlotContent(message="Fewer than two axes vary, so none can act together.")
    listed_pairs = interactions.pairs(found, measure.alpha)
    if not listed_pairs:
        many = " There may be too many pairs of levels to estimate."
        return SlotContent(message=f"No pair of axes can be tested together.{_sentences(found.notes)}{many}")
    frame = interactions.matrix(found)
    passing = [each.name for each in listed_pairs if each.passes]
    said = f"Shown to act together: {join_words(passing)}." if passing else "No two axes are shown to act together."
    caption = (
        f"{said} Partial omega² in {measure.name} of each axis (on the diagonal) and of each pair, with its p after "
        f"Holm; a pair passes at {measure.alpha:g}."
    )
    hint = "A click on a pair shows its means below."
    return SlotContent(interactions.draw_matrix(frame), caption, frame.drop("key"), hint=hint)


def _pair(view: PageView) -> SlotContent:
    found, measure = _analyse(view), judged_by(view)
    known = interactions.pairs(found, measure.alpha)
    by_key = {each.key: each for each in known}
    chosen = next((each for each in known if each.passes), None)
    if view.address.pair is not None:
        chosen = by_key[require(repr(grid_of(view).grid), "pair of axes", view.address.pair, by_key)]
    if chosen is None:
        tested = [f"{each.name} (p {p_value(each.p_holm)})" for each in known]
        return SlotContent(message=f"No pair passes, so none is proposed{': ' + join_words(tested) if tested else ''}.")
    frame = interactions.means(found, chosen.axes)
    levels = list(dict.fromkeys(frame["series"]))[: interactions.MOST_LINES]
    drawn = frame.filter(pl.col("series").is_in(levels))
    styles = _styles(view, levels)
    figure = interactions.draw_means(frame, styles, chosen.axes, measure_title(view), measure.scale)
    message = "" if chosen.passes else f"{chosen.name} is not shown to act together: lines may cross by noise alone."
    more = (
        f" The first {len(levels)} levels of {chosen.axes[1]} are drawn."
        if len(levels) < frame["series"].n_unique()
        else ""
    )
    cut = " Intervals that end at the edge of the figure go on beyond it." if is_cut(drawn, measure.scale) else ""
    caption = (
        f"{measure_words(view)} by {chosen.axes[0]}, a line per level of "
        f"{chosen.axes[1]}: estimated marginal means ({average_words(measure.scale)}), all else averaged. Band: "
        f"{(1 - measure.alpha) * 100:g} % t interval of a mean, {n_words(frame)} runs. p after Holm "
        f"{p_value(chosen.p_holm)}. Parallel lines are no interaction.{cut}{more}"
        f"{_sentences([chosen.note] if chosen.note else [])}"
    )
    legend = [Key(styles[level], level, level) for level in levels]
    return SlotContent(figure, caption, frame, legend, message)


def _styles(view: PageView, levels: Sequence[str]) -> dict[str, Style]:
    """Levels that are operators look as they do everywhere."""
    known = {level: view.operators[level] for level in levels if level in view.operators}
    return known if len(known) == len(levels) else level_styles(levels)


def _half_normal(view: PageView) -> SlotContent:
    about, measure = grid_of(view), judged_by(view)
    if _analyse(view).seeds > 1:
        return SlotContent(message="Several seeds tell the noise, so effects are tested above, not here.")
    if (runs := _analyse(view).runs) > _MOST_RUNS:
        return SlotContent(message=f"{count(runs, 'run')} have too many contrasts to be made orthogonal here.")
    found = half_normal_data(view.store, about.grid, measure=measure._asdict())
    frame = half_normal.contrasts(found)
    if frame.is_empty():
        return SlotContent(message="No effect can be told from the runs at hand.")
    aliased = found.contrasts["size"].null_count()
    lost = f" {count(aliased, 'contrast')} cannot be told from others." if aliased else ""
    judged = (
        "Grey line: noise alone, by Lenth's pseudo standard error. An effect without truth is beyond the margin with "
        f"probability {measure.alpha:g}, any of all beyond the simultaneous one. To look at, not for verdicts."
        if found.pseudo_error is not None
        else "Fewer than three contrasts cannot tell the noise, so none is judged."
        if frame.height < 3
        else "Most contrasts are zero and tell of no noise, so none is judged."
    )
    caption = (
        f"{measure_words(view)}: {count(frame.height, 'contrast')} of "
        f"{count(found.runs, 'run')} of one seed by size: the root mean square over the runs of what a contrast "
        f"changes (of two levels half of their difference){half_normal.units_of(measure.scale)}. {judged}{lost}"
    )
    legend = [
        Key(style, words, kind or "noise")
        for kind, (words, style) in half_normal.KINDS.items()
        if kind in frame["beyond"].to_list()
    ]
    return SlotContent(half_normal.draw_half_normal(found, measure.scale), caption, frame, legend)


def _sentences(notes: Sequence[str]) -> str:
    return "".join(f" {note[:1].upper()}{note[1:]}." for note in notes)


def _controls(view: PageView) -> Sequence[Control]:
    measure = judged_by(view)
    known, _ = catch_user_error(lambda: interactions.pairs(_analyse(view), measure.alpha))  # the figures say why not
    passing = {each.key: each.name for each in known or () if each.passes or each.key == view.address.pair}
    usual, hint = next(iter(passing), ""), "Those shown to act together"
    pair = Control("pair", "Pair of axes", "choice", passing or {"": "none passes"}, hint, usual)
    return [*measure_controls(view), pair, *map_controls(view)]


FACTORS = AppPage(
    name="factors",
    title="Factors",
    letter="f",
    about="What does each axis do, and does that depend on another one?",
    address=FactorsAddress,
    controls=_controls,
    slots=(
        Slot("effects", "Main effects", _effects),
        Slot("importance", "Importance", _importance, "table"),
        Slot("matrix", "Which axes act together", _matrix, sets="pair"),
        Slot("pair", "Two axes together", _pair),
        Slot("pivot", "Map over two axes", map_of, sets="at"),
        Slot("chosen", "Runs of the chosen cell", runs_of, "table", picks=(Pick("Compare curves", "curves", "run"),)),
        Slot("half-normal", "Effects against noise, with one seed", _half_normal),
    ),
)
