"""Main effects of a factorial grid: what each level of each axis adds against the grid mean.

    y(seed, cell) = mean + block(seed) + sum over axes of effect(axis, level) + noise

Effects of one axis sum to zero (effect coding), so they are differences from the mean over its levels and missing
cells are handled by least squares, not by averaging whatever happens to be there. Where an axis does not apply to a
cell (its value is null) it adds nothing: its effects compare its own levels.
"""

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from scipy import special

from store.statistics.design import Design, build, check, contrasts, read_factors, usable
from store.statistics.least_squares import Fit, fit
from store.statistics.paired import Floats
from store.statistics.response import response
from store.statistics.scales import Scale, back, percent

SCHEMA: Final = {
    "factor": pl.String,
    "level": pl.String,
    "n": pl.Int64,
    "effect": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "percent": pl.Float64,
}
"""Columns of `main_effects`, in order."""


class _Level(NamedTuple):
    factor: str
    level: str
    n: int
    contrast: Floats


def main_effects(values: pl.DataFrame, factors: list[str], *, scale: Scale, alpha: float = 0.05) -> pl.DataFrame:
    """One row per level of each factor that varies, in order of appearance.

    `values` has one row per run: seed, value, one column per factor. Rows without a finite value are missing runs;
    `n` counts the others. `effect`, `low`, `high` are log ratios on the log scale; the t interval (not corrected for
    the number of levels) takes the residual of the additive model, interactions included, as noise. `percent` is the
    effect in per cent of the grid mean (the model's, over all levels and seeds alike).
    An effect that the present cells cannot tell apart is null, and so is an
    interval without residual degrees of freedom. Raises SpecError for an unknown factor or an unusable value.
    """
    check(values, factors)
    kept = usable(values)
    y = response(kept["value"].cast(pl.Float64).to_numpy(), scale)
    axes = read_factors(kept, {name: _appearance(kept[name]) for name in factors})
    design = build(kept, axes, order=1)
    found = fit(design.matrix, y)
    centre = _grid_mean(design, found, scale)
    rows = [_row(level, found, alpha, scale, centre) for level in _levels(design)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _appearance(column: pl.Series) -> list[str]:
    return column.cast(pl.String).drop_nulls().unique(maintain_order=True).to_list()


def _levels(design: Design) -> Iterator[_Level]:
    for term in design.tested:
        factor = term.factors[0]
        whole = np.zeros((len(factor.levels), design.matrix.shape[1]))
        whole[:, term.columns] = contrasts(len(factor.levels))
        for place, (level, row) in enumerate(zip(factor.levels, whole, strict=True)):
            yield _Level(factor.name, level, int((factor.codes == place).sum()), row)


def _grid_mean(design: Design, found: Fit, scale: Scale) -> float:
    """The mean coefficient, as all else sums to zero; that of the runs at hand leans to the fullest cells."""
    mean = np.zeros((1, design.matrix.shape[1]))
    mean[0, design.terms[0].columns] = 1.0
    return back(float(found.coefficients @ mean[0]), scale) if found.estimable(mean) else math.nan


def _row(level: _Level, found: Fit, alpha: float, scale: Scale, centre: float) -> tuple[Any, ...]:
    name = (level.factor, level.level, level.n)
    if not found.estimable(level.contrast[None]):
        return (*name, None, None, None, None)
    effect = float(level.contrast @ found.coefficients)
    error = math.sqrt(found.variance * float(level.contrast @ found.covariance @ level.contrast))
    half = float(special.stdtrit(found.freedom, 1 - alpha / 2)) * error if found.freedom > 0 else math.nan
    numbers = (effect, effect - half, effect + half, percent(effect, centre, scale))
    return (*name, *(number if math.isfinite(number) else None for number in numbers))
