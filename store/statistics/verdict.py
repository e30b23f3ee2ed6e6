"""Verdicts of a whole family of comparisons, from their p values (`decide`), and one sentence for each (`reason`).

`compare.py` calls both, and `ablate.store.analysis.judge` adds the checks, by which a verdict may become *off*. The
table of runs that learn or do not has words of its own (`two_part.py`).

Each comparison has three questions: is the difference *not zero*, *beyond the ROPE*, *within the ROPE*? Each question
is one family with Holm's step-down adjustment over all comparisons, so the chance of any false yes to it is at most
alpha. The answer is yes exactly if the interval at the comparison's level shows it. `docs/statistics.md` says why the
three questions cannot share the intervals of one step-down.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.grid.durations import format_hours
from ablate.store.statistics.paired_differences import Floats, Paired, p_beyond, p_within, p_zero
from ablate.store.statistics.scales import Scale

MIN_PAIRS: Final = 3
"""Fewer pairs never get a verdict: at two, the interval is 13 times as wide as at many, and no check is possible."""

ROBUST_PAIRS: Final = 5
"""From here on, noise far from normal keeps the promised error rate if both arms have it alike: docs/statistics.md."""

Verdict = Literal["better", "worse", "equivalent", "off", "real, size unproven", "undecided", "no verdict"]
"""The words of a verdict. `decide` says all but "off", which a check of the runs adds."""

CLAIMS: Final = ("better", "worse", "real, size unproven")
"""Verdicts that show a difference."""

Better = Literal["lower", "higher"]
Method = Literal["paired t", "Welch"]

UNAFFORDABLE: Final = "no affordable number of seeds would decide"
"""The outlook of a comparison that no sensible number of seeds decides."""

_HOLM: Final = "; Holm p "

_LARGEST: Final = 700.0  # logarithm of the largest factor in a sentence; exp(710) is no number


def holm(p: Floats) -> Floats:
    """Holm-adjusted p (Holm 1979); the last axis is the family.

    NaN marks a planned comparison that cannot be tested. It stays NaN and counts in the size of the family.
    """
    m = p.shape[-1]
    filled = np.where(np.isnan(p), 1.0, p)
    order = np.argsort(filled, axis=-1, kind="stable")
    stepped = np.take_along_axis(filled, order, -1) * np.arange(m, 0, -1)
    adjusted = np.empty_like(filled)
    np.put_along_axis(adjusted, order, np.minimum(np.maximum.accumulate(stepped, axis=-1), 1.0), -1)
    return np.where(np.isnan(p), np.nan, adjusted)


def holm_levels(p: Floats, alpha: float) -> Floats:
    """Level at which Holm's step-down tests each p; the last axis is the family, and NaN is as in `holm`.

    The first comparison that is not rejected, and all after it, have the same level.
    """
    m = p.shape[-1]
    filled = np.where(np.isnan(p), 1.0, p)
    rank = np.argsort(np.argsort(filled, axis=-1, kind="stable"), axis=-1, kind="stable")
    rejected = (holm(p) <= alpha).sum(-1, keepdims=True)
    return np.asarray(alpha / (m - np.minimum(rank, np.minimum(rejected, m - 1))), dtype=np.float64)


class Decision(NamedTuple):
    """Verdict words, raw and Holm-adjusted p of "the difference is zero", level that decides; arrays of one shape."""

    words: NDArray[np.str_]
    p: Floats
    p_holm: Floats
    level: Floats  # level of the interval that shows the verdict


def decide(pairs: Paired, *, rope: float, alpha: float, better: Better) -> Decision:
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
        [~tested, (beyond <= alpha) & improved, beyond <= alpha, within <= alpha, zero <= alpha],
        ["no verdict", "better", "worse", "equivalent", "real, size unproven"],
        "undecided",
    )
    not_zero, outside, inside = (holm_levels(each, alpha) for each in questions)
    # the interval of "real, size unproven" excludes zero and crosses a limit of the band, where one level shows both
    size = np.minimum(questions[1], questions[2])
    crossing = np.minimum(not_zero, np.maximum(np.minimum(outside, inside), np.sqrt(p * size)))
    both = np.where(p < size, crossing, not_zero)
    decided = [(words == "better") | (words == "worse"), words == "real, size unproven", words == "equivalent"]
    levels = [outside, both, inside, np.minimum(not_zero, inside)]
    return Decision(words, p, zero, np.select([*decided, words == "undecided"], levels, np.nan))


class VerdictRule(NamedTuple):
    """By what the family is judged; `rope` in analysis units."""

    scale: Scale
    rope: float
    alpha: float
    family: int


def reason(word: str, row: Mapping[str, Any], rule: VerdictRule) -> str:
    """The sentence of a verdict that is not "no verdict", from its row in `compare`.

    In the row are `seeds_to_decide`, pairs that decide with 80 % power if the true difference is the one seen, and
    `wall_s` and `on_gpu` of one more seed in both arms.
    """
    runs = row["runs"], row["baseline_runs"]
    paired = row["method"] == "paired t"
    basis = f"{runs[0]} pairs" if paired else f"{runs[0]} and {runs[1]} unpaired runs"
    interval = f"{(1 - rule.alpha) * 100:g} % interval {span(row['low'], row['high'], rule.scale)}, {basis}"
    in_odds = " in odds" if rule.scale == "logit" else ""
    amount = f"{'odds ' if in_odds else ''}{size(row['difference'], rule.scale)} ({interval})"
    rope = f"{rule.rope:g}" if rule.scale == "linear" else f"{math.expm1(rule.rope) * 100:.2g} %{in_odds}"
    equal = f"the {rope} that counts as equal"
    family = "" if rule.family == 1 else f", over all {rule.family} comparisons"
    caution = ""
    if min(runs) < ROBUST_PAIRS:
        caution = f"; {few('pairs' if paired else 'runs in a group')}"
    elif row["sign_flip_p"] > rule.alpha:
        caution = f"; caution: the sign-flip test gives p {row['sign_flip_p']:.2g}, so this holds for normal noise only"
    if word in ("better", "worse"):
        return f"{amount}: {f'beyond {equal}' if rule.rope else 'not zero'}{family}{caution}"
    if word == "real, size unproven":
        return f"{amount}: not zero{family}, but not shown to exceed {equal}{caution}"
    if word == "equivalent":
        zero = "not zero, and " if row["p_holm"] <= rule.alpha else ""
        return f"{amount}: {zero}within {equal}{family}{caution if zero else ''}"
    return f"{amount}{_HOLM}{row['p_holm']:.2g}{family}; {_decide(row, min(runs))}"


def seeds_outlook(reason: str) -> str:
    """Return the part of an undecided comparison's reason that estimates the seeds: UNAFFORDABLE, or how many."""
    return reason.rpartition(_HOLM)[2].partition("; ")[2]


def size(difference: float, scale: Scale) -> str:
    """A difference in words: '12 % lower', 'higher by a factor of 5.2', '0.013 higher'; of odds on the logit scale."""
    if difference == 0:
        return "no different"
    direction = "lower" if difference < 0 else "higher"
    if scale == "linear":
        return f"{abs(difference):.3g} {direction}"
    if abs(difference) >= math.log(2):
        beyond = "more than " if abs(difference) > _LARGEST else ""
        factor = math.exp(min(abs(difference), _LARGEST))
        text = f"{factor:.2g}" if factor < 100 else f"{factor:,.0f}" if factor < 1e6 else f"{factor:.1e}"
        return f"{direction} by a factor of {beyond}{text}"
    percent = abs(math.expm1(difference)) * 100
    return f"{percent:.2g} % {direction}" if percent < 10 else f"{percent:.0f} % {direction}"


def span(low: float, high: float, scale: Scale) -> str:
    """An interval in words, the common part said once: '23 to 28 % lower', '0.01 lower to 0.02 higher'."""
    if size(low, scale) == size(high, scale):
        return size(low, scale)
    near, far = sorted((low, high), key=abs)
    (short, *rest), (long, *other) = size(near, scale).split(" "), size(far, scale).split(" ")
    if rest == other:
        return " ".join((short, "to", long, *rest))
    if rest[:-1] == other[:-1] and short == long and long in ("lower", "higher"):
        return " ".join((long, *other[:-1], rest[-1], "to", other[-1]))
    return f"{size(low, scale)} to {size(high, scale)}"


def few(what: str = "pairs") -> str:
    """The caution of a claim from fewer than ROBUST_PAIRS."""
    return f"caution: with fewer than {ROBUST_PAIRS} {what} this holds for normal noise only"


def _decide(row: Mapping[str, Any], runs: int) -> str:
    """Tell the seeds until either 'not zero' or 'inside the band' would be shown, whichever needs fewer."""
    seeds = row["seeds_to_decide"]
    if math.isnan(seeds):
        return UNAFFORDABLE
    if seeds <= runs:
        return "at the observed difference these seeds usually suffice; try a few more"
    unit, more = "GPU-h" if row["on_gpu"] else "CPU-h", seeds - runs
    cost = "" if row["wall_s"] is None else f", {format_hours(more * row['wall_s'] / 3600, unit)} for these two cells"
    return f"if the true difference is the one seen, about {seeds:,.0f} seeds ({more:,.0f} more{cost}) would decide"
