"""Page Runs: a row per trial, varying fields first, to filter, sort and select."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

import polars as pl

from ablate.dashboards.app.address import Address
from ablate.dashboards.app.page import AppPage, Control, PageView, Pick, Slot, SlotContent, grid_of, memoise, options
from ablate.dashboards.app.table_columns import columns, link, on_phone
from ablate.dashboards.data.captions import describe_measure
from ablate.dashboards.data.formatting import BETWEEN, count, join_words, number
from ablate.dashboards.data.grid_context import GridContext, in_order
from ablate.dashboards.data.row_filter import HELP, keep_rows
from ablate.dashboards.data.run_keys import key_of, shorten_keys
from ablate.dashboards.data.user_errors import catch_user_error, require
from ablate.dashboards.figures.states import STATES
from ablate.grid.names import label_of
from ablate.store.analysis.measurements import measurements, text_of
from ablate.store.analysis.row_labels import unit_of
from ablate.store.database import quoting
from ablate.store.database.queries import agrees
from ablate.store.state import State

ALWAYS: Final = ("run", "label", "seed", "state")
_COUNTED: Final = ("step", "wall_s", "attempts", "reason", "parameters", "operator_parameters")
_TITLES: Final = {"label": "cell", "wall_s": "seconds", "operator_parameters": "of the operator"}
_EXACT: Final = "params.value == null ? '–' : d3.format('.6~g')(params.value)"
_LEVEL: Final = (
    "params.value == null ? '' : typeof params.value == 'number' ? d3.format('.6~g')(params.value) : params.value"
)
_PHONE: Final = {
    "initialWidth": 140,
    "wrapText": True,
    "autoHeight": True,
    "wrapHeaderText": True,
    "autoHeaderHeight": True,
}
_SPREAD: Final = "± SD"  # the column of the spread of the measure in a group
_FORMER: Final = {"status": "state", "ok": "done"}  # columns of release 0.1.0
ICONS: Final = {name: state.sign for name, state in STATES.items()}
"""Signs beside the word of a state."""


class RunsAddress(Address):
    """The grid, its additional columns, which rows are shown in which order, and which are selected."""

    columns: tuple[str, ...] = ()  # empty: the axes, the grid's measure, steps, seconds, attempts, reasons
    filter: str = ""  # as of `row_filter.keep_rows`
    sort: str = ""  # a column; "-seconds" is the largest first; empty: in the grid's order
    selected: tuple[str, ...] = ()  # beginnings of keys of trials
    pin: tuple[str, ...] = ()  # beginnings of the keys of trials that stay on top and are part of every comparison
    by: str = ""  # a column; its rows are averaged; empty: a row per trial


def _axis_columns(context: GridContext) -> dict[str, str]:
    """SQL of the axes by the names of their columns; an axis that is called like another column is marked as one."""
    types = context.store.sql(
        "SELECT name, type FROM axis WHERE grid = $grid ORDER BY position", {"grid": context.grid}
    )
    taken = {*ALWAYS, *_COUNTED, "trial", "cell", "tags", "note"}
    columns = {}
    for name, kind in types.iter_rows():
        path = quoting.text(quoting.member(name))
        columns[f"{name} (axis)" if name in taken else name] = f"TRY_CAST(g.axes->>{path} AS {kind})"
    return columns


def trials(context: GridContext) -> pl.DataFrame:
    """List every trial of the grid, the baseline first, then as the grid lists its levels.

    Columns: run (short key), label, seed, state, a column per axis, how far it came, trial, cell, and tags and note if
    anybody wrote any.
    """
    axes = "".join(f", {sql} AS {quoting.identifier(name)}" for name, sql in _axis_columns(context).items())
    counted = ", ".join(f"t.{name}" for name in _COUNTED)
    rows = context.store.sql(
        f"SELECT g.label, g.seed, t.state{axes}, {counted}, g.trial, g.cell "
        "FROM grid_trial g JOIN trial t USING (trial) WHERE g.grid = $grid",
        {"grid": context.grid},
    )
    said = context.store.sql(
        "SELECT trial, array_to_string(tags, ' ') AS tags, note FROM v_annotation WHERE grid = $grid",
        {"grid": context.grid},
    )
    rows = rows.join(said, on="trial", how="left", maintain_order="left") if said.height else rows
    short = shorten_keys(context.store, rows["trial"].to_list())
    return in_order(
        rows.insert_column(0, pl.Series("run", short, dtype=pl.String)), [cell.cell for cell in context.cells], "seed"
    )


def _axes_name_cells(context: GridContext, rows: pl.DataFrame) -> bool:
    """True if every part of the names of cells is a level in a column of `rows`, which then says the same."""
    axes = [name for name in _axis_columns(context) if name in rows.columns]
    for label, *levels in rows.select("label", *axes).unique().iter_rows():
        if not {part.partition("=")[2] or part for part in label.split(BETWEEN)} <= set(map(label_of, levels)):
            return False
    return True


def _column_of(text: str, rows: pl.DataFrame) -> str:
    """The column of a measurement; one that is called like a column of `trials` is marked as a value."""
    return f"{text} (value)" if text in rows.columns else text


def pickable(context: GridContext, rows: pl.DataFrame) -> list[str]:
    """List the columns to choose from: varying axes, measurements, other varying fields, constant fields."""
    fixed = [name for name in rows.columns if name not in (*ALWAYS, "trial", "cell")]
    vary = [name for name in fixed if rows[name].drop_nulls().n_unique() > 1]
    axes = [name for name in vary if name not in _COUNTED]
    measured = [_column_of(text, rows) for text in measurements(context.store, context.grid)]
    return list(dict.fromkeys([*axes, *measured, *vary, *fixed]))


def _usual(context: GridContext, rows: pl.DataFrame) -> list[str]:
    axes = [name for name in _axis_columns(context) if rows[name].drop_nulls().n_unique() > 1]
    measure = context.measure
    of_grid = [] if measure is None else [_column_of(text_of(measure.name, measure.point), rows)]
    tags, note = ([name] if name in rows.columns else [] for name in ("tags", "note"))
    rest = [name for name in ("step", "wall_s", "attempts", "reason") if rows[name].null_count() < rows.height]
    return [*of_grid, *tags, *axes, *note, *rest]


def _with_values(context: GridContext, rows: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The frame with a column for every measurement in `names` that it does not have."""
    told = dict(measurements(context.store, context.grid))
    if context.measure is not None:
        told[text_of(context.measure.name, context.measure.point)] = (context.measure.name, dict(context.measure.point))
    known = {_column_of(text, rows): what for text, what in told.items()}
    for name in names:
        if name not in rows.columns:
            rows = rows.join(_values(context, *known[name]).rename({"value": name}), on="trial", how="left")
    return rows


def _values(context: GridContext, name: str, at: Mapping[str, float]) -> pl.DataFrame:
    """The final value of every finished trial at a point: trial, value."""
    condition, parameters = agrees(at)
    return context.store.sql(
        f"SELECT trial, value FROM v_final WHERE grid = $grid AND name = $name AND {condition} "
        "QUALIFY source = min(source) OVER () "  # an evaluation before a metric of the same name, of all runs
        "AND row_number() OVER (PARTITION BY trial, source ORDER BY point) = 1",
        {"grid": context.grid, "name": name, **parameters},
    )


@memoise
def _runs(view: PageView) -> SlotContent:
    context = grid_of(view)
    rows = trials(context)
    usual = _usual(context, rows)
    known = [*ALWAYS, *usual, *pickable(context, rows)]
    wanted = [_name_now(name, known) for name in view.address.columns]
    for name in wanted:
        require(f"grid {context.grid!r}", "column", name, known)
    names = list(dict.fromkeys([*ALWAYS, *(wanted or usual)]))
    whole = _with_values(context, rows, names).select(*names, "trial")
    shown = keep_rows(whole.with_columns(cell="label"), view.address.filter).drop("cell")
    answer = _answer(context, rows.filter(pl.col("trial").is_in(shown["trial"].implode())))
    order = _name_now(_full_name(context, rows, view.address.sort), rows.columns)
    if by := _name_now(view.address.by, shown.columns):
        measure = "" if context.measure is None else _full_name(context, rows, context.measure.name)
        return _group_rows(context, shown, by, order, measure)._replace(answer=answer)
    shown = _sort(shown, order)
    pins = [key_of(view.store, begins) for begins in view.address.pin]
    pinned = whole.filter(pl.col("trial").is_in(pins))
    heads: dict[str, dict[str, Any]] = {name: _head(context, name) for name in names}
    for name in set(names) & set(_axis_columns(context)):
        heads[name] |= {"valueFormatter": {"function": _LEVEL}}  # blank where an axis does not apply
    signs = "".join(f"params.value == '{state}' ? '{icon} {state}' : " for state, icon in ICONS.items())
    if _axes_name_cells(context, whole):
        heads["label"]["hide"] = True
    heads["state"] |= {"valueFormatter": {"function": f"{signs}params.value"}, "width": 130}
    heads["run"] = link("run", "run", width=130, pinned="left", tooltipField="trial", headerName="run")
    named = [*_axis_columns(context)] if heads["label"].get("hide") else ["label"]
    judged = context.measure and _column_of(text_of(context.measure.name, context.measure.point), rows)
    for place, name in enumerate(name for name in (*named, judged) if name in heads):
        heads[name] |= on_phone(place=place, **_PHONE)
    heads["run"] |= on_phone(place=98, pinned=None)
    listed = _mark_order(columns(shown.drop("trial"), heads), order)
    kept = "" if shown.height == rows.height else f"{shown.height} of {count(rows.height, 'trial')} fit the filter. "
    caption = kept + _caption(context, shown)
    keys = (catch_user_error(partial(key_of, view.store, begins))[0] for begins in view.address.selected)
    selected = [key for key in keys if key is not None]
    if lost := len(view.address.selected) - len(selected):
        caption = f"{count(lost, 'selected run')} cannot be found. {caption}"
    return SlotContent(caption=caption, data=shown, columns=listed, selected=selected, pinned=pinned, answer=answer)


def _group_rows(context: GridContext, rows: pl.DataFrame, by: str, order: str, measure: str) -> SlotContent:
    """A row per value of a column: how many trials, how many of them ended well, and means of what they measured.

    The column `measure` has its spread beside it.
    """
    require("the table", "column", by, rows.columns)
    apart = {by, "seed", "attempts", *_axis_columns(context)}  # a mean of levels of an axis is no level
    numbers = [name for name, kind in rows.schema.items() if kind.is_numeric() and name not in apart]
    means = rows.group_by(by, maintain_order=True).agg(
        pl.col("trial").first(),
        pl.len().alias("trials"),
        (pl.col("state") == State.DONE).sum().alias("done"),
        *(
            part
            for name in numbers
            for part in [pl.col(name).mean(), *([pl.col(name).std().alias(_SPREAD)] if name == measure else [])]
        ),
    )
    name = order.removeprefix("-")
    if name not in means.columns:
        require("the table", "column", name or by, rows.columns)
        order = ""
    shown = _sort(means, order)
    names: dict[str, dict[str, Any]] = {name: _head(context, name) for name in shown.columns}
    for name in numbers:
        if rows[name].dtype.is_integer():
            names[name]["valueFormatter"] = {"function": _EXACT}
    listed = _mark_order(columns(shown.drop("trial"), names), order)
    spread = f" {_SPREAD}: standard deviation over these trials." if _SPREAD in means.columns else ""
    caption = f"{count(rows.height, 'trial')} by {_title(by)}: means of the trials that have a value.{spread}"
    return SlotContent(caption=caption, data=shown, columns=listed)


def _name_now(name: str, there: Collection[str]) -> str:
    """Return the column that a name of release 0.1.0 stands for, with its sign; other names as they are."""
    plain = name.removeprefix("-")
    return name if plain in there else "-" * name.startswith("-") + _FORMER.get(plain, plain)


def _full_name(context: GridContext, rows: pl.DataFrame, by: str) -> str:
    """Return `by` with the measure's column in place of its bare name."""
    name = by.removeprefix("-")
    if context.measure is None or name != context.measure.name or name in rows.columns:
        return by
    return "-" * by.startswith("-") + _column_of(text_of(name, context.measure.point), rows)


def _sort(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    if not by:
        return rows
    name = require("the table", "column", by.removeprefix("-"), rows.columns)
    return rows.sort(name, descending=by.startswith("-"), nulls_last=True, maintain_order=True)


def _mark_order(listed: Sequence[Mapping[str, Any]], by: str) -> list[dict[str, Any]]:
    """Show in the heading of a column that the table is in its order, as if the reader had clicked there."""
    way, order = "desc" if by.startswith("-") else "asc", {"comparator": {"function": "ablateRows"}}
    return [{**each, **order, "sort": way if each["field"] == by.removeprefix("-") else None} for each in listed]


def _answer(context: GridContext, rows: pl.DataFrame) -> str:
    """Count the shown trials by state, and name the best finished one by the grid's measure."""
    if rows.is_empty():
        return "No trial fits the filter."
    states = dict(rows.group_by("state").len().iter_rows())
    told = [f"{states[state]} {state}" for state in ICONS if state in states]
    said, measure = f"{count(rows.height, 'trial')}: {join_words(told)}.", context.measure
    if measure is None:
        return said
    values = _values(context, measure.name, measure.point).filter(pl.col("value").is_finite())
    kept = rows.join(values, on="trial", maintain_order="left")
    ranked = kept.sort("value", descending=measure.better == "higher", maintain_order=True)
    for value, cell, seed in ranked.select("value", "cell", "seed").head(1).iter_rows():
        extreme, equal = "Highest" if measure.better == "higher" else "Lowest", ranked.filter(value=value).height
        of = f"{context.appearance.names[cell]}, seed {seed}" if equal == 1 else f"{equal} trials"
        said += f" {extreme} {measure.name}: {number(value)}, of {of}."
        said += "\nOverview tells which differences between cells are real."
    return said


def _caption(context: GridContext, shown: pl.DataFrame) -> str:
    judged = "" if context.measure is None else f"{describe_measure(context.measure, context.unit)}. "
    kinds = [name for name, kind in shown.schema.items() if kind.is_float()]
    lost = int(shown.select(pl.any_horizontal(~pl.col(kinds).is_finite()).sum()).item()) if kinds else 0
    no_number = f" {count(lost, 'trial')} with a value that is no finite number, shown as –." if lost else ""
    return (
        f"{judged}A row is a trial; its values are the last ones, of finished trials alone.{no_number} Select rows to "
        "compare them."
    )


def _head(context: GridContext, name: str) -> dict[str, Any]:
    """Return the head of a column; the unit of the grid's measure is in the caption, those of others are here."""
    row, own = name.removesuffix(" (value)").partition("@")[0], (context.header["measure"] or {}).get("name")
    unit = "" if row == own else unit_of(context.header, row)
    return {"headerName": _title(name) + (f" ({unit})" if unit else ""), "headerTooltip": name}


def _title(name: str) -> str:
    """Write the title of a column: "mse@sigma_f=5" is "mse · sigma_f 5"."""
    measured, _, at = name.partition("@")
    return _TITLES.get(name, name) if not at else f"{measured}{BETWEEN}{at.replace('=', ' ').replace(',', ', ')}"


def _controls(view: PageView) -> Sequence[Control]:
    context = grid_of(view)
    rows = trials(context)
    usual = tuple(_usual(context, rows))
    names = {name: _title(name) for name in [*pickable(context, rows), *usual]}
    hint = "What varies comes first; measurements are the last values"
    sortable = [*ALWAYS, *(view.address.columns or usual)]
    measure = "" if context.measure is None else _full_name(context, rows, context.measure.name)
    spread = [_SPREAD] if measure in sortable and measure != view.address.by else []
    sorted_by = [*sortable, *(("trials", "done", *spread) if view.address.by else ())]
    groups = {"": "nothing", **{name: _title(name) for name in sortable[1:]}}
    orders = {"": "grid", **{name: _title(name) for name in sorted_by}}
    orders |= {f"-{name}": f"{_title(name)}, descending" for name in sorted_by}
    return (
        Control("filter", "Filter", "text", hint=HELP),
        Control("by", "Group by", "choice", groups, usual="", resets=("sort",)),
        Control("sort", "Sort by", "choice", orders, usual=""),
        Control("columns", "Columns", "choices", names, hint, usual),
        Control("pin", "Pinned", "choices", options(view.address.pin)),
        Control("selected", "", "hidden"),
    )


_PICKS: Final = (
    Pick("Curves of these", "curves", "run", "run"),
    Pick("What differs between these", "run", "run", "run", least=2),
    Pick("Pin on top", "runs", "pin", "run"),
)
RUNS = AppPage(
    name="runs",
    title="Runs",
    letter="r",
    question="What has run, with which choices, and what came out?",
    address=RunsAddress,
    controls=_controls,
    main=("filter", "by", "sort"),
    check=_runs,
    slots=(Slot("runs", "Runs", _runs, "table", picks=_PICKS, row="trial", selects="selected", sorts="sort"),),
)
