"""Page Run: everything that is known of one trial, and what differs between it and other runs."""

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite
from pprint import pformat
from textwrap import indent
from typing import Any, Final
from urllib.parse import quote, urlencode

import polars as pl

from ablate.dashboards.app.page import AppPage, Component, Control, PageView, Slot, SlotContent, html, options
from ablate.dashboards.app.pages.curves import CurvesAddress, draw_curves
from ablate.dashboards.app.pages.run_code import compare_code, show_operator
from ablate.dashboards.app.pages.run_differences import (
    MOST,
    RunAddress,
    attempts_of,
    chosen_attempt,
    compare_fields,
    compared_pair,
    compared_runs,
    environment,
    named_keys,
    near_runs,
    results,
    run_key,
    spec,
)
from ablate.dashboards.app.pages.run_pairs import pair_cells
from ablate.dashboards.app.pages.run_system import show_system, tell_times
from ablate.dashboards.app.pages.runs import ICONS
from ablate.dashboards.app.run_groups import TRIAL
from ablate.dashboards.app.table_columns import columns
from ablate.dashboards.data.formatting import BETWEEN, count, duration, join_words, number, point
from ablate.dashboards.data.grid_context import grid_context
from ablate.dashboards.data.run_keys import shorten_keys
from ablate.dashboards.data.user_errors import Unknown, catch_user_error, require
from ablate.store.analysis.row_labels import unit_of
from ablate.store.database import queries
from ablate.store.export.plain import escape_control
from ablate.store.files.layout import Layout

LINES: Final = 200
_BYTES: Final = 256 * 1024  # the part at the end that is read
_BEHIND: Final = ("unit", "meaning")  # the last columns
_LEVEL: Final = "knockout.none."
_LONGEST: Final = 2000  # letters of a line; the rest is cut
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_MOST_PANELS: Final = 4
_MOST_TOLD: Final = 3  # runs in the heading
_MOST_ROWS: Final = 5000  # rows of a table on the page


def log_tail(layout: Layout, key: str, attempt: int) -> tuple[str, str]:
    """Return the last lines of the log of an attempt, and how much of it they are, or why there is none.

    Only a plain file inside the campaign is read. Colours are left out; other control characters are escaped.

    Raises:
        StoreError: the log lies outside the campaign or is no plain file.
        Unknown: it cannot be read.
    """
    try:
        with layout.open_inside(layout.log(key, attempt)) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - _BYTES, 0))
            held = file.read(_BYTES)
    except FileNotFoundError:
        return "", f"Attempt {attempt} has no log."
    except OSError as error:
        raise Unknown(f"the log of attempt {attempt} cannot be read: {error.strerror}") from error
    if not held.strip():
        return "", f"The log of attempt {attempt} is empty."
    whole = held.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    if size > len(held):
        whole = whole[1:] or whole  # the first line is cut somewhere
    cut = [line[:_LONGEST] + ("…" if len(line) > _LONGEST else "") for line in whole[-LINES:]]
    shown = [escape_control(_COLOUR.sub("", line)) for line in cut]
    part = "All of" if size == len(held) and len(shown) == len(whole) else "The last"
    return "\n".join(shown), f"{part} {count(len(shown), 'line')} of {size:,} bytes."


def _what(view: PageView) -> SlotContent:
    key = run_key(view)
    trial = view.store.sql("SELECT * FROM trial WHERE trial = $key", {"key": key}).row(0, named=True)
    planned = view.store.sql(
        "SELECT grid, label, cell, axes::VARCHAR AS axes FROM grid_trial WHERE trial = $key ORDER BY grid", {"key": key}
    )
    axes = {} if planned.is_empty() else json.loads(planned["axes"][0])
    last = next(iter(attempts_of(view, run_key(view)).tail(1).to_dicts()), {"message": None, "traceback": None})
    facts: dict[str, Any] = {
        "Cell": join_words(list(dict.fromkeys(planned["label"]))) or "in no grid of this campaign",
        "Seed": trial["seed"],
        "State": f"{ICONS.get(trial['state'], '')} {trial['state']}",
        "Reason": trial["reason"],
        "Message": last["message"],
        "Grid": join_words(planned["grid"].to_list()),
        **{f"Axis {name}": value for name, value in axes.items()},
        "Steps": trial["step"] and f"{trial['step']:,}",
        "Took": trial["wall_s"] and duration(trial["wall_s"]),
        "Parameters": trial["parameters"] and f"{trial['parameters']:,}",
        "Key": key,
    }
    known = {name: str(value) for name, value in facts.items() if value not in (None, "")}
    rows = [html.Div([html.Dt(name), html.Dd(value)]) for name, value in known.items()]
    parts: list[Component] = [html.Dl(rows, className="facts"), *_ways_on(view, planned)]
    if last["traceback"]:
        parts.append(html.Details([html.Summary("Traceback"), html.Pre(last["traceback"])], open=True))
    begins = shorten_keys(view.store, [key])[0]
    command = f"ablate repro {begins} --campaign {shlex.quote(str(view.store.layout.root))}"
    parts += [html.P("To run it again with the code that it was submitted with:"), html.Pre(command)]
    several = len(named_keys(view)) > 1
    return SlotContent(parts=parts, above=f"Of {compared_runs(view)[0].name}." if several else "")


def _ways_on(view: PageView, planned: pl.DataFrame) -> list[Component]:
    """Link its cell on the page Compare, and the curves of all seeds of the cell."""
    seeds = near_runs(view).filter("same")["trial"].unique(maintain_order=True)
    runs = [("run", run) for run in shorten_keys(view.store, [run_key(view), *seeds])[:MOST]]
    links: list[Component] = []
    for grid, cell in planned.select("grid", "cell").iter_rows():
        ways = {f"Its cell ({grid})": ("compare", [("cell", cell)])}
        ways |= {f"Curves of all seeds of its cell ({grid})": ("curves", runs)} if len(runs) > 1 else {}
        for words, (page, query) in ways.items():
            links += [
                html.A(words, href=f"/{quote(view.campaign)}/{page}?{urlencode([('grid', grid), *query])}"),
                html.Br(),
            ]
    return [html.P(links)] if links else []


def _curves(view: PageView) -> SlotContent:
    grid, known = _grid(view), _metrics(view)
    if not known or grid is None:
        raise Unknown("it is in no grid of this campaign" if known else "this run has logged nothing yet")
    wanted = view.address.metric or _first_metrics(known)
    for name in wanted:
        require("this run", "logged metric", name, known)
    context = grid_context(view.store, grid, view.styles)
    beside = view.store.sql("SELECT trial FROM grid_trial WHERE grid = $grid", {"grid": grid})["trial"]
    runs = tuple(each for each in named_keys(view) if each in beside)
    address = CurvesAddress(grid=grid, run=runs, metric=wanted, by=(TRIAL,) if len(runs) > 1 else ())
    shown = draw_curves(view._replace(address=address, context=context))
    left = f" {len(known) - len(wanted)} more metrics can be picked." if len(known) > len(wanted) else ""
    return shown._replace(caption=shown.caption + left, answer=_answer(view))


def _system(view: PageView) -> SlotContent:
    """Show the system of the first run."""
    shown, several = show_system(view, run_key(view)), len(named_keys(view)) > 1
    return shown._replace(above=f"Of {compared_runs(view)[0].name}." if several else "")


def _answer(view: PageView) -> str:
    """Name the runs, their states, measures and times: 'SSA, seed 0: done, mse 3.09 at step 60 after 0.85 s.'"""
    keys = named_keys(view)
    ends, times = [_tell_end(view, key) for key in keys[:_MOST_TOLD]], [tell_times(view.store, key) for key in keys]
    names = [end.partition(":")[0] for end in ends]
    spent = [f"{name}: {said}" if len(keys) > 1 else said for name, said in zip(names, times, strict=False) if said]
    more = f"; {len(keys) - len(ends)} more" if len(ends) < len(keys) else ""
    return f"{'; '.join(ends)}{more}." + (f"\nTime went into: {'; '.join(spent)}." if spent else "")


def _tell_end(view: PageView, key: str) -> str:
    row = view.store.sql(
        "SELECT any_value(coalesce(g.label, t.operator)) AS label, any_value(t.seed) AS seed, "
        "any_value(t.state) AS state, any_value(t.reason) AS reason, any_value(t.wall_s) AS wall_s, "
        "max(l.step) AS step, arg_max(l.value, l.step) AS loss FROM trial t LEFT JOIN grid_trial g USING (trial) "
        "LEFT JOIN last_value l ON l.trial = t.trial AND l.name = 'loss' AND l.\"table\" = 'metric' "
        "WHERE t.trial = $key",
        {"key": key},
    ).row(0, named=True)
    state = row["state"] if row["reason"] is None else f"{row['state']} ({row['reason']})"
    name, step, value = _read_measure(view, key) or ("loss", row["step"], row["loss"])
    said = number(value) if isfinite(value or 0) else "not finite"
    last = "" if value is None else f", {name} {said} at step {step:,}"
    took = "" if row["wall_s"] is None else f" after {duration(row['wall_s'])}"
    return f"{row['label']}, seed {row['seed']}: {state}{last}{took}"


def _read_measure(view: PageView, key: str) -> tuple[str, int, float] | None:
    """Return the measure of the grid with its point, its last step and value; None unless the run has one value."""
    measure = {"name": "", "point": {}, **(_header(view)["measure"] or {})}
    agrees, at = queries.agrees(measure["point"])
    query = f"SELECT DISTINCT step, value, source FROM v_final WHERE trial = $key AND name = $name AND {agrees}"
    values = view.store.sql(
        f"{query} QUALIFY source = min(source) OVER ()", {"key": key, "name": measure["name"], **at}
    )
    where = f" ({point(measure['point'])})" if measure["point"] else ""
    return (f"{measure['name']}{where}", *values.row(0)[:2]) if values.height == 1 else None


def _metrics(view: PageView) -> list[str]:
    logged = view.store.sql(
        "SELECT DISTINCT name FROM last_value WHERE trial = $key AND \"table\" = 'metric' "
        "ORDER BY name <> 'loss', starts_with(name, 'system.'), name",
        {"key": run_key(view)},
    )
    return [str(name) for name in logged["name"]]


def _first_metrics(known: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics that are shown at first; System shows those of the machine."""
    own = [name for name in known if not name.startswith("system.")]
    return tuple((own or known)[:_MOST_PANELS])


_TOLD: Final = (
    *("attempt", "status", "reason", "started", "ended", "step", "wall_s", "host", "device", "threads", "path"),
    *("resumed_attempt", "resumed_step", "memory_bytes", "submission", "worker", "pid", "code", "message"),
)


def _attempts_table(view: PageView) -> SlotContent:
    attempts = attempts_of(view, run_key(view))
    if attempts.is_empty():
        return SlotContent(message="It has not begun.")
    clock = "%Y-%m-%d %H:%M:%S"
    when = [
        pl.col(name).map_elements(lambda at: f"{datetime.fromtimestamp(at):{clock}}", return_dtype=pl.String)
        for name in ("started", "ended")
    ]
    state = pl.coalesce("status", pl.when("alive").then(pl.lit("running")).otherwise(pl.lit("lost")))
    rows = _without_empty(attempts.with_columns(*when, state.alias("status")).select(_TOLD))
    caption = f"{count(attempts.height, 'attempt')}; times are of this machine's clock."
    return SlotContent(caption=caption, data=rows, columns=columns(rows))


def _without_empty(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(each for each in frame if each.null_count() < frame.height)


def _list_measurements(view: PageView, table: str, keys: Sequence[str], said: str) -> SlotContent:
    order = ["map_keys(point), map_values(point)" if name == "point" else name for name in keys]
    rows = view.store.sql(
        f"SELECT name, step, {', '.join(keys)}, value FROM v_{table} WHERE trial = $key "
        f"QUALIFY step = max(step) OVER (PARTITION BY name) ORDER BY name, {', '.join(order)}",
        {"key": run_key(view)},
        most=None if view.whole else _MOST_ROWS + 1,
    )
    if rows.is_empty():
        return SlotContent(message=f"It has no {table} yet.")
    where, header = [point(dict(at)) for at in rows["point"]], _header(view)
    units = [unit_of(header, name) or None for name in rows["name"]]
    texts: tuple[Sequence[str | None], ...] = (where, units, _tell_changes(rows["name"].to_list()))
    told = (pl.Series(name, of, dtype=pl.String) for name, of in zip(("point", *_BEHIND), texts, strict=True))
    rows = _without_empty(rows.with_columns(told).select(pl.exclude("value", *_BEHIND), "value", *_BEHIND))
    if rows.height > _MOST_ROWS and not view.whole:
        rows, said = rows.head(_MOST_ROWS), f"{said} The first {_MOST_ROWS:,} are here; files have all."
    return SlotContent(caption=said, data=rows, columns=columns(rows))


def _tell_changes(names: Sequence[str]) -> list[str | None]:
    """Say for each name of a knock-out that its value is a change; `knockout.none` holds the measure itself."""
    of = "|".join(re.escape(name.removeprefix(_LEVEL)) for name in names if name.startswith(_LEVEL))
    matches = [
        re.fullmatch(rf"knockout\.(?!none\.)(?=(uniform\.|refit[-.]|mean-)?)(.+?)\.({of})", name) for name in names
    ]
    return [f"change with{'' if each[1] else 'out'} {each[2]}" if each else None for each in matches]


def _header(view: PageView) -> Mapping[str, Any]:
    """Return the header of the first grid of the run, which has the units of what its trials record."""
    grid = _grid(view)
    return {"measure": None} if grid is None else view.store.grid(grid)


def _grid(view: PageView) -> str | None:
    """The first grid of the run; None if no grid plans it any more."""
    grid: str | None = view.store.sql(
        "SELECT min(grid) FROM grid_trial WHERE trial = $key", {"key": run_key(view)}
    ).item()
    return grid


def _evaluations(view: PageView) -> SlotContent:
    said = "The last value at each point, with how many items it is the mean of and the standard error over them."
    return _list_measurements(view, "evaluation", ("point", "items", "se_items", "later"), said)


def _probes(view: PageView) -> SlotContent:
    return _list_measurements(view, "probe", ("layer", "head", "point"), "Probes of the model, each at its last step.")


def _spec(view: PageView) -> SlotContent:
    shown, whole = compare_fields(view, spec, "spec"), spec(view, run_key(view))
    text = json.dumps(whole, indent=2, ensure_ascii=False)
    data = indent(pformat(whole, width=96, sort_dicts=False), "    ")
    family = "Experiment" if "kind" in whole else "Trial"  # the file that defines another class is imported before
    code = f"from ablate import {family}\n\ntrial = {family}.model_validate(\n{data}\n)"
    folded = [
        html.Details([html.Summary(f"As {name}"), html.Pre(said)]) for name, said in (("JSON", text), ("Python", code))
    ]
    return shown._replace(parts=folded if whole else [])


def _operator(view: PageView) -> SlotContent:
    return show_operator(view.store, run_key(view), spec(view, run_key(view)).get("operator") or {})


def _pairs(view: PageView) -> SlotContent:
    one, other = compared_pair(view)
    shown = pair_cells(view, one.key, other.key)
    return shown._replace(caption=shown.caption + " Of the first two runs." * (len(compared_runs(view)) > 2))


def _code(view: PageView) -> SlotContent:
    one, other = compared_pair(view)
    return compare_code(view.store, one.key, other.key, (f"run {one.short}", f"run {other.short}"))


def _log(view: PageView) -> SlotContent:
    attempt = chosen_attempt(view, run_key(view))
    if attempt is None:
        return SlotContent(message="It has not begun.")
    text, said = log_tail(view.store.layout, run_key(view), int(attempt["attempt"]))
    return SlotContent(caption=said, parts=[html.Pre(text)]) if text else SlotContent(message=said)


def _controls(view: PageView) -> Sequence[Control]:
    numbers, _ = catch_user_error(lambda: attempts_of(view, run_key(view))["attempt"])
    metrics, _ = catch_user_error(lambda: _metrics(view))
    near, _ = catch_user_error(lambda: near_runs(view).unique("trial", maintain_order=True).head(MOST))
    attempts = [] if numbers is None else list(map(str, numbers))
    known, runs = metrics or [], options(view.address.run)
    if near is not None:
        names = near.select(pl.format("{}{}seed {}", "label", pl.lit(BETWEEN), "seed"))[:, 0]
        runs |= dict(zip(shorten_keys(view.store, near["trial"].to_list()), names, strict=True))
    return (
        Control("run", "Runs", "choices", runs, "The first one, and those beside it", resets=("metric", "attempt")),
        Control("metric", "Metrics", "choices", options(known), usual=_first_metrics(known)),
        Control("attempt", "Attempt", "choice", options(attempts), usual=attempts[-1] if attempts else None),
        Control("all", "Show all", "switch", hint="Also what runs have in common"),
    )


RUN = AppPage(
    name="run",
    title="Run",
    letter="",
    question="What is it, what did it do, how does it differ from another run, and how is it done again?",
    address=RunAddress,
    named=("metric",),
    controls=_controls,
    check=compared_runs,
    slots=(
        Slot("curves", "Training", _curves, half=True),
        Slot("log", "Log", _log, "words", half=True),
        Slot("system", "System", _system, half=True),
        Slot("what", "What it is", _what, "words", half=True),
        Slot("pairs", "Cells, paired by seed", _pairs, "table"),
        Slot("spec", "Spec", _spec, "table"),
        Slot("operator", "Operator", _operator, "words"),
        Slot("results", "Results", lambda view: compare_fields(view, results, "results"), "table"),
        Slot("environment", "Environment", lambda view: compare_fields(view, environment, "environment"), "table"),
        Slot("code", "Code", _code, "words"),
        Slot("attempts", "Attempts", _attempts_table, "table"),
        Slot("evaluations", "Evaluations", _evaluations, "table"),
        Slot("probes", "Probes", _probes, "table"),
    ),
    of="campaign",
    listed=False,
)
