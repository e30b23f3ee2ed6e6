"""Measurements of a grid's finished runs, and the measure that one of them is.

In an address or a command, a measurement is one short text: "mse@sigma_f=5,sigma_x=1".
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from grid.errors import NotFoundError
from grid.names import some
from store.analysis.metrics import direction
from store.analysis.verdicts import GridMeasure, measure_of
from store.store import Store

_MOST_NAMED = 12


def text_of(name: str, at: Mapping[str, float]) -> str:
    """A measurement at a point: "mse@sigma_f=5,sigma_x=1"; "loss" where there is only one."""
    where = ",".join(f"{axis}={value:.12g}" for axis, value in sorted(at.items()))
    return f"{name}@{where}" if where else name


def measurements(store: Store, grid: str) -> dict[str, tuple[str, dict[str, float]]]:
    """Everything that finished runs of `grid` have as one number, by `text_of`: name and point; evaluations first.

    A training metric that an evaluation is called like is not among them: its name means the evaluation, as in
    `Store.final`.
    """
    found = store.sql(
        "SELECT DISTINCT source, name, point FROM v_final WHERE grid = $grid ORDER BY source, name, point::VARCHAR",
        {"grid": grid},
    )
    judged = set(found.filter(source="evaluation")["name"])
    kept = found.filter((pl.col("source") == "evaluation") | ~pl.col("name").is_in(list(judged)))
    rows = [(str(name), dict(at)) for name, at in kept.select("name", "point").iter_rows()]
    rows.sort(key=lambda row: not row[1])  # evaluations, which have a point, come first
    return {text_of(*row): row for row in rows}


def find_measure(store: Store, grid: str, wanted: str, changes: Mapping[str, Any] | None = None) -> GridMeasure:
    """Return the measurement `wanted` as a measure of the grid, with single fields replaced.

    Another measurement than the grid's own is compared on the linear scale, without a margin that counts as equal.
    Raises NotFoundError if no finished run has it.
    """
    known = measurements(store, grid)
    if wanted not in known:
        have = some([*known], _MOST_NAMED) or "none"
        raise NotFoundError(f"a finished run of {grid!r} has no measure {wanted!r}; it has {have}")
    name, at = known[wanted]
    own = (store.grid(grid)["measure"] or {}).get("name")
    other = {} if name == own else {"scale": "linear", "rope": 0.0, "better": direction(name) or "lower"}
    return measure_of(store, grid, {**other, "name": name, "point": at, **(changes or {})})
