"""Least squares with columns that may depend on each other: estimates, what can be estimated, and F tests."""

from typing import Final, NamedTuple

import numpy as np

from ablate.store.statistics.paired_differences import Floats

_DEPENDENT: Final = 1e-9  # singular values below this share of the largest are zero
_IN_ROW_SPACE: Final = 1e-7


class Fit(NamedTuple):
    """The solution of least norm, [columns], with what the data cannot tell apart."""

    coefficients: Floats
    covariance: Floats  # without the noise variance, [columns, columns]
    null_space: Floats  # orthonormal, [columns, dependent]
    residual: float  # sum of squares that is left
    freedom: int

    @property
    def variance(self) -> float:
        """Variance of the noise; NaN without residual degrees of freedom."""
        return self.residual / self.freedom if self.freedom > 0 else float("nan")

    def estimable(self, rows: Floats) -> bool:
        """Whether every linear function in `rows` [m, columns] is the same for all least squares solutions."""
        return not self.null_space.size or bool(np.abs(rows @ self.null_space).max(initial=0) < _IN_ROW_SPACE)


def fit(design: Floats, y: Floats) -> Fit:
    """Fit `y` [runs] by the columns of `design` [runs, columns]."""
    values, vectors = np.linalg.eigh(design.T @ design)
    kept = values > _DEPENDENT * values.max(initial=0)
    covariance = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    coefficients = covariance @ (design.T @ y)
    left = y - design @ coefficients
    coefficients = coefficients + covariance @ (design.T @ left)  # the normal equations cost half of the digits
    left = y - design @ coefficients
    null_space = vectors[:, ~kept]
    return Fit(coefficients, covariance, null_space, float(left @ left), len(y) - int(kept.sum()))


class Gain(NamedTuple):
    """The sum of squares and the degrees of freedom that a set of columns explains."""

    squares: float
    freedom: int


def wald(fitted: Fit, rows: Floats) -> Gain:
    """Test estimable, independent functions `rows` [m, columns]: the quadratic form of "they are all zero"."""
    part = rows @ fitted.coefficients
    return Gain(float(part @ np.linalg.solve(rows @ fitted.covariance @ rows.T, part)), part.size)


def compare_fits(base: Floats, more: Floats, y: Floats) -> Gain:
    """Compare the fits with and without `more` [runs, added] beside `base` [runs, columns]."""
    small, large = fit(base, y), fit(np.hstack([base, more]), y)
    return Gain(max(small.residual - large.residual, 0.0), small.freedom - large.freedom)
