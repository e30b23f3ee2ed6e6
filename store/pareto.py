"""Pareto sets of a grid: its measure beside what training cost, or beside anything else that runs ended with."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import polars as pl

from grid.errors import NotFoundError
from grid.spec import did_you_mean
from store import queries
from store.statistics import Objective
from store.statistics import pareto as pareto_set
from store.verdicts import measure_of, runs

if TYPE_CHECKING:
    from store.store import Store

COSTS: Final = ("train_s", "memory_bytes", "parameters", "joules", "flops_per_s", "tokens_per_s")
"""Columns that every grid has; those per second are better when higher."""


def pareto(store: "Store", grid: str, against: Sequence[str] = ("train_s",)) -> pl.DataFrame:
    """Which cells are dominated in the grid's measure and in each of `against`, as `store.statistics.pareto` says.

    `against` names costs or measurements of the grid (evaluations at a single point, training metrics), all of which
    are better when lower. Costs are compared by ratios, measurements by differences. Only runs that are ok count.

    Raises:
        NotFoundError: no run has one of them; names what there is.
        SpecError: fewer than two objectives, or a value that the measure's scale cannot take.
    """
    rules = measure_of(store, grid, None)
    values = runs(store, grid, rules).select("cell", "label", "seed", pl.col("value").alias(rules.name))
    objectives = [Objective(rules.name, rules.better, rules.scale)]
    costs = store.sql(_COSTS, {"grid": grid})
    for name in dict.fromkeys(each for each in against if each != rules.name):
        if name in COSTS:
            column = costs.select("cell", "seed", name)
            objectives.append(Objective(name, "higher" if name.endswith("_per_s") else "lower", "log"))
        else:
            column = _measured(store, grid, name)
            objectives.append(Objective(name, "lower", "linear"))
        if column[name].null_count() == column.height:
            raise NotFoundError(f"no finished run of grid {grid!r} has {name!r}; there are {_known(store, grid)}")
        values = values.join(column, on=["cell", "seed"], how="left", maintain_order="left")
    return queries.in_plan_order(store.sql, store.grid(grid), pareto_set(values, objectives, alpha=rules.alpha))


def _measured(store: "Store", grid: str, name: str) -> pl.DataFrame:
    known = _known(store, grid)
    if name not in known:
        raise NotFoundError(f"grid {grid!r} has no {name!r}; there are {known}{did_you_mean(name, known)}")
    return store.final(grid, name).select("cell", "seed", pl.col("value").alias(name))


def _known(store: "Store", grid: str) -> list[str]:
    names = store.sql("SELECT DISTINCT name FROM v_final WHERE grid = $grid ORDER BY ALL", {"grid": grid})
    return [*COSTS, *names["name"].to_list()]


_COSTS: Final = """
SELECT c.cell, c.seed, c.train_s, c.memory_bytes, t.parameters, c.joules, c.flops_per_s, c.tokens_per_s
FROM v_cost c JOIN trial t USING (trial) WHERE c.grid = $grid
"""
