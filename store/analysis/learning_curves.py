"""Learning curves of a grid by what they cost: steps, tokens or seconds of training."""

from statistics import geometric_mean
from typing import Final, Literal, get_args

import polars as pl

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.store.analysis.metrics import direction
from ablate.store.analysis.tuned_verdicts import nuisance_axes
from ablate.store.analysis.verdicts import baselines_of, compared_runs, measure_of, without_added
from ablate.store.database import queries
from ablate.store.statistics import CurveRule, compare_curves
from ablate.store.statistics.curves import cost_to_reach, read_curves
from ablate.store.store import Store

By = Literal["steps", "tokens", "seconds"]


def curve_points(store: Store, grid: str, name: str, by: By) -> pl.DataFrame:
    """One row per planned run and recorded value of the training metric `name`, with what the run had cost by then.

    A run that is outstanding, or recorded no value, has one row without cost and value. Tokens are those of the run's
    mean step times the step. Seconds are those of the attempts that the values came from, evaluations and probes
    included; a run that was cut off has none for the steps that it did again. Columns: trial, cell, label, seed, state,
    cost, value. Raises SpecError: `by` is no cost; NotFoundError: no ended run has recorded `name`.
    """
    costs = list(get_args(By))
    if by not in costs:
        raise SpecError(f"curves cannot be compared by {by!r}; they are by {costs}{suggest_name(by, costs)}")
    header = store.grid(grid)
    points = store.sql(_POINTS, {"grid": grid, "name": name})
    if points["step"].null_count() == points.height:
        known = some(store.list_names(grid, "v_metric"), 12) or "no metric"
        raise NotFoundError(f"no ended run of grid {grid!r} has recorded {name!r}; they have {known}")
    if by == "tokens" and points["tokens_per_step"].null_count() == points.height:
        raise NotFoundError(
            f"no ended run of grid {grid!r} has the tokens of a step, which come from a trial's task, and a metric "
            "named tokens is no cost; compare by steps or seconds"
        )
    cost = {"steps": pl.col("step"), "tokens": pl.col("step") * pl.col("tokens_per_step"), "seconds": pl.col("seconds")}
    # `wall_s` counts from the start of each attempt; what the attempts before had taken at the hand-over is added
    run = pl.col("trial")
    changed = pl.col("attempt") != pl.col("attempt").shift(1).over(run)
    handed = pl.when(changed).then(pl.col("wall_s").shift(1).over(run)).otherwise(0.0).fill_null(0.0)
    timed = points.with_columns(seconds=pl.col("wall_s") + handed.cum_sum().over(run))
    whole = timed.with_columns(cost=cost[by].cast(pl.Float64))
    return queries.in_plan_order(
        store.sql, header, whole.select("trial", "cell", "label", "seed", "state", "cost", "value")
    )


def compare_learning(
    store: Store, grid: str, name: str, by: By, *, budget: float | None = None, level: float | None = None
) -> pl.DataFrame:
    """Every variant of the grid against its baseline at equal cost: the columns of `compare_curves`.

    `rule_of` says how. Settings count at their best level of nuisance axes by the grid's measure, as verdicts compare
    them. Without a difference, `value` of the cost to a level is that of a cell all of whose runs reach it. Raises as
    `curve_points` does, as `runs` where levels are chosen, and NotFoundError if the baseline has no curve.
    """
    header, chosen, baseline = store.grid(grid), None, baselines_of(store, grid, None)
    points = without_added(curve_points(store, grid, name, by), header)
    if nuisance_axes(header):
        compared = compared_runs(store, grid, measure_of(store, grid, None))
        chosen, baseline = points.filter(pl.col("cell").is_in(compared.choices)), compared.baseline
        curves = points.drop("cell", "label", "seed")
        points = compared.values.select("trial", "cell", "label", "seed").join(
            curves, on="trial", how="inner", maintain_order="left_right"
        )
    rule = rule_of(store, grid, name)
    answers = compare_curves(points, rule, baseline=baseline, budget=budget, level=level, chosen=chosen)
    if level is None:
        return answers
    reached = {
        cell: [cost_to_reach(curve, level, rule.better) for curve in curves.values()]
        for cell, (_, curves) in read_curves(points).items()
    }
    whole = {cell: of for cell, of in reached.items() if all(each.cost > 0 and not each.censored for each in of)}
    own = {cell: geometric_mean(each.cost for each in of) for cell, of in whole.items()}
    keys = answers["cell"].to_list()
    bases = [baseline if isinstance(baseline, str) else baseline[cell] for cell in keys]
    lacks = pl.col("question") == "cost to", pl.col("difference").is_null()
    return answers.with_columns(
        pl.when(*lacks).then(pl.Series([own.get(cell) for cell in cells], dtype=pl.Float64)).otherwise(name).alias(name)
        for name, cells in (("value", keys), ("baseline_value", bases))
    )


def rule_of(store: Store, grid: str, name: str) -> CurveRule:
    """How the training metric `name` is compared: as the grid's measure, or else linear; lower is better by default."""
    grid_measure = measure_of(store, grid, None)
    if grid_measure.name == name:
        return CurveRule(grid_measure.scale, grid_measure.better, grid_measure.alpha)
    return CurveRule("linear", direction(name) or "lower", grid_measure.alpha)


_POINTS: Final = """
SELECT g.cell, g.label, g.seed, t.state,
       g.trial, m.attempt, m.step, m.value, m.wall_s, c.tokens_per_step
FROM grid_trial g JOIN trial t USING (trial)
LEFT JOIN v_metric m ON m.trial = g.trial AND m.name = $name AND t.state IN ('done', 'failed')
LEFT JOIN (
    SELECT trial, avg((cost->>'$.tokens')::DOUBLE / nullif((cost->>'$.steps')::DOUBLE, 0)) AS tokens_per_step
    FROM attempt WHERE cost IS NOT NULL GROUP BY trial
) c ON c.trial = g.trial
WHERE g.grid = $grid
ORDER BY g.position, m.step
"""
