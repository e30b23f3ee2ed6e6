"""Run: everything that is known of one trial: what it is, what it did, what came out, how to do it again."""

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import polars as pl

from ablate.dashboards.app.address import Address
from ablate.dashboards.app.page import AppPage, Component, Control, PageView, Slot, SlotContent, html, options
from ablate.dashboards.app.pages.curves import CurvesAddress, draw_curves
from ablate.dashboards.app.pages.run_system import show_system
from ablate.dashboards.app.pages.runs import ICONS
from ablate.dashboards.app.table_columns import columns
from ablate.dashboards.data.formatting import count, duration, join_words, number, point
from ablate.dashboards.data.grid_context import grid_context
from ablate.dashboards.data.result_table import flat
from ablate.dashboards.data.run_keys import key_of, shorten_keys
from ablate.dashboards.data.user_errors import Unknown, require
from ablate.store.export.plain import escape_control
from ablate.store.files.layout import Layout

LINES: Final = 200
_BYTES: Final = 256 * 1024  # the part at the end that is read
_LONGEST: Final = 2000  # letters of a line; the rest is cut
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_MOST_PANELS: Final = 4
_MOST_LINKED: Final = 20  # runs that a link names
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


class RunAddress(Address):
    """The run, and which of its metrics and attempts are shown."""

    run: str = ""  # the beginning of its key
    metric: tuple[str, ...] = ()  # empty: the loss, or the first there are
    attempt: int | None = None  # the attempt whose log and environment are shown; None is the last


def _key(view: PageView) -> str:
    if not view.address.run:
        raise Unknown("no run is named; pick one on the page Runs")
    return key_of(view.store, view.address.run)


def _attempts(view: PageView) -> pl.DataFrame:
    return view.store.sql("SELECT * FROM attempt WHERE trial = $key ORDER BY attempt", {"key": _key(view)})


def _what(view: PageView) -> SlotContent:
    key = _key(view)
    trial = view.store.sql("SELECT * FROM trial WHERE trial = $key", {"key": key}).row(0, named=True)
    planned = view.store.sql(
        "SELECT grid, label, cell, axes::VARCHAR AS axes FROM grid_trial WHERE trial = $key ORDER BY grid", {"key": key}
    )
    axes = {} if planned.is_empty() else json.loads(planned["axes"][0])
    last = next(iter(_attempts(view).tail(1).to_dicts()), {"message": None, "traceback": None})
    facts: dict[str, Any] = {
        "Cell": join_words(list(dict.fromkeys(planned["label"]))) or "in no grid of this campaign",
        "Seed": trial["seed"],
        "Status": f"{ICONS.get(trial['status'], '')} {trial['status']}",
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
    parts: list[Component] = [html.Dl(rows, className="facts"), *_ways_on(view, key)]
    if last["traceback"]:
        parts.append(html.Details([html.Summary("Traceback"), html.Pre(last["traceback"])], open=True))
    begins = shorten_keys(view.store, [key])[0]
    command = f"ablate repro {begins} --campaign {shlex.quote(str(view.store.layout.root))}"
    parts += [html.P("To run it again with the code that it was submitted with:"), html.Pre(command)]
    return SlotContent(parts=parts)


def _ways_on(view: PageView, key: str) -> list[Component]:
    """Link the other seeds of its cell, and the baseline's run of its seed."""
    beside = view.store.sql(
        """
        SELECT g.grid, o.trial, o.cell = g.cell AS same FROM grid_trial g
        JOIN grid_trial o ON o.grid = g.grid AND (o.cell = g.cell OR (o.cell = g.baseline AND o.seed = g.seed))
        WHERE g.trial = $key AND o.trial <> g.trial ORDER BY g.grid, o.position
        """,
        {"key": key},
    )
    links: list[Component] = []
    for (grid, same), rows in beside.group_by("grid", "same", maintain_order=True):
        runs = shorten_keys(view.store, [key, *rows["trial"].to_list()])[:_MOST_LINKED]
        given = urlencode([("grid", str(grid)), *(("run", run) for run in runs)])
        words = "Curves of all seeds of this cell" if same else "What differs from the baseline's run of this seed"
        page = "curves" if same else "diff"
        links += [html.A(f"{words} ({grid})", href=f"/{quote(view.campaign)}/{page}?{given}"), html.Br()]
    return [html.P(links)] if links else []


def _curves(view: PageView) -> SlotContent:
    key, known = _key(view), _metrics(view)
    grid = view.store.sql("SELECT min(grid) FROM grid_trial WHERE trial = $key", {"key": key}).item()
    if not known or grid is None:
        raise Unknown("it is in no grid of this campaign" if known else "this run has logged nothing yet")
    wanted = view.address.metric or tuple(known[:_MOST_PANELS])
    for name in wanted:
        require("this run", "logged metric", name, known)
    about = grid_context(view.store, grid, view.operators)
    address = CurvesAddress(grid=grid, run=(key,), metric=wanted)
    shown = draw_curves(view._replace(address=address, about=about))
    left = f" {len(known) - len(wanted)} more metrics can be picked." if len(known) > len(wanted) else ""
    return shown._replace(caption=shown.caption + left, answer=_answer(view))


def _answer(view: PageView) -> str:
    """Name the run, its state, and its last loss: 'SSA, seed 0: ok, loss 3.09 at step 60 after 0.85 s.'"""
    row = view.store.sql(
        "SELECT any_value(coalesce(g.label, t.operator)) AS label, any_value(t.seed) AS seed, "
        "any_value(t.status) AS status, any_value(t.reason) AS reason, any_value(t.wall_s) AS wall_s, "
        "max(l.step) AS step, arg_max(l.value, l.step) AS loss FROM trial t LEFT JOIN grid_trial g USING (trial) "
        "LEFT JOIN last_value l ON l.trial = t.trial AND l.name = 'loss' AND l.\"table\" = 'metric' "
        "WHERE t.trial = $key",
        {"key": _key(view)},
    ).row(0, named=True)
    state = row["status"] if row["reason"] is None else f"{row['status']} ({row['reason']})"
    loss = "" if row["loss"] is None else f", loss {number(row['loss'])} at step {row['step']:,}"
    took = "" if row["wall_s"] is None else f" after {duration(row['wall_s'])}"
    return f"{row['label']}, seed {row['seed']}: {state}{loss}{took}."


def _metrics(view: PageView) -> list[str]:
    found = view.store.sql(
        "SELECT DISTINCT name FROM last_value WHERE trial = $key AND \"table\" = 'metric' "
        "ORDER BY name <> 'loss', starts_with(name, 'system.'), name",
        {"key": _key(view)},
    )
    return [str(name) for name in found["name"]]


_TOLD: Final = (
    *("attempt", "status", "reason", "started", "ended", "step", "wall_s", "host", "device", "threads", "path"),
    *("resumed_attempt", "resumed_step", "memory_bytes", "submission", "worker", "pid", "code", "message"),
)


def _attempts_table(view: PageView) -> SlotContent:
    found = _attempts(view)
    if found.is_empty():
        return SlotContent(message="It has not begun.")
    clock = "%Y-%m-%d %H:%M:%S"
    when = [
        pl.col(name).map_elements(lambda at: f"{datetime.fromtimestamp(at):{clock}}", return_dtype=pl.String)
        for name in ("started", "ended")
    ]
    state = pl.coalesce("status", pl.when("alive").then(pl.lit("running")).otherwise(pl.lit("killed or lost")))
    rows = _without_empty(found.with_columns(*when, state.alias("status")).select(_TOLD))
    caption = f"{count(found.height, 'attempt')}; times are of this machine's clock."
    return SlotContent(caption=caption, data=rows, columns=columns(rows))


def _without_empty(found: pl.DataFrame) -> pl.DataFrame:
    return found.select(each for each in found if each.null_count() < found.height)


def _list_measurements(view: PageView, table: str, keys: Sequence[str], said: str) -> SlotContent:
    order = ["map_keys(point), map_values(point)" if name == "point" else name for name in keys]
    found = view.store.sql(
        f"SELECT name, step, {', '.join(keys)}, value FROM v_{table} WHERE trial = $key "
        f"QUALIFY step = max(step) OVER (PARTITION BY name) ORDER BY name, {', '.join(order)}",
        {"key": _key(view)},
        most=None if view.whole else _MOST_ROWS + 1,
    )
    if found.is_empty():
        return SlotContent(message=f"It has no {table} yet.")
    where = [point(dict(at)) for at in found["point"]]
    found = _without_empty(found.with_columns(pl.Series("point", where, dtype=pl.String)))
    if found.height > _MOST_ROWS and not view.whole:
        found, said = found.head(_MOST_ROWS), f"{said} The first {_MOST_ROWS:,} are here; files have all."
    return SlotContent(caption=said, data=found, columns=columns(found))


def _evaluations(view: PageView) -> SlotContent:
    said = "The last value at each point, with how many items it is the mean of and the standard error over them."
    return _list_measurements(view, "evaluation", ("point", "items", "se_items", "later"), said)


def _probes(view: PageView) -> SlotContent:
    return _list_measurements(view, "probe", ("layer", "head", "point"), "Probes of the model, each at its last step.")


def listing(fields: Mapping[str, Any]) -> pl.DataFrame:
    """Nested data as rows: field (dotted path), value (text)."""
    texts = {path: value if isinstance(value, str) else json.dumps(value) for path, value in flat(fields).items()}
    return pl.DataFrame([*texts.items()], dict.fromkeys(("field", "value"), pl.String), orient="row")


_LISTED: Final[list[dict[str, Any]]] = [
    {"field": "field", "width": 420, "floatingFilter": True},
    {"field": "value", "flex": 1, "floatingFilter": True},
]


def _spec(view: PageView) -> SlotContent:
    text = view.store.sql("SELECT spec FROM trial WHERE trial = $key", {"key": _key(view)}).item()
    if text is None:
        return SlotContent(message="No plan that can be read has its spec.")
    spec = json.loads(text)
    whole = html.Details([html.Summary("As JSON"), html.Pre(json.dumps(spec, indent=2, ensure_ascii=False))])
    return SlotContent(data=listing(spec), columns=_LISTED, parts=[whole])


def _chosen_attempt(view: PageView) -> dict[str, Any] | None:
    """Return the attempt that the address names, or the last; None if none has begun. Raises Unknown."""
    found = _attempts(view)
    if found.is_empty():
        return None
    known = found["attempt"].to_list()
    number = require("this run", "attempt", known[-1] if view.address.attempt is None else view.address.attempt, known)
    return found.row(known.index(number), named=True)


def environment(attempt: Mapping[str, Any]) -> dict[str, Any]:
    """List host, device, versions, data and code of an attempt."""
    plain = {name: attempt[name] for name in ("host", "device", "threads", "path", "code")}
    nested = {name: json.loads(attempt[name]) for name in ("versions", "data", "sources") if attempt[name] is not None}
    return {name: value for name, value in (plain | nested).items() if value is not None}


def _environment(view: PageView) -> SlotContent:
    attempt = _chosen_attempt(view)
    if attempt is None:
        return SlotContent(message="It has not begun.")
    return SlotContent(caption=f"Attempt {attempt['attempt']}.", data=listing(environment(attempt)), columns=_LISTED)


def _log(view: PageView) -> SlotContent:
    attempt = _chosen_attempt(view)
    if attempt is None:
        return SlotContent(message="It has not begun.")
    text, said = log_tail(view.store.layout, _key(view), int(attempt["attempt"]))
    return SlotContent(caption=said, parts=[html.Pre(text)]) if text else SlotContent(message=said)


def _controls(view: PageView) -> Sequence[Control]:
    attempts, known = [str(number) for number in _attempts(view)["attempt"]], _metrics(view)
    return (
        Control("run", "Run", "text", hint="The beginning of its key", resets=("metric", "attempt")),
        Control("metric", "Metrics", "choices", options(known), usual=tuple(known[:_MOST_PANELS])),
        Control("attempt", "Attempt", "choice", options(attempts), usual=attempts[-1] if attempts else None),
    )


RUN = AppPage(
    name="run",
    title="Run",
    letter="",
    about="What is it, what did it do, and how is it done again?",
    address=RunAddress,
    named=("metric",),
    controls=_controls,
    slots=(
        Slot("curves", "Training", _curves, half=True),
        Slot("log", "Log", _log, "words", half=True),
        Slot("system", "System", lambda view: show_system(view, _key(view)), half=True),
        Slot("what", "What it is", _what, "words"),
        Slot("attempts", "Attempts", _attempts_table, "table"),
        Slot("evaluations", "Evaluations", _evaluations, "table"),
        Slot("probes", "Probes", _probes, "table"),
        Slot("spec", "Spec", _spec, "table"),
        Slot("environment", "Environment", _environment, "table"),
    ),
    of="campaign",
    listed=False,
)
