"""The rows behind a grid as flat tables, for other programs."""

from typing import Final

import polars as pl

from store.database import quoting
from store.database.queries import in_plan_order
from store.store import Store

MEASUREMENTS: Final = {"metrics": "v_metric", "evaluations": "v_evaluation", "probes": "v_probe", "items": "v_item"}
"""Tables of measurements that count, by the name that a user writes."""
TABLES: Final = ("verdicts", "cells", "trials", *MEASUREMENTS)
_WHO: Final = "g.grid, g.label, g.operator, g.seed"


def rows(store: Store, grid: str, table: str) -> pl.DataFrame:
    """One of `TABLES` for the grid, in the order of its plan.

    Points are one column per coordinate. Trials have a column per axis, and the grid's measure as `value`.
    """
    if table == "verdicts":
        from store.analysis.verdicts import verdicts

        return verdicts(store, grid)
    if table == "trials":
        from store.analysis.frames import trials

        found = in_plan_order(store.sql, store.grid(grid), trials(store, grid))
        return found.select(pl.lit(grid).alias("grid"), pl.all())
    if table == "cells":
        first = "SELECT grid, cell, min(position) AS position FROM grid_trial GROUP BY ALL"
        source = f"SELECT s.*, p.position FROM v_cell_stats s JOIN ({first}) p USING (grid, cell) WHERE grid = $grid"
        order = "name, source, position, point::VARCHAR"
    else:
        view, order = MEASUREMENTS[table], "position, step, name"
        source = f"SELECT {_WHO}, m.*, g.position FROM {view} m JOIN grid_trial g USING (trial) WHERE g.grid = $grid"
    asked = {"grid": grid}
    if table == "metrics":
        return store.sql(f"SELECT * EXCLUDE (position) FROM ({source}) ORDER BY {order}", asked)
    keys = store.sql(f"SELECT DISTINCT unnest(map_keys(point)) AS key FROM ({source}) ORDER BY key", asked)["key"]
    taken = store.sql(f"FROM ({source})", asked, most=0).columns
    named = {key: key if key.lower() not in taken else f"point.{key}" for key in keys}
    points = "".join(f", point[{quoting.text(key)}] AS {quoting.identifier(name)}" for key, name in named.items())
    return store.sql(f"SELECT * EXCLUDE (point, position){points} FROM ({source}) ORDER BY {order}", asked)
