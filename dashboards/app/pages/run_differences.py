"""Differences of runs in spec, environment and results, a row per field; one alone stands beside its baseline's."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import polars as pl

from ablate.dashboards.app.address import Address
from ablate.dashboards.app.page import PageView, SlotContent, memoise
from ablate.dashboards.app.table_columns import BY_SIZE, columns
from ablate.dashboards.data.formatting import BETWEEN, count, point
from ablate.dashboards.data.result_table import flat
from ablate.dashboards.data.run_keys import key_of, shorten_keys
from ablate.dashboards.data.user_errors import Unknown, require

MOST: Final = 20  # runs beside each other
MISSING: Final = "–"
_NEAR: Final = """
    SELECT o.trial, o.label, o.seed, o.cell = g.cell AS same FROM grid_trial g
    JOIN grid_trial o ON o.grid = g.grid AND (o.cell = g.cell OR (o.cell = g.baseline AND o.seed = g.seed))
    WHERE g.trial = $key AND o.trial <> g.trial ORDER BY same, g.grid, o.position
"""
"""The baseline's run of the seed of a trial, then the other seeds of its cell."""


class RunAddress(Address):
    """The run and those beside it, which fields are compared, and which metrics and attempt of the run are shown."""

    run: tuple[str, ...] = ()  # beginnings of keys; one alone is compared with the baseline's run of its seed
    metric: tuple[str, ...] = ()  # empty: the loss, or the first there are
    attempt: int | None = None  # the attempt whose log and environment are shown; None is the last
    all: bool = False  # include fields that do not differ


class ComparedRun(NamedTuple):
    """A run beside others."""

    key: str
    short: str
    name: str


@memoise
def named_keys(view: PageView) -> list[str]:
    """Keys of the runs of the address; the first is the one that the page is about. Raises Unknown."""
    wanted = view.address.run
    if not wanted:
        raise Unknown("no run is named; pick one on the page Runs")
    if len(wanted) > MOST:
        raise Unknown(f"the address names {len(wanted)} runs; at most {MOST} can be compared")
    return list(dict.fromkeys(key_of(view.store, begins) for begins in wanted))


def run_key(view: PageView) -> str:
    """Return the key of the run that the page is about. Raises Unknown."""
    return named_keys(view)[0]


@memoise
def near_runs(view: PageView) -> pl.DataFrame:
    """List the baseline's run of the same seed, then the other seeds of the cell: trial, label, seed, same."""
    return view.store.sql(_NEAR, {"key": run_key(view)})


@memoise
def compared_runs(view: PageView) -> list[ComparedRun]:
    """List the runs of the address, or the only one after the baseline's run of its seed. Raises Unknown."""
    keys = named_keys(view)
    if len(keys) == 1:
        keys = [*near_runs(view).filter(~pl.col("same"))["trial"].head(1), *keys]
    names = dict(
        view.store.sql(
            "SELECT t.trial, coalesce(min(g.label), t.operator, '–') || $between || 'seed ' || "
            "coalesce(t.seed::VARCHAR, '–') FROM trial t LEFT JOIN grid_trial g USING (trial) "
            "WHERE list_contains($keys, t.trial) GROUP BY t.trial, t.operator, t.seed",
            {"keys": keys, "between": BETWEEN},
        ).iter_rows()
    )
    return [
        ComparedRun(key, short, names[key]) for key, short in zip(keys, shorten_keys(view.store, keys), strict=True)
    ]


def compared_pair(view: PageView) -> tuple[ComparedRun, ComparedRun]:
    """Return the first two compared runs. Raises Unknown if there is one only."""
    first, *others = compared_runs(view)
    if not others:
        raise Unknown("this run has no baseline's run beside it; pick two runs on the page Runs to compare them")
    return first, others[0]


def attempts_of(view: PageView, key: str) -> pl.DataFrame:
    """List the attempts of a trial, the first one first."""
    return view.store.sql("SELECT * FROM attempt WHERE trial = $key ORDER BY attempt", {"key": key})


def chosen_attempt(view: PageView, key: str) -> dict[str, Any] | None:
    """Return the last attempt; of the run of the page that of the address. None if none has begun. Raises Unknown."""
    attempts = attempts_of(view, key)
    if attempts.is_empty():
        return None
    known, wanted = attempts["attempt"].to_list(), view.address.attempt if key == run_key(view) else None
    number = require("this run", "attempt", known[-1] if wanted is None else wanted, known)
    return attempts.row(known.index(number), named=True)


def spec(view: PageView, key: str) -> dict[str, Any]:
    """Read the spec of a trial; empty if no plan has it."""
    text = view.store.sql("SELECT spec FROM trial WHERE trial = $key", {"key": key}).item()
    return {} if text is None else dict(json.loads(text))


def environment(view: PageView, key: str) -> dict[str, Any]:
    """List host, device, versions, data and code of the attempt of a trial; empty if none has begun."""
    attempt = chosen_attempt(view, key) or {}
    plain = {name: attempt.get(name) for name in ("host", "device", "threads", "path", "code")}
    nested = {name: json.loads(attempt[name]) for name in ("versions", "data", "sources") if attempt.get(name)}
    return {name: value for name, value in (plain | nested).items() if value is not None}


def results(view: PageView, key: str) -> dict[str, Any]:
    """Read the state of a trial and the last value of everything that was measured."""
    state = view.store.sql(
        "SELECT state, reason, attempts, step, wall_s, parameters, operator_parameters FROM trial WHERE trial = $key",
        {"key": key},
    ).row(0, named=True)
    last = view.store.sql(
        "SELECT DISTINCT name, point, value FROM v_final WHERE trial = $key "
        "QUALIFY source = min(source) OVER (PARTITION BY name) ORDER BY name, point",  # not a metric so called
        {"key": key},
    )
    values = {f"{name} {point(dict(at))}".strip(): value for name, at, value in last.iter_rows()}
    return {name: value for name, value in state.items() if value is not None} | values


def table(fields: Mapping[str, Mapping[str, Any]], *, whole: bool) -> pl.DataFrame:
    """Compare runs: field, and a column of texts per run; only fields that differ unless `whole`."""
    flats = {run: flat(nested) if nested else {} for run, nested in fields.items()}
    rows = []
    for path in dict.fromkeys(path for each in flats.values() for path in each):
        values = [_text(each[path]) if path in each else MISSING for each in flats.values()]
        if whole or len(set(values)) > 1:
            rows.append([path, *values])
    return pl.DataFrame(rows, schema=dict.fromkeys(("field", *flats), pl.String), orient="row")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def compare_fields(view: PageView, read: Callable[[PageView, str], dict[str, Any]], what: str) -> SlotContent:
    """List the fields that differ between the compared runs; all fields of a run alone, or if the address says so."""
    runs = compared_runs(view)
    differences = table({run.short: read(view, run.key) for run in runs}, whole=view.address.all or len(runs) == 1)
    if differences.is_empty():
        nothing = f"This run has no {what} yet." if len(runs) == 1 else f"The {what} of these runs does not differ."
        return SlotContent(message=nothing)
    differ = differences.filter(pl.concat_list(pl.exclude("field")).list.n_unique() > 1).height
    caption = f"{count(differ, 'field')} of the {what} of {len(runs)} runs {'differs' if differ == 1 else 'differ'}."
    own: dict[str, dict[str, Any]] = {"field": {"pinned": "left", "width": 320, **_FLEX}}
    for run in runs:
        own[run.short] = {"headerName": f"{run.name} ({run.short})", "headerTooltip": run.key, "minWidth": 180, **_FLEX}
        digits = 4 if read is results else 6
        own[run.short]["valueFormatter"] = {"function": f"ablateShort(params.value, {digits})"}
        own[run.short] |= BY_SIZE if read is results else {}
    return SlotContent(caption=caption if len(runs) > 1 else "", data=differences, columns=columns(differences, own))


_FLEX: Final = {"flex": 1, "floatingFilter": True, "tooltipValueGetter": {"function": "params.value"}}
