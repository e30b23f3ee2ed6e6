"""The wide views of each grid: `grid_<name>`, a row per trial and point, and `trials_<name>`, a row per trial."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import duckdb

from ablate.store.database import quoting
from ablate.store.database.connection import transaction

FIXED = {
    "trial": "key of the trial",
    "cell": "key of the cell: the trial without its seed",
    "seed": "replicate; trials of one seed are pairs",
    "label": "the cell in words",
    "operator": "name of its operator",
    "state": "done, failed, running, stopped, lost or pending, as of the last ingest",
}
"""Columns of both views, before the axes; an axis called operator (in old campaigns label or status) replaces one."""


MOST = 200
"""Measurements, and coordinates of their points, that have a column of their own beside the grid's measure."""


class _Column(NamedTuple):
    name: str
    expression: str
    meaning: str


class _Measured(NamedTuple):
    source: str
    name: str
    keys: tuple[str, ...]  # coordinates of the points at which it was taken


def view_name(grid: str) -> str:
    """`grid_` and the grid's name, with `_` for what an identifier cannot hold."""
    return "grid_" + re.sub(r"[^A-Za-z0-9_]", "_", grid)


def column_name(name: str) -> str:
    """`name` with `_` for what is no letter or digit: a column that needs no quotes unless it is a word of SQL."""
    plain = re.sub(r"\W+", "_", name) or "_"
    return f"_{plain}" if plain[:1].isdigit() else plain


def refresh_grid_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the views of all grids, and drop those of grids that are gone, unless nothing has changed since.

    Two grids whose views would have the same name (identifiers ignore case) get `grid_<name>_2` and so on; the one that
    is called `<name>` keeps the first, whatever comes after it.
    """
    known = dict(connection.execute("SELECT name, value FROM meta WHERE starts_with(name, 'grid_views')").fetchall())
    read = f"{MOST} {connection.execute(_READ).fetchone()}"
    if known.get("grid_views_of") == read:
        return
    statements = list(_statements(connection))
    made = blake2b("\n".join(statements).encode(), digest_size=16).hexdigest()
    with transaction(connection):
        if known.get("grid_views_made") != made:
            old = "SELECT view_name FROM duckdb_views() WHERE regexp_matches(view_name, '^(grid|trials)_')"
            for (name,) in connection.execute(old).fetchall():
                connection.execute(f"DROP VIEW {quoting.identifier(name)}")
            connection.execute(";\n".join(statements))
        connection.execute("DELETE FROM meta WHERE starts_with(name, 'grid_views')")
        connection.execute(
            "INSERT INTO meta VALUES ('grid_views_of', $read), ('grid_views_made', $made)", {"read": read, "made": made}
        )


def _statements(connection: duckdb.DuckDBPyConnection) -> Iterable[str]:
    execute = connection.execute
    axes: dict[str, list[tuple[str, str, str]]] = {}
    for grid, name, kind, path in execute("SELECT grid, name, type, path FROM axis ORDER BY grid, position").fetchall():
        axes.setdefault(grid, []).append((name, kind, path))
    measured = _read_measured(connection)
    tables = execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall()
    taken = {name.lower() for (name,) in tables}
    grids = [grid for (grid,) in execute("SELECT DISTINCT grid FROM grid_trial ORDER BY grid").fetchall()]
    for grid in sorted(grids, key=lambda name: (view_name(name) != f"grid_{name}", name != name.lower())):
        name = _free(view_name(grid), taken)
        trials = "trials_" + name.removeprefix("grid_")
        columns = _own_columns(axes.get(grid, []))
        yield from _make(trials, f"trial of the grid {grid}", _of_trials(grid, columns), columns)
        wide, joins = _values(grid, measured.get(grid, []), {column.name.lower() for column in columns})
        columns += wide
        yield from _make(name, f"trial and point of the grid {grid}", _of_trials(grid, columns) + joins, columns)


def _make(view: str, comment: str, select: str, columns: Iterable[_Column]) -> Iterable[str]:
    name, meanings = quoting.identifier(view), {column.name: column.meaning for column in columns}
    yield f"CREATE VIEW {name} AS {select}"
    yield f"COMMENT ON VIEW {name} IS {quoting.text(comment)}"
    for column, meaning in meanings.items():
        yield f"COMMENT ON COLUMN {name}.{quoting.identifier(column)} IS {quoting.text(meaning)}"


def _own_columns(axes: Sequence[tuple[str, str, str]]) -> list[_Column]:
    named = {column_name(name).lower() for name, _, _ in axes}
    fixed = [name for name in FIXED if name in ("trial", "cell", "seed") or name not in named]
    taken = set(fixed)
    columns = [_Column(name, f"{'t' if name == 'state' else 'g'}.{name}", FIXED[name]) for name in fixed]
    for name, kind, path in axes:
        at = quoting.text(quoting.member(name))
        meaning = f"axis {name}: {path}; null where it does not apply"
        columns.append(_Column(_free(column_name(name), taken), f"CAST(g.axes->>{at} AS {kind})", meaning))
    return columns


def _of_trials(grid: str, columns: Iterable[_Column]) -> str:
    shown = ", ".join(f"{column.expression} AS {quoting.identifier(column.name)}" for column in columns)
    planned = f"(SELECT * FROM grid_trial WHERE grid = {quoting.text(grid)})"
    return f"SELECT {shown} FROM {planned} g JOIN trial t ON t.trial = g.trial"


def _values(grid: str, measured: Iterable[_Measured], taken: set[str]) -> tuple[list[_Column], str]:
    """Columns of coordinates and values, and the joins that bring them.

    A value that is taken at points stands in their rows; any other belongs to the trial and stands in all of its rows.
    """
    listed = sorted(measured, key=lambda each: (each.source, not each.keys, each.name))
    keys = sorted({key for each in listed for key in each.keys})
    columns = [
        _Column(_free(column_name(key), taken, "point"), f"p.c{at}", f"coordinate {key} of the point")
        for at, key in enumerate(keys)
    ]
    inner: dict[str, list[str]] = {"p": [], "w": []}
    for each in listed:
        side = inner["p" if each.keys else "w"]
        condition = f"source = {quoting.text(each.source)} AND name = {quoting.text(each.name)}"
        expression = f"{'p' if each.keys else 'w'}.v{len(side)}"
        side.append(f"any_value(value) FILTER (WHERE {condition}) AS v{len(side)}")
        kind = "at the point" if each.keys else "of the trial, in each of its rows"
        meaning = f"final value of the {each.source} {each.name} {kind}"
        columns.append(_Column(_free(column_name(each.name), taken, each.source), expression, meaning))
    located = ", ".join(quoting.text(each.name) for each in listed if each.keys) or "NULL"
    at_points = f"source = 'evaluation' AND name IN ({located})"
    coordinates = [f"point[{quoting.text(key)}] AS c{at}" for at, key in enumerate(keys)]
    return columns, "".join(
        f" LEFT JOIN (SELECT {', '.join(['trial', *select])} FROM v_final WHERE grid = {quoting.text(grid)}"
        f" AND {condition} GROUP BY ALL) {alias} ON {alias}.trial = g.trial"
        for alias, select, condition in (
            ("p", [*coordinates, *inner["p"]], at_points),
            ("w", inner["w"], f"NOT coalesce({at_points}, false)"),
        )
        if inner[alias]
    )


def _read_measured(connection: duckdb.DuckDBPyConnection) -> Mapping[str, list[_Measured]]:
    """Choose by grid the names that have a column: its measure, even before it has a value, and the commonest names."""
    recorded: dict[str, list[_Measured]] = {}
    for grid, source, name, keys in connection.execute(_NAMES).fetchall():
        recorded.setdefault(grid, []).append(_Measured(source, name, tuple(sorted(keys))))
    measures = dict(connection.execute("SELECT grid, measure FROM grid WHERE measure IS NOT NULL").fetchall())
    measured = {}
    for grid in {*recorded, *measures}:
        measure: dict[str, Any] = json.loads(measures.get(grid, "{}"))
        planned, point = str(measure.get("name") or ""), measure.get("point") or {}
        chosen = [each for each in recorded.get(grid, []) if each.name == planned]
        if planned and not chosen:
            chosen = [_Measured("evaluation", planned, tuple(sorted(map(str, point))))]
        others = [each for each in recorded.get(grid, []) if each.name != planned]
        measured[grid] = chosen + _choose(others, {key for each in chosen for key in each.keys})
    return measured


def _choose(names: Iterable[_Measured], coordinates: set[str]) -> list[_Measured]:
    """Choose `MOST` names, and no name whose points would bring more than `MOST` coordinates."""
    chosen: list[_Measured] = []
    for each in names:
        if len(chosen) < MOST and len(coordinates.union(each.keys)) <= MOST:
            chosen.append(each)
            coordinates.update(each.keys)
    return chosen


_NAMES = """
    SELECT grid, source, name, list_distinct(flatten(list(DISTINCT map_keys(point)))) AS keys
    FROM v_final GROUP BY grid, source, name ORDER BY count(DISTINCT trial) DESC, name, source
"""
"""A name of more trials comes first, so which have a column is the same on every machine."""

_READ = """
    SELECT (SELECT (count(*), sum(hash(blake2b))) FROM shard), (SELECT count(*) FROM bad_shard),
           (SELECT sum(hash(trial, state, step)) FROM trial), (SELECT sum(hash(c)) FROM counted c),
           (SELECT sum(hash(p)) FROM plan_file p), (SELECT sum(hash(d)) FROM doubt d),
           (SELECT sum(hash(trial, attempt, evaluation, signature)) FROM evaluated)
"""
"""All that names of columns follow from, with `MOST`."""


def _free(name: str, taken: set[str], kind: str | None = None) -> str:
    """`name`, or with `_<kind>`, then `_2`, `_3`, ... if it is taken; SQL tells no cases apart."""
    stem = f"{name}_{kind}" if kind is not None and name.lower() in taken else name
    free, number = stem, 1
    while free.lower() in taken:
        number += 1
        free = f"{stem}_{number}"
    taken.add(free.lower())
    return free
