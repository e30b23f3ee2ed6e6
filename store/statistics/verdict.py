"""Verdicts of a whole family of comparisons, from their p values.

Each comparison has three questions: is the difference *not zero*, *beyond the ROPE*, *within the ROPE*? Each question
is one family with Holm's step-down adjustment over all comparisons. So for each question the chance of any false yes is
at most alpha, whatever the true differences are. A Holm-adjusted p is at most alpha exactly if the interval at this
comparison's level supports the answer. The level is alpha / m for the smallest p of m, alpha / (m - 1) for the next,
and so on until one fails. `docs/statistics.md` says why the three questions cannot share the intervals of one
step-down.
"""

from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.statistics.multiple_testing import holm, holm_levels
from store.statistics.paired_differences import Floats, Paired, p_beyond, p_within, p_zero

MIN_PAIRS: Final = 3
"""Fewer pairs never get a verdict: at two, the interval is 13 times as wide as at many, and no check is possible."""

VERDICTS: Final = ("better", "worse", "equivalent", "real, size unproven", "undecided", "no verdict")
"""Every word a verdict can be."""

Better = Literal["lower", "higher"]


class Judgement(NamedTuple):
    """Verdict words, raw and Holm-adjusted p of "the difference is zero", level that decides; arrays of one shape."""

    words: NDArray[np.str_]
    p: Floats
    p_holm: Floats
    level: Floats
    """The interval of level 1 - `level` shows the word: beyond the ROPE, inside it, only zero excluded, or neither."""


def judge(pairs: Paired, *, rope: float, alpha: float, better: Better) -> Judgement:
    """One verdict word per comparison; arrays [..., m] whose last axis is the family of m comparisons.

    A comparison with fewer than three pairs, NaN or no spread gets "no verdict" and still counts in the family.
    """
    tested = (pairs.n >= MIN_PAIRS) & (pairs.sd > 0)
    pairs = Paired(*(np.where(tested, part, np.nan) for part in pairs))
    p = p_zero(pairs)
    questions = p, p_beyond(pairs, rope), p_within(pairs, rope)
    zero, beyond, within = map(holm, questions)
    improved = pairs.mean < 0 if better == "lower" else pairs.mean > 0
    words = np.select(
        [~tested, (beyond <= alpha) & improved, beyond <= alpha, zero <= alpha, within <= alpha],
        ["no verdict", "better", "worse", "real, size unproven", "equivalent"],
        "undecided",
    )
    return Judgement(words, p, zero, _level(words, questions, alpha))


def _level(words: NDArray[np.str_], questions: tuple[Floats, Floats, Floats], alpha: float) -> Floats:
    """The level of the question that decided.

    "real, size unproven" answers two questions: *not zero*, yes, and *beyond*, no. A level between both p shows both.
    """
    zero, beyond, within = (holm_levels(each, alpha) for each in questions)
    decided = [(words == "better") | (words == "worse"), words == "real, size unproven", words == "equivalent"]
    both = np.minimum(zero, np.maximum(beyond, np.sqrt(questions[0] * questions[1])))
    return np.select([*decided, words == "undecided"], [beyond, both, within, np.minimum(zero, within)], np.nan)
