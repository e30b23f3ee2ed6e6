"""The two parts of a grid's table where runs learn or do not, read from its store."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import polars as pl

from ablate.store.analysis.learned_runs import LearnedRuns, find_by_rule, mark_learned
from ablate.store.analysis.noise_caution import noise_caution
from ablate.store.analysis.once import once
from ablate.store.analysis.verdicts import GridMeasure, compared_runs, measure_of, runs
from ablate.store.statistics.two_part import two_part as judge_two_parts
from ablate.store.store import Store


class TwoParts(NamedTuple):
    """The table, and what says that a run learned."""

    source: Literal["declared", "predictor", "groups"]
    learned: str
    """The property of runs that learned, in words: "accuracy at length=64 of at least 0.9"."""
    rows: pl.DataFrame
    """Columns of `ablate.store.statistics.two_part`."""


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
    rule: dict[str, Any] = {name: getattr(by, name) for name in ("scale", "better", "rope", "alpha")}
    return TwoParts(learned.source, learned.words, judge_two_parts(marked, baseline=compared.baseline, **rule))


def runs_that_learned(store: Store, grid: str, by: GridMeasure, baseline: str | None) -> set[tuple[str, int]] | None:
    """Return cell and seed of the runs that learned; None if nothing divides the runs of the grid."""
    learned = _find_learned(store, grid, by, baseline)
    return None if learned is None else {*learned.runs.filter(learned=1).select("cell", "seed").iter_rows()}


@once
def _find_learned(store: Store, grid: str, by: GridMeasure, baseline: str | None) -> LearnedRuns | None:
    learned = find_by_rule(store, grid, by, runs) or _in_groups(store, grid, by, runs(store, grid, by), baseline)
    return learned if learned is not None and learned.divides else None


def _in_groups(
    store: Store, grid: str, by: GridMeasure, values: pl.DataFrame, baseline: str | None
) -> LearnedRuns | None:
    shape = noise_caution(store, grid, baseline=baseline, measure=by._asdict()).shape
    if "split" not in shape.fired:
        return None
    above = pl.col("value") > shape.between
    side = "above" if by.better == "higher" else "below"
    marked = mark_learned(values, above if by.better == "higher" else ~above)
    return LearnedRuns("groups", f"{by.name} {side} {shape.between:.3g}, between two groups of runs", marked)
