"""Estimated marginal means: what a level would come to if every other axis counted alike and no run were missing."""

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from scipy import special

from store.statistics.design import CROSS, Design, Fit, Term, contrasts
from store.statistics.paired_differences import Floats, or_null
from store.statistics.scales import Scale, back

MEANS: Final[dict[str, Any]] = {
    **dict.fromkeys(("term", "level"), pl.String),
    "n": pl.Int64,
    **dict.fromkeys(("mean", "low", "high"), pl.Float64),
    "note": pl.String,
}
"""Columns of `marginal_means`, in order."""


class Fits(NamedTuple):
    """The fit of the whole model, its noise variance, and a fit without the interactions that miss a pair of levels."""

    whole: Fit
    noise: float
    without: Fit
    incomplete: list[Term]


def marginal_means(design: Design, found: Fits, *, scale: Scale, alpha: float) -> pl.DataFrame:
    """One row per level of each axis and per combination of levels of each interaction in the model.

    `mean`, `low`, `high` are in the measure's unit; on the log scale a geometric mean, on the logit scale a mean of
    odds. The t interval is about these seeds and is not corrected. A mean over a pair of levels without any run is
    that of the model without their interaction; `note` says so. Means that the runs do not determine are null.
    """
    rows: list[tuple[object, ...]] = []
    for term in design.tested:
        for level, runs, row in _levels(design, term):
            fit, weights, note = _choose(found, row)
            if fit is None or (runs == 0 and len(term.factors) > 1):
                rows.append((term.name, level, runs, None, None, None, "not estimable" if runs else "no run"))
                continue
            with np.errstate(over="ignore"):
                numbers = [or_null(back(x, scale)) for x in _interval(found, fit, weights, alpha)]
            rows.append((term.name, level, runs, *numbers, note))
    return pl.DataFrame(rows, schema=MEANS, orient="row")


def _interval(found: Fits, fit: Fit, weights: Floats, alpha: float) -> tuple[float, float, float]:
    """An estimate and the ends of its t interval; NaN where nothing tells the noise."""
    freedom = found.whole.freedom
    quantile = float(special.stdtrit(freedom, 1 - alpha / 2)) if freedom > 0 else math.nan
    centre = float(weights @ fit.coefficients)
    half = quantile * math.sqrt(max(found.noise * float(weights @ fit.covariance @ weights), 0.0))
    return centre, centre - half, centre + half


def _choose(found: Fits, row: Floats) -> tuple[Fit | None, Floats, str]:
    """The fit in which a mean is estimable, its coefficients there, and what is assumed."""
    if found.whole.estimable(row[None]):
        return found.whole, row, ""
    weights = row.copy()
    for term in found.incomplete:
        weights[term.columns] = 0
    if not found.without.estimable(weights[None]):
        return None, weights, ""
    names = " and ".join(term.name for term in found.incomplete)
    return found.without, weights, f"as if there were no {names}"


def _levels(design: Design, term: Term) -> Iterator[tuple[str, int, Floats]]:
    """Each combination of levels of the term's axes: its name, its runs, and its mean as a row of coefficients."""
    parts = [each for each in design.tested if each.axes <= term.axes]
    codings = {factor.name: contrasts(len(factor.levels)) for factor in term.factors}
    for places in np.ndindex(*(len(factor.levels) for factor in term.factors)):
        at = dict(zip((factor.name for factor in term.factors), places, strict=True))
        row = np.zeros(design.matrix.shape[1])
        row[0] = 1
        for part in parts:
            product = np.ones(1)
            for factor in part.factors:
                product = np.outer(product, codings[factor.name][at[factor.name]]).ravel()
            row[part.columns] = product
        here = np.logical_and.reduce([factor.codes == at[factor.name] for factor in term.factors])
        yield CROSS.join(factor.levels[at[factor.name]] for factor in term.factors), int(here.sum()), row
