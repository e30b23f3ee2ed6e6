"""Pareto sets of a grid: its measure beside what training cost, or beside anything else that runs ended with."""

from collections.abc import Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Final

import polars as pl

from grid.errors import NotFoundError
from grid.spec import did_you_mean
from store import queries
from store.statistics import Better, Objective
from store.statistics import pareto as pareto_set
from store.statistics.arms import arms, pair
from store.statistics.scales import Scale
from store.verdicts import measure_of, runs

if TYPE_CHECKING:
    from store.store import Store

COSTS: Final = ("train_s", "memory_bytes", "parameters", "joules", "flops_per_s", "tokens_per_s")
"""Columns that every grid has; those per second are better when higher."""


def pareto(store: "Store", grid: str, against: Sequence[str] = ("train_s",)) -> pl.DataFrame:
    """Which cells are dominated in the grid's measure and in each of `against`, as `store.statistics.pareto` says.

    `against` names costs or measurements of the grid (evaluations at a single point, training metrics), all of which
    are better when lower. Costs are compared by ratios, measurements by differences. Only runs that are ok count, and
    two cells of which `compare` would give no verdict in the measure show nothing about each other.

    Raises:
        NotFoundError: no run has one of them; names what there is.
        SpecError: fewer than two objectives, or a value that the measure's scale cannot take.
    """
    rules = measure_of(store, grid, None)
    found = runs(store, grid, rules)
    values = found.select("cell", "label", "seed", pl.col("value").alias(rules.name))
    objectives = [Objective(rules.name, rules.better, rules.scale)]
    costs = store.sql(_COSTS, {"grid": grid})
    for name in dict.fromkeys(each for each in against if each != rules.name):
        if name in COSTS:
            column = costs.select("cell", "seed", name)
            objectives.append(Objective(name, better(name), "log", name == "parameters"))
        else:
            column = _measured(store, grid, name)
            objectives.append(Objective(name, better(name), "linear"))
        if column[name].null_count() == column.height:
            have = [*(each for each in COSTS if costs[each].count()), *_recorded(store, grid)]
            raise NotFoundError(f"no finished run of grid {grid!r} has {name!r}; they have {have}")
        values = values.join(column, on=["cell", "seed"], how="left", maintain_order="left")
    words = pareto_set(values, objectives, alpha=rules.alpha, forbidden=_forbidden(found, rules.scale))
    return queries.in_plan_order(store.sql, store.grid(grid), words)


def better(name: str) -> Better:
    """The direction of a cost or of a measurement that is not the grid's measure."""
    return "higher" if name in COSTS and name.endswith("_per_s") else "lower"


def _forbidden(values: pl.DataFrame, scale: Scale) -> dict[tuple[str, str], str]:
    """Why `compare` would give no verdict, by the cell and the one it is compared with."""
    cells = arms(values)
    pairs = ((one, other, pair(cells[one], cells[other], scale)) for one, other in permutations(cells, 2))
    return {(one, other): pairing.problem for one, other, pairing in pairs if pairing.problem is not None}


def _measured(store: "Store", grid: str, name: str) -> pl.DataFrame:
    known = _known(store, grid)
    if name not in known:
        raise NotFoundError(f"grid {grid!r} has no {name!r}; there are {known}{did_you_mean(name, known)}")
    return store.final(grid, name).select("cell", "seed", pl.col("value").alias(name))


def _known(store: "Store", grid: str) -> list[str]:
    return [*COSTS, *_recorded(store, grid)]


def _recorded(store: "Store", grid: str) -> list[str]:
    names = store.sql("SELECT DISTINCT name FROM v_final WHERE grid = $grid ORDER BY ALL", {"grid": grid})
    return [name for name in names["name"].to_list() if name not in COSTS]


_COSTS: Final = """
SELECT c.cell, c.seed, c.train_s, c.memory_bytes, t.parameters, c.joules, c.flops_per_s, c.tokens_per_s
FROM v_cost c JOIN trial t USING (trial) WHERE c.grid = $grid
"""
