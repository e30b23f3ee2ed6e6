"""Pareto sets of a grid: its measure beside what training cost, or beside anything else that runs ended with."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.store.analysis.metrics import direction
from ablate.store.analysis.row_labels import clip_interval
from ablate.store.analysis.verdicts import measure_of, runs, tune_runs
from ablate.store.database import queries
from ablate.store.statistics import Better, Objective, pareto as pareto_set
from ablate.store.statistics.arms import Arm, arms, pair
from ablate.store.statistics.scales import Scale, fits, forward
from ablate.store.statistics.verdict import MIN_PAIRS
from ablate.store.store import Store

TAKEN: Final = (
    *("cell", "label", "seed", "state", "trial", "n", "low", "high"),
    *("standing", "dominated_by", "inconclusive", "note"),
)
"""Columns of runs and of a Pareto set, which no objective can be called like."""

EXACT: Final = ("parameters", "flops")  # costs without noise
COSTS: Final = ("train_s", "memory_bytes", "parameters", "flops", "joules", "flops_per_s", "tokens_per_s")
"""Columns that every grid has; those per second are better when higher."""

OF_MACHINE: Final = ("train_s", "joules", "flops_per_s", "tokens_per_s")  # differ also with what else a machine does

_SURELY: Final = 1e-9  # differences that vary by so much of the size of the values do not do so by rounding


class Quantity(NamedTuple):
    """An objective beside the grid's measure."""

    name: str  # a cost, a measurement or a probe; in this order where several are called so
    point: Mapping[str, float] = {}  # name of a measurement or a probe
    better: Better | None = None  # None: as `rule` says
    column: str = ""  # name of its column; empty: its own name


class Compared(NamedTuple):
    """The runs of a grid, ready to be compared in several objectives."""

    values: pl.DataFrame  # trial, cell, label, seed, state and a column per objective; every planned run
    chosen: pl.DataFrame | None  # the same of the level that all seeds choose, where settings are tuned
    objectives: list[Objective]
    forbidden: dict[tuple[str, str], str]
    """Why `compare` would give no verdict, by the cell and the one it is compared with."""
    alpha: float
    header: Mapping[str, Any]
    """The grid's."""


def pareto(store: Store, grid: str, against: Sequence[str | Quantity] = ("train_s",)) -> pl.DataFrame:
    """Which cells `ablate.store.statistics.pareto` says are dominated in the grid's measure and in each of `against`.

    Settings count at their best level of nuisance axes, as verdicts compare them, with the costs of the same runs.
    `against` names costs, measurements or probes, each with the direction and the scale of `rule` unless said
    otherwise; a probe is averaged over layers and heads. A measurement that is called like another column has "(value)"
    behind its name. Two cells of which `compare` would give no verdict in the measure show nothing about each other.
    Raises NotFoundError: no run has one of them; SpecError: fewer than two objectives, several points agree, or a value
    that the measure's scale cannot take.
    """
    compared = read_objectives(store, grid, against)
    return queries.in_plan_order(store.sql, compared.header, standings(compared))


def standings(compared: Compared) -> pl.DataFrame:
    """Return what `ablate.store.statistics.pareto` says of the runs of a grid; intervals end where the measure does."""
    values, objectives, chosen = compared.values, compared.objectives, compared.chosen
    frame = pareto_set(values, objectives, alpha=compared.alpha, forbidden=compared.forbidden, chosen=chosen)
    return clip_interval(compared.header, frame, objectives[0].column)


def read_objectives(
    store: Store, grid: str, against: Sequence[str | Quantity], *, measure: Mapping[str, Any] | None = None
) -> Compared:
    """Read the values that `pareto` compares; `measure` replaces single fields of the grid's. Raises as `pareto`."""
    grid_measure = measure_of(store, grid, measure)
    every = runs(store, grid, grid_measure)
    tuned = tune_runs(store, grid, every, grid_measure)
    trials, own = tuned.values, _free(grid_measure.name)
    columns = ("trial", "cell", "label", "seed", "state", pl.col("value").alias(own))
    values, chosen = trials.select(*columns), every.filter(pl.col("cell").is_in(tuned.choices)).select(*columns)
    objectives = [Objective(own, grid_measure.better, grid_measure.scale)]
    costs = store.sql(_COSTS, {"grid": grid})
    named = [Quantity(each) if isinstance(each, str) else each for each in against]
    wanted = {_free(each.column or each.name): each for each in named}
    for column, each in wanted.items():
        if column == own:
            continue
        way, scale, _ = rule(store, grid, each.name)
        objectives.append(Objective(column, each.better or way, scale, each.name in EXACT))
        if each.name in COSTS:
            taken = costs.select("trial", pl.col(each.name).alias(column))
        else:
            taken = _read_values(store, grid, each).select("trial", pl.col("value").alias(column))
        if taken[column].null_count() == taken.height:
            have = ", ".join([*known_costs(store, grid), *_read_recorded(store, grid)]) or "nothing yet"
            raise NotFoundError(f"no finished run of grid {grid!r} has {each.column or each.name!r}; they have {have}")
        values, chosen = (each.join(taken, on="trial", how="left", maintain_order="left") for each in (values, chosen))
    cells = arms(trials)
    known = _of_clean(cells, grid_measure.scale)
    for one, other in permutations(cells, 2):
        if (one, other) not in known:
            known[one, other] = pair(cells[one], cells[other], grid_measure.scale).problem
    forbidden = {both: problem for both, problem in known.items() if problem is not None}
    return Compared(
        values, chosen if tuned.choices else None, objectives, forbidden, grid_measure.alpha, store.grid(grid)
    )


def _free(name: str) -> str:
    return f"{name} (value)" if name in TAKEN else name


class Way(NamedTuple):
    """How a quantity is compared."""

    better: Better
    scale: Scale
    known: bool = True  # whether anything says which way is better; else it is taken as better when lower


def rule(store: Store, grid: str, name: str) -> Way:
    """How `name` is compared: costs by ratios, the own measure as the grid says, others by differences."""
    if name in COSTS:
        return Way("higher" if name.endswith("_per_s") else "lower", "log")
    own = store.grid(grid)["measure"] or {}
    if own.get("name") == name:
        grid_measure = measure_of(store, grid, None)
        return Way(grid_measure.better, grid_measure.scale)
    way = direction(name)
    return Way(way or "lower", "linear", known=way is not None)


def known_costs(store: Store, grid: str) -> list[str]:
    """Return the entries of `COSTS` that a finished run of the grid recorded; those that differ between runs first."""
    costs = store.sql(_COSTS, {"grid": grid})
    known = [name for name in COSTS if costs[name].count()]
    return sorted(known, key=lambda name: costs[name].drop_nulls().n_unique() == 1)


def _of_clean(cells: Mapping[str, Arm], scale: Scale) -> dict[tuple[str, str], str | None]:
    """Return the problem of `pair` for equal pairs of cells, all at once; one by one, a thousand cells take minutes.

    The cells of a group have values on the same seeds, with one budget per seed and one version of the code.
    """
    groups: dict[tuple[object, ...], list[str]] = {}
    for cell, arm in cells.items():
        runs = [arm.runs[seed] for seed in sorted(arm.runs)]
        if runs and all(run.outcome == "measured" and run.code == runs[0].code for run in runs):
            of = (*sorted(arm.runs), *(run.budget for run in runs), runs[0].code)
            groups.setdefault(of, []).append(cell)
    problems: dict[tuple[str, str], str | None] = {}
    for group in groups.values():
        runs_of = [[cells[cell].runs[seed] for seed in sorted(cells[cell].runs)] for cell in group]
        values = np.array([[run.value for run in runs] for runs in runs_of], dtype=np.float64)
        if len(group) < 2 or not fits(values, scale):
            continue
        if values.shape[1] < MIN_PAIRS:
            same = pair(cells[group[0]], cells[group[1]], scale).problem
            problems |= dict.fromkeys(permutations(group, 2), same)
            continue
        units = forward(values, scale)
        least = _SURELY * max(1.0, float(np.abs(units).max()))
        for one, row in zip(group, units, strict=True):
            varies = (units - row).std(1, ddof=1) > least
            problems |= {(one, other): None for other, sure in zip(group, varies, strict=True) if sure}
    return problems


def _read_values(store: Store, grid: str, wanted: Quantity) -> pl.DataFrame:
    """trial and value of a measurement or a probe."""
    known = [*COSTS, *_read_recorded(store, grid)]
    if wanted.name in known:
        return store.final(grid, wanted.name, wanted.point).select("trial", "value")
    condition, parameters = queries.agrees(wanted.point)
    values = store.sql(_PROBED.format(condition=condition), {"grid": grid, "name": wanted.name, **parameters})
    if values.is_empty():
        names = [*known, *store.list_names(grid, "v_probe")]
        listed = some(names, 24) + suggest_name(wanted.name, names)
        raise NotFoundError(f"grid {grid!r} has no {wanted.name!r}; there are {listed}")
    if (values["points"] > 1).any():
        raise SpecError(f"the probe {wanted.name!r} has several points that agree with {dict(wanted.point)}; say which")
    return values.drop("points")


def _read_recorded(store: Store, grid: str) -> list[str]:
    return [name for name in store.list_names(grid, "v_final") if name not in COSTS]


_COSTS: Final = """
WITH worked AS (
    SELECT c.trial, sum((a.cost->>'$.flops')::DOUBLE) AS flops, count(a.cost->>'$.flops') = count(*) AS known
    FROM counted c LEFT JOIN attempt a USING (trial, attempt) GROUP BY c.trial
)
SELECT c.trial, c.train_s, c.memory_bytes, t.parameters, CASE WHEN w.known THEN w.flops END AS flops, c.joules,
       c.flops_per_s, c.tokens_per_s
FROM v_cost c JOIN trial t USING (trial) LEFT JOIN worked w USING (trial) WHERE c.grid = $grid
"""

_PROBED: Final = """
SELECT g.trial, avg(p.value) AS value, count(DISTINCT p.point) AS points
FROM (FROM v_probe WHERE name = $name AND isfinite(value) AND {condition}
      QUALIFY step = max(step) OVER (PARTITION BY trial)) p
JOIN grid_trial g USING (trial) JOIN trial t USING (trial)
WHERE g.grid = $grid AND t.state = 'done' GROUP BY g.trial
"""
