"""Every cell against the baseline: differences by seed, intervals, Holm over the family, a verdict in words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

import numpy as np
import polars as pl

from ablate.grid.errors import SpecError
from ablate.store.statistics.arms import Arm, Baseline, Pairing, arms, count_planned_pairs, match_arms, pair
from ablate.store.statistics.paired_differences import (
    Floats,
    Paired,
    hedges_g,
    or_null,
    p_zero,
    pairing_correlation,
    sign_flip_p,
    superiority,
    t_interval,
    welch,
)
from ablate.store.statistics.power import detectable, seeds_needed
from ablate.store.statistics.scales import Scale, back, margin, percent
from ablate.store.statistics.shared_variance import guard_variance
from ablate.store.statistics.verdict import ROBUST_PAIRS, Better, VerdictRule, decide, reason

Variance = Literal["own", "shared"]

_TEXTS, _COUNTS = ("cell", "label", "operator", "baseline"), ("planned", "pairs", "runs", "baseline_runs")
SCHEMA: Final[dict[str, Any]] = {
    **dict.fromkeys(_TEXTS, pl.String),
    **dict.fromkeys(_COUNTS, pl.Int64),
    "method": pl.String,
    **dict.fromkeys(("value", "baseline_value", "difference", "low", "high", "corrected_low"), pl.Float64),
    **dict.fromkeys(("corrected_high", "error", "freedom", "percent", "p", "p_holm"), pl.Float64),
    "family": pl.Int64,
    **dict.fromkeys(("hedges_g", "superiority", "sign_flip_p", "pairing"), pl.Float64),
    **dict.fromkeys(("verdict", "reason"), pl.String),
    **dict.fromkeys(("seeds_needed", "seeds_to_decide"), pl.Int64),
    "detectable": pl.Float64,
}

BASIS: Final[dict[str, Any]] = {
    "cell": pl.String,
    **dict.fromkeys(("seeds", "baseline_seeds"), pl.List(pl.Int64)),
    **dict.fromkeys(
        ("failed_here", "failed_baseline", "failed_both", "not_finite_here", "not_finite_baseline"), pl.Int64
    ),
    "budgets": pl.List(pl.Float64),
    "codes": pl.List(pl.String),
    **dict.fromkeys(("own_error", "own_freedom", "spread", "baseline_spread", "normal_p", "unpaired_p"), pl.Float64),
    "leans_on_normal": pl.Boolean,
}


def compare(  # noqa: PLR0913  (the fields of a measure)
    values: pl.DataFrame,
    *,
    baseline: Baseline,
    scale: Scale,
    better: Better,
    rope: float,
    alpha: float = 0.05,
    variance: Variance = "own",
) -> pl.DataFrame:
    """One row per cell that is no baseline, in the order of `values`.

    `values` has the columns cell, label, operator, seed, value (null: none) and state (of `State`); budget,
    code, wall_s, gpu and unreadable of finished runs are optional. `baseline` is a cell, or has one for each.
    `variance` is that of each comparison's own pairs, or "shared" by those of paired comparisons (`guard_variance`).
    docs/statistics.md explains the columns and the rope. Numbers that do not exist are null. Raises SpecError,
    NotFoundError or StoreError on unusable input.
    """
    _check(scale, better, rope, alpha)
    matched = match_arms(arms(values), baseline)
    pairings = [pair(arm, base, scale) for arm, base in matched]
    rule = VerdictRule(scale, margin(rope, scale), alpha, sum(not each.arm.unmeasured for each in pairings))
    numbers, words = _judge(pairings, rule, better, variance)
    rows = []
    for i, (pairing, (arm, base)) in enumerate(zip(pairings, matched, strict=True)):
        row = {name: float(column[i]) for name, column in numbers.items()}
        row |= _numbers(pairing, row, scale, better)
        fields: dict[str, Any] = dict(zip(_TEXTS, (arm.cell, arm.label, arm.operator, base.cell), strict=True))
        sizes = (count_planned_pairs(arm, base), pairing.shared, pairing.ours.size, pairing.theirs.size)
        fields |= {**dict(zip(_COUNTS, sizes, strict=True)), "method": pairing.method, "family": rule.family}
        cost = {"wall_s": pairing.wall_s, "on_gpu": pairing.on_gpu}
        fields |= {"verdict": "no verdict", "reason": pairing.problem}
        if pairing.problem is None:
            sentence = reason(words[i], {**row, **fields, **cost}, rule)
            fields |= {"verdict": words[i], "reason": "; ".join(filter(None, (pairing.note, sentence)))}
        rows.append([fields[name] if name in fields else or_null(row[name]) for name in SCHEMA])
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _check(scale: str, better: str, rope: float, alpha: float) -> None:
    for name, value, known in (("scale", scale, get_args(Scale)), ("better", better, get_args(Better))):
        if value not in known:
            raise SpecError(f"the measure has {name}={value!r}; write one of {', '.join(known)}")
    if not (math.isfinite(rope) and rope >= 0):
        raise SpecError(f"the measure has rope={rope!r}; give a finite number >= 0")
    if not 0 < alpha < 1:
        raise SpecError(f"the measure has alpha={alpha!r}; give a number between 0 and 1")


def _judge(
    pairings: Sequence[Pairing], rule: VerdictRule, better: Better, variance: Variance
) -> tuple[dict[str, Floats], list[str]]:
    """Numbers [comparisons] that need the whole family, and the verdict words.

    A comparison with a problem is not tested. One whose cell never recorded the measure is not in the family.
    """
    parts = [pairing.summary for pairing in pairings]
    n, mean, sd = (np.array([part[i] for part in parts], dtype=np.float64) for i in range(3))
    summary = Paired(n, mean, np.where([pairing.spread for pairing in pairings], sd, np.nan))
    blocked = np.array([pairing.problem is not None for pairing in pairings], dtype=bool)
    of_a_pair = np.array([_sd_of_a_pair(pairing) for pairing in pairings], dtype=np.float64)
    if variance == "shared":
        paired = np.array([each.method == "paired t" and each.chosen is None for each in pairings], dtype=bool)
        guarded = guard_variance(summary._replace(sd=np.where(paired & ~blocked, summary.sd, np.nan)))
        shares = guarded.sd > 0
        summary = Paired(*(np.where(shares, *parts) for parts in zip(guarded, summary, strict=True)))
        of_a_pair = np.where(shares, guarded.error * np.sqrt(n), of_a_pair)
    known = Paired(*(np.where(blocked, np.nan, part) for part in summary))
    counted = ~np.array([each.arm.unmeasured for each in pairings], dtype=bool)
    judged = decide(Paired(*(part[counted] for part in known)), rope=rule.rope, alpha=rule.alpha, better=better)
    words = np.full(counted.shape, "no verdict", dtype="<U32")
    p, p_holm, level = np.full((3, *counted.shape), np.nan)
    words[counted], p[counted], p_holm[counted], level[counted] = judged
    of_a_pair = np.where(np.isfinite(known.sd), of_a_pair, np.nan)
    low, high = t_interval(summary, rule.alpha)
    corrected = t_interval(known, level)
    hardest = rule.alpha / max(rule.family, 1)
    nearest = np.maximum(np.abs(known.mean), rule.rope - np.abs(known.mean))
    numbers = {
        "n": n,
        "difference": mean,
        "low": low,
        "high": high,
        "p": p,
        "p_holm": p_holm,
        "corrected_low": corrected[0],
        "corrected_high": corrected[1],
        "error": summary.error,
        "freedom": summary.freedom,
        "seeds_needed": seeds_needed(rule.rope, of_a_pair, alpha=hardest),
        "seeds_to_decide": seeds_needed(nearest, of_a_pair, alpha=hardest),
        "detectable": detectable(known.sd, known.n, alpha=hardest),
    }
    return numbers, words.tolist()


def _sd_of_a_pair(pairing: Pairing) -> float:
    """Standard deviation of what one more pair adds; unpaired, of the difference of one run of each arm."""
    if pairing.method == "paired t":
        return float(pairing.summary.sd)
    if min(pairing.ours.size, pairing.theirs.size) < 2:
        return math.nan
    return float(np.sqrt(pairing.ours.var(ddof=1) + pairing.theirs.var(ddof=1)))


def _numbers(pairing: Pairing, row: Mapping[str, float], scale: Scale, better: Better) -> dict[str, float]:
    ours, theirs, paired = pairing.ours, pairing.theirs, pairing.method == "paired t"
    value, base = (back(float(side.mean()), scale) if side.size else math.nan for side in (ours, theirs))
    sd = _sd_of_a_pair(pairing) if pairing.spread else math.nan
    spread = pairing.differences.std(ddof=1) if paired and pairing.spread else sd  # without the error of choosing
    effect = Paired(*map(np.asarray, (row["n"], row["difference"], spread)))
    rivals = pairing.differences if paired else (ours[:, None] - theirs).ravel()
    return {
        "value": value,
        "baseline_value": base,
        "percent": percent(row["difference"], base, scale),
        "hedges_g": float(hedges_g(effect)),
        "superiority": superiority(rivals, better=better),
        "sign_flip_p": sign_flip_p(pairing.differences),
        "pairing": pairing_correlation(ours, theirs) if paired else math.nan,
    }


def basis(values: pl.DataFrame, *, baseline: Baseline, scale: Scale, alpha: float = 0.05) -> pl.DataFrame:
    """Explain each verdict: one row per cell that is no baseline, in the order of `values`, as for `compare`.

    `not_finite_here` and `not_finite_baseline` count finished runs whose measure is NaN or infinite. `seeds` are those
    with a finite value in each arm; `budgets` and `codes` those of their runs. `own_error` and
    `own_freedom` are those of the comparison's own runs. `spread` is the standard deviation over seeds in units of the
    scale. `normal_p` is Shapiro and Wilk's p of the differences, `unpaired_p` Welch's p of the
    same values without their pairs. `leans_on_normal` is true with fewer than 5 pairs (runs, unpaired), or if the t
    test is below alpha and the sign-flip test is not. Raises as `compare` does.
    """
    rows = [_basis_row(pair(arm, base, scale), base, alpha) for arm, base in match_arms(arms(values), baseline)]
    return pl.DataFrame([[row[name] for name in BASIS] for row in rows], schema=BASIS, orient="row")


def _basis_row(pairing: Pairing, base: Arm, alpha: float) -> dict[str, Any]:
    arm, ours, theirs = pairing.arm, pairing.ours, pairing.theirs
    ended = [run for side in (arm, base) for run in side.runs.values() if run.outcome == "measured"]
    few = min(ours.size, theirs.size) < ROBUST_PAIRS
    failed, base_failed = arm.ended_as("failed"), base.ended_as("failed")
    return {
        "cell": arm.cell,
        "seeds": sorted(arm.measured),
        "baseline_seeds": sorted(base.measured),
        "failed_here": len(failed - base_failed),
        "failed_baseline": len(base_failed - failed),
        "failed_both": len(failed & base_failed),
        "not_finite_here": len(arm.ended_as("not finite")),
        "not_finite_baseline": len(base.ended_as("not finite")),
        "budgets": sorted({run.budget for run in ended if run.budget is not None}),
        "codes": sorted({"unknown" if run.code is None else run.code for run in ended}),
        "own_error": or_null(pairing.summary.error),
        "own_freedom": or_null(pairing.summary.freedom),
        "spread": or_null(ours.std(ddof=1) if ours.size > 1 else np.nan),
        "baseline_spread": or_null(theirs.std(ddof=1) if theirs.size > 1 else np.nan),
        "normal_p": or_null(_shapiro(pairing.differences) if pairing.spread else np.nan),
        "unpaired_p": or_null(p_zero(welch(ours, theirs))),
        "leans_on_normal": few or bool(p_zero(pairing.summary) <= alpha < sign_flip_p(pairing.differences)),
    }


def _shapiro(differences: Floats) -> float:
    if differences.size < ROBUST_PAIRS or not np.isfinite(differences).all():
        return math.nan
    from scipy import stats  # slow to import, and needed here alone

    return float(stats.shapiro(differences).pvalue)
