"""Every cell against the baseline: differences by seed, intervals, Holm over the family, a verdict in words."""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from grid.errors import SpecError
from store.statistics.arms import Baseline, Pairing, arms, count_planned_pairs, match_arms, pair
from store.statistics.paired_differences import (
    Floats,
    Paired,
    hedges_g,
    or_null,
    pairing_correlation,
    sign_flip_p,
    superiority,
    t_interval,
)
from store.statistics.power import detectable, seeds_needed
from store.statistics.scales import Scale, back, margin, percent
from store.statistics.verdict import Better, Judgement, judge
from store.statistics.verdict_reasons import VerdictFacts, VerdictRule, reason
from store.statistics.welch import chance_of_gain, spread

SCHEMA: Final = {
    "cell": pl.String,
    "label": pl.String,
    "operator": pl.String,
    "baseline": pl.String,
    "planned": pl.Int64,
    "pairs": pl.Int64,
    "runs": pl.Int64,
    "baseline_runs": pl.Int64,
    "method": pl.String,
    "value": pl.Float64,
    "baseline_value": pl.Float64,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "corrected_low": pl.Float64,
    "corrected_high": pl.Float64,
    "percent": pl.Float64,
    "p": pl.Float64,
    "p_holm": pl.Float64,
    "family": pl.Int64,
    "hedges_g": pl.Float64,
    "superiority": pl.Float64,
    "sign_flip_p": pl.Float64,
    "pairing": pl.Float64,
    "verdict": pl.String,
    "reason": pl.String,
    "seeds_needed": pl.Int64,
    "detectable": pl.Float64,
}
"""Columns of `compare`, in order."""


class _Family(NamedTuple):
    rule: VerdictRule
    better: Better
    summary: Paired
    low: Floats
    high: Floats
    corrected: tuple[Floats, Floats]
    judged: Judgement
    seeds: Floats
    seeds_seen: Floats
    detectable: Floats


def compare(
    values: pl.DataFrame, *, baseline: Baseline, scale: Scale, better: Better, rope: float, alpha: float = 0.05
) -> pl.DataFrame:
    """One row per cell that is no baseline, in the order of `values`.

    `values` has the columns cell, label, operator, seed, value (null: none) and status ("ok", "failed", "running",
    "pending"); budget, code, wall_s, gpu and unreadable of finished runs are optional. `baseline` is a cell, or has one
    for each. A cell whose runs all ended without recording the measure is not in the family.

    On the log scale differences and intervals are natural-log ratios and `value` is a geometric mean. There `rope` is a
    ratio: 0.05 means within a factor of 1.05 either way. The logit scale has the same of odds; the linear scale has
    plain numbers. `low` and `high` are the uncorrected 1 - alpha t interval of one comparison. `corrected_low` and
    `corrected_high` are the interval at the level of Holm's step that decided: it shows the `verdict`. `p_holm` and
    `verdict` hold over the whole family. `detectable` has the units of `difference`. `method` is "paired t" over the
    `pairs` shared seeds; if fewer than three are shared, it is "Welch" over all `runs` and `baseline_runs`.
    Numbers that do not exist are null, never NaN. Raises SpecError, NotFoundError or StoreError on unusable input.
    """
    _check(scale, better, rope, alpha)
    matched = match_arms(arms(values), baseline)
    pairings = [pair(arm, base, scale) for arm, base in matched]
    counted = sum(not each.arm.unmeasured for each in pairings)
    family = _judge(pairings, VerdictRule(scale, margin(rope, scale), alpha, counted), better)
    rows = [
        {
            **_identity(pairing),
            "baseline": base.cell,
            "planned": count_planned_pairs(arm, base),
            **_numbers(pairing, family, i),
            **_word(pairing, family, i),
        }
        for i, (pairing, (arm, base)) in enumerate(zip(pairings, matched, strict=True))
    ]
    return pl.DataFrame([[row[name] for name in SCHEMA] for row in rows], schema=SCHEMA, orient="row")


def _check(scale: str, better: str, rope: float, alpha: float) -> None:
    if scale not in get_args(Scale):
        raise SpecError(f"a measure's scale is one of {list(get_args(Scale))}; got {scale!r}")
    if better not in get_args(Better):
        raise SpecError(f"a measure's better is one of {list(get_args(Better))}; got {better!r}")
    if not (math.isfinite(rope) and rope >= 0):
        raise SpecError(f"a measure's rope is a finite number >= 0; got {rope!r}")
    if not 0 < alpha < 1:
        raise SpecError(f"a measure's alpha lies between 0 and 1; got {alpha!r}")


def _judge(pairings: Sequence[Pairing], rule: VerdictRule, better: Better) -> _Family:
    parts = [pairing.summary for pairing in pairings]
    n, mean, sd = (np.array([part[i] for part in parts], dtype=np.float64) for i in range(3))
    summary = Paired(n, mean, np.where([pairing.spread for pairing in pairings], sd, np.nan))
    blocked = np.array([pairing.problem is not None for pairing in pairings], dtype=bool)
    known = Paired(*(np.where(blocked, np.nan, part) for part in summary))
    hardest = rule.alpha / max(rule.family, 1)
    low, high = t_interval(summary, rule.alpha)
    counted = ~np.array([each.arm.unmeasured for each in pairings], dtype=bool)
    judged = _judge_counted(known, counted, rule, better)
    of_a_pair = np.array([_sd_of_a_pair(pairing) for pairing in pairings], dtype=np.float64)
    of_a_pair = np.where(np.isfinite(known.sd), of_a_pair, np.nan)
    return _Family(
        rule,
        better,
        summary,
        low,
        high,
        t_interval(known, judged.level),
        judged,
        seeds_needed(rule.rope, of_a_pair, alpha=hardest),
        seeds_needed(np.maximum(np.abs(known.mean), rule.rope - np.abs(known.mean)), of_a_pair, alpha=hardest),
        detectable(known.sd, known.n, alpha=hardest),
    )


def _judge_counted(pairs: Paired, counted: NDArray[np.bool_], rule: VerdictRule, better: Better) -> Judgement:
    """Judge the comparisons that count in the family; the others get no verdict."""
    found = judge(Paired(*(part[counted] for part in pairs)), rope=rule.rope, alpha=rule.alpha, better=better)
    words = np.full(counted.shape, "no verdict", dtype="<U32")
    numbers = np.full((3, *counted.shape), np.nan)
    words[counted], numbers[:, counted] = found.words, (found.p, found.p_holm, found.level)
    return Judgement(words, *numbers)


def _sd_of_a_pair(pairing: Pairing) -> float:
    if pairing.method == "Welch":
        return spread(pairing.ours, pairing.theirs)
    return float(pairing.summary.sd)


def _identity(pairing: Pairing) -> dict[str, Any]:
    return {"cell": pairing.arm.cell, "label": pairing.arm.label, "operator": pairing.arm.operator}


def _numbers(pairing: Pairing, family: _Family, i: int) -> dict[str, Any]:
    scale, paired = family.rule.scale, pairing.method == "paired t"
    value, base = (_average(side, scale) for side in (pairing.ours, pairing.theirs))
    one = Paired(*(part[i] for part in family.summary))
    effect = Paired(one.n, one.mean, np.asarray(_sd_of_a_pair(pairing) if pairing.spread else np.nan))
    return {
        "pairs": pairing.shared,
        "runs": pairing.ours.size,
        "baseline_runs": pairing.theirs.size,
        "method": pairing.method,
        "value": or_null(value),
        "baseline_value": or_null(base),
        "difference": or_null(one.mean),
        "low": or_null(family.low[i]),
        "high": or_null(family.high[i]),
        "corrected_low": or_null(family.corrected[0][i]),
        "corrected_high": or_null(family.corrected[1][i]),
        "percent": or_null(percent(float(one.mean), base, scale)),
        "p": or_null(family.judged.p[i]),
        "p_holm": or_null(family.judged.p_holm[i]),
        "family": family.rule.family,
        "hedges_g": or_null(hedges_g(effect)),
        "superiority": or_null(_superiority(pairing, family.better)),
        "sign_flip_p": or_null(sign_flip_p(pairing.differences)),
        "pairing": or_null(pairing_correlation(pairing.ours, pairing.theirs) if paired else math.nan),
        "seeds_needed": or_null(family.seeds[i]),
        "detectable": or_null(family.detectable[i]),
    }


def _superiority(pairing: Pairing, better: Better) -> float:
    if pairing.method == "Welch":
        return chance_of_gain(pairing.ours, pairing.theirs, better=better)
    return superiority(pairing.differences, better=better)


def _word(pairing: Pairing, family: _Family, i: int) -> dict[str, str]:
    if pairing.problem is not None:
        return {"verdict": "no verdict", "reason": pairing.problem}
    word = str(family.judged.words[i])
    found = VerdictFacts(
        word,
        float(family.summary.mean[i]),
        float(family.low[i]),
        float(family.high[i]),
        (pairing.ours.size, pairing.theirs.size),
        pairing.method,
        float(family.judged.p_holm[i]),
        sign_flip_p(pairing.differences),
        float(family.seeds_seen[i]),
        pairing.wall_s,
        pairing.on_gpu,
    )
    sentence = reason(found, family.rule)
    return {"verdict": word, "reason": f"{pairing.note}; {sentence}" if pairing.note else sentence}


def _average(side: Floats, scale: Scale) -> float:
    return back(float(side.mean()), scale) if side.size else math.nan
