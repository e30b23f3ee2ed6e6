"""The views `grid_<name>`: the trials of one grid, with one typed column per axis."""

import re

import duckdb

from store import quoting

FIXED = ("trial", "cell", "seed", "label", "operator", "status")
"""Columns of every grid view, before the axes."""

_KEPT = ("trial", "cell", "seed")


def view_name(grid: str) -> str:
    """The SQL name of a grid's view: `grid_` and the grid's name, with `_` for what an identifier cannot hold."""
    return "grid_" + re.sub(r"[^A-Za-z0-9_]", "_", grid)


def create_grid_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make one view per grid of the database and drop those of grids that are gone.

    Two grids whose views would have the same name (identifiers ignore case) get `grid_<name>_2` and so on.
    """
    old = connection.execute("SELECT view_name FROM duckdb_views() WHERE starts_with(view_name, 'grid_')").fetchall()
    for (name,) in old:
        connection.execute(f"DROP VIEW {quoting.identifier(name)}")
    taken = {"grid_trial"}
    for (grid,) in connection.execute("SELECT DISTINCT grid FROM grid_trial ORDER BY grid").fetchall():
        name = _free(view_name(grid), taken)
        connection.execute(f"CREATE VIEW {quoting.identifier(name)} AS {_select(connection, grid)}")


def _select(connection: duckdb.DuckDBPyConnection, grid: str) -> str:
    axes = connection.execute(
        "SELECT name, type FROM axis WHERE grid = $grid ORDER BY position", {"grid": grid}
    ).fetchall()
    named = {name.lower() for name, _ in axes}
    fixed = [name for name in FIXED if name in _KEPT or name not in named]
    taken = set(fixed)
    columns = [f"t.status AS {name}" if name == "status" else f"g.{name}" for name in fixed]
    for name, kind in axes:
        path = quoting.text('$."' + name.replace("\\", "\\\\").replace('"', '\\"') + '"')
        columns.append(f"CAST(g.axes->>{path} AS {kind}) AS {quoting.identifier(_free(name, taken))}")
    return (
        f"SELECT {', '.join(columns)} FROM grid_trial g JOIN trial t USING (trial) WHERE g.grid = {quoting.text(grid)}"
    )


def _free(name: str, taken: set[str]) -> str:
    """`name`, or with `_2`, `_3`, ... if it is taken; names that differ in case only are the same name in SQL."""
    found, number = name, 1
    while found.lower() in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found.lower())
    return found
