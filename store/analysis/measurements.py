"""Measurements of a grid's finished runs, and the measure that one of them is.

In an address or a command, a measurement is one short text: "mse@sigma_f=5,sigma_x=1".
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.store.analysis.metrics import direction
from ablate.store.analysis.verdicts import GridMeasure, measure_of
from ablate.store.store import Store

_MOST_NAMED = 12


def text_of(name: str, at: Mapping[str, float]) -> str:
    """A measurement at a point: "mse@sigma_f=5,sigma_x=1"; "loss" where there is only one."""
    where = ",".join(f"{axis}={value:.12g}" for axis, value in sorted(at.items()))
    return f"{name}@{where}" if where else name


def measurements(store: Store, grid: str) -> dict[str, tuple[str, dict[str, float]]]:
    """Everything that finished runs of `grid` have as one number, by `text_of`: name and point; evaluations first.

    A training metric with the name of an evaluation is not among them, as in `Store.final`; nor are knock-outs, which
    are changes of a measure in one model.
    """
    recorded = store.sql(
        "SELECT DISTINCT source, name, point FROM v_final WHERE grid = $grid AND NOT starts_with(name, 'knockout.') "
        "ORDER BY source, name, point",
        {"grid": grid},
    )
    judged = set(recorded.filter(source="evaluation")["name"])
    kept = recorded.filter((pl.col("source") == "evaluation") | ~pl.col("name").is_in(list(judged)))
    rows = [(str(name), dict(at)) for name, at in kept.select("name", "point").iter_rows()]
    rows.sort(key=lambda row: not row[1])  # evaluations, which have a point, come first
    return {text_of(*row): row for row in rows}


def find_measure(store: Store, grid: str, wanted: str, changes: Mapping[str, Any] | None = None) -> GridMeasure:
    """Return the measurement `wanted` as a measure of the grid, with single fields replaced.

    Coordinates that `wanted` leaves out are those of the grid's measure. Other measurements are compared on the linear
    scale without a rope; lower is better if nothing says otherwise. Raises NotFoundError if no finished run has it, and
    SpecError if several fit.
    """
    known, own = measurements(store, grid), store.grid(grid)["measure"] or {}
    name, at = known[_find(known, own, wanted, grid)]
    usual = {"scale": "linear", "rope": 0.0, "better": direction(name) or "lower"}
    other = {} if name == own.get("name") else usual
    return measure_of(store, grid, {**other, "name": name, "point": at, **(changes or {})})


def _find(known: Mapping[str, tuple[str, dict[str, float]]], own: Mapping[str, Any], wanted: str, grid: str) -> str:
    name, _, where = wanted.partition("@")
    conditions = set(filter(None, where.split(",")))
    fitting = [
        each for each, (of, _) in known.items() if of == name and conditions <= set(each.partition("@")[2].split(","))
    ]
    if name == own.get("name") and len(fitting) > 1:
        axes = {each.partition("=")[0] for each in conditions}
        usual = {axis: value for axis, value in own["point"].items() if axis not in axes}
        fitting = [each for each in fitting if usual.items() <= known[each][1].items()]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise SpecError(f"several measures of {grid!r} fit {wanted!r}: {some(fitting, _MOST_NAMED)}; name one of them")
    have = (some([*known], _MOST_NAMED) or "none") + suggest_name(wanted, [*known, *(of for of, _ in known.values())])
    raise NotFoundError(f"a finished run of {grid!r} has no measure {wanted!r}; it has {have}")
