"""Factorial analysis of a grid, with seeds as blocks: F tests of main effects and two-way interactions, and means.

An estimated marginal mean is what a level would come to if every other axis counted alike and no run were missing.

Each term is tested given all others (type III with effect coding). If a pair of levels has no run, an interaction is
tested as far as it is estimable, and a main effect without its interactions (type II). `anova_lm` of statsmodels cannot
test a term in part. docs/factorial.md explains the numbers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import special, stats

from ablate.grid.errors import SpecError
from ablate.grid.names import some
from ablate.store.state import ENDED, State
from ablate.store.statistics.design import CROSS, FINITE, NAMED, Design, Term, build, check, read_factors, usable
from ablate.store.statistics.least_squares import Fit, Gain, compare_fits, fit, wald
from ablate.store.statistics.level_means import LevelMean, level_means, name_apart, name_levels, name_own_axes
from ablate.store.statistics.paired_differences import Floats, or_null
from ablate.store.statistics.scales import Scale, back, response
from ablate.store.statistics.verdict import MIN_PAIRS, holm

TERMS: Final[dict[str, Any]] = {
    "term": pl.String,
    **dict.fromkeys(("order", "df", "df_error"), pl.Int64),
    **dict.fromkeys(("f", "p", "p_holm", "omega_squared", "omega_low", "omega_high"), pl.Float64),
    "aliased_with": pl.List(pl.String),
    "note": pl.String,
}

MEANS: Final[dict[str, Any]] = {
    **dict.fromkeys(("term", "level"), pl.String),
    "n": pl.Int64,
    **dict.fromkeys(("mean", "low", "high", "own_mean"), pl.Float64),
    "note": pl.String,
}

UNEQUAL: Final = 0.01
"""Level of the test that cells differ in spread; it only adds a sentence."""
_NO_NOISE: Final = 1e-20
_LARGEST_F: Final = 1e6
"""F beyond this is treated as this: the share is 1 then, and the noncentral distribution loses its digits."""


class Factorial(NamedTuple):
    """Effects of a grid's axes. `docs/factorial.md` explains each column."""

    terms: pl.DataFrame
    means: pl.DataFrame
    noise: float | None
    """Standard deviation of the residual in analysis units; null without residual degrees of freedom."""
    runs: int
    seeds: int  # that have a run with a value
    notes: list[str]  # left-out runs and the reasons, a sentence each


class _Model(NamedTuple):
    """The whole model beside a term, and one without the interactions that miss a pair of levels."""

    design: Design
    whole: Fit
    without: Fit
    incomplete: list[Term]
    means: list[LevelMean]


class _Noise(NamedTuple):
    """The variance of the noise in the model with an intercept for every pattern, NaN without any, and its freedom."""

    variance: float
    freedom: int


class _Tested(NamedTuple):
    gain: Gain
    aliased: list[str]
    note: str


def factorial(
    values: pl.DataFrame, factors: Mapping[str, Sequence[str]], *, scale: Scale, order: int = 2, alpha: float = 0.05
) -> Factorial:
    """Tests of the terms up to `order` (1 or 2), and the means of their levels.

    `values` has one row per run: seed, value, and one column of level names per factor (null if the axis does not
    apply). With the column state, notes say why runs are left out. `factors` gives the levels in order. Raises
    SpecError for an unknown column or order, or an unusable value.
    """
    check(values, list(factors))
    if order not in (1, 2):
        raise SpecError(
            f"order={order!r} is no order of effects; write 1 (main effects) or 2 (with interactions of two axes)"
        )
    kept = usable(values)
    y = response(kept["value"].cast(pl.Float64).to_numpy(), scale)
    design = build(values, read_factors(values, factors, kept), order=order, kept=kept)
    fitted = fit(design.matrix, y)
    rounding = _NO_NOISE * max(float(y.var()) if y.size else 0.0, 1e-300)
    noise = _Noise(fitted.variance if fitted.variance > rounding else math.nan, fitted.freedom)
    models = list(_models(design, fitted, y))
    tested = [
        _test(model, term, y, _ended_unequally(values, term)) for model, term in zip(models, design.tested, strict=True)
    ]
    seeds = kept["seed"].n_unique()
    return Factorial(
        _frame(design.tested, tested, noise, len(y), alpha),
        _means(design.tested, models, noise, y, scale=scale, alpha=alpha),
        or_null(math.sqrt(noise.variance)),
        len(y),
        seeds,
        [*_left_out(values), *design.notes, *_doubts(noise, seeds, len(y)), *_spread_unequally(design.codes, y)],
    )


def _models(design: Design, fitted: Fit, y: Floats) -> Iterator[_Model]:
    """The model beside each tested term of `design`, which `fitted` fits."""
    incomplete = [term for term in design.tested if term.without_runs]
    fits: dict[bytes, tuple[Fit, Fit]] = {}
    for term in design.tested:
        own = design.merge_beside(term)
        key = own.matrix[:, own.intercepts].tobytes()
        if key not in fits:
            matrix = own.matrix.copy()
            for each in incomplete:
                matrix[:, each.columns] = 0
            whole = fitted if own is design else fit(own.matrix, y)
            fits[key] = whole, fit(matrix, y) if incomplete else whole
        yield _Model(own, *fits[key], incomplete, list(level_means(own, term)))


def _test(model: _Model, term: Term, y: Floats, failures: str) -> _Tested:
    design = model.design
    rows = np.eye(design.matrix.shape[1])[term.columns]
    if len(term.factors) == 1 and model.means:
        rows = np.array([each.row - model.means[0].row for each in model.means[1:]]).reshape(-1, rows.shape[1])
    notes = [f"no run with {each.name} {level} has a value" for each in term.factors for level in each.lost]
    apart = name_apart(design, term)
    notes += [*name_own_axes(design, term), *apart]
    aliased: list[str] = []
    if rows.size and model.whole.estimable(rows):
        gain = wald(model.whole, rows)
    else:
        aliased = _find_aliased(design, term, model.whole)
        main = len(term.factors) == 1
        others = [each for each in design.terms if each is not term and not (main and term.axes <= each.axes)]
        base = np.hstack([design.matrix[:, each] for each in (*(each.columns for each in others), design.intercepts)])
        gain = compare_fits(base, design.matrix[:, term.columns], y)
        notes += _because(design, term, gain, aliased, apart)
    return _Tested(gain, aliased, "; ".join([*notes, *([failures] if failures else [])]))


def _find_aliased(design: Design, term: Term, fitted: Fit) -> list[str]:
    """The terms, seeds among them, that take part in what is not estimable of this one."""
    own = fitted.null_space[term.columns]
    linked = np.abs(own @ fitted.null_space.T).max(0, initial=0) > 1e-7
    return [each.name for each in design.terms if each.name != term.name and linked[each.columns].any()]


def _because(design: Design, term: Term, gain: Gain, aliased: Sequence[str], apart: Sequence[str]) -> list[str]:
    pairs = [each for each in design.tested if len(each.factors) == 2 and term.axes <= each.axes]
    missing = [combination for each in pairs for combination in each.without_runs]
    told = [f"no run has {some(missing, NAMED)}"] if missing else []
    if gain.freedom == 0:
        told += [f"it cannot be told from {some(aliased, NAMED)}"] if aliased else []
        return told or ([] if apart else ["it has fewer than two levels"])
    if len(term.factors) == 2:
        return [*told, f"{gain.freedom} of {term.columns.stop - term.columns.start} degrees of freedom are tested"]
    without = [name for each in pairs if each.without_runs for name in sorted(each.axes - term.axes)]
    return [*told, f"tested as if it had no interaction with {some(without, NAMED)}" if without else "tested in part"]


def _frame(terms: Sequence[Term], tested: Sequence[_Tested], noise: _Noise, runs: int, alpha: float) -> pl.DataFrame:
    df, left = np.array([each.gain.freedom for each in tested], dtype=float), noise.freedom
    with np.errstate(invalid="ignore", divide="ignore"):
        f = np.array([each.gain.squares for each in tested]) / df / noise.variance
    f = np.where((df > 0) & np.isfinite(f), f, np.nan)
    p = special.fdtrc(df, left, f)
    orders = np.array([len(term.factors) for term in terms], dtype=int)
    adjusted = np.full(len(terms), np.nan)
    for order in (1, 2):
        adjusted[orders == order] = holm(p[orders == order])
    numbers = (f, p, adjusted, partial_omega_squared(f, df, runs), *omega_interval(f, df, left, runs, alpha))
    columns = [list(map(or_null, each)) for each in numbers]
    rows = [
        (term.name, int(order), each.gain.freedom, left, *row, each.aliased, each.note)
        for term, order, each, row in zip(terms, orders, tested, zip(*columns, strict=True), strict=True)
    ]
    return pl.DataFrame(rows, schema=TERMS, orient="row")


def partial_omega_squared(f: Floats, freedom: Floats, runs: int) -> Floats:
    """Bias-corrected share of variance, the shape of `f`; may be negative."""
    surplus = freedom * (f - 1)
    return np.asarray(surplus / (surplus + runs))


def omega_interval(
    f: Floats, freedom: Floats, error_freedom: int, runs: int, alpha: float = 0.05
) -> tuple[Floats, Floats]:
    """Interval of level 1 - 2 alpha for the share of variance; arrays of the shape of `f`."""
    low, high = (_noncentrality(f, freedom, error_freedom, level) for level in (1 - alpha, alpha))
    return low / (low + runs), high / (high + runs)


def _noncentrality(f: Floats, freedom: Floats, error_freedom: int, level: float) -> Floats:
    """The noncentrality at which F is below `f` with probability `level`; 0 where even none exceeds it."""
    f = np.minimum(f, _LARGEST_F)
    low, high = np.zeros_like(f), 20 * freedom * (f + 1) + 50
    for _ in range(80):
        middle = (low + high) / 2
        above = special.ncfdtr(freedom, error_freedom, middle, f) >= level
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    exceeds = special.fdtr(freedom, error_freedom, f) > level
    return np.where(np.isnan(f), np.nan, np.where(exceeds, low, 0.0))


def _doubts(noise: _Noise, seeds: int, runs: int) -> Iterator[str]:
    if seeds == 1:
        yield "there is one seed, so the noise is that of the interactions outside the model, if any are left"
    if runs and math.isnan(noise.variance):
        yield (
            "there are as many effects as runs, so nothing is left to judge the noise by: no tests, no intervals"
            if noise.freedom <= 0
            else "the runs do not differ beyond what the effects explain, so there is no noise to test against"
        )


def _spread_unequally(cells: NDArray[np.integer], y: Floats) -> Iterator[str]:
    """Say whether combinations of levels [runs, axes] differ in spread, by the test of Brown and Forsythe (1974)."""
    numbers = np.unique(cells, axis=0, return_inverse=True)[1].ravel()
    groups = [each for at in range(numbers.max(initial=-1) + 1) if (each := y[numbers == at]).size >= MIN_PAIRS]
    if len(groups) < 2 or not stats.levene(*groups, center="median").pvalue < UNEQUAL:
        return
    spreads = sorted(float(each.std(ddof=1)) for each in groups)
    yield (
        f"cells differ in spread (standard deviations {spreads[0]:.3g} to {spreads[-1]:.3g}), and F tests and means of "
        "levels assume one: rely on the differences between levels, which have errors of their own"
    )


def _left_out(values: pl.DataFrame) -> Iterator[str]:
    planned, missing = values.height, values.height - usable(values).height
    if missing and "state" not in values.columns:
        yield f"{missing} of {planned} planned runs are left out"
    elif missing:
        lost = values.filter(~FINITE)["state"].replace(State.DONE, "without a finite value")
        counts = sorted(lost.value_counts().rows(), key=lambda row: (-row[1], row[0]))
        yield f"{missing} of {planned} planned runs are left out: {', '.join(f'{n} {state}' for state, n in counts)}"
        outstanding = values.filter(~pl.col("state").is_in(ENDED)).height
        if outstanding:
            yield f"preliminary: {outstanding} of {planned} planned runs outstanding"


def _ended_unequally(values: pl.DataFrame, term: Term) -> str:
    """Where runs ended without a finite value, if not alike at all levels; empty otherwise, and for an interaction."""
    if len(term.factors) > 1 or "state" not in values.columns:
        return ""
    (axis,) = term.factors
    infinite = (pl.col("state") == State.DONE) & ~FINITE & pl.col("value").is_not_null()
    unusable = (pl.col("state") == State.FAILED) | infinite
    counts = (
        values.filter(pl.col(axis.name).is_not_null())
        .group_by(pl.col(axis.name).cast(pl.String).alias("level"), maintain_order=True)
        .agg(unusable.sum().alias("unusable"), pl.len().alias("runs"))
    )
    if (counts["unusable"] / counts["runs"]).n_unique() < 2:
        return ""
    lost = [level for level, n, runs in counts.rows() if n == runs]
    told = [f"{n} of {runs} with {level}" for level, n, runs in counts.rows() if 0 < n < runs]
    did = "ended without a finite value" if values.filter(infinite).height else "failed"
    parts = [f"every run with {' and with '.join(lost)} {did}, so it has no mean"] if lost else []
    parts += [f"runs {did} unequally ({', '.join(told)}), so means are of survivors"] if told else []
    return "; ".join(parts)


def _means(
    terms: Sequence[Term], models: Sequence[_Model], noise: _Noise, y: Floats, *, scale: Scale, alpha: float
) -> pl.DataFrame:
    """One row per level of each axis and per combination of levels of each interaction in the model.

    `mean`, `low`, `high` are in the measure's unit; on the log scale a geometric mean, on the logit scale a mean of
    odds. The t interval is about these seeds and is not corrected. `own_mean` is the plain mean of the runs at the
    level; `note` says where the mean is adjusted. A mean over a pair of levels without any run is that of the model
    without their interaction. Means that the runs do not determine are null.
    """
    rows: list[tuple[object, ...]] = []
    for term, model in zip(terms, models, strict=True):
        for each in model.means:
            level, chosen = (
                CROSS.join(name_levels(term, each.places)),
                (model.design.codes[:, [*term.at]] == each.places).all(1),
            )
            own = or_null(back(float(y[chosen].mean()), scale)) if each.runs else None
            fit, weights, note = _choose(model, each)
            if fit is None or (each.runs == 0 and len(term.factors) > 1):
                note = "not estimable" if each.runs else "no run"
                rows.append((term.name, level, each.runs, None, None, None, own, note))
                continue
            with np.errstate(over="ignore"):
                numbers = [or_null(back(x, scale)) for x in _interval(noise, fit, weights, alpha)]
            rows.append((term.name, level, each.runs, *numbers, own, note))
    return pl.DataFrame(rows, schema=MEANS, orient="row")


def _interval(noise: _Noise, fit: Fit, weights: Floats, alpha: float) -> tuple[float, float, float]:
    """An estimate and the ends of its t interval; NaN where nothing tells the noise."""
    quantile = float(special.stdtrit(noise.freedom, 1 - alpha / 2)) if noise.freedom > 0 else math.nan
    centre = float(weights @ fit.coefficients)
    half = quantile * math.sqrt(max(noise.variance * float(weights @ fit.covariance @ weights), 0.0))
    return centre, centre - half, centre + half


def _choose(model: _Model, mean: LevelMean) -> tuple[Fit | None, Floats, str]:
    """The fit in which a mean is estimable, its coefficients there, and what is assumed."""
    if model.whole.estimable(mean.row[None]):
        return model.whole, mean.row, "adjusted" if mean.adjusted else ""
    weights = mean.row.copy()
    for term in model.incomplete:
        weights[term.columns] = 0
    if not model.without.estimable(weights[None]):
        return None, weights, ""
    names = " and ".join(term.name for term in model.incomplete)
    return model.without, weights, f"adjusted, as if there were no {names}"
