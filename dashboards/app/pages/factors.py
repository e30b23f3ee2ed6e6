"""Factors: what each axis does, whether axes act together, and a map of the grid over two of them."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final, Literal

import polars as pl

from dashboards.app.address import entries
from dashboards.app.measures import MeasuredAddress, judged_by, measure_controls, unit_of
from dashboards.app.once import once
from dashboards.app.page import Control, Key, Option, Page, Pick, Shown, Slot, View, grid_of, link, options
from dashboards.figures import effects as effects_figure
from dashboards.figures import half_normal, interactions, pivot
from dashboards.problems import Unknown
from dashboards.sections.charts import effects_words
from dashboards.seeds import average_words, interval_words
from dashboards.theme import Style, level_styles
from dashboards.words import count, listed, number, p_value
from store.effects import analysis, unreplicated
from store.statistics import Factorial
from store.verdicts import Measure

_MOST_COLUMNS: Final = 800
"""Coefficients of interactions; more take minutes to estimate."""
_MOST_RUNS: Final = 1000
_NUMBER_WORDS: Final = "params.value == null ? '–' : d3.format('.3~g')(params.value)"
_P_WORDS: Final = "params.value == null ? '–' : params.value < 0.001 ? '< 0.001' : d3.format('.2~g')(params.value)"
_AVERAGED: Final = Option("", "averaged")


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


def _analysed(view: View) -> Factorial:
    """The grid's terms; with interactions unless there are too many of them to estimate."""
    about, measure = grid_of(view), judged_by(view)
    sizes = [len(axis["labels"]) - 1 for axis in about.header["axes"]]
    columns = sum(prod((a, b)) for i, a in enumerate(sizes) for b in sizes[:i])
    both = columns <= _MOST_COLUMNS
    return once(
        view.store,
        ("factorial", about.grid, str(measure)),
        lambda: analysis(view.store, about.grid, interactions=both, measure=measure._asdict()),
    )


def _effects(view: View) -> Shown:
    about, measure = grid_of(view), judged_by(view)
    found = effects_figure.effects(view.store, about.grid, measure)
    if found.is_empty():
        return Shown(message="No axis has two levels with results yet, so there is no effect to show.")
    notes = analysis(view.store, about.grid, measure=measure._asdict()).notes
    said = effects_words(measure, unit_of(view, measure), notes)
    return Shown(effects_figure.draw_effects(found, measure), said, found)


def _importance(view: View) -> Shown:
    found = _analysed(view)
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
        f"Each axis, then each two of them together, beside all others: F tests over {count(found.runs, 'run')} of "
        f"{count(found.seeds, 'seed')}, the seed as block{error}. Partial omega²: the share of variance that the "
        f"other terms leave, with its {100 - 200 * measure.alpha:g} % interval; below zero where a term does nothing. "
        f"p is adjusted (Holm) over all axes, and over all pairs.{noise}{_sentences(found.notes)}"
    )
    return Shown(caption=caption, data=rows, columns=[_column(name, rows) for name in rows.columns])


def _column(name: str, rows: pl.DataFrame) -> dict[str, object]:
    if name == "note":
        return {"field": name, "flex": 1, "minWidth": 240, "wrapText": True, "autoHeight": True}
    if rows[name].dtype.is_float():
        short = {"function": _P_WORDS if name.startswith("p ") else _NUMBER_WORDS}
        return {
            "field": name,
            "type": "rightAligned",
            "valueFormatter": short,
            "width": 130 if name.startswith("partial") else 92,
        }
    return {
        "field": name,
        **({"type": "rightAligned", "width": 76, "filter": False} if rows[name].dtype.is_integer() else {}),
    }


def _matrix(view: View) -> Shown:
    found, measure = _analysed(view), judged_by(view)
    if len(interactions.mains(found)) < 2:
        return Shown(message="Fewer than two axes vary, so none can act together.")
    listed_pairs = interactions.pairs(found, measure.alpha)
    if not listed_pairs:
        return Shown(message=f"No pair of axes can be tested together.{_sentences(found.notes)}{_too_many(view)}")
    frame = interactions.matrix(found)
    passing = [each.name for each in listed_pairs if each.passes]
    said = f"Shown to act together: {listed(passing)}." if passing else "No two axes are shown to act together."
    caption = (
        f"{said} Partial omega² of each axis (on the diagonal) and of each pair, with its p after Holm; a pair passes "
        f"at {measure.alpha:g}."
    )
    hint = "A click on a pair shows its means below."
    return Shown(interactions.draw_matrix(frame), caption, frame.drop("key"), hint=hint)


def _too_many(view: View) -> str:
    sizes = [len(axis["labels"]) for axis in grid_of(view).header["axes"]]
    return f" Axes of {listed([str(size) for size in sizes])} levels have too many pairs of levels to estimate."


def _pair(view: View) -> Shown:
    found, measure = _analysed(view), judged_by(view)
    known = interactions.pairs(found, measure.alpha)
    wanted = view.address.pair
    chosen = next((each for each in known if each.key == wanted), None)
    if wanted is not None and chosen is None:
        raise Unknown(f"no two axes are called {wanted!r}; there are {', '.join(e.key for e in known) or 'none'}")
    if chosen is None:
        chosen = next((each for each in known if each.passes), None)
    if chosen is None:
        tested = [f"{each.name} (p {p_value(each.p_holm)})" for each in known]
        return Shown(message=f"No pair passes, so none is proposed{': ' + listed(tested) if tested else ''}.")
    frame = interactions.means(found, chosen.axes)
    levels = list(dict.fromkeys(frame["series"]))[: interactions.MOST_LINES]
    styles = _styles(view, levels)
    title = measure.name + (f", {unit_of(view, measure)}" if unit_of(view, measure) else "")
    figure = interactions.draw_means(frame, styles, chosen.axes, title, measure.scale)
    message = "" if chosen.passes else f"{chosen.name} is not shown to act together: lines may cross by noise alone."
    more = f" The first {len(levels)} levels of {chosen.axes[1]} are drawn." if len(levels) < _levels_of(frame) else ""
    caption = (
        f"{measure.name} by {chosen.axes[0]}, a line per level of {chosen.axes[1]}: estimated marginal means "
        f"({average_words(measure.scale)}), all else averaged. Band: {(1 - measure.alpha) * 100:g} % t interval of a "
        f"mean, n {' to '.join(map(str, _ends(frame['n'])))} runs. p after Holm {p_value(chosen.p_holm)}. Parallel "
        f"lines are no interaction.{more}{_sentences([chosen.note] if chosen.note else [])}"
    )
    legend = [Key(styles[level], level, level) for level in levels]
    return Shown(figure, caption, frame, legend, message)


def _ends(counts: pl.Series) -> list[int]:
    """The least and the greatest; one where they are equal."""
    known = sorted(counts.to_list())
    return list(dict.fromkeys([known[0], known[-1]]))


def _levels_of(frame: pl.DataFrame) -> int:
    return frame["series"].n_unique()


def _styles(view: View, levels: Sequence[str]) -> dict[str, Style]:
    """Levels that are operators look as they do everywhere."""
    known = {level: view.operators[level] for level in levels if level in view.operators}
    return known if len(known) == len(levels) else level_styles(levels)


def _table(view: View, measure: Measure) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    about = grid_of(view)
    return once(view.store, ("pivot", about.grid, str(measure)), lambda: pivot.table(view.store, about.grid, measure))


def _axes(view: View, levels: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """The axes of the map; None where fewer than two vary."""
    wide = sorted(levels, key=lambda name: len(levels[name]) < 2)
    for name in (view.address.x, view.address.y):
        if name is not None and name not in levels:
            raise Unknown(f"{grid_of(view).grid!r} has no axis {name!r}; it has {', '.join(levels)}")
    if len(wide) < 2:
        return None
    x = view.address.x or next(name for name in wide if name != view.address.y)
    y = view.address.y or next(name for name in wide if name != x)
    if x == y:
        raise Unknown(f"a map needs two axes; the address says {x!r} for both")
    return x, y


def _fixed(view: View, axes: tuple[str, str], levels: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What the address fixes, of axes that the map does not show."""
    found = entries(view.address.fix)
    for name, level in found.items():
        if name not in levels:
            raise Unknown(f"{grid_of(view).grid!r} has no axis {name!r} to fix; it has {', '.join(levels)}")
        if level not in levels[name]:
            raise Unknown(f"axis {name!r} has no level {level!r}; it has {', '.join(levels[name])}")
    return {name: level for name, level in found.items() if name not in axes}


def _pivot(view: View) -> Shown:
    measure = judged_by(view)
    found, levels = _table(view, measure)
    axes = _axes(view, levels)
    if axes is None:
        return Shown(message="The grid has one axis, and a map needs two.")
    fixed = _fixed(view, axes, levels)
    made = pivot.pivot(found, levels, measure, axes, fixed=fixed, best=view.address.others == "best")
    log = (view.address.colours or ("log" if measure.scale == "log" else "linear")) == "log"
    figure = pivot.draw_pivot(made, axes, measure.name, log=log, shared=view.address.shared)
    rest = [name for name, of in levels.items() if name not in (*axes, *fixed) and len(of) > 1]
    held = [f"{name} = {level}" for name, level in fixed.items()]
    how = "the best cell over" if view.address.others == "best" else "averaged over"
    said = [*([f"{how} {listed(rest)}"] if rest else []), *([f"at {listed(held)}"] if held else [])]
    unit = unit_of(view, measure)
    named = f"{measure.name} ({unit})" if unit else measure.name
    caption = (
        f"{', '.join([f'{named} by {axes[0]} and {axes[1]}', *said])}; "
        f"{measure.better} is better. {average_words(measure.scale).capitalize()} over seeds, ± half of the "
        f"{interval_words(measure.scale)}; n: seeds. Signs stand for what has no value."
    )
    hint = "The pointer tells why; a click on a cell lists its runs."
    return Shown(figure, caption, made.frame.drop("key", "text"), message=_warned(made.warning), hint=hint)


def _warned(warning: str) -> str:
    return f"Winner's curse: {warning}." if warning else ""


def _runs(view: View) -> Shown:
    measure = judged_by(view)
    found, levels = _table(view, measure)
    axes = _axes(view, levels)
    if axes is None or view.address.at is None:
        return Shown(message="A click on a cell of the map lists its runs here.")
    fixed = _fixed(view, axes, levels)
    for name, level in fixed.items():
        found = found.filter(pl.col(f"axis: {name}") == level)
    rows = pivot.runs_at(found, levels, axes, view.address.at)
    if rows.is_empty():
        return Shown(message="The cell of the map that was chosen has no planned runs.")
    where = ", ".join(f"{name} {rows['axis: ' + name][0]}" for name in axes)
    shown = rows.select("trial", "label", "seed", "status", pl.col("why").alias("reason"), "value").rename(
        {"value": measure.name}
    )
    columns = [link("trial", "run", "run"), *(_column(name, shown) for name in shown.columns[1:])]
    return Shown(caption=f"{count(shown.height, 'run')} at {where}.", data=shown, columns=columns)


def _half_normal(view: View) -> Shown:
    about, measure = grid_of(view), judged_by(view)
    if _analysed(view).seeds > 1:
        return Shown(message="Several seeds tell the noise, so effects are tested above; this figure is for one seed.")
    if (runs := _analysed(view).runs) > _MOST_RUNS:
        return Shown(message=f"{count(runs, 'run')} have more contrasts than can be made orthogonal while one waits.")
    found = unreplicated(view.store, about.grid, measure=measure._asdict())
    frame = half_normal.contrasts(found)
    if frame.is_empty():
        return Shown(message="No effect can be told from the runs at hand.")
    aliased = found.contrasts["size"].null_count()
    lost = f" {count(aliased, 'contrast')} cannot be told from others." if aliased else ""
    caption = (
        f"{count(frame.height, 'contrast')} of {count(found.runs, 'run')} of one seed by size. Grey line: noise alone, "
        "by Lenth's pseudo standard error. An effect without truth is beyond the margin with probability "
        f"{measure.alpha:g}, any of all beyond the simultaneous one. To look at, not for verdicts.{lost}"
    )
    legend = [
        Key(style, words, kind or "noise")
        for kind, (words, style) in half_normal.KINDS.items()
        if kind in frame["beyond"].to_list()
    ]
    return Shown(half_normal.draw_half_normal(found, measure.scale), caption, frame, legend)


def _sentences(notes: Sequence[str]) -> str:
    return "".join(f" {note[:1].upper()}{note[1:]}." for note in notes)


def _controls(view: View) -> Sequence[Control]:
    measure = judged_by(view)
    _, levels = _table(view, measure)
    axes = _axes(view, levels)
    known = interactions.pairs(_analysed(view), measure.alpha)
    passing = [Option(each.key, each.name) for each in known if each.passes or each.key == view.address.pair]
    found = [*measure_controls(view)]
    found.append(
        Control(
            "pair",
            "Pair of axes",
            "choice",
            passing,
            "Those shown to act together",
            passing[0].value if passing else None,
        )
    )
    if axes is None:
        return found
    wide = [name for name, of in levels.items() if len(of) > 1 or name in axes]
    found += [
        Control("x", "Map across", "choice", options(wide), usual=axes[0], remakes=True, resets=("at",)),
        Control("y", "Map down", "choice", options(wide), usual=axes[1], remakes=True, resets=("at",)),
        Control("others", "Other axes", "choice", [Option("averaged", "averaged"), Option("best", "best cell")]),
    ]
    found += [
        Control(f"fix:{name}", name, "choice", [_AVERAGED, *options(levels[name])], "Fix this axis", usual="")
        for name in wide
        if name not in axes
    ]
    usual = "log" if measure.scale == "log" else "linear"
    found += [
        Control(
            "colours", "Colours", "choice", [Option("log", "logarithmic"), Option("linear", "linear")], usual=usual
        ),
        Control("shared", "Colours span the whole grid", "switch"),
        Control("at", "", "hidden"),
    ]
    return found


FACTORS = Page(
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
        Slot("pivot", "Map over two axes", _pivot, sets="at"),
        Slot("chosen", "Runs of the chosen cell", _runs, "table", picks=(Pick("Compare curves", "curves", "run"),)),
        Slot("half-normal", "Effects against noise, with one seed", _half_normal),
    ),
)
