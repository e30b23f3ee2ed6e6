"""The end of a report: what was measured, on what, with which code; how to read it; what could not be read."""

import json
from typing import Any

import polars as pl

from dashboards.data.captions import describe_measure
from dashboards.data.formatting import count, duration, join_words
from dashboards.data.grid_context import GridContext
from dashboards.data.seed_averages import rope_words
from dashboards.html.markup import details, plain_table, tag, text
from store import Store

_READING = (
    ("better, worse", "the interval, corrected for all comparisons of the table, lies beyond the band of equality"),
    ("tiny but real", "it excludes zero, but is not shown to leave the band"),
    ("equivalent", "it lies inside the band"),
    ("undecided", "none of these; the reason says how many seeds would decide"),
    ("no verdict", "comparing would mislead: too few pairs, failures on one side, unequal budgets or mixed code"),
)


def definition(about: GridContext) -> str:
    """List the measure, seeds, axes, rules and the base trial of the grid."""
    header = about.header
    rows = [("Seeds", _seeds(header["seeds"]))]
    measure = about.measure
    if measure is not None:
        rows.insert(0, ("Measure", describe_measure(measure, about.unit)))
        rows.append(("Counts as equal", f"within {rope_words(measure.rope, measure.scale, '')}"))
        rows.append(("False claims", _promise(measure.alpha, len(header["seeds"]))))
    rows += [(f"Axis {axis['name']}", f"{axis['path']}: {join_words(axis['labels'])}") for axis in header["axes"]]
    rows += [("Left out", f"{rule['count']}: {rule['reason']}") for rule in header.get("rules") or []]
    base = json.dumps(header["base"], indent=2, ensure_ascii=False)
    spec = details("The base trial as JSON", tag("pre", text(base)))
    return tag("div", tag("h3", "Definition") + _terms(rows) + spec, class_="block")


def _promise(alpha: float, seeds: int) -> str:
    """How often a table without any true difference claims one, and where that is not so (measured by simulation)."""
    words = f"at most {alpha * 100:g} % of tables have one, from 5 pairs on"
    if seeds >= 5:
        return words
    return (
        f"{words}. This grid plans {count(seeds, 'seed')}: where half of the runs learn the task and half do not, "
        "false claims were measured, at a level of 5 %, in 13 % of tables of 5 comparisons and 23 % of 20 with "
        "3 pairs, and in 4 % and 9 % with 4. Noise without such a gap stays within the level"
    )


def _seeds(seeds: list[int]) -> str:
    run = seeds == list(range(seeds[0], seeds[0] + len(seeds))) if len(seeds) > 2 else False
    return f"{seeds[0]} to {seeds[-1]}" if run else ", ".join(map(str, seeds))


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
    found = store.sql(_ENVIRONMENTS)
    if found.is_empty():
        return ""
    rows: list[list[Any]] = []
    for row in found.iter_rows(named=True):
        versions = json.loads(row["versions"] or "{}")
        told = ", ".join(f"{name} {version}" for name, version in versions.items())
        where = f"{row['device'] or 'unknown'}, {count(row['threads'] or 0, 'thread')}, path {row['path'] or 'unknown'}"
        rows.append([row["host"] or "unknown", where, told, (row["code"] or "unknown")[:12], f"{row['attempts']:,}"])
    spent = store.sql("SELECT coalesce(sum(wall_s), 0) AS s, count(*) AS n FROM attempt WHERE ended IS NOT NULL")
    words = f"{count(spent['n'][0], 'attempt')} ended, {duration(spent['s'][0])} of trial time in all."
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
