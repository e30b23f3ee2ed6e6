"""A sentence of caution from the noise of a grid's runs, and what so few runs cannot show."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from ablate.grid.names import some
from ablate.store.analysis.learned_runs import known_learned
from ablate.store.analysis.once import once
from ablate.store.analysis.verdicts import GridMeasure, compared_runs, measure_of, verdicts
from ablate.store.statistics import Baseline
from ablate.store.statistics.noise import UNSEEN, NoiseShape, detect, unseen_share
from ablate.store.statistics.pairing_gain import PairingGain, pairing_gain
from ablate.store.store import Store


class NoiseCaution(NamedTuple):
    """The findings of the detectors, and sentences; each is empty if there is nothing to say."""

    shape: NoiseShape
    caution: str
    standing: str  # below a claim from fewer than 29 runs
    pairing: str  # the gain of pairing by seed
    shared: str  # grids that have the same runs of the baseline

    @property
    def sentences(self) -> list[str]:
        return [each for each in self[1:] if each]


def noise_caution(
    store: Store, grid: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> NoiseCaution:
    """Examine the runs that `verdicts` compares; arguments and errors are its own."""
    return _caution(store, grid, measure_of(store, grid, measure), baseline)


@once
def _caution(store: Store, grid: str, by: GridMeasure, baseline: str | None) -> NoiseCaution:
    compared = compared_runs(store, grid, by, baseline=baseline)
    values, base = compared.values, compared.baseline
    known = known_learned(store, grid, by)  # the check noise tells late runs by the rule
    late = [trial for trial, learned in known.items() if not learned]
    learned = values.with_columns(value=pl.when(~pl.col("trial").is_in(late)).then("value"))
    shape = detect(learned, baseline=base, scale=by.scale, all_learned=bool(known))
    judged = verdicts(store, grid, baseline=baseline, measure=by._asdict())
    claims = [row for row in judged.iter_rows(named=True) if row["verdict"] not in ("undecided", "no verdict")]
    fewest = min((min(row["runs"], row["baseline_runs"]) for row in claims), default=0)
    gain = pairing_gain(values, baseline=base, scale=by.scale)
    told = "" if gain is None else _tell_gain(gain)
    return NoiseCaution(
        shape,
        _describe(shape, "that learned " if late else ""),
        _stand(fewest) if fewest else "",
        told,
        _tell_grids(store, grid, base),
    )


def _tell_gain(gain: PairingGain) -> str:
    change = f"{'removed' if gain.removed >= 0 else 'added'} {100 * abs(gain.removed):.0f} %"
    known = "" if math.isnan(gain.correlation) else f"; correlation {gain.correlation:.2f}"
    median = " (median)" if known and gain.comparisons > 1 else ""
    return f"pairing by seed {change} of the variance of the differences{known}{median}"


def _tell_grids(store: Store, grid: str, base: Baseline) -> str:
    """Name the grids that have runs of this one's baselines."""
    others = store.sql(
        """
        SELECT DISTINCT grid FROM grid_trial WHERE grid <> $grid AND trial IN (
            SELECT trial FROM grid_trial WHERE grid = $grid AND list_contains($cells, cell)
        ) ORDER BY grid
        """,
        {"grid": grid, "cells": [base] if isinstance(base, str) else sorted(set(base.values()))},
    )
    if others.is_empty():
        return ""
    names = some(others["grid"].to_list(), 4)
    return f"runs of the baseline are also in {names}: an odd one shows in each of these tables"


def _describe(shape: NoiseShape, which: str) -> str:
    fired = shape.fired
    if "split" in fired:
        what = "two groups, or a long tail, divided" if "tail" in fired else "two groups"
        where = f"at {shape.between:.3g} ({shape.above} of {shape.runs} above)"
        return f"runs of this grid {which}fall into {what} {where}: the mean compares how often as much as how well"
    if "tail" in fired:
        return "on a log scale these values are more regular; the claims are about the mean, which few large runs carry"
    if "skew" in fired:
        return "the noise is skewed and its spread differs from the baseline's: few runs far from others move the means"
    return ""


def _stand(runs: int) -> str:
    share = unseen_share(runs)
    if share < UNSEEN:
        return ""
    return (
        f"these claims are about runs like those seen: with {runs} runs per cell, an outcome of fewer than "
        f"{100 * share:.0f} % of a cell's runs may be unseen"
    )
