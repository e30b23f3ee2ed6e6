"""Page Compare: every variant against the baseline with its verdict and its cost; one variant seed by seed."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import polars as pl

from ablate.dashboards.app import measures
from ablate.dashboards.app.page import (
    AS_ABOVE,
    AppPage,
    Control,
    Key,
    PageView,
    Slot,
    SlotContent,
    grid_of,
    html,
    memoise,
)
from ablate.dashboards.app.pages.compare_costs import (
    check_costs,
    cost_controls,
    draw_axes,
    draw_costs,
    kept_cells,
    standings_of,
)
from ablate.dashboards.app.settings import runs_of, settings_of
from ablate.dashboards.app.table_columns import BY_SIZE, FOLD, columns, link, on_phone
from ablate.dashboards.data import captions
from ablate.dashboards.data.control_words import CONTROLS, control_words, describe_controls
from ablate.dashboards.data.formatting import NO_MARGIN, count, write_minus
from ablate.dashboards.data.grid_context import MOST_ROWS, GridContext, averages, best_first, in_order, worth_drawing
from ablate.dashboards.data.seed_averages import OF_UNITS, average_words, rope_words
from ablate.dashboards.data.two_part_rows import TITLE, describe_parts, two_part_rows
from ablate.dashboards.data.user_errors import Unknown, catch_user_error, join_sentences
from ablate.dashboards.figures import forest, seed_pairs
from ablate.dashboards.figures.canvas import rope_of
from ablate.dashboards.theme.styles import shared_style
from ablate.store.analysis.control_tests import control_rows
from ablate.store.analysis.explain_verdict import why, why_text
from ablate.store.analysis.headline import LEGEND, count_headlines
from ablate.store.analysis.judge import JudgedGrid, judge
from ablate.store.analysis.noise_caution import noise_caution
from ablate.store.analysis.two_part import two_part
from ablate.store.analysis.verdicts import GridMeasure, baseline_of, baseline_rows, setting_of
from ablate.store.statistics.check import CHECK_NAMES


class CompareAddress(measures.MeasuredAddress):
    """The measure and a cost, a baseline other than the grid's own, the cell that is compared closely, and ranges."""

    baseline: str | None = None  # the label of a cell, or its key
    cell: str | None = None  # the same; None is that of `find_lead`
    against: str | None = None
    """A cost of `COST_WORDS`, or a measurement or probe as `text_of` writes it; None is the first recorded one."""
    against_better: Literal["lower", "higher"] | None = None
    """None: that of the grid for its own measure; of others what is known, else lower."""
    brush: tuple[str, ...] = ()  # ranges AXIS=LOW..HIGH of the parallel axes; only cells inside all of them are shown


def judge_view(view: PageView) -> tuple[GridContext, GridMeasure, pl.DataFrame]:
    """Return the grid of a view with its measure and the verdicts of the cells inside the ranges of the address.

    Raises Unknown if there is no grid yet, or no such measurement; SpecError if it has no measure or baseline.
    """
    verdicts, kept = _judge_cells(view).rows, kept_cells(view)
    verdicts = verdicts if kept is None else verdicts.filter(pl.col("cell").is_in(kept))
    return settings_of(view), measures.judged_by(view), verdicts


@memoise
def _judge_cells(view: PageView) -> JudgedGrid:
    context, measure = grid_of(view), measures.judged_by(view)._asdict()
    judged = judge(view.store, context.grid, baseline=view.address.baseline, measure=measure)
    return judged._replace(rows=in_order(judged.rows, [cell.cell for cell in context.cells]))


def checks_of(view: PageView) -> captions.Checks:
    """Return the checks of the cells of a view."""
    return _judge_cells(view).checks


def _baseline(view: PageView) -> str:
    """Return the baseline, the first of several."""
    return baseline_of(view.store, settings_of(view).grid, view.address.baseline)


def _baseline_name(view: PageView) -> str:
    """Return the name of the baseline in sentences about all cells."""
    context = settings_of(view)
    named = context.baseline_name if view.address.baseline is None else None
    return named or context.appearance.names[_baseline(view)]


def _chosen(view: PageView) -> tuple[str, str]:
    """Return the keys of the cell that is compared closely and of its baseline. Raises Unknown for the baseline."""
    context, measure, verdicts = judge_view(view)
    if view.address.cell is None:
        if verdicts.is_empty():
            raise Unknown("the grid has no cell beside the baseline")
        cell = str((captions.find_lead(verdicts, measure) or verdicts.row(0, named=True))["cell"])
    else:
        cell = setting_of(view.store, context.grid, runs_of(view), view.address.cell)
    bases = runs_of(view).baseline
    base = bases if isinstance(bases, str) else bases.get(cell, cell)
    if cell == base:
        raise Unknown(f"{context.appearance.names[cell]} is a baseline, which has no verdict; choose another cell")
    return cell, base


def differences_of(view: PageView) -> SlotContent:
    """Draw the forest plot of all variants against the baseline."""
    context, measure, verdicts = judge_view(view)
    drawn = forest.differences(verdicts, measure)
    if drawn["difference"].is_null().all():
        return SlotContent(message="No difference from the baseline can be computed yet.")
    rope = rope_words(measure.rope, measure.scale, measures.unit(view))
    caption = (
        f"{measures.words(view)} of each variant against {_baseline_name(view)}, {captions.paired_words(drawn)}. "
        f"{forest.INTERVALS.format(f'{(1 - measure.alpha) * 100:g}')} Point: mean difference"
        f"{OF_UNITS[measure.scale]}. "
        + (f"Grey band: differences within {rope}, which count as equal." if measure.rope else NO_MARGIN)
    )
    caption += forest.describe_rows(drawn.height, verdicts.height)
    if forest.is_cut(drawn, measure):
        caption += forest.ARROWS
    words = {word: captions.mark_verdict(word) for word in captions.ICONS}
    figure = forest.draw_differences(drawn, context.appearance, measure, words, measures.unit(view))
    hint = "A click on a point shows why it has its verdict."
    return SlotContent(figure, caption, captions.name_cells(drawn, context), hint=hint, measured=measures.columns(view))


def list_verdicts(view: PageView, *, by_seeds: bool = False) -> SlotContent:
    """List the verdicts, with the reason of each; `by_seeds`: those that are known first, then what seeds decide."""
    context, measure, verdicts = judge_view(view)
    ordered, seeds = best_first(verdicts, measure), pl.when(verdict="undecided").then("seeds_to_decide")
    if by_seeds:
        known = pl.col("verdict").is_in([*captions.CLAIMS, "equivalent"])
        ordered = ordered.sort(~known, seeds, nulls_last=True, maintain_order=True)
    rows = captions.verdict_words(context, measure, ordered, checks_of(view)).with_columns(
        ordered.select(seeds.alias("seeds to decide")).to_series(),
        *ordered.select("low", "high", *forest.CORRECTED, pl.col("difference").alias("change")),
    )
    scaled = {"range": forest.axis_range(ordered, measure), "rope": rope_of(measure)}
    caption = (
        f"{captions.summarise_verdicts(verdicts, _baseline_name(view))} Compared by {measures.words(view)}, "
        f"{average_words(measure.scale)} over seeds, {captions.paired_words(verdicts)}; verdicts are corrected (Holm) "
        f"for all comparisons of the grid.{' Differences are ratios of odds.' if measure.scale == 'logit' else ''} "
        f"Bars: {(1 - measure.alpha) * 100:g} % intervals of single comparisons; thin: corrected for all of them; "
        "shaded: differences that count as equal. Seeds to decide: in all, for 80 % power if the true difference "
        "is the one seen."
    )
    noise = noise_caution(view.store, context.grid, baseline=view.address.baseline, measure=measure._asdict())
    caption += join_sentences([LEGEND, count_headlines(verdicts), *noise.sentences])
    heading = f"{(1 - measure.alpha) * 100:g} % interval of one comparison"
    bars = {"cellRenderer": "AblateInterval", "cellRendererParams": scaled, "minWidth": 245}
    interval = {**BY_SIZE, **bars, "headerName": heading}
    chosen = [name for name in ("selected",) if name in rows.columns]
    last = ["checks", *chosen, "pairs", "seeds to decide", "reason", *CHECK_NAMES]
    rows = rows.select(pl.exclude(last), *last)
    rows = rows if rows["seeds to decide"].count() else rows.drop("seeds to decide")
    named = {"headerName": measure.name.replace("_", "_\u200b")}  # where a long name may go on in the next line
    own = {**_VERDICT_COLUMNS, "value": {**_VERDICT_COLUMNS["value"], **named}, "interval": interval}
    return SlotContent(caption=caption, data=rows, columns=columns(rows, own), measured=measures.columns(view))


_VERDICT_COLUMNS: Final[dict[str, dict[str, Any]]] = {
    "variant": {
        **link("compare", "cell", under="verdict", minWidth=180, flex=1, wrapText=True, autoHeight=True),
        **on_phone(place=0, minWidth=140),
    },
    "selected": {"headerName": "best level", "width": 130, **on_phone(hide=True)},
    "verdict": {"width": 178, **on_phone(hide=True)},
    "value": {"width": 130, "wrapHeaderText": True, "autoHeaderHeight": True, **on_phone(place=2, initialWidth=106)},
    "difference": {**BY_SIZE, "width": 120, **on_phone(place=1, initialWidth=106)},
    "p (Holm)": {**BY_SIZE, "width": 95},
    **{name: {"hide": True} for name in ("low", "high", *forest.CORRECTED, "change")},
    "seeds to decide": {"width": 150},
    "checks": {
        "cellRenderer": "AblateChecks",
        "cellRendererParams": {"checks": CHECK_NAMES},
        "width": 110,
        "sortable": False,
    },
    **{name: {"hide": True} for name in CHECK_NAMES},
    "reason": FOLD,
}
"""Parts of the columns of verdicts: texts are sorted as numbers, the reason opens on a click, intervals are drawn."""


def _list_cells(view: PageView) -> SlotContent:
    """List the verdicts, and beside each the cost of the cell; baselines come last. Others are not compared."""
    shown, names = list_verdicts(view), settings_of(view).appearance.names
    standings, problem = catch_user_error(lambda: standings_of(view))
    if standings is None:
        return shown._replace(message=problem or "")
    rows, own, caption = standings
    compared = runs_of(view)
    rows = rows.filter(pl.col("variant").is_in([names[cell] for cell in compared.values["cell"].unique()]))
    data = shown.data.join(rows, on="variant", how="full", coalesce=True, maintain_order="left_right")
    bases = [(names[row["cell"]], row) for row in baseline_rows(compared, measures.judged_by(view))]
    known = [name for name in ("value", "selected") if name in data.columns]
    of_bases = [
        pl.col(name).fill_null(pl.col("variant").replace_strict({base: row[name] for base, row in bases}, default=None))
        for name in known
    ]
    data = data.with_columns(pl.col("verdict").fill_null("baseline"), *of_bases)
    costs = columns(rows.drop("variant"), own)
    at = next(place for place, each in enumerate(shown.columns) if each["field"] == "pairs")
    listed = [*shown.columns[:at], *costs, *shown.columns[at:]]
    return shown._replace(caption=f"{shown.caption} {caption}", data=data, columns=listed)


def _show_two_parts(view: PageView) -> SlotContent:
    """List how often and how well variants learned; nothing if all runs did."""
    context, measure, kept = settings_of(view), measures.judged_by(view), kept_cells(view)
    parts = two_part(view.store, context.grid, baseline=view.address.baseline, measure=measure._asdict())
    if parts is None:
        return SlotContent(message=AS_ABOVE)
    if kept is not None:
        parts = parts._replace(rows=parts.rows.filter(pl.col("cell").is_in(kept)))
    own = {"variant": _VERDICT_COLUMNS["variant"], "because": FOLD, "difference": BY_SIZE}
    own |= {"p of shares (Holm)": {**BY_SIZE, "width": 160}, "pairs that learned": {"width": 160}}
    rows = two_part_rows(context, measure, parts)
    if rows.is_empty():
        return SlotContent(message=AS_ABOVE)
    return SlotContent(
        caption=describe_parts(parts, measure),
        data=rows,
        columns=columns(rows, own),
        measured=measures.columns(view),
    )


def _list_controls(view: PageView) -> SlotContent:
    """List the difference of the cell that is looked at from each of its controls."""
    context, measure, (cell, _) = settings_of(view), measures.judged_by(view), _chosen(view)
    rows = control_rows(view.store, context.grid, baseline=view.address.baseline, measure=measure._asdict())
    words = control_words(context, measure, rows, [cell])
    if words.is_empty():
        return SlotContent(message=AS_ABOVE)  # Why says that there are none
    (check,) = (each for each in checks_of(view)[cell] if each.name == "control")
    said = write_minus(f"{context.appearance.names[cell]}: {check.reason}.")
    control = {"minWidth": 200, "flex": 1, "wrapText": True, "autoHeight": True}
    own: dict[str, dict[str, Any]] = {"variant": {"hide": True}, "control": control, "p": BY_SIZE}
    own["difference"] = {**BY_SIZE, **on_phone(initialWidth=106)}
    return SlotContent(caption=f"{said} {describe_controls(measure)}", data=words, columns=columns(words, own))


def _why(view: PageView) -> SlotContent:
    context, (cell, base) = settings_of(view), _chosen(view)
    names, measure = context.appearance.names, measures.judged_by(view)._asdict()
    row = why(view.store, context.grid, cell, baseline=view.address.baseline, measure=measure)
    caption = f"{names[cell]} against {names[base]}: {captions.mark_verdict(row['verdict'])}.{_explain_choice(view)}"
    topics = [line.partition(": ")[::2] for line in why_text(row)]
    data = pl.DataFrame(topics, schema=["topic", "what it is"], orient="row")
    rows = [html.Div([html.Dt(topic), html.Dd(write_minus(said))]) for topic, said in topics]
    return SlotContent(caption=caption, data=data, parts=[html.Dl(rows, className="facts")])


def _explain_choice(view: PageView) -> str:
    """Say how the cell was chosen if the address does not name it."""
    _, measure, verdicts = judge_view(view)
    if view.address.cell is not None or verdicts.height < 2:
        return ""
    if (lead := captions.find_lead(verdicts, measure)) is None:
        return f" Shown: the first of {verdicts.height} variants."
    why = {"better": "best", "worse": "worst"}.get(lead["verdict"], "one with the largest difference")
    return f" Shown: of {verdicts.height} variants the {why}."


def _draw_pairs(view: PageView) -> SlotContent:
    context, measure, verdict_frame = settings_of(view), measures.judged_by(view), _judge_cells(view).rows
    cell, base = _chosen(view)
    pairs = seed_pairs.pair_runs(runs_of(view).values, measure, cell, base)
    if pairs.is_empty():
        return SlotContent(message="No run of the two cells has finished with a value yet.")
    both = pairs.drop_nulls(["value", "baseline_value"]).height
    row = verdict_frame.row(by_predicate=pl.col("cell") == cell, named=True)
    own, other = context.appearance.names[cell], context.appearance.names[base]
    caption = (
        f"{measures.words(view)} of {other} (left) and {own} (right), a point per run. Lines join the runs of one "
        f"seed, {count(both, 'pair')} of {row['planned']} planned: solid where the variant is better, dotted where not."
    )
    if alone := pairs.height - both:
        caption += f" {count(alone, 'seed')} with a value of only one of the two."
    if row["method"] == "Welch":
        caption += " Fewer than three pairs: compared unpaired (Welch), by all points."
    legend = [
        Key(shared_style(color, dash), words, key)
        for (color, dash), words, key in ((seed_pairs.GAIN, "better", "gain"), (seed_pairs.LOSS, "not better", "loss"))
    ]
    figure = seed_pairs.draw_paired(pairs, context.appearance, (cell, base), measure, measures.title(view))
    answer = f"{own} against {other}: {row['verdict']}, {captions.size_of(row, measure)}."
    return SlotContent(
        figure, caption + _explain_choice(view), pairs, legend, answer=answer, measured=measures.columns(view)
    )


def _wins(view: PageView) -> SlotContent:
    whole, measure = settings_of(view), measures.judged_by(view)
    context = whole._replace(cells=whole.compared)
    kept, which = kept_cells(view), ""
    cells = [cell for cell in context.cells if kept is None or cell.cell in kept]
    cells_shown = [cell.cell for cell in cells]
    if len(cells_shown) > MOST_ROWS:
        base, _ = catch_user_error(lambda: _baseline(view))
        known = averages(context.store, context.grid, measure)
        chosen = {cell.cell: base for cell in context.cells} if view.address.baseline is not None and base else None
        cells_shown = worth_drawing(cells, chosen or context.baselines, known, measure, MOST_ROWS)
        which = captions.describe_selection(context, cells_shown, measure, base)
    rates = seed_pairs.win_rates(view.store, context.grid, measure, cells_shown)
    shared = rates.drop_nulls("value")
    if shared.is_empty():
        return SlotContent(message="No two cells have a finished seed in common yet.")
    stars = (
        " A star: on some seeds one of the two ended without a finite value; these are left out."
        if shared["unusable"].sum()
        else ""
    )
    caption = (
        f"Share of the seeds with values of both cells ({captions.n_words(shared)}) on which the row is better than "
        f"the column in {measures.words(view)}; a tie is half a win.{stars} No verdicts.{which}"
    )
    names = pl.col("cell", "against").replace_strict(dict(context.appearance.names), return_dtype=pl.String)
    data = rates.with_columns(names).rename({"value": "won"})
    return SlotContent(seed_pairs.draw_win_rates(rates, context.appearance), caption, data)


def _controls(view: PageView) -> Sequence[Control]:
    context = settings_of(view)
    own, theirs = (_options(view, named) for named in (view.address.baseline, view.address.cell))
    chosen, _ = catch_user_error(lambda: _chosen(view)[0])
    labels = {each.cell: each.label for each in context.cells}
    hint = "Why, and seed by seed"
    usual = labels.get(context.baseline or "")
    if context.header.get("baselines"):  # each cell has one of its own
        own, usual = {"": str(context.baseline_name), **own}, ""
    return (
        *measures.controls(view),
        Control("baseline", "Baseline", "choice", own, usual=usual),
        Control("cell", "Look closely at", "choice", theirs, hint, usual=labels.get(chosen or "")),
        *cost_controls(view),
    )


def _options(view: PageView, named: str | None) -> dict[str, str]:
    """Name every cell by its label; one that the address calls in another way keeps that name."""
    context = settings_of(view)
    cell = None if named is None else setting_of(view.store, context.grid, runs_of(view), named)
    return {
        named if named and each.cell == cell else each.label: context.appearance.names[each.cell]
        for each in context.compared
    }


COMPARE = AppPage(
    name="compare",
    title="Compare",
    letter="c",
    question="How does a variant differ from the baseline, is it real, and what does it cost?",
    address=CompareAddress,
    named=("measure",),
    controls=_controls,
    main=("measure", "baseline", "cell", "against"),
    check=check_costs,
    slots=(
        Slot("paired", "Seed by seed", _draw_pairs, half=True),
        Slot("why", "Why this verdict", _why, "words", half=True),
        Slot("differences", "Differences from the baseline", differences_of, sets="cell", half=True),
        Slot("verdicts", "Verdicts and costs", _list_cells, "table"),
        Slot("controls", CONTROLS, _list_controls, "table"),
        Slot("parts", TITLE, _show_two_parts, "table"),
        Slot("scatter", "Measure against cost", draw_costs, sets="cell"),
        Slot("parallel", "Axes and outcomes side by side", draw_axes),
        Slot("wins", "Which beats which", _wins),
    ),
)
