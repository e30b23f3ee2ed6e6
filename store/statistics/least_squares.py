"""Least squares with columns that may depend on each other: what is estimable, and F tests of sets of columns."""

from typing import Final, NamedTuple

import numpy as np

from store.statistics.paired_differences import Floats

_DEPENDENT: Final = 1e-9
"""Singular values below this share of the largest are zero."""
_IN_ROW_SPACE: Final = 1e-7


class Fit(NamedTuple):
    """The solution of least norm, [columns], with what the data cannot tell apart."""

    coefficients: Floats
    covariance: Floats
    """Without the noise variance, [columns, columns]."""
    null_space: Floats
    """Orthonormal, [columns, dependent]."""
    residual: float
    """Sum of squares that is left."""
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
    columns = design.shape[1]
    gram = design.T @ design
    values, vectors = np.linalg.eigh(gram)
    kept = values > _DEPENDENT * values.max(initial=0)
    covariance = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    coefficients = covariance @ (design.T @ y)
    left = y - design @ coefficients
    coefficients = coefficients + covariance @ (design.T @ left)  # the normal equations cost half of the digits
    left = y - design @ coefficients
    return Fit(
        coefficients, covariance, vectors[:, ~kept].reshape(columns, -1), float(left @ left), len(y) - int(kept.sum())
    )


class Gain(NamedTuple):
    """The sum of squares and the degrees of freedom that a set of columns explains."""

    squares: float
    freedom: int


def wald(found: Fit, columns: slice) -> Gain:
    """Test estimable columns, with all others in the model: the quadratic form of "they are all zero"."""
    part = found.coefficients[columns]
    return Gain(float(part @ np.linalg.solve(found.covariance[columns, columns], part)), part.size)


def compare_fits(base: Floats, more: Floats, y: Floats) -> Gain:
    """Compare the fits with and without `more` [runs, added] beside `base` [runs, columns]."""
    small, large = fit(base, y), fit(np.hstack([base, more]), y)
    return Gain(max(small.residual - large.residual, 0.0), small.freedom - large.freedom)
