"""The design matrix of a grid, and least squares with columns that may depend on each other.

    y(seed, cell) = mean + block(seed) + sum of effect(axis) + sum of interaction(axis, axis) + noise

Effects of a term sum to zero over each of its axes; seeds are blocks. An axis that does not apply to a cell adds
nothing. The null space of the matrix shows which effects the runs cannot separate.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from grid.errors import SpecError
from grid.suggestions import suggest_name
from store.statistics.paired_differences import Floats

CROSS: Final = " × "  # joins the names of the axes of an interaction, and their levels
SEED: Final = "seed"
FINITE: Final = pl.col("value").is_finite().fill_null(value=False)  # whether a run has a finite value
_DEPENDENT: Final = 1e-9  # singular values below this share of the largest are zero
_IN_ROW_SPACE: Final = 1e-7

Codes = NDArray[np.int64]


class Factor(NamedTuple):
    """An axis: its levels that have a run with a value, and for each such run the place of its level, -1 for null."""

    name: str
    levels: list[str]
    codes: Codes
    lost: list[str]  # planned levels without any run that has a value


class Term(NamedTuple):
    """Columns of the matrix that belong together; no factors for the mean and the seeds."""

    name: str
    factors: tuple[Factor, ...]
    columns: slice

    @property
    def axes(self) -> frozenset[str]:
        return frozenset(factor.name for factor in self.factors)

    @property
    def without_runs(self) -> list[str]:
        """Combinations of levels of an interaction that no run with a value has, as `gate head with sink on`."""
        if len(self.factors) < 2:
            return []
        a, b = self.factors
        present = set(zip(a.codes.tolist(), b.codes.tolist(), strict=True))
        places = [(i, j) for i in range(len(a.levels)) for j in range(len(b.levels)) if (i, j) not in present]
        return [f"{a.name} {a.levels[i]} with {b.name} {b.levels[j]}" for i, j in places]


class Design(NamedTuple):
    """The matrix [runs, columns], its terms, the mean and the seeds first, and sentences on what is left out of it."""

    matrix: Floats
    terms: list[Term]
    notes: list[str]

    @property
    def tested(self) -> list[Term]:
        """Main effects and interactions."""
        return [term for term in self.terms if term.factors]


def check(values: pl.DataFrame, factors: Sequence[str]) -> None:
    """Raise SpecError unless `values` has a column for the seed, the value and each of `factors`."""
    for name in (*factors, SEED, "value"):
        if name not in values.columns:
            known = values.columns
            raise SpecError(f"effects need the column {name!r}; there are {known}{suggest_name(name, known)}")


def usable(values: pl.DataFrame) -> pl.DataFrame:
    """The runs with a finite value."""
    return values.filter(FINITE)


def contrasts(levels: int) -> Floats:
    """Return each level's effect in coefficients of effect coding, [levels, levels - 1]: the last is minus the sum."""
    return np.vstack([np.eye(levels - 1), -np.ones((1, levels - 1))]) if levels else np.zeros((0, 0))


def _encode(codes: Codes, levels: int) -> Floats:
    """Effect coding [runs, levels - 1] of level numbers; null codes as zeros."""
    return np.vstack([contrasts(levels), np.zeros((1, max(levels - 1, 0)))])[codes]


def read_factors(values: pl.DataFrame, factors: Mapping[str, Sequence[str]]) -> list[Factor]:
    """The axes among `factors` (name -> levels in order) that are planned with two levels or more."""
    kept = usable(values)
    found = []
    for name, order in factors.items():
        column = kept[name].cast(pl.String)
        planned = set(values[name].cast(pl.String).drop_nulls().unique())
        present = set(column.drop_nulls().unique())
        known = [level for level in order if level in present]
        at = {level: place for place, level in enumerate(known)}
        if len(planned) > 1:
            codes = np.array([at.get(level, -1) for level in column.to_list()], dtype=np.int64)
            found.append(Factor(name, known, codes, [level for level in order if level in planned - present]))
    return found


def build(values: pl.DataFrame, factors: Sequence[Factor], *, order: int) -> Design:
    """The design of the runs of `values` that have a value; interactions of two axes with `order` 2."""
    kept = usable(values)
    seeds = kept[SEED].unique(maintain_order=True).to_list()
    at = {seed: place for place, seed in enumerate(seeds)}
    blocks = _encode(np.array([at[seed] for seed in kept[SEED].to_list()], dtype=np.int64), len(seeds))
    parts: list[tuple[str, tuple[Factor, ...], Floats]] = [("mean", (), np.ones((kept.height, 1))), (SEED, (), blocks)]
    mains = {factor.name: _encode(factor.codes, len(factor.levels)) for factor in factors}
    parts += [(factor.name, (factor,), mains[factor.name]) for factor in factors]
    notes = []
    for a, b in combinations(factors, 2) if order > 1 else ():
        reason = _find_uncrossed(values, a.name, b.name)
        if reason is not None:
            notes.append(reason)
            continue
        product = mains[a.name][:, :, None] * mains[b.name][:, None, :]
        columns = product.shape[1] * product.shape[2]  # not -1, which no array of no runs has
        parts.append((f"{a.name}{CROSS}{b.name}", (a, b), product.reshape(kept.height, columns)))
    ends = np.cumsum([0, *(columns.shape[1] for _, _, columns in parts)]).tolist()
    terms = [
        Term(name, of, slice(low, high)) for (name, of, _), low, high in zip(parts, ends[:-1], ends[1:], strict=True)
    ]
    return Design(np.hstack([columns for _, _, columns in parts]), terms, notes)


def _find_uncrossed(values: pl.DataFrame, a: str, b: str) -> str | None:
    """Why the plan has nothing to say about the interaction of two axes; None if it has.

    Levels as nodes and planned combinations as edges: interactions are the cycles of this graph.
    """
    both = values.select(a, b).drop_nulls().unique()
    if both.is_empty():
        return f"{a} and {b} never apply together, so they have no interaction"
    for one, other in ((a, b), (b, a)):
        if both[one].n_unique() == 1:
            return f"{other} applies only where {one} is {both[one][0]}, so they have no interaction"
    groups: list[set[tuple[int, str]]] = []
    for one, other in both.rows():
        touched = [group for group in groups if (0, one) in group or (1, other) in group]
        groups = [group for group in groups if group not in touched]
        groups.append({(0, one), (1, other)}.union(*touched))
    if both.height - both[a].n_unique() - both[b].n_unique() + len(groups) == 0:
        return f"the plan varies {a} and {b} one at a time, so their interaction is not in it"
    return None


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
    columns = design.shape[1]
    values, vectors = np.linalg.eigh(design.T @ design)
    kept = values > _DEPENDENT * values.max(initial=0)
    covariance = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    coefficients = covariance @ (design.T @ y)
    left = y - design @ coefficients
    coefficients = coefficients + covariance @ (design.T @ left)  # the normal equations cost half of the digits
    left = y - design @ coefficients
    null_space = vectors[:, ~kept].reshape(columns, -1)
    return Fit(coefficients, covariance, null_space, float(left @ left), len(y) - int(kept.sum()))


class Gain(NamedTuple):
    """The sum of squares and the degrees of freedom that a set of columns explains."""

    squares: float
    freedom: int


def wald(fitted: Fit, columns: slice) -> Gain:
    """Test estimable columns, with all others in the model: the quadratic form of "they are all zero"."""
    part = fitted.coefficients[columns]
    return Gain(float(part @ np.linalg.solve(fitted.covariance[columns, columns], part)), part.size)


def compare_fits(base: Floats, more: Floats, y: Floats) -> Gain:
    """Compare the fits with and without `more` [runs, added] beside `base` [runs, columns]."""
    small, large = fit(base, y), fit(np.hstack([base, more]), y)
    return Gain(max(small.residual - large.residual, 0.0), small.freedom - large.freedom)
