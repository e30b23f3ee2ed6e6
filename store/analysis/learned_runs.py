"""Which runs of a grid learned its task: by the limit of the grid, or against a predictor that ignores its input."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import polars as pl

from ablate.store.analysis.once import once
from ablate.store.analysis.verdicts import GridMeasure, every_run, runs
from ablate.store.database import queries
from ablate.store.store import Store

PREDICTORS: Final = ("constant", "chance", "zero")
"""Reference predictors that ignore their input, as prefixes of measurements; the first that is recorded counts."""

ITEM_ERRORS: Final = 4
"""Standard errors over items by which a run that learned beats such a predictor: of 1,000 runs at chance, none does."""


class LearnedRuns(NamedTuple):
    """Which runs learned: trial, cell, seed and `learned` (1, 0, NaN if that is not finite, or null)."""

    source: Literal["declared", "predictor", "groups"]
    words: str
    runs: pl.DataFrame

    @property
    def divides(self) -> bool:
        return bool((self.runs["learned"] == 0).any())


def find_by_rule(store: Store, grid: str, by: GridMeasure, read: Callable[..., pl.DataFrame]) -> LearnedRuns | None:
    """Apply the limit of the grid or, without one, compare with a predictor; None if no predictor is known."""
    declared = store.grid(grid).get("learned")
    if declared is None:
        return _beats_predictor(store, grid, by, read(store, grid, by))
    return _reach_limit(store, grid, declared, read)


def never_learned(store: Store, grid: str, by: GridMeasure) -> set[str]:
    """Return the cells, controls too, none of whose runs learned by the limit of the grid or against a predictor."""
    learned = find_by_rule(store, grid, by, every_run)
    if learned is None:
        return set()
    cells = learned.runs.drop_nulls("learned").group_by("cell").agg((pl.col("learned") == 1).any())
    return {*cells.filter(~pl.col("learned"))["cell"]}


@once
def known_learned(store: Store, grid: str, by: GridMeasure) -> Mapping[str, bool]:
    """Return by trial whether it learned, by the limit of the grid or against a predictor; without either, nothing."""
    learned = find_by_rule(store, grid, by, runs)
    known = [] if learned is None else learned.runs.select("trial", "learned").drop_nulls().rows()
    return {trial: bool(value) for trial, value in known if not math.isnan(value)}


def _reach_limit(store: Store, grid: str, learned: Mapping[str, Any], read: Callable[..., pl.DataFrame]) -> LearnedRuns:
    values = read(store, grid, GridMeasure(learned["name"], learned["point"], "linear"))
    at = ", ".join(f"{axis}={number:g}" for axis, number in learned["point"].items())
    bound = f"at {'least' if learned['better'] == 'higher' else 'most'} {learned['limit']:g}"
    words = f"{learned['name']}{f' at {at}' if at else ''} of {bound}"
    return LearnedRuns("declared", words, mark_learned(values, has_learned(learned)))


def has_learned(criterion: Mapping[str, Any]) -> pl.Expr:
    """Return whether the column `value` reaches the criterion in a grid's header."""
    value, limit = pl.col("value"), float(criterion["limit"])
    return value >= limit if criterion["better"] == "higher" else value <= limit


def mark_learned(values: pl.DataFrame, learned: pl.Expr) -> pl.DataFrame:
    """Return trial, cell, seed and `learned`; NaN where the value that decides is not finite."""
    known = pl.when(pl.col("value").is_finite()).then(learned.cast(pl.Float64))
    unknown = pl.when(pl.col("value").is_not_null()).then(math.nan)
    return values.select("trial", "cell", "seed", learned=known.otherwise(unknown))


def _beats_predictor(store: Store, grid: str, by: GridMeasure, values: pl.DataFrame) -> LearnedRuns | None:
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
    marked = mark_learned(joined, gain > ITEM_ERRORS * pl.col("se").fill_null(0.0))
    beats = LearnedRuns("predictor", f"a better {by.name} than {name}, beyond its error over items", marked)
    return beats if beats.divides else None
