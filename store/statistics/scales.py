"""The scales that values are analysed on: as they are, by ratios, or by ratios of odds.

On the log scale values are positive and differences are logarithms of ratios. On the logit scale values are rates
between 0 and 1 and differences are logarithms of odds ratios: from 98 to 99 % is as far as from 67 to 80 %.
A value that a scale cannot take (0 and 1 are no odds) is not moved inside: the comparison has no verdict.
"""

from collections.abc import Iterable
from typing import Final, Literal

import numpy as np
from scipy import special

from ablate.grid.errors import SpecError
from ablate.store.statistics.paired_differences import Floats

Scale = Literal["log", "linear", "logit"]

ROUNDING: Final = 16 * float(np.finfo(np.float64).eps)  # share of their size by which equal values may differ
_LARGEST: Final = 1e150  # squares of larger values are no numbers


def fits(values: Floats, scale: Scale) -> bool:
    """Whether the scale can take all of `values`."""
    if scale == "linear":
        return bool((np.abs(values) < _LARGEST).all())
    return bool((values > 0).all() and (scale == "log" or (values < 1).all()))


def misfit(scale: Scale) -> str:
    """Why a comparison whose values do not fit has no verdict."""
    if scale == "logit":
        return "a value is not between 0 and 1, where the logit scale has a meaning; give the measure scale='linear'"
    if scale == "linear":
        return f"a value is beyond {_LARGEST:g}, which no spread can be computed of; give the measure scale='log'"
    return "a value is zero or negative, so the log scale has no meaning"


def forward(values: Floats, scale: Scale) -> Floats:
    """`values` in analysis units, of the same shape; NaN where the scale cannot take one."""
    if scale == "linear":
        return values
    inside = values > 0 if scale == "log" else (values > 0) & (values < 1)
    kept = np.where(inside, values, np.nan)
    return np.asarray(np.log(kept) if scale == "log" else special.logit(kept))


def response(values: Floats, scale: Scale) -> Floats:
    """`forward` for models that need every one of `values`; raises SpecError for one that the scale cannot take."""
    if fits(values, scale):
        return forward(values, scale)
    if scale == "logit":
        wrong = values[(values <= 0) | (values >= 1)][0]
        raise SpecError(f"{wrong:g} is not between 0 and 1, as the logit scale needs; give the measure scale='linear'")
    if scale == "linear":
        wrong = np.abs(values).max()
        raise SpecError(f"{wrong:g} is not below {_LARGEST:g}, as the linear scale needs; give the measure scale='log'")
    raise SpecError(f"{values.min():g} is not above 0, as the log scale needs; give the measure scale='linear'")


def back(units: float, scale: Scale) -> float:
    """The value that lies at `units` on the scale."""
    if scale == "linear":
        return units
    return float(np.exp(units) if scale == "log" else special.expit(units))


def varies(values: Floats, of: Iterable[Floats], scale: Scale) -> bool:
    """Whether `values` [n], made of the arrays in `of`, all in analysis units, vary by more than rounding.

    Otherwise there is no noise to judge by. A logarithm has the rounding of its argument, so its size is 1 at least.
    """
    if values.size < 2:
        return False
    largest = max(0.0 if scale == "linear" else 1.0, *(float(np.abs(each).max()) for each in of))
    return bool(values.std(ddof=1) > ROUNDING * largest)


def margin(rope: float, scale: Scale) -> float:
    """The region of practical equivalence in analysis units: 0.05 is a factor of 1.05 of values, or of odds."""
    return rope if scale == "linear" else float(np.log1p(rope))


def percent(difference: float, base: float, scale: Scale) -> float:
    """A difference from the average `base` in per cent of it; NaN where that is zero. `base` is a plain value."""
    if scale == "log":
        return float(np.expm1(min(difference, 700.0))) * 100
    if not base:
        return float("nan")
    change = difference if scale == "linear" else back(difference + float(special.logit(base)), scale) - base
    return change / abs(base) * 100
