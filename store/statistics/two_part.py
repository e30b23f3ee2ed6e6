"""Runs that learn or do not: how often a cell learns and how well once it has, each against its baseline.

A mean over both kinds of runs mixes the two questions. Half of alpha is for shares: Boschloo's exact test (1970), Holm
over all comparisons. Half is for values over the pairs in which both learned: the paired t test, Holm over the
comparisons with three such pairs or more. If every run learned, values have all of alpha. `docs/statistics.md` has the
rates of false claims.
"""

from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import special

from ablate.store.statistics.arms import Arm, Baseline, Pairing, arms, match_arms, pair
from ablate.store.statistics.failures import fisher_p
from ablate.store.statistics.paired_differences import Floats, Paired, or_null, t_interval
from ablate.store.statistics.scales import Scale, back, margin
from ablate.store.statistics.verdict import MIN_PAIRS, Better, Decision, decide, holm

TWO_PART: Final[dict[str, Any]] = {
    **dict.fromkeys(("cell", "label", "operator", "baseline"), pl.String),
    **dict.fromkeys(("learned", "runs", "baseline_learned", "baseline_runs"), pl.Int64),
    **dict.fromkeys(("share_low", "share_high", "baseline_share_low", "baseline_share_high"), pl.Float64),
    **dict.fromkeys(("share_difference", "share_p", "share_p_holm", "fisher_p"), pl.Float64),
    "pairs": pl.Int64,
    **dict.fromkeys(("value", "baseline_value", "difference", "low", "high", "p", "p_holm"), pl.Float64),
    **dict.fromkeys(("verdict", "reason"), pl.String),
}

Word = Literal["better", "worse", "trade-off", "real, size unproven", "undecided"]

_WORDS: Final[dict[int, Word]] = {1: "better", -1: "worse", 0: "undecided"}


class Learners(NamedTuple):
    """Runs that learned, and all, of a cell and of its baseline."""

    learned: int
    runs: int
    baseline_learned: int
    baseline_runs: int


class Parts(NamedTuple):
    """Claims of both parts; arrays [comparisons]. A claim is 1 for the better, -1 for the worse, else 0."""

    share_p: Floats
    share_p_holm: Floats
    share: NDArray[np.int64]
    values: Decision
    value: NDArray[np.int64]

    def verdict(self, at: int) -> Word:
        """Return the word for both parts of one comparison: trade-off if they claim opposite things."""
        share, value = int(self.share[at]), int(self.value[at])
        if not share and self.values.words[at] == "real, size unproven":
            return "real, size unproven"
        return "trade-off" if share * value < 0 else _WORDS[share or value]

    def claims(self, at: int) -> list[str]:
        """Return the parts of one comparison that claim something, in words."""
        share, value = int(self.share[at]), int(self.value[at])
        told = [f"learns {'more' if share > 0 else 'less'} often"] if share else []
        if self.values.words[at] in ("equivalent", "real, size unproven"):
            told.append(f"{self.values.words[at]} once learned")
        return told + ([f"{_WORDS[value]} once learned"] if value else [])


def decide_parts(learners: list[Learners], values: Paired, *, rope: float, alpha: float, better: Better) -> Parts:
    """Judge both parts of a family; `values` [comparisons] are of the pairs in which both learned.

    A comparison without runs has no p for its shares and counts in their family.
    """
    every = all(each.learned == each.runs and each.baseline_learned == each.baseline_runs for each in learners)
    part = alpha / 2
    p = np.array([boschloo_p(each) for each in learners], dtype=np.float64)
    p_holm = holm(p)
    gain = [each.learned * each.baseline_runs - each.baseline_learned * each.runs for each in learners]
    share = np.where(p_holm <= part, np.sign(gain), 0).astype(np.int64)
    tested = values.n >= MIN_PAIRS
    judged = decide(
        Paired(*(each[tested] for each in values)), rope=rope, alpha=alpha if every else part, better=better
    )
    words = np.full(tested.shape, "no verdict", dtype="<U32")
    p_value, p_value_holm, level = np.full((3, *tested.shape), np.nan)
    words[tested], p_value[tested], p_value_holm[tested], level[tested] = judged
    value = (words == "better").astype(np.int64) - (words == "worse").astype(np.int64)
    return Parts(p, p_holm, share, Decision(words, p_value, p_value_holm, level), value)


@lru_cache(maxsize=4096)
def boschloo_p(of: Learners) -> float:
    """Two-sided exact test that two shares are equal (Boschloo 1970); NaN if a group is empty."""
    if not of.runs or not of.baseline_runs:
        return float("nan")
    from scipy import stats  # slow to import, and needed here alone

    others = of.runs - of.learned, of.baseline_runs - of.baseline_learned
    return float(stats.boschloo_exact([[of.learned, of.baseline_learned], others]).pvalue)


def exact_interval(events: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Exact interval of a proportion (Clopper and Pearson 1934); NaN for n = 0."""
    if n == 0:
        return float("nan"), float("nan")
    low = special.betaincinv(events, n - events + 1, alpha / 2) if events else 0.0
    high = special.betaincinv(events + 1, n - events, 1 - alpha / 2) if events < n else 1.0
    return float(low), float(high)


def two_part(
    values: pl.DataFrame, *, baseline: Baseline, scale: Scale, better: Better, rope: float, alpha: float = 0.05
) -> pl.DataFrame:
    """One row per cell that is no baseline, in the order of `values`.

    `values` is as for `compare`, with the column `learned`: 1, 0, NaN where what says so is not finite, null where
    there is nothing yet. Differences are in units of the scale; intervals are of one comparison. Raises as `compare`.
    """
    cells, shares = arms(values), arms(values.with_columns(value=pl.col("learned")))
    matched = match_arms(cells, baseline)
    fair = [pair(shares[arm.cell], shares[base.cell], "linear").unfair for arm, base in matched]
    both = [_both_learned(arm, base, shares, scale) for arm, base in matched]
    counts = [_count(shares[arm.cell], shares[base.cell]) for arm, base in matched]
    known = [unfair is None and each.problem is None for unfair, each in zip(fair, both, strict=True)]
    numbers = np.array([each.summary for each in both], dtype=np.float64).reshape(-1, 3).T
    summary = Paired(*(np.where(known, part, np.nan) for part in numbers))
    tested = [each if unfair is None else Learners(0, 0, 0, 0) for unfair, each in zip(fair, counts, strict=True)]
    parts = decide_parts(tested, summary, rope=margin(rope, scale), alpha=alpha, better=better)
    low, high = t_interval(summary, alpha)
    rows = []
    for i, (arm, base) in enumerate(matched):
        word, reason = _verdict(parts, i, fair[i], counts[i], both[i])
        row: dict[str, Any] = {"cell": arm.cell, "label": arm.label, "operator": arm.operator, "baseline": base.cell}
        row |= {**counts[i]._asdict(), **_share_numbers(counts[i], alpha), "pairs": both[i].shared}
        row |= {"share_p": or_null(parts.share_p[i]), "share_p_holm": or_null(parts.share_p_holm[i])}
        row |= {"difference": or_null(summary.mean[i]), "low": or_null(low[i]), "high": or_null(high[i])}
        row |= {"p": or_null(parts.values.p[i]), "p_holm": or_null(parts.values.p_holm[i])}
        for name, side in (("value", both[i].ours), ("baseline_value", both[i].theirs)):
            row[name] = or_null(back(float(side.mean()), scale)) if side.size else None
        rows.append({**row, "verdict": word, "reason": reason})
    return pl.DataFrame([[row[name] for name in TWO_PART] for row in rows], schema=TWO_PART, orient="row")


def _both_learned(arm: Arm, base: Arm, shares: dict[str, Arm], scale: Scale) -> Pairing:
    """Pair the seeds on which both runs learned."""
    learned = [{seed for seed, run in shares[each.cell].runs.items() if run.value == 1} for each in (arm, base)]
    seeds = learned[0] & learned[1]
    ours, theirs = (each._replace(runs={seed: each.runs[seed] for seed in seeds}) for each in (arm, base))
    return pair(ours, theirs, scale)


def _count(arm: Arm, base: Arm) -> Learners:
    (ours, theirs) = (each.values(each.measured) for each in (arm, base))
    return Learners(int(ours.sum()), ours.size, int(theirs.sum()), theirs.size)


def _share_numbers(of: Learners, alpha: float) -> dict[str, float | None]:
    ours, theirs = (of.learned, of.runs), (of.baseline_learned, of.baseline_runs)
    numbers = (*exact_interval(*ours, alpha), *exact_interval(*theirs, alpha), fisher_p(*ours, *theirs))
    names = ("share_low", "share_high", "baseline_share_low", "baseline_share_high", "fisher_p")
    difference = ours[0] / ours[1] - theirs[0] / theirs[1] if ours[1] and theirs[1] else None
    return {**dict(zip(names, map(or_null, numbers), strict=True)), "share_difference": difference}


def _verdict(parts: Parts, at: int, unfair: str | None, of: Learners, both: Pairing) -> tuple[str, str]:
    if unfair is not None:
        return "no verdict", unfair
    if not of.learned and not of.baseline_learned:
        return "no verdict", "nothing learned"
    few = f"pairs in which both learned: {both.shared}, and a value needs {MIN_PAIRS}"
    untested = few if both.shared < MIN_PAIRS else both.problem
    reasons = "; ".join(filter(None, [*parts.claims(at), untested]))
    return parts.verdict(at), reasons or "neither part shows a difference"
