"""Verdicts with their checks: was the component on, tuned, finished, free of misleading noise, and beyond its controls?

A headline is a claim about which no check answers *no* or *unknown*. If the stages in which a cell differs from its
baseline were off, the verdict says so, unless the cell is better or worse.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import duckdb
import polars as pl

from ablate.grid.errors import AblateError
from ablate.store.analysis.control_tests import control_tests, control_text
from ablate.store.analysis.finished_check import finished_checks
from ablate.store.analysis.knockout_rows import read_changes
from ablate.store.analysis.noise_caution import noise_caution
from ablate.store.analysis.on_check import on_checks
from ablate.store.analysis.once import once
from ablate.store.analysis.tuned_check import tuned_checks
from ablate.store.analysis.verdicts import GridMeasure, baselines_of, every_run, measure_of, verdicts
from ablate.store.database.connection import transaction
from ablate.store.files.layout import Layout
from ablate.store.statistics.check import CHECK_NAMES, Check, CheckName
from ablate.store.statistics.verdict import CLAIMS, MIN_PAIRS
from ablate.store.store import Store

RULES: Final = 1
"""Release of the rules; verdicts that another release stored are computed again."""

_DOUBTS: Final[Sequence[CheckName]] = ("on", "control", "noise", "finished", "tuned")
"""Checks in the order in which a doubt matters: a "no" before an "unknown"."""
_REPLACED: Final = ("equivalent", "undecided", "real, size unproven")


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
    tests = {row["cell"]: row for row in control_tests(store, grid, baseline=baseline, measure=changes).to_dicts()}
    known = store.grid(grid).get("controls") is not None
    checks: dict[str, Sequence[Check]] = {}
    for row in rows.iter_rows(named=True):
        cell = row["cell"]
        better = (row["difference"] or 0) < 0 if by.better == "lower" else (row["difference"] or 0) > 0
        checks[cell] = (
            on[cell],
            tuned[cell],
            finished[cell],
            _check_noise(row, caution),
            _check_control(row, tests.get(cell), known=known, better=better),
        )
    return JudgedGrid(_with_checks(rows, checks), checks)


def _check_noise(row: Mapping[str, Any], caution: str) -> Check:
    runs = min(row["runs"], row["baseline_runs"])
    if runs < MIN_PAIRS:
        return Check("noise", "unknown", f"{runs} runs show no shape of the noise; {MIN_PAIRS} do", runs)
    if caution:
        return Check("noise", "no", caution, runs)
    return Check("noise", "yes", "no sign of two groups of runs, a long tail, or skew with unequal spread", runs)


def _check_control(row: Mapping[str, Any], test: Mapping[str, Any] | None, *, known: bool, better: bool) -> Check:
    if row["verdict"] not in CLAIMS:
        return Check("control", "-", "no difference is shown that a control could explain")
    if test is None:
        if known:
            return Check("control", "-", "no simpler explanation is known")
        return Check("control", "unknown", "an earlier release planned this grid; the next `ablate run` names controls")
    return Check("control", test["beyond"], control_text(test, better=better), test["p_holm"])


def _with_checks(rows: pl.DataFrame, checks: Mapping[str, Sequence[Check]]) -> pl.DataFrame:
    words, reasons, doubts, headlines = [], [], [], []
    for cell, word, reason in rows.select("cell", "verdict", "reason").iter_rows():
        own = {each.name: each for each in checks[cell]}
        off = own["on"].word == "off" and word in _REPLACED
        words.append("off" if off else word)
        reasons.append(f"{own['on'].reason}; {reason}" if off else reason)
        claim = word in (*CLAIMS, "equivalent") and not off
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


def conclude(layout: Layout, connection: duckdb.DuckDBPyConnection) -> None:
    """Bring the tables `verdict` and `verdict_check` in line with the results; the caller holds the database.

    A grid that cannot be judged has no rows; the commands about it say why.
    """
    if connection.execute("SELECT value FROM meta WHERE name = 'judged'").fetchall() == [(str(RULES),)]:
        return
    store = Store(layout, connection, None)
    stored = dict(connection.execute("SELECT DISTINCT grid, digest FROM verdict").fetchall())
    current = {name: digest for name in store.grids() if (digest := _digest(store, name))}
    with transaction(connection):
        for grid in stored.keys() | current.keys():
            if stored.get(grid) != current.get(grid):
                _store(store, connection, grid, current.get(grid))
        connection.execute("DELETE FROM meta WHERE name = 'judged'")
        connection.execute("INSERT INTO meta VALUES ('judged', $rules)", {"rules": str(RULES)})


_IN_TRAINING: Final = """
SELECT count(*), sum(hash(trial, step, point, value)::HUGEINT)::VARCHAR FROM v_evaluation
WHERE name = $name AND trial IN (SELECT trial FROM grid_trial WHERE grid = $grid)
"""
"""All values of a measure, also those before the end of training."""


def _digest(store: Store, grid: str) -> str | None:
    """The hash of everything that the verdicts of a grid are computed from; None if it cannot be judged."""
    try:
        by = measure_of(store, grid, None)
        baselines_of(store, grid, None)
        parts = [RULES, store.grid(grid), every_run(store, grid, by).rows(), read_changes(store, grid, by)]
        parts += store.sql(_IN_TRAINING, {"grid": grid, "name": by.name}).rows()
    except AblateError:
        return None
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _store(store: Store, connection: duckdb.DuckDBPyConnection, grid: str, digest: str | None) -> None:
    for table in ("verdict", "verdict_check"):
        connection.execute(f"DELETE FROM {table} WHERE grid = $grid", {"grid": grid})
    if digest is None:
        return
    try:
        judged = judge(store, grid)
    except AblateError:
        return
    verdict = judged.rows.with_columns(grid=pl.lit(grid), digest=pl.lit(digest))
    checks = [(grid, cell, *check) for cell, own in judged.checks.items() for check in own]
    check = pl.DataFrame(checks, _CHECK_COLUMNS, orient="row")
    for table, rows in (("verdict", verdict), ("verdict_check", check)):
        columns = [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
        connection.register("derived", rows.select(columns).to_arrow())
        connection.execute(f"INSERT INTO {table} BY NAME FROM derived")
        connection.unregister("derived")


_CHECK_COLUMNS: Final = {
    **dict.fromkeys(("grid", "cell", "check", "answer", "reason"), pl.String),
    "number": pl.Float64,
    "word": pl.String,
}
