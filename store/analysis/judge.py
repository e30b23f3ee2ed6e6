"""Verdicts with their checks: was the component on, tuned, finished, free of misleading noise, and beyond its controls?

A headline is a claim about which no check answers *no* or *unknown*. If the stages in which a cell differs from its
baseline were off, the verdict says so, unless the cell is better or worse.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Final, NamedTuple

import duckdb
import polars as pl

from ablate.grid.errors import AblateError
from ablate.store.analysis.control_tests import control_tests, control_text
from ablate.store.analysis.finished_check import finished_checks
from ablate.store.analysis.knockout_rows import read_changes
from ablate.store.analysis.learned_runs import known_learned
from ablate.store.analysis.noise_caution import noise_caution
from ablate.store.analysis.on_check import on_checks
from ablate.store.analysis.once import once
from ablate.store.analysis.tuned_check import tuned_checks
from ablate.store.analysis.two_part import runs_that_learned
from ablate.store.analysis.verdicts import (
    GridMeasure,
    baseline_of,
    baselines_of,
    compared_runs,
    every_run,
    measure_of,
    verdicts,
)
from ablate.store.database.connection import transaction
from ablate.store.files.layout import Layout
from ablate.store.statistics.check import CHECK_NAMES, Check, CheckName
from ablate.store.statistics.verdict import CLAIMS, MIN_PAIRS
from ablate.store.store import Store

_LOG: Final = logging.getLogger(__name__)

_DOUBTS: Final[Sequence[CheckName]] = ("on", "control", "noise", "finished", "tuned")
"""Checks in the order in which a doubt matters: a "no" before an "unknown"."""
_REPLACED: Final = ("equivalent", "undecided", "real, size unproven")
NOTHING_LEARNED: Final = "no run of either learned the task, so this is no comparison of how well it is solved"


class JudgedGrid(NamedTuple):
    """The verdicts of a grid, and the checks of each cell in the order of `CHECK_NAMES`."""

    rows: pl.DataFrame
    """The columns of `verdicts`, an answer per check, `doubt` (the one that matters most, or null) and `headline`."""
    checks: Mapping[str, Sequence[Check]]


def judge(
    store: Store, grid: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> JudgedGrid:
    """Return the verdicts of a grid with their checks. Arguments and errors are those of `verdicts`."""
    return _judge(store, grid, measure_of(store, grid, measure), baseline)


@once
def _judge(store: Store, grid: str, by: GridMeasure, baseline: str | None) -> JudgedGrid:
    changes = by._asdict()
    rows = verdicts(store, grid, baseline=baseline, measure=changes)
    on = on_checks(store, grid, baseline=baseline, measure=changes)
    tuned = tuned_checks(store, grid, baseline=baseline, measure=changes)
    finished = finished_checks(store, grid, baseline=baseline, measure=changes)
    caution = noise_caution(store, grid, baseline=baseline, measure=changes).caution
    known, learned = known_learned(store, grid, by), defaultdict[str, list[bool]](list)
    for cell, trial in compared_runs(store, grid, by, baseline=baseline).values.select("cell", "trial").rows():
        learned[cell] += [known[trial]] if trial in known else []
    tests = {row["cell"]: row for row in control_tests(store, grid, baseline=baseline, measure=changes).to_dicts()}
    untested = _untested_controls(store.grid(grid), by, baseline_of(store, grid, baseline) if baseline else None)
    checks: dict[str, Sequence[Check]] = {}
    for row in rows.iter_rows(named=True):
        cell = row["cell"]
        better = (row["difference"] or 0) < 0 if by.better == "lower" else (row["difference"] or 0) > 0
        checks[cell] = (
            on[cell],
            tuned[cell],
            finished[cell],
            _check_noise(row, _part_learned(learned[cell], learned[row["baseline"]]) or caution),
            _check_control(row, None if untested else tests.get(cell), untested, better=better),
        )
    return JudgedGrid(add_checks(rows, checks), checks)


def _check_noise(row: Mapping[str, Any], caution: str) -> Check:
    runs = min(row["runs"], row["baseline_runs"])
    if runs < MIN_PAIRS:
        return Check("noise", "unknown", f"{runs} runs show no shape of the noise; {MIN_PAIRS} do", runs)
    if caution:
        return Check("noise", "no", caution, runs, "nothing learned" if caution == NOTHING_LEARNED else "")
    return Check("noise", "yes", "no sign of two groups of runs, a long tail, or skew with unequal spread", runs)


def _part_learned(ours: Sequence[bool], theirs: Sequence[bool]) -> str:
    """How many runs of a comparison learned, if it was a part of those of a cell, or none at all; empty otherwise."""
    if ours and theirs and not any((*ours, *theirs)):
        return NOTHING_LEARNED
    if not any(0 < sum(each) < len(each) for each in (ours, theirs)):
        return ""
    counts = f"{sum(ours)} of {len(ours)} runs learned, and {sum(theirs)} of {len(theirs)} of the baseline"
    return f"{counts}: the mean compares how often as much as how well"


def _untested_controls(header: Mapping[str, Any], by: GridMeasure, baseline: str | None) -> str:
    """Why the controls that a plan names say nothing about a comparison; empty if they do."""
    if header.get("logged"):
        return "the runs were logged, so no plan knows their simplest explanations"
    if header.get("controls") is None:
        return "an earlier release planned this grid; the next `ablate run` names controls"
    planned = header["measure"]
    if (by.name, dict(by.point)) != (planned["name"], planned["point"]):
        return "controls are planned for the measure of the grid, and another one is compared"
    if baseline not in (None, header["baseline"]):
        return "controls are planned for the baseline of the grid, and another one is compared"
    return ""


def _check_control(row: Mapping[str, Any], test: Mapping[str, Any] | None, untested: str, *, better: bool) -> Check:
    if row["verdict"] not in CLAIMS:
        return Check("control", "-", "no difference is shown that a control could explain")
    if untested:
        return Check("control", "unknown", untested)
    if test is None:
        return Check("control", "-", "no simpler explanation is known")
    return Check("control", test["beyond"], control_text(test, better=better), test["p_holm"])


def add_checks(rows: pl.DataFrame, checks: Mapping[str, Sequence[Check]]) -> pl.DataFrame:
    """Return rows of `verdicts` as those of a `JudgedGrid`; a variant that was off has the verdict *off*.

    Where no run learned, nothing is equivalent and more seeds decide nothing, so these words become *no verdict*.
    """
    words, reasons, doubts, headlines = [], [], [], []
    for cell, word, reason in rows.select("cell", "verdict", "reason").iter_rows():
        own = {each.name: each for each in checks[cell]}
        off = own["on"].word == "off" and word in _REPLACED
        idle = own["noise"].word == "nothing learned" and word in ("equivalent", "undecided") and not off
        words.append("off" if off else "no verdict" if idle else word)
        reasons.append(own["on"].reason if off else own["noise"].reason if idle else reason)
        claim = word in (*CLAIMS, "equivalent") and not off and not idle
        open_ = [own[name] for answer in ("no", "unknown") for name in _DOUBTS if own[name].answer == answer]
        doubts.append(f"{open_[0].name}: {open_[0].reason}" if claim and open_ else None)
        headlines.append(claim and not open_)
    answers = [
        pl.Series(name, [checks[cell][at].answer for cell in rows["cell"]], pl.String)
        for at, name in enumerate(CHECK_NAMES)
    ]
    return rows.with_columns(
        pl.Series("verdict", words, pl.String),
        pl.Series("reason", reasons, pl.String),
        *answers,
        pl.Series("doubt", doubts, pl.String),
        pl.Series("headline", headlines, pl.Boolean),
    )


@cache
def rules() -> str:
    """The hash of the code that judges; verdicts that other code stored are computed again."""
    digest = blake2b(digest_size=8)
    for package in ("ablate.store.analysis", "ablate.store.statistics"):
        for file in sorted(files(package).iterdir(), key=lambda each: each.name):
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()


def conclude(layout: Layout, connection: duckdb.DuckDBPyConnection) -> None:
    """Bring the tables `verdict` and `verdict_check` in line with the results; the caller holds the database.

    A grid that cannot be judged has no rows; the commands about it say why. An error in one grid is logged.
    """
    if connection.execute("SELECT value FROM meta WHERE name = 'judged'").fetchall() == [(rules(),)]:
        return
    store = Store(layout, connection, None)
    stored = dict(connection.execute("SELECT DISTINCT grid, digest FROM verdict").fetchall())
    tables = {grid: _judge_again(store, grid, stored.get(grid)) for grid in store.grids()}
    with transaction(connection):
        for grid in stored.keys() | tables.keys():
            frames = tables.get(grid)
            if frames is not None and not frames:
                continue
            for table in ("verdict", "verdict_check"):
                connection.execute(f"DELETE FROM {table} WHERE grid = $grid", {"grid": grid})
            for table, rows in (frames or {}).items():
                connection.register("derived", rows.to_arrow())
                connection.execute(f"INSERT INTO {table} BY NAME FROM derived")
                connection.unregister("derived")
        connection.execute("DELETE FROM meta WHERE name = 'judged'")
        connection.execute("INSERT INTO meta VALUES ('judged', $rules)", {"rules": rules()})


def _judge_again(store: Store, grid: str, stored: str | None) -> dict[str, pl.DataFrame] | None:
    """The rows of a grid by table; none if those that are stored still hold, None if it cannot be judged."""
    try:
        digest = _digest(store, grid)
        if digest == stored:
            return {}
        judged = judge(store, grid)
    except AblateError:
        return None
    except Exception:  # noqa: BLE001  # told and logged; the results of other grids are read
        _LOG.exception("the grid %s cannot be judged", grid)
        return None
    verdict = judged.rows.with_columns(grid=pl.lit(grid), digest=pl.lit(digest))
    checks = [(grid, cell, *check) for cell, own in judged.checks.items() for check in own]
    return {
        "verdict": verdict.select(_VERDICT_COLUMNS),
        "verdict_check": pl.DataFrame(checks, _CHECK_COLUMNS, orient="row"),
    }


_IN_TRAINING: Final = """
SELECT count(*), sum(hash(trial, step, point, value)::HUGEINT)::VARCHAR FROM v_evaluation
WHERE name = $name AND trial IN (SELECT trial FROM grid_trial WHERE grid = $grid)
"""
"""All values of a measure, also those before the end of training."""


def _digest(store: Store, grid: str) -> str:
    """The hash of everything that the verdicts of a grid are computed from. Raises as `verdicts` does."""
    by = measure_of(store, grid, None)
    baselines_of(store, grid, None)
    parts = [rules(), store.grid(grid), every_run(store, grid, by).rows(), read_changes(store, grid, by)]
    parts += store.sql(_IN_TRAINING, {"grid": grid, "name": by.name}).rows()
    parts.append(sorted(runs_that_learned(store, grid, by, None) or ()))
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


_VERDICT_COLUMNS: Final = (
    *(
        "grid",
        "cell",
        "label",
        "operator",
        "baseline",
        "verdict",
        "value",
        "baseline_value",
        "difference",
        "low",
        "high",
    ),
    *("percent", "p", "p_holm", "pairs", "planned", "reason", "doubt", "headline", "digest"),
)
_CHECK_COLUMNS: Final = {
    **dict.fromkeys(("grid", "cell", "check", "answer", "reason"), pl.String),
    "number": pl.Float64,
    "word": pl.String,
}
