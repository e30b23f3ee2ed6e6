"""Page Diff: differences of two or more runs in spec, environment, code and results."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from ablate.dashboards.app.address import Address
from ablate.dashboards.app.page import AppPage, Control, PageView, Slot, SlotContent, options
from ablate.dashboards.app.pages.diff_code import compare_code
from ablate.dashboards.app.pages.diff_pairs import pair_cells
from ablate.dashboards.app.pages.run import environment
from ablate.dashboards.app.table_columns import BY_SIZE, columns
from ablate.dashboards.data.formatting import count, point
from ablate.dashboards.data.result_table import flat
from ablate.dashboards.data.run_keys import key_of, shorten_keys
from ablate.dashboards.data.user_errors import Unknown
from ablate.store import Store

MOST: Final = 20  # runs beside each other
MISSING: Final = "–"


class DiffAddress(Address):
    """The runs and the shown fields."""

    run: tuple[str, ...] = ()  # beginnings of their keys
    all: bool = False  # include fields that do not differ


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
    """Read the spec of a trial; empty if no plan has it."""
    text = store.sql("SELECT spec FROM trial WHERE trial = $key", {"key": key})["spec"][0]
    return {} if text is None else dict(json.loads(text))


def environments(store: Store, key: str) -> dict[str, Any]:
    """Describe host and code of the last attempt of a trial; empty if none has begun."""
    found = store.sql("SELECT * FROM attempt WHERE trial = $key ORDER BY attempt DESC LIMIT 1", {"key": key})
    return environment(found.row(0, named=True)) if found.height else {}


def results(store: Store, key: str) -> dict[str, Any]:
    """Read the state of a trial and the last value of everything that was measured."""
    state = store.sql(
        "SELECT status, reason, attempts, step, wall_s, parameters, operator_parameters FROM trial WHERE trial = $key",
        {"key": key},
    ).row(0, named=True)
    last = store.sql(
        "SELECT DISTINCT name, point, value FROM v_final WHERE trial = $key "
        "QUALIFY source = min(source) OVER (PARTITION BY name) ORDER BY name, point",  # not a metric so called
        {"key": key},
    )
    values = {f"{name} {point(dict(at))}".strip(): value for name, at, value in last.iter_rows()}
    return {name: value for name, value in state.items() if value is not None} | values


def table(fields: Mapping[str, Mapping[str, Any]], *, whole: bool) -> pl.DataFrame:
    """Compare runs: field, and a column of texts per run; only fields that differ unless `whole`."""
    flats = {run: flat(given) if given else {} for run, given in fields.items()}
    rows = []
    for path in dict.fromkeys(path for each in flats.values() for path in each):
        values = [_text(each[path]) if path in each else MISSING for each in flats.values()]
        if whole or len(set(values)) > 1:
            rows.append([path, *values])
    return pl.DataFrame(rows, schema=dict.fromkeys(("field", *flats), pl.String), orient="row")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _compare(view: PageView, read: Callable[[Store, str], dict[str, Any]], what: str) -> SlotContent:
    runs = _runs(view)
    found = table({run.short: read(view.store, run.key) for run in runs}, whole=view.address.all)
    if found.is_empty():
        return SlotContent(message=f"The {what} of these {len(runs)} runs do not differ.")
    differ = found.filter(pl.concat_list(pl.exclude("field")).list.n_unique() > 1).height
    caption = f"{count(differ, 'field')} of the {what} of {len(runs)} runs {'differs' if differ == 1 else 'differ'}."
    own: dict[str, dict[str, Any]] = {"field": {"pinned": "left", "width": 320, **_FLEX}}
    for run in runs:
        own[run.short] = {"headerName": f"{run.name} ({run.short})", "headerTooltip": run.key, "minWidth": 180, **_FLEX}
        digits = 4 if read is results else 6
        own[run.short]["valueFormatter"] = {"function": f"ablateShort(params.value, {digits})"}
        own[run.short] |= BY_SIZE if read is results else {}
    return SlotContent(caption=caption, data=found, columns=columns(found, own))


def _pairs(view: PageView) -> SlotContent:
    """Pair the cells of the first two runs."""
    one, other, *more = _runs(view)
    shown = pair_cells(view, one.key, other.key)
    return shown._replace(caption=shown.caption + " Of the first two runs." * bool(more and shown.caption))


def _code(view: PageView) -> SlotContent:
    """Compare the code of the first two runs."""
    one, other, *_ = _runs(view)
    return compare_code(view.store, one.key, other.key, (f"run {one.short}", f"run {other.short}"))


_FLEX: Final = {"floatingFilter": True, "tooltipValueGetter": {"function": "params.value"}}


def _controls(view: PageView) -> Sequence[Control]:
    return (
        Control("run", "Runs", "choices", options(view.address.run)),
        Control("all", "Show all", "switch", hint="Also what they have in common"),
    )


DIFF = AppPage(
    name="diff",
    title="Diff",
    letter="",
    about="What is different between these runs?",
    address=DiffAddress,
    controls=_controls,
    slots=(
        Slot("pairs", "Their cells, paired by seed", _pairs, "table"),
        Slot("spec", "Spec", lambda view: _compare(view, specs, "specs"), "table"),
        Slot("environment", "Environment and code", lambda view: _compare(view, environments, "environments"), "table"),
        Slot("results", "Results", lambda view: _compare(view, results, "results"), "table"),
        Slot("code", "Code", _code, "words"),
    ),
    of="campaign",
    check=_runs,
    listed=False,
)
