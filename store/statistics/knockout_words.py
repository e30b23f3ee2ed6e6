"""Was a component on: words for the changes of a measure that its removal makes, a change per seed.

Changes and standard errors over items are on the measure's scale, and the band is the measure's rope. A positive change
is one for the worse. All limits are fractions of the band: a change below a tenth of it is off, one of the whole is on.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

Word = Literal["off", "on", "on, and it hurts", "faint", "mixed", "unknown"]

OFF: Final = 0.1
"""Share of the band below which a change is off."""
_ERRORS: Final = 2.0
"""Standard errors over items by which a change may be wrong."""


class KnockoutResult(NamedTuple):
    """The word for the changes of all runs, and their range."""

    word: Word
    runs: int
    """Runs that count: those that learned."""
    low: float
    """The smallest change; NaN without runs."""
    high: float
    """The largest one."""
    items: int | None = None
    """Unknown for want of items: how many per run would do."""


def describe_removal(
    changes: Sequence[float], errors: Sequence[float | None], band: float, *, items: Sequence[int] = ()
) -> KnockoutResult:
    """Describe the changes of one component in runs that learned.

    "off": below a tenth of the band in every run. "on": at least the band in every run, for the worse; for the better,
    it is on and hurts. "mixed": off in some runs and the band or more in others, or the band or more with both signs.
    "faint": otherwise. "unknown": no run, a change that is not finite, or one that its items leave open. They do
    if two standard errors over them exceed a tenth of the band. A change that exceeds that tenth by as much is not off,
    and its size counts as measured. An error of None leaves it open.
    """
    if not 0 < band < math.inf:
        raise ValueError(f"the band is {band}; give a positive number")
    change, error = np.array(changes, float), np.array([math.nan if each is None else each for each in errors], float)
    low, high = (float(change.min()), float(change.max())) if len(change) else (math.nan, math.nan)
    doubt, size = _ERRORS * error, np.abs(change)
    open_ = ~((doubt <= OFF * band) | (size - doubt >= OFF * band))  # an error of NaN leaves it open
    if not len(change) or not np.isfinite(change).all():
        return KnockoutResult("unknown", len(change), low, high)
    if open_.any():
        return KnockoutResult("unknown", len(change), low, high, _items_needed(items, doubt, open_, band))
    off, on = size < OFF * band, size >= band
    if off.all():
        word: Word = "off"
    elif on.all() and (change > 0).all():
        word = "on"
    elif on.all() and (change < 0).all():
        word = "on, and it hurts"
    else:
        word = "mixed" if on.all() or (on.any() and off.any()) else "faint"
    return KnockoutResult(word, len(change), low, high)


def _items_needed(items: Sequence[int], doubt: np.ndarray, open_: np.ndarray, band: float) -> int | None:
    """Return how many items per run bring two standard errors to a tenth of the band; None if errors are unknown."""
    if not items or not np.isfinite(doubt[open_]).all():
        return None
    return math.ceil(float((np.array(items, float)[open_] * np.square(doubt[open_] / (OFF * band))).max()))
