"""Page Diff: differences of two or more runs in spec, environment, code and results."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from dashboards.app.address import Address
from dashboards.app.page import AppPage, PageView, Slot, SlotContent
from dashboards.app.pages.run import environment
from dashboards.app.parts import Control, columns, options
from dashboards.data.formatting import count, point
from dashboards.data.result_table import flat
from dashboards.data.run_keys import key_of, shorten_keys
from dashboards.data.user_errors import Unknown, catch_user_error
from store import Store

MOST: Final = 20
"""Runs beside each other."""
MISSING: Final = "–"


class DiffAddress(Address):
    """The runs and the shown fields."""

    run: tuple[str, ...] = ()
    """Beginnings of their keys."""
    all: bool = False
    """Include fields that do not differ."""
    ignore: tuple[str, ...] = ()
    """Fields that do not count, with all below them."""


class _DiffRun(NamedTuple):
    key: str
    short: str
    name: str


def _runs(view: PageView) -> list[_DiffRun]:
    store, wanted = view.store, view.address.run
    if len(wanted) > MOST:
        raise Unknown(f"at most {MOST} runs can be compared; the address names {len(wanted)}")
    keys = list(dict.fromkeys(key_of(store, begins) for begins in wanted))
    if len(keys) < 2:
        raise Unknown("two runs or more can be compared; pick them on the page Runs")
    names = dict(
        store.sql(
            "SELECT t.trial, coalesce(min(g.label), t.operator, '–') || ' · seed ' || coalesce(t.seed::VARCHAR, '–') "
            "FROM trial t LEFT JOIN grid_trial g USING (trial) WHERE list_contains($keys, t.trial) "
            "GROUP BY t.trial, t.operator, t.seed",
            {"keys": keys},
        ).iter_rows()
    )
    return [_DiffRun(key, short, names[key]) for key, short in zip(keys, shorten_keys(store, keys), strict=True)]


def specs(store: Store, key: str) -> dict[str, Any]:
    """The spec of a trial, empty where no plan has it."""
    text = store.sql("SELECT spec FROM trial WHERE trial = $key", {"key": key})["spec"][0]
    return {} if text is None else dict(json.loads(text))


def environments(store: Store, key: str) -> dict[str, Any]:
    """Where the last attempt of a trial ran, and the code it ran; empty where none has begun."""
    found = store.sql("SELECT * FROM attempt WHERE trial = $key ORDER BY attempt DESC LIMIT 1", {"key": key})
    return environment(found.row(0, named=True)) if found.height else {}


def results(store: Store, key: str) -> dict[str, Any]:
    """How a trial ended: its state and the last value of everything that was measured."""
    state = store.sql(
        "SELECT status, reason, attempts, step, wall_s, parameters, operator_parameters FROM trial WHERE trial = $key",
        {"key": key},
    ).row(0, named=True)
    last = store.sql(
        "SELECT DISTINCT name, point, value, source = 'metric' AND bool_or(source = 'evaluation') OVER named AS twice "
        "FROM v_final WHERE trial = $key WINDOW named AS (PARTITION BY name) ORDER BY name, point::VARCHAR",
        {"key": key},
    )
    values = {
        f"{name} {point(dict(at))}".strip() + " (training)" * twice: value
        for name, at, value, twice in last.iter_rows()
    }
    return {name: value for name, value in state.items() if value is not None} | values


def table(fields: Mapping[str, Mapping[str, Any]], ignore: Sequence[str], *, whole: bool) -> pl.DataFrame:
    """Compare runs: field, and a column of texts per run; only fields that differ unless `whole`."""
    flats = {run: flat(given) if given else {} for run, given in fields.items()}
    paths = list(dict.fromkeys(path for each in flats.values() for path in each))
    rows = []
    for path in paths:
        values = [_text(each[path]) if path in each else MISSING for each in flats.values()]
        ignored = any(path == name or path.startswith(f"{name}.") for name in ignore)
        if not ignored and (whole or len(set(values)) > 1):
            rows.append([path, *values])
    return pl.DataFrame(rows, schema=dict.fromkeys(("field", *flats), pl.String), orient="row")


def _text(value: Any) -> str:
    """A value in words: texts stand without quotes unless they read like another value, as "1" does, or like none."""
    if isinstance(value, str) and value != MISSING:
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            return value
    return json.dumps(value)


def _compare(view: PageView, of: Callable[[Store, str], dict[str, Any]], what: str) -> SlotContent:
    runs = _runs(view)
    found = table({run.short: of(view.store, run.key) for run in runs}, view.address.ignore, whole=view.address.all)
    ignored = f" {count(len(view.address.ignore), 'field')} and all below ignored." if view.address.ignore else ""
    if found.is_empty():
        return SlotContent(message=f"The {what} of these {len(runs)} runs do not differ.{ignored}")
    differ = found.filter(pl.concat_list(pl.exclude("field")).list.n_unique() > 1).height
    said = f"{count(differ, 'field')} of the {what} of {len(runs)} runs {'differs' if differ == 1 else 'differ'}."
    own: dict[str, dict[str, Any]] = {"field": {"pinned": "left", "width": 320, **_FLEX}}
    for run in runs:
        own[run.short] = {"headerName": f"{run.name} ({run.short})", "headerTooltip": run.key, "minWidth": 180, **_FLEX}
    return SlotContent(caption=said + ignored, data=found, columns=columns(found, own))


_FLEX: Final = {"floatingFilter": True, "tooltipValueGetter": {"function": "params.value"}}


def _controls(view: PageView) -> Sequence[Control]:
    runs, _ = catch_user_error(lambda: _runs(view))  # the slots say why; what was wrong can be taken out here
    paths = {
        path for of in (specs, environments, results) for path in table(
            {run.short: of(view.store, run.key) for run in runs or ()}, (), whole=False)["field"]
    }  # fmt: skip
    above = {path.rpartition(".")[0] for path in paths} - {""}
    return (
        Control("run", "Runs", "choices", options(view.address.run), resets=()),
        Control("all", "Show all", "switch", hint="Also what they have in common", resets=()),
        Control("ignore", "Ignore", "choices", options(sorted(paths | above | set(view.address.ignore))), resets=()),
    )


DIFF = AppPage(
    name="diff",
    title="Diff",
    letter="",
    about="What is different between these runs?",
    address=DiffAddress,
    controls=_controls,
    slots=(
        Slot("spec", "Spec", lambda view: _compare(view, specs, "specs"), "table"),
        Slot("environment", "Environment and code", lambda view: _compare(view, environments, "environments"), "table"),
        Slot("results", "Results", lambda view: _compare(view, results, "results"), "table"),
    ),
    of="campaign",
    listed=False,
)
