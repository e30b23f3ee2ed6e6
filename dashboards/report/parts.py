"""The parts of a report beside its figures: progress, verdicts, failures, definition, environment."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl

from ablate.dashboards.data.captions import (
    CLAIMS,
    ICONS,
    describe_measure,
    name_cells,
    paired_words,
    progress_words,
    verdict_words,
)
from ablate.dashboards.data.control_words import CONTROLS, control_words, describe_controls
from ablate.dashboards.data.formatting import (
    MOST_LISTED,
    NO_MARGIN,
    count,
    duration,
    in_odds,
    join_words,
    number,
    write_minus,
)
from ablate.dashboards.data.grid_context import GridContext
from ablate.dashboards.data.seed_averages import average_words, rope_words
from ablate.dashboards.data.two_part_rows import TITLE, describe_parts, two_part_rows
from ablate.dashboards.data.user_errors import sentence
from ablate.dashboards.figures.forest import draw_rates, rates
from ablate.dashboards.figures.states import STATES, states, totals
from ablate.dashboards.html.blocks import MOST_DATA_ROWS, FigureBlock, cell_name, csv, draw_all
from ablate.dashboards.html.markup import (
    HtmlColumn,
    HtmlEntry,
    copy_button,
    details,
    plain_table,
    sortable_table,
    tag,
    text,
)
from ablate.store import Store
from ablate.store.analysis.control_tests import control_rows
from ablate.store.analysis.headline import LEGEND, MARKS
from ablate.store.analysis.judge import JudgedGrid
from ablate.store.analysis.noise_caution import noise_caution
from ablate.store.analysis.tuned_verdicts import nuisance_axes
from ablate.store.analysis.two_part import two_part
from ablate.store.analysis.verdicts import GridMeasure, baseline_rows, compared_runs
from ablate.store.database.queries import baseline_cells
from ablate.store.statistics.check import CHECK_NAMES


def overview(context: GridContext, progress: pl.DataFrame) -> str:
    """The sentence, the bar, and what the grid is."""
    done, header = totals(progress), context.header
    shares = "".join(
        f'<span class="{state}" style="width:{100 * done[state] / max(done["planned"], 1):.3f}%"></span>'
        for state in STATES
        if done.get(state)
    )
    trials = states(context.store, context.grid, [cell.cell for cell in context.cells], context.measure)
    not_finite = trials.filter(pl.col("state") == "not finite").height
    pruned = sum(rule["count"] for rule in header.get("rules") or [])
    unread = max(0, header["trials"] - done["planned"])  # their lines of the plan cannot be read
    done["planned"] += unread
    words = [f"{progress_words(done)} {count(len(context.cells), 'cell')}, {count(len(header['seeds']), 'seed')}."]
    if not_finite and context.measure is not None:
        words.append(f"Of those done {not_finite:,} ended with {context.measure.name} that is no finite number.")
    words += [f"Rules left out {count(pruned, 'combination')}."] if pruned else []
    bases = () if nuisance_axes(header) else baseline_cells(header)  # the table names the level of a tuned one
    labels = [cell.label for cell in context.cells if cell.cell in bases]
    are = "The baseline is" if len(labels) == 1 else "Baselines are"
    words += [f"{are} {'; '.join(labels)}."] if labels and context.baseline_name != labels[0] else []
    return tag("div", shares, class_="bar", aria_hidden="true") + tag("p", text(" ".join(words)), class_="meta")


def show_failures(context: GridContext, key: str) -> str:
    """The section, or nothing where nothing failed."""
    failures = context.store.failures(context.grid)
    if failures.is_empty():
        return ""
    total = int(failures["n"].sum())
    words = f"{count(total, 'failed trial')} of {count(failures.height, 'kind')}. Averages leave failed trials out."
    heading = tag("h3", "Failures") + tag("p", text(words), class_="caption")
    kinds = "".join(_kind(row, context) for row in failures.iter_rows(named=True))
    return tag("div", heading + kinds, class_="block failures") + draw_all("Failure rates", _rates(context, key))


def _kind(row: Mapping[str, Any], context: GridContext) -> str:
    reason = str(row["reason"] or "unknown").replace("out_of_memory", "ran out of memory")
    labels = [context.appearance.names[cell.cell] for cell in context.cells if cell.label in row["labels"]]
    more = f" and {len(labels) - MOST_LISTED} more" if len(labels) > MOST_LISTED else ""
    where = text(f" · {', '.join(labels[:MOST_LISTED])}{more}")
    html = tag("p", tag("strong", text(f"{count(row['n'], 'trial')}: {reason}")) + where)
    html += tag("p", text(row["message"]), class_="note") if row["message"] else ""
    html += tag("p", text(f"Example: trial {row['example']}"), class_="note")
    html += details("Traceback", tag("pre", text(row["traceback"]))) if row["traceback"] else ""
    return tag("div", html, class_="state alarm")


def _rates(context: GridContext, key: str) -> Iterator[FigureBlock]:
    if context.measure is not None and context.baseline is not None:
        shares = rates(context.store, context.grid, [cell.cell for cell in context.cells])
        caption = "Share of the ended trials of each variant that failed. Bar: 95 % Wilson interval."
        panels = [(None, draw_rates(shares, context.appearance))]
        yield FigureBlock(f"{key}-rates", "Failure rates", caption, panels, name_cells(shares, context))


_RANK: Final = {
    word: rank
    for rank, word in enumerate(
        ("better", "real, size unproven", "equivalent", "off", "undecided", "worse", "no verdict")
    )
}


def verdict_table(context: GridContext, measure: GridMeasure, judged: JudgedGrid) -> str:
    """The table, its caption and a button that copies all of its columns."""
    average, verdicts = average_words(measure.scale), judged.rows
    columns = [
        HtmlColumn("Variant"),
        HtmlColumn("Verdict"),
        HtmlColumn("Checks", "", LEGEND),
        HtmlColumn(measure.name, "number", f"{average} over the runs that are compared"),
        HtmlColumn(f"Difference{in_odds(measure.scale)}", "number", f"from {context.baseline_name}"),
        HtmlColumn(f"{(1 - measure.alpha) * 100:g} % interval", "number", "t interval of this comparison alone"),
        HtmlColumn("Holm p", "number", "adjusted over all comparisons of the table"),
        HtmlColumn("Pairs", "number minor", "seeds on which both groups finished, of those planned"),
        HtmlColumn("Reason", "why"),
    ]
    shown = verdicts.head(MOST_DATA_ROWS)
    words = verdict_words(context, measure, shown, judged.checks)
    named = words.iter_rows(named=True)
    rows = [_row(context, measure, row, each) for row, each in zip(shown.iter_rows(named=True), named, strict=True)]
    table = sortable_table(columns, rows, caption=f"Verdicts of {context.grid}", pinned=_baselines(context, measure))
    rope = rope_words(measure.rope, measure.scale, context.unit)
    equal = f"Differences within {rope} count as equal." if measure.rope else NO_MARGIN
    caption = (
        f"{describe_measure(measure, context.unit)}, {average} over seeds, compared with {context.baseline_name}, "
        f"{paired_words(verdicts)}. {equal} The interval is that of one comparison; the verdict is corrected for all "
        "of them."
    )
    if shown.height < verdicts.height:
        caption += (
            f" Shown: the {shown.height} of {verdicts.height:,} variants with the best difference; the copy and "
            "`ablate table` have all."
        )
    heading = tag("h3", "Verdicts") + tag("p", text(caption), class_="caption")
    actions = tag("div", copy_button(csv(verdicts)), class_="actions")
    noise = noise_caution(context.store, context.grid).sentences
    said = (LEGEND, *noise)
    cautions = "".join(tag("p", text(write_minus(sentence(each))), class_="caption") for each in said)
    answers = plain_table(["variant", *CHECK_NAMES], words.select("variant", *CHECK_NAMES).rows())
    checks = details("The checks of each variant in sentences", answers)
    return tag("div", heading + table + cautions + checks + actions, class_="block verdicts")


def two_parts(context: GridContext, measure: GridMeasure) -> str:
    """How often and how well the cells of a grid learned; nothing if all runs did."""
    table = two_part(context.store, context.grid)
    if table is None:
        return ""
    heading = tag("h3", TITLE) + tag("p", text(describe_parts(table, measure)), class_="caption")
    rows = two_part_rows(context, measure, table)
    return tag("div", heading + plain_table(rows.columns, rows.rows()), class_="block two-parts")


def controls(context: GridContext, measure: GridMeasure, judged: JudgedGrid) -> str:
    """How variants differ from each of their controls; nothing if none is claimed to differ, or has controls."""
    claimed = judged.rows.filter(pl.col("verdict").is_in([*CLAIMS]))["cell"].to_list()
    rows = control_words(context, measure, control_rows(context.store, context.grid), claimed)
    if rows.is_empty():
        return ""
    heading = tag("h3", CONTROLS) + tag("p", text(describe_controls(measure)), class_="caption")
    table = plain_table(rows.columns, rows.head(MOST_DATA_ROWS).rows())
    return tag("div", heading + table, class_="block controls")


def _row(
    context: GridContext, measure: GridMeasure, row: Mapping[str, Any], words: Mapping[str, Any]
) -> list[HtmlEntry]:
    icon, kind = ICONS[row["verdict"]]
    verdict = f'<span class="verdict {kind}"><i aria-hidden="true">{icon}</i>{text(row["verdict"])}</span>'
    g = "" if row["hedges_g"] is None else f" Hedges g {number(row['hedges_g'], 2)}."
    where = "in {:.0f} % of all pairs of runs" if row["method"] == "Welch" else "on {:.0f} % of the seeds"
    beats = "" if row["superiority"] is None else f" Better {where.format(row['superiority'] * 100)}."
    marks = zip(CHECK_NAMES, words["checks"], strict=True)
    checks = "".join(tag("abbr", text(mark), title=f"{name}: {words[name]}", data_mark=mark) for name, mark in marks)
    return [
        HtmlEntry(cell_name(row["cell"], row["label"], context.appearance), context.appearance.names[row["cell"]]),
        HtmlEntry(verdict, _RANK[row["verdict"]]),
        HtmlEntry(tag("span", checks, class_="checks"), words["checks"].count(MARKS["yes"])),
        HtmlEntry(text(_value(row["value"], measure)), row["value"]),
        HtmlEntry(text(words["difference"]), row["difference"]),
        HtmlEntry(text(words["interval"]), row["low"]),
        HtmlEntry(text(words["p (Holm)"]), row["p_holm"]),
        HtmlEntry(words["pairs"], row["pairs"]),
        HtmlEntry(details("Why", tag("p", text(f"{sentence(row['reason'])}{g}{beats}"))), row["reason"]),
    ]


def _value(value: float | None, measure: GridMeasure) -> str:
    """Small differences of a measure that is not on the log scale are in its last digits."""
    return number(value, 3 if measure.scale == "log" else 4, padded=True)


def _baselines(context: GridContext, measure: GridMeasure) -> list[list[HtmlEntry]]:
    baselines = {
        row["cell"]: row for row in baseline_rows(compared_runs(context.store, context.grid, measure), measure)
    }
    rows = []
    for cell in context.cells:
        if base := baselines.get(cell.cell):
            pairs = f"{base['runs']} of {base['planned']}"
            texts = ["baseline", "", text(_value(base["value"], measure)), "", "", "", pairs, ""]
            rows.append([HtmlEntry(cell_name(cell.cell, cell.label, context.appearance)), *map(HtmlEntry, texts)])
    return rows


_READING = (
    ("better, worse", "the interval, corrected for all comparisons of the table, lies beyond the band of equality"),
    ("real, size unproven", "it excludes zero and reaches both into the band and beyond it"),
    ("equivalent", "it lies inside the band, with or without zero"),
    ("off", "the parts in which it differs did nothing: leaving them out changes less than a tenth of the band"),
    ("undecided", "none of these; the reason estimates the seeds that would decide, if any number would"),
    ("no verdict", "comparing would mislead: too few pairs, nothing learned, unequal failures or budgets, mixed code"),
)


def definition(context: GridContext) -> str:
    """List the measure, seeds, axes, rules and the base trial of the grid."""
    header, seeds = context.header, context.header["seeds"]
    run = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    rows = [("Seeds", f"{seeds[0]} to {seeds[-1]}" if run else ", ".join(map(str, seeds)))]
    measure = context.measure
    if measure is not None:
        rows.insert(0, ("Measure", describe_measure(measure, context.unit)))
        rows.append(("Counts as equal", f"within {rope_words(measure.rope, measure.scale, '')}"))
        rows.append(("False claims", f"at most {measure.alpha * 100:g} % of tables have one, from 5 pairs on"))
    for axis in header["axes"]:
        tuned = ", tuned" if axis.get("tune") else ""
        rows.append((f"Axis {axis['name']}{tuned}", f"{axis['path']}: {join_words(axis['labels'])}"))
    rows += [("Left out", f"{rule['count']}: {rule['reason']}") for rule in header.get("rules") or []]
    base = json.dumps(header["base"], indent=2, ensure_ascii=False)
    spec = details("The base trial as JSON", tag("pre", text(base)))
    return tag("div", tag("h3", "Definition") + _terms(rows) + spec, class_="block")


def _terms(rows: list[tuple[str, str]]) -> str:
    return tag("dl", "".join(tag("dt", text(term)) + tag("dd", text(meaning)) for term, meaning in rows))


def reading() -> str:
    """How to read a verdict."""
    paragraph = (
        "Trials are paired by seed: a seed fixes the data order, the evaluation sample and the initial weights, so a "
        "variant and its baseline differ by the change and by little else. What decides is the mean difference over "
        "the pairs with its t interval. All comparisons of a table share one error rate (Holm). Bars and bands show "
        "the spread over seeds; they say nothing about other tasks, sizes or data."
    )
    heading = tag("h3", "How to read a verdict") + tag("p", text(paragraph), class_="note")
    return tag("div", heading + _terms(list(_READING)))


def environment(store: Store) -> str:
    """On what the trials ran, and how long."""
    environments = store.sql(_ENVIRONMENTS)
    if environments.is_empty():
        return ""
    rows: list[list[Any]] = []
    for row in environments.iter_rows(named=True):
        versions = json.loads(row["versions"] or "{}")
        told = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        where = f"{row['device'] or 'unknown'}, {count(row['threads'] or 0, 'thread')}, path {row['path'] or 'unknown'}"
        rows.append([row["host"] or "unknown", where, told, (row["code"] or "")[:12], f"{row['attempts']:,}"])
    n, ended, spent = store.sql("SELECT count(*), count(ended), coalesce(sum(wall_s), 0) FROM attempt").row(0)
    without_end = f", {n - ended} of them without an end" if ended < n else ""
    words = f"{count(n, 'attempt')}{without_end}, {duration(spent)} of trial time in all."
    table = plain_table(["host", "device", "versions", "code", "attempts"], rows)
    data = store.sql("SELECT DISTINCT data::VARCHAR FROM attempt WHERE data IS NOT NULL ORDER BY data LIMIT 5")
    kept = [entry for entry in map(json.loads, data.to_series()) if entry]
    shown = "".join(details("Data as recorded", tag("pre", text(json.dumps(entry, indent=2)))) for entry in kept)
    return tag("div", tag("h3", "Environment") + tag("p", text(words), class_="note") + table + shown, class_="block")


def quarantine(store: Store) -> str:
    """Files that are not served, with the reason; nothing where all are."""
    bad = pl.concat([store.bad_shards(), store.bad_records()], how="diagonal").select("file", "reason").rows()
    if not bad:
        return ""
    n = len(bad)
    words = f"{count(n, 'file')} could not be read and {'is' if n == 1 else 'are'} not served; the rest is shown."
    table = plain_table(["file", "reason"], bad)
    state = tag("div", tag("p", text(words)), class_="state alarm")
    return tag("div", tag("h3", "Quarantined files") + state + table, class_="block", id="quarantine")


_ENVIRONMENTS = """
SELECT host, device, threads, path, versions::VARCHAR AS versions, code, count(*) AS attempts
FROM attempt GROUP BY ALL ORDER BY attempts DESC, host, device, threads, path, versions, code LIMIT 20
"""
