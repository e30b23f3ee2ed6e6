"""The rows behind a grid as flat tables, with a column per axis or coordinate: for `Campaign` and other programs."""

import json
from typing import Final

import polars as pl

from ablate.store.analysis.judge import judge
from ablate.store.analysis.verdicts import measure_of
from ablate.store.database.queries import coordinates, in_plan_order
from ablate.store.export.tracker_runs import read_configs
from ablate.store.store import Store

MEASUREMENTS: Final = {"metrics": "v_metric", "evaluations": "v_evaluation", "probes": "v_probe", "items": "v_item"}
"""Tables of measurements that count, by the name that a user writes."""
TABLES: Final = ("verdicts", "cells", "trials", *MEASUREMENTS)
_WHO: Final = "g.grid, g.label, g.operator, g.seed"

_ALWAYS: Final = ("seed", "cell", "trial")
"""Columns that no axis is called like; an axis takes the place of any other of its name, as in the view of the grid."""
_KEYS: Final = ("operator", "cell", "trial")
_TYPES: Final = {"BIGINT": pl.Int64, "DOUBLE": pl.Float64, "BOOLEAN": pl.Boolean, "VARCHAR": pl.String}


def rows(store: Store, grid: str, table: str) -> pl.DataFrame:
    """One of `TABLES` for the grid, in the order of its plan.

    Points are one column per coordinate. Trials have a column per axis, the grid's measure as `value`, and `config`:
    the levels as JSON text, of logged runs with the rest of their config.
    """
    if table == "verdicts":
        return judge(store, grid).rows
    if table == "trials":
        frame = in_plan_order(store.sql, store.grid(grid), trials(store, grid))
        configs = read_configs(store, grid)
        texts = pl.Series(
            "config", [json.dumps(configs[trial], ensure_ascii=False) for trial in frame["trial"]], pl.String
        )
        return frame.select(pl.lit(grid).alias("grid"), pl.all(), *[] if "config" in frame.columns else [texts])
    if table == "cells":
        source, order = "SELECT *, 0 AS position FROM v_cell_stats WHERE grid = $grid", "point"
    else:
        view, order = MEASUREMENTS[table], "position, step, name"
        source = f"SELECT {_WHO}, m.*, g.position FROM {view} m JOIN grid_trial g USING (trial) WHERE g.grid = $grid"
    asked = {"grid": grid}
    if table == "metrics":
        return store.sql(f"SELECT * EXCLUDE (position) FROM ({source}) ORDER BY {order}", asked)
    taken = store.sql(f"FROM ({source})", asked, most=0).columns
    points = coordinates(store.sql, f"({source})", asked, taken)
    frame = store.sql(f"SELECT * EXCLUDE (point, position){points} FROM ({source}) ORDER BY {order}", asked)
    if table == "cells":
        frame = in_plan_order(store.sql, store.grid(grid), frame).sort("name", "source", maintain_order=True)
    return frame


def trials(store: Store, grid: str) -> pl.DataFrame:
    """One row per planned trial of `grid`; see `Campaign.trials`."""
    frame = store.sql(_TRIALS, {"grid": grid})
    levels = [json.loads(text) for text in frame["axes"]]
    axes = store.sql("SELECT name, type FROM axis WHERE grid = $grid ORDER BY position", {"grid": grid})
    named = {name.lower() for name in axes["name"]}
    own = frame.drop("axes", "position", *(name for name in frame.columns if name in named and name not in _ALWAYS))
    columns = []
    for name, kind in axes.iter_rows():
        values = [row.get(name) for row in levels]
        if kind == "VARCHAR":
            values = [each if each is None or isinstance(each, str) else json.dumps(each) for each in values]
        columns.append(pl.Series(name, values, _TYPES[kind], strict=False))
    if (store.grid(grid)["measure"] or {}).get("name"):
        measure = measure_of(store, grid, None)
        value = store.final(grid, measure.name, measure.point)["value"]
        columns.append(value.alias("value_2" if "value" in named else "value"))
    frame, keys = own.with_columns(columns), [name for name in _KEYS if name in own.columns]
    return frame.select(pl.exclude(keys), *keys)


def probes(store: Store, grid: str, name: str) -> pl.DataFrame:
    """One row per trial, step, layer, head and point; see `Campaign.probes`."""
    of = "v_probe p JOIN grid_trial g USING (trial) JOIN trial t USING (trial) WHERE g.grid = $grid AND p.name = $name"
    parameters = {"grid": grid, "name": name}
    points = coordinates(store.sql, of, parameters)
    return store.sql(
        f"SELECT g.label, g.seed, t.state, p.step, p.layer, p.head{points}, p.value, g.operator, g.cell, trial "
        f"FROM {of} ORDER BY g.position, p.step, p.layer, p.head, p.point",
        parameters,
    )


_TRIALS: Final = """
SELECT g.label, g.seed, t.state, t.reason, t.attempts, t.step, t.wall_s, t.parameters, t.operator_parameters,
       g.operator, g.cell, g.trial,
       g.axes::VARCHAR AS axes, g.position
FROM grid_trial g JOIN trial t USING (trial) WHERE g.grid = $grid ORDER BY g.position
"""
