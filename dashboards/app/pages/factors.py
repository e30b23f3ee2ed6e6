"""Factors: what each axis does, whether axes act together, and a map of the grid over two of them with its runs."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Final, Literal

import polars as pl

from ablate.dashboards.app import measures
from ablate.dashboards.app.address import entries
from ablate.dashboards.app.page import (
    AS_ABOVE,
    AppPage,
    Control,
    Key,
    PageView,
    Pick,
    Slot,
    SlotContent,
    grid_of,
    memoise,
    options,
)
from ablate.dashboards.app.table_columns import WRAP, columns, link
from ablate.dashboards.data.captions import effects_words, n_words, rank_axes
from ablate.dashboards.data.formatting import count, join_words, p_value
from ablate.dashboards.data.seed_averages import average_words, interval_words
from ablate.dashboards.data.user_errors import Unknown, catch_user_error, join_sentences, require
from ablate.dashboards.figures import forest, interactions, pivot
from ablate.dashboards.figures.canvas import is_cut
from ablate.dashboards.figures.heat import draw_heat, heat_ramp
from ablate.dashboards.theme.styles import name_styles
from ablate.store.analysis.effects import MOST_COEFFICIENTS, analysis
from ablate.store.statistics import Factorial, SeedContrasts


@memoise
def _table(view: PageView) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    return pivot.table(view.store, grid_of(view).grid, measures.judged_by(view))


def _axes(view: PageView) -> tuple[str, str] | None:
    """Return the axes of the map: from the address, else the first two that vary independently."""
    table, levels = _table(view)
    x, y = view.address.x, view.address.y
    for name in (x, y):
        if name is not None:
            require(repr(grid_of(view).grid), "axis", name, levels)
    if x is not None and x == y:
        raise Unknown(f"the address says {x!r} for both axes of a map; choose two")
    if x is not None and y is not None:
        return x, y
    wide = _wide(levels)
    ties = {
        (one, other): pivot.follows(table, one, other) + pivot.follows(table, other, one)
        for one, other in product([x] if x else wide, [y] if y else wide)
        if one != other
    }
    best = min(ties, key=lambda pair: ties[pair], default=None)
    return best if best and ties[best] < 2 else None  # two axes that follow each other are one


_ONE_AXIS: Final = "Fewer than two axes vary apart, so none can act together and there is no map."


def _wide(levels: Mapping[str, Sequence[str]]) -> list[str]:
    return [name for name, of in levels.items() if len(of) > 1]


def _read_fixed(view: PageView, axes: tuple[str, str], levels: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return levels that the address fixes, of axes that the map does not show."""
    fixed = entries(view.address.fix)
    for name, level in fixed.items():
        require(repr(grid_of(view).grid), "axis", name, levels)
        require(f"axis {name!r}", "level", level, levels[name])
    return {name: level for name, level in fixed.items() if name not in axes}


def _map(view: PageView) -> SlotContent:
    measure, best = measures.judged_by(view), view.address.others == "best"
    (table, levels), axes = _table(view), _axes(view)
    if axes is None:
        return SlotContent(message=_ONE_AXIS)
    fixed = _read_fixed(view, axes, levels)
    made = pivot.pivot(table, levels, measure, axes, fixed=fixed, best=best)
    ramp = heat_ramp(made.frame["value"], measure.name, log=measure.scale == "log")
    figure = draw_heat(made.frame, ramp, x=axes[0], y=axes[1])
    others, settings = join_words(made.others), count(len(made.settings), "setting")
    over = f", averaged over {others} ({settings}, each counted alike)"
    if best:
        over = f", the best of {settings} of {others}, named in the cell: of those with the most values, the best mean"
    caption = (
        f"{measures.words(view)} by {axes[0]} and {axes[1]}{over if made.others else ''}"
        f"{''.join(f', at {name} = {level}' for name, level in fixed.items())}. "
        f"{average_words(measure.scale).capitalize()} over seeds, ± half of the "
        f"{interval_words(measure.scale, measure.alpha)}; n: seeds. A sign marks a cell without a value."
        f"{''.join(f' Each level of {by} has one of {name}.' for name, by in made.followers.items())}"
    )
    warnings = [f"Winner's curse: {made.warning}."] if made.warning else []
    if lacking := int(made.frame["partial"].sum()):
        warnings.append(
            f"{lacking} of {count(made.frame['value'].count(), 'cell')} with a value lack settings of {others} or "
            "values of them, and say so (an open diamond where words have no room): do not compare them with others."
        )
    hint = "The pointer tells why; a click on a cell lists its runs."
    data = made.frame.drop("key", "text", "partial", *([] if best else ["best"]))
    return SlotContent(figure, caption, data, message=" ".join(warnings), hint=hint)


def _runs(view: PageView) -> SlotContent:
    """List the runs of the cell of the map that the address names."""
    measure = measures.judged_by(view)
    (table, levels), axes = _table(view), _axes(view)
    if axes is None or view.address.at is None:
        return SlotContent(message=AS_ABOVE)
    table = pivot.at_levels(table, _read_fixed(view, axes, levels))
    rows = pivot.runs_at(table, levels, axes, view.address.at)
    if rows.is_empty():
        return SlotContent(message="The cell of the map that was chosen has no planned runs.")
    where = ", ".join(f"{name} {rows['axis: ' + name][0]}" for name in axes)
    shown = rows.select("trial", "label", "seed", "state", pl.col("why").alias("reason"), "value")
    if measure.name not in shown.columns:
        shown = shown.rename({"value": measure.name})
    caption = f"{count(shown.height, 'run')} at {where}."
    return SlotContent(caption=caption, data=shown, columns=columns(shown, {"trial": link("run", "run", width=150)}))


def _map_controls(view: PageView) -> list[Control]:
    (table, levels), axes = _table(view), _axes(view)
    if axes is None:
        return []
    fixed = _read_fixed(view, axes, levels)
    wide = [name for name, of in levels.items() if len(of) > 1 or name in axes]
    free = [
        name
        for name in wide
        if name not in axes and (name in fixed or not any(pivot.follows(table, name, by) for by in axes))
    ]
    fixes = [(name, {"": "averaged", **options(levels[name])}) for name in free]
    return [
        Control("x", "Map across", "choice", options(wide), usual=axes[0], resets=("at",)),
        Control("y", "Map down", "choice", options(wide), usual=axes[1], resets=("at",)),
        Control("others", "Other axes", "choice", {"averaged": "averaged", "best": "best cell"}),
        *(Control(f"fix:{name}", name, "choice", of, "Fix this axis", "") for name, of in fixes),
        Control("at", "", "hidden"),
    ]


_CURVES: Final = Pick("Compare curves", "curves", "run")
_TOO_MANY: Final = f"pairs of axes left out: their interactions have more than {MOST_COEFFICIENTS} coefficients"
_P_WORDS: Final = "params.value == null ? '–' : params.value < 0.001 ? '< 0.001' : d3.format('.2~g')(params.value)"


class FactorsAddress(measures.MeasuredAddress):
    """The measure, a pair of axes that may act together, and the axes of the map with what holds of the others."""

    pair: str | None = None  # two axes as `Pair.key` writes them; None is the pair with the smallest p
    x: str | None = None  # None is the first axis that varies
    y: str | None = None
    others: Literal["averaged", "best"] = "averaged"
    fix: tuple[str, ...] = ()  # entries AXIS=LEVEL
    at: str | None = None  # a cell of the map


@memoise
def analyse(view: PageView) -> Factorial:
    """Estimate the terms of the grid; with interactions unless there are too many of them."""
    context, measure = grid_of(view), measures.judged_by(view)
    sizes = [len(axis["labels"]) - 1 for axis in context.header["axes"]]
    few = sum(a * b for a, b in combinations(sizes, 2)) <= MOST_COEFFICIENTS
    factorial = analysis(view.store, context.grid, interactions=few, measure=measure._asdict())
    return factorial if few else factorial._replace(notes=[*factorial.notes, _TOO_MANY])


@memoise
def level_effects(view: PageView) -> SeedContrasts | None:
    """Compare the levels of each axis."""
    return forest.effects(view.store, grid_of(view).grid, measures.judged_by(view))


def show_effects(view: PageView) -> SlotContent:
    """Draw the effects of the levels of each axis."""
    measure, contrasts = measures.judged_by(view), level_effects(view)
    if contrasts is None or contrasts.effects["effect"].drop_nulls().is_empty():
        why = join_sentences(contrasts.notes) if contrasts else ""
        if contrasts is not None and contrasts.seeds:
            return SlotContent(message=f"These cells show no effect of an axis.{why}")
        return SlotContent(message=f"No seed has a result of every cell yet, so there is no effect to show.{why}")
    caption = effects_words(measure, measures.unit(view), [*dict.fromkeys([*contrasts.notes, *analyse(view).notes])])
    known = contrasts.effects.drop_nulls("effect")
    drawn = forest.worth_showing(known, measure, "effect")
    caption += forest.describe_rows(drawn.height, known.height)
    if forest.is_cut(drawn.rename({"effect": "difference"}), measure):
        caption += forest.ARROWS
    figure = forest.draw_effects(drawn, measure, measures.unit(view))
    shown = SlotContent(
        figure, caption, contrasts.effects, answer="\n".join(rank_axes(contrasts.effects, measure)).strip()
    )
    return shown._replace(above=_tell_axes(view), measured=measures.columns(view))


def _tell_axes(view: PageView) -> str:
    """Name the axes that vary."""
    axes = [axis for axis in grid_of(view).header["axes"] if len(axis["labels"]) > 1]
    tuned = [", each setting at its best" if axis.get("tune") else "" for axis in axes]
    told = [f"{axis['name']} ({len(axis['labels'])} levels{best})" for axis, best in zip(axes, tuned, strict=True)]
    return f"Axes: {join_words(told)}."


def _importance(view: PageView) -> SlotContent:
    factorial, measure = analyse(view), measures.judged_by(view)
    if factorial.terms.is_empty():
        return _without_tests(factorial)
    mains = factorial.means.filter(pl.col("term").is_in(interactions.mains(factorial)))
    runs = dict(mains.group_by("term").agg(pl.col("n").sum()).iter_rows())
    terms = factorial.terms.sort("order", pl.col("omega_squared"), descending=[False, True], nulls_last=True)
    rows = terms.select(
        pl.col("term").alias("axis"),
        pl.col("omega_squared").alias("partial omega²"),
        pl.col("omega_low").alias("from"),
        pl.col("omega_high").alias("to"),
        pl.col("f").alias("F"),
        "df",
        pl.col("p_holm").alias("p (Holm)"),
        pl.Series("n", [runs.get(term, factorial.runs) for term in terms["term"]], pl.Int64),
        "note",
    )
    error = f" and {factorial.terms['df_error'][0]} degrees of freedom of error" if factorial.terms.height else ""
    caption = (
        "These F tests are about the seeds at hand; the answer of the page is about new seeds, and is less certain. "
        f"How much each axis, and each two together, explain of {measures.words(view)}, "
        f"beside all others: F tests over {count(factorial.runs, 'run')} of {count(factorial.seeds, 'seed')}, the seed "
        f"as block{error}. Partial omega²: the share of variance that the other terms leave, with its "
        f"{100 - 200 * measure.alpha:g} % interval; below zero where a term does nothing. "
        f"p is adjusted (Holm) over all axes, and over all pairs.{join_sentences(factorial.notes)}"
    )
    own = {"note": WRAP, "partial omega²": {"width": 150}, "p (Holm)": {"valueFormatter": {"function": _P_WORDS}}}
    shown = rows if (rows["note"].fill_null("") != "").any() else rows.drop("note")
    return SlotContent(caption=caption, data=rows, columns=columns(shown, own))


def _without_tests(factorial: Factorial) -> SlotContent:
    return SlotContent(message=f"No axis has an F test.{join_sentences(factorial.notes)}")


def _matrix(view: PageView) -> SlotContent:
    factorial, measure = analyse(view), measures.judged_by(view)
    if factorial.terms.is_empty():
        return _without_tests(factorial)
    if len(interactions.mains(factorial)) < 2:
        return SlotContent(message=_ONE_AXIS)
    pairs = interactions.pairs(factorial, measure.alpha)
    if not pairs:
        return SlotContent(message=f"No pair of axes can be tested together.{join_sentences(factorial.notes)}")
    frame, passing = interactions.matrix(factorial), [each.name for each in pairs if each.passes]
    said = f"Shown to act together: {join_words(passing)}." if passing else "No two axes are shown to act together."
    caption = (
        f"{said} Partial omega² in {measure.name} of each axis (on the diagonal) and of each pair, with its p after "
        f"Holm; a pair passes at {measure.alpha:g}."
    )
    hint = "A click on a pair shows its means beside it."
    return SlotContent(interactions.draw_matrix(frame), caption, frame.drop("key"), hint=hint)


def _pair(view: PageView) -> SlotContent:
    factorial, measure = analyse(view), measures.judged_by(view)
    known = {each.key: each for each in interactions.pairs(factorial, measure.alpha)}
    chosen = next((each for each in known.values() if each.passes), None)
    if view.address.pair is not None:
        chosen = known[require(repr(grid_of(view).grid), "pair of axes", view.address.pair, known)]
    if chosen is None and factorial.terms.is_empty():
        return _without_tests(factorial)
    if chosen is None and not known:
        return SlotContent(message=_ONE_AXIS)
    if chosen is None:
        tested = [f"{each.name} (p {p_value(each.p_holm)})" for each in known.values()]
        return SlotContent(message=f"No pair passes, so none is proposed: {join_words(tested)}.")
    across, by = chosen.axes
    frame = interactions.means(factorial, chosen.axes)
    every = frame["series"].unique(maintain_order=True).to_list()
    levels = every[: interactions.MOST_LINES]
    styles = name_styles(levels, view.styles)  # operators look as elsewhere
    figure = interactions.draw_means(frame, styles, chosen.axes, measures.title(view), measure.scale)
    message = "" if chosen.passes else f"{chosen.name} is not shown to act together: lines may cross by noise alone."
    more = f" The first {len(levels)} levels of {by} are drawn." if len(levels) < len(every) else ""
    drawn = frame.filter(pl.col("series").is_in(levels))
    cut = " Intervals that end at the edge of the figure go on beyond it." if is_cut(drawn, measure.scale) else ""
    caption = (
        f"{measures.words(view)} by {across}, a line per level of {by}: estimated marginal means "
        f"({average_words(measure.scale)}), all else averaged. Band: {(1 - measure.alpha) * 100:g} % t interval of a "
        f"mean, {n_words(frame)} runs. p after Holm {p_value(chosen.p_holm)}. Parallel lines are no interaction."
        f"{cut}{more}{join_sentences([chosen.note] if chosen.note else [])}"
    )
    return SlotContent(figure, caption, frame, [Key(styles[level], level, level) for level in levels], message)


def _controls(view: PageView) -> Sequence[Control]:
    measure = measures.judged_by(view)
    known, _ = catch_user_error(lambda: interactions.pairs(analyse(view), measure.alpha))  # the figures say why not
    passing = {each.key: each.name for each in known or () if each.passes or each.key == view.address.pair}
    usual, hint = next(iter(passing), ""), "Pairs that are shown to act together"
    pair = Control("pair", "Pair of axes", "choice", passing or {"": "none passes"}, hint, usual)
    return [*measures.controls(view), pair, *_map_controls(view)]


FACTORS = AppPage(
    name="factors",
    title="Factors",
    letter="f",
    question="Which axis makes a difference, how large is it, and does it depend on another axis?",
    address=FactorsAddress,
    named=("pair",),
    controls=_controls,
    main=(),
    slots=(
        Slot("effects", "Main effects", show_effects),
        Slot("importance", "Importance", _importance, "table"),
        Slot("matrix", "Which axes act together", _matrix, sets="pair", half=True),
        Slot("pair", "Two axes together", _pair, half=True),
        Slot("pivot", "Map over two axes", _map, sets="at"),
        Slot("chosen", "Runs of the chosen cell", _runs, "table", picks=(_CURVES,)),
    ),
)
