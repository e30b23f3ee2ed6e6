"""The two parts of a grid's table where runs learn or do not, read from its store."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import polars as pl

from ablate.store.analysis.noise_caution import noise_caution
from ablate.store.analysis.once import once
from ablate.store.analysis.verdicts import GridMeasure, compared_runs, every_run, measure_of, runs
from ablate.store.database import queries
from ablate.store.statistics import Baseline
from ablate.store.statistics.two_part import two_part as judge_two_parts
from ablate.store.store import Store

PREDICTORS: Final = ("constant", "chance", "zero")
"""Reference predictors that ignore their input, as prefixes of measurements; the first that is recorded counts."""

ITEM_ERRORS: Final = 4
"""Standard errors over items by which a run that learned beats such a predictor: of 1,000 runs at chance, none does."""


class TwoParts(NamedTuple):
    """The table, and what says that a run learned."""

    source: Literal["declared", "predictor", "groups"]
    learned: str
    """The property of runs that learned, in words: "accuracy at length=64 of at least 0.9"."""
    rows: pl.DataFrame
    """Columns of `ablate.store.statistics.two_part`."""


class _Learned(NamedTuple):
    """Which runs learned: trial, cell, seed and `learned` (1, 0, NaN if that is not finite, or null)."""

    source: Literal["declared", "predictor", "groups"]
    words: str
    runs: pl.DataFrame

    @property
    def divides(self) -> bool:
        return bool((self.runs["learned"] == 0).any())


def two_part(
    store: Store, grid: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> TwoParts | None:
    """Return how often and how well the cells of a grid learned, if some of its runs did not; arguments as `verdicts`.

    Which runs learned, the grid's `learned` says. Without it, those that beat the task's predictor which ignores its
    input. If all do, those of the better group, where the noise shows two.
    """
    return _two_parts(store, grid, measure_of(store, grid, measure), baseline)


@once
def _two_parts(store: Store, grid: str, by: GridMeasure, baseline: str | None) -> TwoParts | None:
    learned = _find_learned(store, grid, by, baseline)
    if learned is None:
        return None
    compared = compared_runs(store, grid, by, baseline=baseline)
    known = learned.runs.select("trial", "learned")
    marked = compared.values.join(known, on="trial", how="left", maintain_order="left")
    if not (marked["learned"] == 0).any():
        return None
    return TwoParts(learned.source, learned.words, _judge(marked, compared.baseline, by))


def runs_that_learned(store: Store, grid: str, by: GridMeasure, baseline: str | None) -> set[tuple[str, int]] | None:
    """Return cell and seed of the runs that learned; None if nothing divides the runs of the grid."""
    learned = _find_learned(store, grid, by, baseline)
    return None if learned is None else {*learned.runs.filter(learned=1).select("cell", "seed").iter_rows()}


def never_learned(store: Store, grid: str, by: GridMeasure) -> set[str]:
    """Return the cells, controls too, none of whose runs learned by the limit of the grid or against a predictor."""
    learned = _by_rule(store, grid, by, every_run)
    if learned is None:
        return set()
    cells = learned.runs.drop_nulls("learned").group_by("cell").agg((pl.col("learned") == 1).any())
    return {*cells.filter(~pl.col("learned"))["cell"]}


@once
def _find_learned(store: Store, grid: str, by: GridMeasure, baseline: str | None) -> _Learned | None:
    learned = _by_rule(store, grid, by, runs) or _in_groups(store, grid, by, runs(store, grid, by), baseline)
    return learned if learned is not None and learned.divides else None


def _by_rule(store: Store, grid: str, by: GridMeasure, read: Callable[..., pl.DataFrame]) -> _Learned | None:
    """Apply the limit of the grid or, without one, compare with a predictor; None if no predictor is known."""
    declared = store.grid(grid).get("learned")
    if declared is None:
        return _beats_predictor(store, grid, by, read(store, grid, by))
    return _reach_limit(store, grid, declared, read)


def _judge(values: pl.DataFrame, base: Baseline, by: GridMeasure) -> pl.DataFrame:
    return judge_two_parts(values, baseline=base, scale=by.scale, better=by.better, rope=by.rope, alpha=by.alpha)


def _reach_limit(store: Store, grid: str, learned: Mapping[str, Any], read: Callable[..., pl.DataFrame]) -> _Learned:
    values = read(store, grid, GridMeasure(learned["name"], learned["point"], "linear"))
    at = ", ".join(f"{axis}={number:g}" for axis, number in learned["point"].items())
    bound = f"at {'least' if learned['better'] == 'higher' else 'most'} {learned['limit']:g}"
    words = f"{learned['name']}{f' at {at}' if at else ''} of {bound}"
    return _Learned("declared", words, _mark(values, has_learned(learned)))


def has_learned(criterion: Mapping[str, Any]) -> pl.Expr:
    """Return whether the column `value` reaches the criterion in a grid's header."""
    value, limit = pl.col("value"), float(criterion["limit"])
    return value >= limit if criterion["better"] == "higher" else value <= limit


def _mark(values: pl.DataFrame, learned: pl.Expr) -> pl.DataFrame:
    """Return trial, cell, seed and `learned`; NaN where the value that decides is not finite."""
    known = pl.when(pl.col("value").is_finite()).then(learned.cast(pl.Float64))
    unknown = pl.when(pl.col("value").is_not_null()).then(math.nan)
    return values.select("trial", "cell", "seed", learned=known.otherwise(unknown))


def _beats_predictor(store: Store, grid: str, by: GridMeasure, values: pl.DataFrame) -> _Learned | None:
    condition, parameters = queries.agrees(by.point)
    names = [f"{each}.{by.name}" for each in PREDICTORS]
    recorded = store.sql(
        f"""
        SELECT trial, name, min(value) AS reference, max(se_items) AS se FROM (
            SELECT trial, name, value, NULL AS se_items FROM v_final
            WHERE grid = $grid AND list_contains($names, name) AND source = 'evaluation' AND {condition}
            UNION ALL
            SELECT trial, 'own', NULL, se_items FROM v_final
            WHERE grid = $grid AND name = $name AND source = 'evaluation' AND {condition}
        ) GROUP BY trial, name
        """,
        {"grid": grid, "name": by.name, "names": names, **parameters},
    )
    name = next((each for each in names if (recorded["name"] == each).any()), None)
    if name is None:
        return None
    errors = recorded.filter(name="own").select("trial", "se")
    joined = values.join(recorded.filter(name=name).select("trial", "reference"), "trial", "left")
    joined = joined.join(errors, "trial", "left")
    gain = (pl.col("value") - pl.col("reference")) * (1 if by.better == "higher" else -1)
    marked = _mark(joined, gain > ITEM_ERRORS * pl.col("se").fill_null(0.0))
    beats = _Learned("predictor", f"a better {by.name} than {name}, beyond its error over items", marked)
    return beats if beats.divides else None


def _in_groups(store: Store, grid: str, by: GridMeasure, values: pl.DataFrame, baseline: str | None) -> _Learned | None:
    shape = noise_caution(store, grid, baseline=baseline, measure=by._asdict()).shape
    if "split" not in shape.fired:
        return None
    above = pl.col("value") > shape.between
    side = "above" if by.better == "higher" else "below"
    marked = _mark(values, above if by.better == "higher" else ~above)
    return _Learned("groups", f"{by.name} {side} {shape.between:.3g}, between two groups of runs", marked)
