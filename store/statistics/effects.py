"""Main effects of a factorial grid: what each level of each axis adds against the grid mean.

    y(seed, cell) = mean + block(seed) + sum over axes of effect(axis, level) + noise

Effects of one axis sum to zero (effect coding), so they are differences from the mean over its levels and missing
cells are handled by least squares, not by averaging whatever happens to be there. Where an axis does not apply to a
cell (its value is null) it adds nothing: its effects compare its own levels.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from scipy import special

from grid.errors import SpecError
from grid.spec import did_you_mean
from store.statistics.paired import Floats
from store.statistics.scales import Scale, back, fits, forward, percent

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


class _Fit(NamedTuple):
    coefficients: Floats
    covariance: Floats  # without the noise variance
    row_space: Floats
    variance: float
    freedom: int


def main_effects(values: pl.DataFrame, factors: list[str], *, scale: Scale, alpha: float = 0.05) -> pl.DataFrame:
    """One row per level of each factor that varies, in order of appearance.

    `values` has one row per run: seed, value, one column per factor. Rows without a finite value are missing runs;
    `n` counts the others. `effect`, `low`, `high` are log ratios on the log scale; the t interval (not corrected for
    the number of levels) takes the residual of the additive model, interactions included, as noise. `percent` is the
    effect in per cent of the grid mean. An effect that the present cells cannot tell apart is null, and so is an
    interval without residual degrees of freedom. Raises SpecError for an unknown factor or an unusable value.
    """
    _check(values, factors)
    kept = values.filter(pl.col("value").is_not_null() & pl.col("value").is_finite())
    y = _response(kept["value"].cast(pl.Float64).to_numpy(), scale)
    design, levels = _design(kept, factors)
    fit = _fit(design, y)
    centre = float(y.mean()) if y.size else math.nan
    rows = [_row(level, fit, alpha, centre, scale) for level in levels]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _check(values: pl.DataFrame, factors: Sequence[str]) -> None:
    for name in (*factors, "seed", "value"):
        if name not in values.columns:
            raise SpecError(
                f"main effects need the column {name!r}; there are {values.columns}{did_you_mean(name, values.columns)}"
            )


def _response(y: Floats, scale: Scale) -> Floats:
    if scale == "log" and not fits(y, scale):
        raise SpecError(f"the log scale needs values above 0; got {y.min():g}; give the measure scale='linear'")
    if not fits(y, scale):
        wrong = y[(y <= 0) | (y >= 1)][0]
        raise SpecError(f"the logit scale needs values between 0 and 1; got {wrong:g}; give the measure scale='linear'")
    return forward(y, scale)


def _names(column: pl.Series) -> list[str | None]:
    return [None if value is None else str(value) for value in column.to_list()]


def _coded(names: Sequence[str | None], levels: Sequence[str]) -> Floats:
    """Sum-to-zero coding [runs, levels - 1]: the last level is -1 everywhere; null codes as zeros."""
    rows = np.vstack([_contrasts(len(levels)), np.zeros((1, max(len(levels) - 1, 0)))])
    at = {name: i for i, name in enumerate(levels)}
    return rows[[len(levels) if name is None else at[name] for name in names]]


def _contrasts(levels: int) -> Floats:
    """What each level's effect is in coded coefficients, [levels, levels - 1]."""
    return np.vstack([np.eye(levels - 1), -np.ones((1, levels - 1))]) if levels else np.zeros((0, 0))


def _levels(names: Sequence[str | None]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name is not None))


def _design(kept: pl.DataFrame, factors: Sequence[str]) -> tuple[Floats, list[_Level]]:
    seeds = _names(kept["seed"])
    blocks = [np.ones((kept.height, 1)), _coded(seeds, _levels(seeds))]
    spans = []
    for factor in factors:
        names = _names(kept[factor])
        spans.append((factor, names, sum(block.shape[1] for block in blocks)))
        blocks.append(_coded(names, _levels(names)))
    design = np.hstack(blocks)
    found = []
    for factor, names, start in spans:
        levels = _levels(names)
        if len(levels) < 2:
            continue  # an axis that does not vary has no effect to speak of
        whole = np.zeros((len(levels), design.shape[1]))
        whole[:, start : start + len(levels) - 1] = _contrasts(len(levels))
        found += [_Level(factor, level, names.count(level), row) for level, row in zip(levels, whole, strict=True)]
    return design, found


def _fit(design: Floats, y: Floats) -> _Fit:
    inverse = np.linalg.pinv(design, rcond=1e-10)
    row_space = inverse @ design
    freedom = len(y) - round(float(np.trace(row_space)))
    coefficients = inverse @ y
    residual = y - design @ coefficients
    variance = float(residual @ residual) / freedom if freedom > 0 else math.nan
    return _Fit(coefficients, inverse @ inverse.T, row_space, variance, freedom)


def _row(level: _Level, fit: _Fit, alpha: float, centre: float, scale: Scale) -> tuple[Any, ...]:
    name = (level.factor, level.level, level.n)
    if np.abs(level.contrast @ fit.row_space - level.contrast).max() > 1e-8:
        return (*name, None, None, None, None)
    effect = float(level.contrast @ fit.coefficients)
    error = math.sqrt(fit.variance * float(level.contrast @ fit.covariance @ level.contrast))
    half = float(special.stdtrit(fit.freedom, 1 - alpha / 2)) * error if fit.freedom > 0 else math.nan
    numbers = (effect, effect - half, effect + half, percent(effect, back(centre, scale), scale))
    return (*name, *(number if math.isfinite(number) else None for number in numbers))
