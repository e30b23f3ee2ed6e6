"""Factorial analysis of a grid: F tests of main effects and two-way interactions, with seeds as blocks.

Each term is tested given all others (type III with effect coding). So a main effect compares means in which each level
of the other axes has equal weight, also if runs are missing. If a pair of levels has no run, such means do not exist.
An interaction is then tested as far as it is estimable, and a main effect without its interactions (type II); the row
says so. This is not statsmodels' `anova_lm`: that has neither partly estimable terms nor their reasons.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from scipy import special

from grid.errors import SpecError
from store.statistics.design import Design, Term, build, check, read_factors, usable, without_runs
from store.statistics.least_squares import Fit, Gain, compare_fits, fit, wald
from store.statistics.marginal import Fits, level_effects, marginal_means
from store.statistics.missing_runs import failed_unequally, left_out
from store.statistics.multiple_testing import holm
from store.statistics.omega import omega_interval, partial_omega_squared
from store.statistics.paired_differences import Floats
from store.statistics.scales import Scale, response

TERMS: Final[dict[str, Any]] = {
    "term": pl.String,
    "order": pl.Int64,
    "df": pl.Int64,
    "df_error": pl.Int64,
    "f": pl.Float64,
    "p": pl.Float64,
    "p_holm": pl.Float64,
    "omega_squared": pl.Float64,
    "omega_low": pl.Float64,
    "omega_high": pl.Float64,
    "aliased_with": pl.List(pl.String),
    "note": pl.String,
}
"""Columns of `Factorial.terms`, in order."""

_NAMED: Final = 3
_NO_NOISE: Final = 1e-20


class Factorial(NamedTuple):
    """Effects of a grid's axes. `docs/factorial.md` explains each column."""

    terms: pl.DataFrame
    means: pl.DataFrame
    effects: pl.DataFrame
    """Difference of each level from the grid mean: the columns of `level_effects`."""
    noise: float | None
    """Standard deviation of the residual in analysis units; null without residual degrees of freedom."""
    runs: int
    seeds: int
    """That have a run with a value."""
    notes: list[str]
    """Left-out runs and the reasons, a sentence each."""


class _Tested(NamedTuple):
    gain: Gain
    aliased: list[str]
    note: str


def factorial(
    values: pl.DataFrame, factors: Mapping[str, Sequence[str]], *, scale: Scale, order: int = 2, alpha: float = 0.05
) -> Factorial:
    """Tests of the terms up to `order` (1 or 2), the marginal means of their levels, and the levels' effects.

    `values` has one row per run: seed, value, and one column of level names per factor (null if the axis does not
    apply). With the column status, as `compare` takes it, notes say why runs are left out. `factors` gives the levels
    in order. Rows without a finite value are left out. Raises SpecError for an unknown column or order, or an unusable
    value.
    """
    check(values, list(factors))
    if order not in (1, 2):
        raise SpecError(f"effects are main effects (order 1) or with interactions of two axes (order 2); got {order!r}")
    kept = usable(values)
    y = response(kept["value"].cast(pl.Float64).to_numpy(), scale)
    axes = read_factors(values, factors)
    design = build(values, axes, order=order)
    found = fit(design.matrix, y)
    noise = _noise(found, y)
    tested = [_add_note(_test(design, term, found, y), failed_unequally(values, term)) for term in design.tested]
    fits, seeds = _fits(design, found, noise, y), kept["seed"].n_unique()
    return Factorial(
        _frame(design.tested, tested, found, noise, len(y), alpha),
        marginal_means(design, fits, scale=scale, alpha=alpha),
        level_effects(design, fits, scale=scale, alpha=alpha),
        None if math.isnan(noise) else math.sqrt(noise),
        len(y),
        seeds,
        [*left_out(values), *design.notes, *_unseen(seeds), *_silence(found, noise, y)],
    )


def _add_note(tested: _Tested, more: str) -> _Tested:
    return tested._replace(note="; ".join(filter(None, (tested.note, more))))


def _fits(design: Design, found: Fit, noise: float, y: Floats) -> Fits:
    incomplete = [term for term in design.tested if without_runs(term)]
    matrix = design.matrix.copy()
    for term in incomplete:
        matrix[:, term.columns] = 0
    return Fits(found, noise, fit(matrix, y) if incomplete else found, incomplete)


def _noise(found: Fit, y: Floats) -> float:
    """The residual variance; NaN where rounding is all that is left."""
    spread = float(y.var()) if y.size else 0.0
    return found.variance if found.variance > _NO_NOISE * max(spread, 1e-300) else math.nan


def _test(design: Design, term: Term, found: Fit, y: Floats) -> _Tested:
    rows = np.eye(design.matrix.shape[1])[term.columns]
    lost = [f"no run with {each.name} {level} has a value" for each in term.factors for level in each.lost]
    if rows.size and found.estimable(rows):
        return _Tested(wald(found, term.columns), [], "; ".join(lost))
    aliased = _find_aliased(design, term, found)
    main = len(term.factors) == 1
    others = [each for each in design.terms if each is not term and not (main and term.axes <= each.axes)]
    base = np.hstack([design.matrix[:, each.columns] for each in others])
    gain = compare_fits(base, design.matrix[:, term.columns], y)
    return _Tested(gain, aliased, "; ".join([*lost, *_because(design, term, gain, aliased)]))


def _find_aliased(design: Design, term: Term, found: Fit) -> list[str]:
    """The terms, seeds among them, that take part in what is not estimable of this one."""
    own = found.null_space[term.columns]
    linked = np.abs(own @ found.null_space.T).max(0, initial=0) > 1e-7
    return [each.name for each in design.terms[1:] if each.name != term.name and linked[each.columns].any()]


def _because(design: Design, term: Term, gain: Gain, aliased: Sequence[str]) -> list[str]:
    pairs = [each for each in design.tested if len(each.factors) == 2 and term.axes <= each.axes]
    empty = {each.name: without_runs(each) for each in pairs}
    missing = [combination for of in empty.values() for combination in of]
    told = [f"no run has {_some(missing)}"] if missing else []
    if gain.freedom == 0:
        return [*told, f"it cannot be told from {_some(aliased)}" if aliased else "it has fewer than two levels"]
    if len(term.factors) == 2:
        return [*told, f"{gain.freedom} of {term.columns.stop - term.columns.start} degrees of freedom are tested"]
    without = [name for each in pairs if empty[each.name] for name in sorted(each.axes - term.axes)]
    return [*told, f"tested as if it had no interaction with {_some(without)}" if without else "tested in part"]


def _frame(
    terms: Sequence[Term], tested: Sequence[_Tested], found: Fit, noise: float, runs: int, alpha: float
) -> pl.DataFrame:
    df = np.array([each.gain.freedom for each in tested], dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        f = np.array([each.gain.squares for each in tested]) / df / noise
    f = np.where((df > 0) & np.isfinite(f), f, np.nan)
    p = special.fdtrc(df, found.freedom, f)
    orders = np.array([len(term.factors) for term in terms], dtype=int)
    adjusted = np.full(len(terms), np.nan)
    for order in (1, 2):
        adjusted[orders == order] = holm(p[orders == order])
    low, high = omega_interval(f, df, found.freedom, runs, alpha)
    numbers = (f, p, adjusted, partial_omega_squared(f, df, runs), low, high)
    columns = [[float(x) if math.isfinite(x) else None for x in each] for each in numbers]
    rows = [
        (term.name, int(order), each.gain.freedom, found.freedom, *row, each.aliased, each.note)
        for term, order, each, row in zip(terms, orders, tested, zip(*columns, strict=True), strict=True)
    ]
    return pl.DataFrame(rows, schema=TERMS, orient="row")


def _unseen(seeds: int) -> list[str]:
    if seeds != 1:
        return []
    return [
        "there is one seed, so the noise is compared by the interactions that are not in the model, if any are left"
    ]


def _silence(found: Fit, noise: float, y: Floats) -> list[str]:
    if not y.size or not math.isnan(noise):
        return []
    if found.freedom <= 0:
        return ["there are as many effects as runs, so nothing is left to judge the noise by: no tests, no intervals"]
    return ["the runs do not differ beyond what the effects explain, so there is no noise to test against"]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
