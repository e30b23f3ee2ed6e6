"""The verdicts of a grid: one sentence, and a table that sorts and copies."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from dashboards.data.captions import ICONS, describe_measure, paired_words, verdict_words
from dashboards.data.formatting import NO_MARGIN, in_odds, number
from dashboards.data.grid_context import GridContext, averages
from dashboards.data.seed_averages import average_words, rope_words
from dashboards.html.blocks import cell_name, csv
from dashboards.html.markup import HtmlColumn, HtmlEntry, copy_button, details, sortable_table, tag, text
from store.analysis.verdicts import GridMeasure

_RANK: Final = {"better": 0, "tiny but real": 1, "equivalent": 2, "undecided": 3, "worse": 4, "no verdict": 5}


def verdict_table(about: GridContext, measure: GridMeasure, verdicts: pl.DataFrame) -> str:
    """The table, its caption and a button that copies all of its columns."""
    average = average_words(measure.scale)
    columns = [
        HtmlColumn("Variant"),
        HtmlColumn("Verdict"),
        HtmlColumn(measure.name, "number", f"{average} over the runs that are compared"),
        HtmlColumn(f"Difference{in_odds(measure.scale)}", "number", f"from {about.baseline_name}"),
        HtmlColumn(f"{(1 - measure.alpha) * 100:g} % interval", "number minor", "t interval of this comparison alone"),
        HtmlColumn("Holm p", "number minor", "adjusted over all comparisons of the table"),
        HtmlColumn("Pairs", "number minor", "seeds on which both arms finished, of those planned"),
        HtmlColumn("Reason", "why"),
    ]
    words = verdict_words(about, measure, verdicts).iter_rows(named=True)
    rows = [_row(about, measure, row, told) for row, told in zip(verdicts.iter_rows(named=True), words, strict=True)]
    pinned = _baseline(about, measure, len(columns))
    table = sortable_table(columns, rows, caption=f"Verdicts of {about.grid}", pinned=pinned)
    actions = tag("div", copy_button(csv(verdicts)), class_="actions")
    heading = tag("h3", "Verdicts") + tag("p", text(_caption(about, measure, verdicts)), class_="caption")
    return tag("div", heading + table + actions, class_="block verdicts")


def _caption(about: GridContext, measure: GridMeasure, verdicts: pl.DataFrame) -> str:
    rope = rope_words(measure.rope, measure.scale, about.unit)
    equal = f"Differences within {rope} count as equal." if measure.rope else NO_MARGIN
    return (
        f"Judged by {describe_measure(measure, about.unit)}, {average_words(measure.scale)} over seeds, compared with "
        f"{about.baseline_name}, {paired_words(verdicts)}. {equal} The interval "
        "is that of one comparison; the verdict is corrected for all of them."
    )


def _row(about: GridContext, measure: GridMeasure, row: Mapping[str, Any], words: Mapping[str, Any]) -> list[HtmlEntry]:
    icon, kind = ICONS[row["verdict"]]
    verdict = f'<span class="verdict {kind}"><i aria-hidden="true">{icon}</i>{text(row["verdict"])}</span>'
    return [
        HtmlEntry(cell_name(row["cell"], row["label"], about.look), about.look.names[row["cell"]]),
        HtmlEntry(verdict, _RANK[row["verdict"]]),
        HtmlEntry(text(_value(row["value"], measure)), row["value"]),
        HtmlEntry(text(words["difference"]), row["difference"]),
        HtmlEntry(text(words["interval"]), row["low"]),
        HtmlEntry(text(words["p (Holm)"]), row["p_holm"]),
        HtmlEntry(words["pairs"], row["pairs"]),
        HtmlEntry(details("Why", tag("p", text(_sentence(row)))), row["reason"]),
    ]


def _value(value: float | None, measure: GridMeasure) -> str:
    """Small differences of a measure that is not on the log scale are in its last digits."""
    return number(value, 3 if measure.scale == "log" else 4, padded=True)


def _sentence(row: Mapping[str, Any]) -> str:
    """The store's reason, and the effect size that the table has no room for."""
    reason = str(row["reason"]).rstrip(".")
    g = "" if row["hedges_g"] is None else f" Hedges g {number(row['hedges_g'], 2)}."
    where = "in {:.0f} % of all pairs of runs" if row["method"] == "Welch" else "on {:.0f} % of the seeds"
    beats = "" if row["superiority"] is None else f" Better {where.format(row['superiority'] * 100)}."
    return f"{reason[:1].upper()}{reason[1:]}.{g}{beats}"


def _baseline(about: GridContext, measure: GridMeasure, width: int) -> list[list[HtmlEntry]]:
    label = next((cell.label for cell in about.cells if cell.cell == about.baseline), None)
    if about.baseline is None or label is None:
        return []
    found = averages(about.store, about.grid, measure).filter(pl.col("cell") == about.baseline)
    value, runs = found.select("value", "n").row(0) if found.height else (None, 0)
    row = [HtmlEntry(cell_name(about.baseline, label, about.look)), HtmlEntry("baseline")]
    row += [HtmlEntry(text(_value(value, measure))), *[HtmlEntry("")] * (width - 3)]
    row[6] = HtmlEntry(f"{runs} of {len(about.header['seeds'])}")
    return [row]
