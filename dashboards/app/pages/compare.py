"""Page Compare: every variant against the baseline with its verdict; one variant seed by seed."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import polars as pl

from dashboards.app.measures import MeasuredAddress, judged_by, measure_controls, measure_title, measure_words, unit_of
from dashboards.app.page import AppPage, Key, PageView, Slot, SlotContent, grid_of, html, memoise
from dashboards.app.parts import WRAP, Control, columns, fold_column, in_order_of_size
from dashboards.data.answers import size_of
from dashboards.data.captions import (
    ICONS,
    describe_selection,
    difference_of,
    mark_verdict,
    n_words,
    name_cells,
    paired_words,
    summarise_verdicts,
    verdict_words,
)
from dashboards.data.formatting import NO_MARGIN, count
from dashboards.data.grid_context import GridContext, averages, in_order, worth_drawing
from dashboards.data.seed_averages import average_words, rope_words
from dashboards.data.user_errors import Unknown, catch_user_error
from dashboards.figures import forest, seed_pairs, win_rates
from dashboards.theme.styles import Style, dark_partners
from store.analysis.explain_verdict import why, why_text
from store.analysis.verdicts import GridMeasure, baseline_of, verdicts
from store.export.cells import CellTable, caption as cells_caption, cells, latex_cells, markdown_cells

MOST_CELLS: Final = 32
"""Cells of a matrix of all pairs; of more, the baseline and the best are compared."""
_MOST_PRINTED: Final = 300
_BEST: Final = "within noise of the best"


class CompareAddress(MeasuredAddress):
    """The measure, a baseline other than the grid's own, and the cell that is looked at closely."""

    baseline: str | None = None
    """The label of a cell, or its key."""
    cell: str | None = None
    """The same; None is the cell with the smallest p."""
    rows: Literal["32", "100", "400"] = "32"
    """Most rows of the forest plot."""


def judge_view(view: PageView) -> tuple[GridContext, GridMeasure, pl.DataFrame]:
    """The grid of a view with its measure and verdicts; the baseline is the grid's own or that of the address.

    Raises Unknown if there is no grid yet, or no such measurement; SpecError where it has no measure or baseline.
    """
    return grid_of(view), judged_by(view), _verdicts(view)


@memoise
def _verdicts(view: PageView) -> pl.DataFrame:
    about, measure = grid_of(view), judged_by(view)._asdict()
    found = verdicts(view.store, about.grid, baseline=view.address.baseline, measure=measure)
    return in_order(found, [cell.cell for cell in about.cells])


def _baseline(view: PageView, cell: str | None = None) -> str:
    """The baseline of `cell`; without a cell, the first one."""
    about = grid_of(view)
    if cell is not None and view.address.baseline is None:
        several: Mapping[str, str] = about.header.get("baselines") or {}
        return several.get(cell, cell) if several else baseline_of(view.store, about.grid, None)
    return baseline_of(view.store, about.grid, view.address.baseline)


def _baseline_name(view: PageView) -> str:
    """How sentences about all cells call their baseline."""
    about = grid_of(view)
    named = about.baseline_name if view.address.baseline is None else None
    return named or about.look.names[_baseline(view)]


def _chosen(view: PageView) -> str:
    """The key of the cell that is looked at closely. Raises Unknown for the baseline itself."""
    about, _, found = judge_view(view)
    if view.address.cell is None:
        if found.is_empty():
            raise Unknown("the grid has no cell beside the baseline")
        return str(found.sort("p", nulls_last=True, maintain_order=True)["cell"][0])
    cell = baseline_of(view.store, about.grid, view.address.cell)
    if cell == _baseline(view, cell):
        raise Unknown(f"{about.look.names[cell]} is a baseline, which has no verdict; choose another cell")
    return cell


def differences_of(view: PageView) -> SlotContent:
    """The forest plot of all variants against the baseline."""
    about, measure, found = judge_view(view)
    drawn = forest.differences(found, measure, int(view.address.rows))
    if drawn["difference"].is_null().all():
        return SlotContent(message="No difference from the baseline can be computed yet.")
    rope = rope_words(measure.rope, measure.scale, unit_of(view))
    caption = (
        f"{measure_words(view)} of each variant against {_baseline_name(view)}, {paired_words(drawn)}. "
        f"{forest.INTERVALS.format(f'{(1 - measure.alpha) * 100:g}')} Point: mean difference"
        f"{difference_of(measure.scale)}. "
        + (f"Grey band: differences within {rope}, which count as equal." if measure.rope else NO_MARGIN)
    )
    if drawn.height < found.height:
        caption += f" Shown: the {drawn.height} of {found.height} with the smallest p, best first."
    if forest.is_cut(drawn, measure):
        caption += " Bars that end at the edge of the axis go on beyond it."
    figure = forest.draw_differences(drawn, about.look, measure, {word: mark_verdict(word) for word in ICONS})
    hint = "A click on a point shows why it has its verdict."
    return SlotContent(figure, caption=caption, data=name_cells(drawn, about), hint=hint)


def verdict_rows(view: PageView) -> SlotContent:
    """The table of verdicts, with the reason of each."""
    about, measure, found = judge_view(view)
    rows = verdict_words(about, measure, by_effect(found, measure))
    said = (
        f"{summarise_verdicts(found, _baseline_name(view))} Compared by {measure_words(view)}, "
        f"{average_words(measure.scale)} over seeds, {paired_words(found)}; verdicts are corrected (Holm) for all "
        f"comparisons of the table.{' Differences are ratios of odds.' if measure.scale == 'logit' else ''}"
    )
    own = {**VERDICT_COLUMNS, "value": {"headerName": measure.name}}
    return SlotContent(caption=said, data=rows, columns=columns(rows, own))


VERDICT_COLUMNS: Final[dict[str, dict[str, Any]]] = {
    "variant": {"minWidth": 200, "flex": 1, "wrapText": True, "autoHeight": True},
    **{name: in_order_of_size() for name in ("difference", "interval", "p (Holm)")},
    "reason": fold_column(),
}
"""Parts of the columns of verdicts: texts are sorted as numbers, and the reason opens on a click."""


def by_effect(found: pl.DataFrame, measure: GridMeasure) -> pl.DataFrame:
    """Verdicts with the best difference first, and those without one last."""
    return found.sort("difference", descending=measure.better == "higher", nulls_last=True, maintain_order=True)


def _why(view: PageView) -> SlotContent:
    about, _, found = judge_view(view)
    row = _explain(view)
    cell = _chosen(view)
    names = about.look.names
    caption = f"{names[cell]} against {names[_baseline(view, cell)]}: {mark_verdict(row['verdict'])}."
    topics = [line.partition(": ")[::2] for line in why_text(row)]
    data = pl.DataFrame(topics, schema=["topic", "what it is"], orient="row")
    style = {"whiteSpace": "nowrap", "verticalAlign": "top"}
    rows = [html.Tr([html.Th(topic, scope="row", style=style), html.Td(said)]) for topic, said in topics]
    parts = [html.Table(html.Tbody(rows), className="plain")]
    return SlotContent(caption=caption + _explain_choice(view, found), data=data, parts=parts)


@memoise
def _explain(view: PageView) -> dict[str, Any]:
    measure = judged_by(view)._asdict()
    return why(view.store, grid_of(view).grid, _chosen(view), baseline=view.address.baseline, measure=measure)


def _explain_choice(view: PageView, found: pl.DataFrame) -> str:
    """How the cell was chosen that is looked at closely, where the address does not say it."""
    if view.address.cell is not None or found.height < 2:
        return ""
    tested = found["p"].count()
    return f" Shown: of {found.height} variants the {'one with the smallest p' if tested else 'first: none has a p'}."


def _draw_pairs(view: PageView) -> SlotContent:
    about, measure, judged_rows = judge_view(view)
    cell = _chosen(view)
    base = _baseline(view, cell)
    found = seed_pairs.pair_runs(view.store, about.grid, measure, cell, base)
    if found.is_empty():
        return SlotContent(message="No run of the two cells has finished with a value yet.")
    both = found.drop_nulls(["value", "baseline_value"]).height
    row = judged_rows.row(by_predicate=pl.col("cell") == cell, named=True)
    caption = (
        f"{measure_words(view)} of {about.look.names[base]} (left) and {about.look.names[cell]} (right), a "
        f"point per run. Lines join the runs of one seed, {count(both, 'pair')} of {row['planned']} planned: solid "
        "where the variant is better, dotted where not."
    )
    alone = found.height - both
    if alone:
        caption += f" {count(alone, 'seed')} with a value of only one of the two."
    if row["method"] == "Welch":
        caption += " Fewer than three pairs: compared unpaired (Welch), by all points."
    legend = [
        Key(Style(color, dark_partners([])[color], dash, "circle"), words, key)
        for (color, dash), words, key in ((seed_pairs.GAIN, "better", "gain"), (seed_pairs.LOSS, "not better", "loss"))
    ]
    figure = seed_pairs.draw_paired(found, about.look, (cell, base), measure, measure_title(view))
    answer = f"{about.look.names[cell]} against {about.look.names[base]}: {row['verdict']}, {size_of(row, measure)}."
    return SlotContent(figure, caption + _explain_choice(view, judged_rows), found, legend, answer=answer)


def _items(view: PageView) -> SlotContent:
    about, measure, judged_rows = judge_view(view)
    cell = _chosen(view)
    base = _baseline(view, cell)
    found = seed_pairs.items(view.store, about.grid, measure, (cell, base))
    if found.is_empty():
        return SlotContent(message=f"No values of single items are recorded for both cells in {measure.name}.")
    bars = why_text(_explain(view))[-1].partition(": ")[2]
    drawn = seed_pairs.thin_items(found).height
    some = f" Drawn: {drawn:,} of {found.height:,} items, evenly by rank." if drawn < found.height else ""
    caption = (
        f"{about.look.names[cell]} less {about.look.names[base]} in "
        f"{measure_words(view)}, a point per item, averaged over "
        f"{count(max(found['seeds'].to_list()), 'seed')}; dashed: the mean. "
        f"{bars[:1].upper()}{bars[1:]}.{some}{_explain_choice(view, judged_rows)}"
    )
    figure = seed_pairs.draw_items(found, about.look.styles[cell], f"difference in {measure.name}")
    return SlotContent(figure, caption=caption, data=found)


def _most(view: PageView, measure: GridMeasure) -> tuple[list[str], str]:
    """Choose the cells of a matrix of all pairs, with a sentence if some are left out."""
    about = grid_of(view)
    if len(about.cells) <= MOST_CELLS:
        return [cell.cell for cell in about.cells], ""
    known = averages(about.store, about.grid, measure)
    base, _ = catch_user_error(lambda: _baseline(view))
    kept = worth_drawing(about.cells, base, known, measure, MOST_CELLS)
    return kept, describe_selection(about, kept, measure, base)


def _wins(view: PageView) -> SlotContent:
    about, measure = grid_of(view), judged_by(view)
    cells_shown, which = _most(view, measure)
    found = win_rates.win_rates(view.store, about.grid, measure, cells_shown)
    if found["value"].null_count() == found.height:
        return SlotContent(message="No two cells have a finished seed in common yet.")
    shared = found.drop_nulls("value")
    stars = (
        " A star: on some seeds one of the two failed; these seeds are left out, so the rest is a biased sample."
        if shared["failed"].sum()
        else ""
    )
    caption = (
        f"Share of the seeds with values of both cells ({n_words(shared)}) on which the row is "
        f"better than the column in {measure_words(view)}; a tie is half a win.{stars} "
        f"Shares of few seeds are coarse, and no verdicts.{which}"
    )
    labels = {cell.cell: about.look.names[cell.cell] for cell in about.cells}
    data = found.with_columns(
        pl.col("cell", "against").replace_strict(labels, return_dtype=pl.String), pl.col("value").alias("won")
    ).drop("value")
    return SlotContent(win_rates.draw_win_rates(found, about.look), caption=caption, data=data)


def _cells(view: PageView) -> SlotContent:
    """Write the table for a paper: a row per cell; cells not shown to be worse than the best are bold."""
    about, measure = grid_of(view), judged_by(view)
    if len(about.cells) > _MOST_PRINTED:
        return SlotContent(message=f"A paper has no room for {len(about.cells):,} cells; verdicts are above.")
    word = f"{measure.name}:{measure.better}"
    found = cells(view.store, about.grid, [word], measure.point, "interval")
    data = _flat(found)
    files = {"tex": lambda: latex_cells(found), "md": lambda: markdown_cells(found)}
    return SlotContent(caption=cells_caption(found), data=data, columns=columns(data, {"cell": WRAP}), files=files)


def _flat(found: CellTable) -> pl.DataFrame:
    [column] = found.columns
    rows = [
        (
            label,
            each.mean,
            each.spread,
            f"{each.seeds} of {each.planned}",
            _BEST if each.best else "",
            each.missing or "",
        )
        for label, each in zip(found.labels, column.entries, strict=True)
    ]
    kinds = {"cell": pl.String, "mean": pl.Float64, "±": pl.Float64, "seeds": pl.String}
    return pl.DataFrame(rows, {**kinds, "best": pl.String, "missing": pl.String}, orient="row")


def _controls(view: PageView) -> Sequence[Control]:
    about = grid_of(view)
    own, theirs = (_options(view, given) for given in (view.address.baseline, view.address.cell))
    base = next((cell.label for cell in about.cells if cell.cell == about.baseline), None)
    cell, _ = catch_user_error(lambda: _chosen(view))
    usual = next((each.label for each in about.cells if each.cell == cell), None)
    found = [
        *measure_controls(view),
        Control("baseline", "Baseline", "choice", own, usual=base, resets=()),
        Control("cell", "Look closely at", "choice", theirs, "Why, seed by seed, item by item", usual=usual),
    ]
    rows = Control("rows", "At most", "choice", {n: f"{n} rows" for n in ("32", "100", "400")})
    return [*found, rows] if len(about.cells) > MOST_CELLS else found


def _options(view: PageView, given: str | None) -> dict[str, str]:
    """Every cell by its label, but for the one that the address calls in another way."""
    about = grid_of(view)
    cell = None if given is None else baseline_of(view.store, about.grid, given)
    return {given if given and each.cell == cell else each.label: about.look.names[each.cell] for each in about.cells}


COMPARE = AppPage(
    name="compare",
    title="Compare",
    letter="c",
    about="How does one variant differ from the baseline, and is it real?",
    address=CompareAddress,
    controls=_controls,
    main=("baseline", "cell"),
    slots=(
        Slot("paired", "Seed by seed", _draw_pairs, half=True),
        Slot("why", "Why this verdict", _why, "words", half=True),
        Slot("differences", "Differences from the baseline", differences_of, sets="cell", half=True),
        Slot("verdicts", "Verdicts", verdict_rows, "table"),
        Slot("items", "Item by item", _items, half=True),
        Slot("wins", "Which beats which", _wins, half=True),
        Slot("cells", "All cells, for a paper", _cells, "table"),
    ),
)
