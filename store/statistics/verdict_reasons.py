"""One human sentence per verdict: what was found, how sure it is, and what would settle it."""

import math
from typing import Final, NamedTuple

from grid.durations import format_hours
from store.statistics.arms import Method
from store.statistics.scales import Scale

ROBUST_PAIRS: Final = 5
"""From here on, noise far from normal keeps the promised error rate where both arms have it alike; see
`docs/statistics.md`."""


_LARGEST: Final = 700.0
"""Logarithm of the largest factor that is told; exp(710) is no number."""


class VerdictFacts(NamedTuple):
    """Facts for the sentence of a verdict; differences in analysis units."""

    word: str
    difference: float
    low: float
    high: float
    runs: tuple[int, int]
    """Runs of the cell and of the baseline; paired, both are the number of pairs."""
    method: Method
    p_holm: float
    sign_flip_p: float
    seeds: float
    """Pairs that decide with 80 % power if the true difference is the one that was seen."""
    wall_s: float | None
    """Seconds of one more seed in both arms; None if unknown."""
    on_gpu: bool


class VerdictRule(NamedTuple):
    """By what the family is judged; `rope` in analysis units."""

    scale: Scale
    rope: float
    alpha: float
    family: int


def size(difference: float, scale: Scale) -> str:
    """A difference in words: '12 % lower', 'higher by a factor of 5.2', '0.013 higher'; of odds on the logit scale."""
    if difference == 0:
        return "no different"
    direction = "lower" if difference < 0 else "higher"
    if scale == "linear":
        return f"{abs(difference):.3g} {direction}"
    if abs(difference) >= math.log(2):
        beyond = "more than " if abs(difference) > _LARGEST else ""
        return f"{direction} by a factor of {beyond}{_round(math.exp(min(abs(difference), _LARGEST)))}"
    percent = abs(math.expm1(difference)) * 100
    return f"{percent:.2g} % {direction}" if percent < 10 else f"{percent:.0f} % {direction}"


def _round(factor: float) -> str:
    return f"{factor:.2g}" if factor < 100 else f"{factor:,.0f}" if factor < 1e6 else f"{factor:.1e}"


def margin(rope: float, scale: Scale) -> str:
    """The ROPE in words: '5 %', '5 % in odds' or '0.005'."""
    if scale == "linear":
        return f"{rope:g}"
    return f"{math.expm1(rope) * 100:.2g} %{' in odds' if scale == 'logit' else ''}"


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


def reason(found: VerdictFacts, rule: VerdictRule) -> str:
    """The sentence of a verdict that is not "no verdict"."""
    level = f"{(1 - rule.alpha) * 100:g} %"
    interval = f"{level} interval {span(found.low, found.high, rule.scale)}, {_basis(found)}"
    amount = f"{'odds ' if rule.scale == 'logit' else ''}{size(found.difference, rule.scale)} ({interval})"
    equal = f"the {margin(rule.rope, rule.scale)} that counts as equal"
    if found.word in ("better", "worse"):
        beyond = f"beyond {equal}" if rule.rope else "not zero"
        return f"{amount}: {beyond}{_family(rule)}{_caution(found, rule)}"
    if found.word == "real, size unproven":
        return f"{amount}: not zero{_family(rule)}, but not shown to exceed {equal}{_caution(found, rule)}"
    if found.word == "equivalent":
        return f"{amount}: within {equal}{_family(rule)}"
    return f"{amount}; Holm p {found.p_holm:.2g}{_family(rule)}; {_decide(found)}"


def _basis(found: VerdictFacts) -> str:
    if found.method == "Welch":
        return f"{found.runs[0]} and {found.runs[1]} unpaired runs"
    return f"{found.runs[0]} pairs"


def _family(rule: VerdictRule) -> str:
    return "" if rule.family == 1 else f", over all {rule.family} comparisons"


def _caution(found: VerdictFacts, rule: VerdictRule) -> str:
    if min(found.runs) < ROBUST_PAIRS:
        return f"; {few('pairs' if found.method == 'paired t' else 'runs in a group')}"
    if found.sign_flip_p > rule.alpha:
        return f"; caution: the sign-flip test gives p {found.sign_flip_p:.2g}, so this holds for normal noise only"
    return ""


def few(what: str = "pairs") -> str:
    """The caution of a claim from fewer than ROBUST_PAIRS."""
    return f"caution: with fewer than {ROBUST_PAIRS} {what} this holds for normal noise only"


def _decide(found: VerdictFacts) -> str:
    """Undecided ends when the difference is shown to be not zero, or to lie inside the ROPE: whichever is nearer."""
    if math.isnan(found.seeds):
        return "no affordable number of seeds would decide"
    more = found.seeds - min(found.runs)
    if more <= 0:
        return "these seeds could have decided if the true difference is the one seen; a few more may"
    unit = "GPU-h" if found.on_gpu else "h"
    cost = "" if found.wall_s is None else f", {format_hours(more * found.wall_s / 3600, unit)}"
    return (
        f"if the true difference is the one seen, about {found.seeds:,.0f} seeds ({more:,.0f} more{cost}) would decide"
    )
