"""The basis of a verdict: runs, failures, budgets, code, and checks of its assumptions."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from store.statistics.arms import Arm, Baseline, Pairing, arms, match_arms, pair
from store.statistics.paired_differences import or_null, p_zero, sign_flip_p
from store.statistics.scales import Scale
from store.statistics.verdict_reasons import ROBUST_PAIRS
from store.statistics.welch import welch

SCHEMA: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
    "cell": pl.String,
    "seeds": pl.List(pl.Int64),
    "baseline_seeds": pl.List(pl.Int64),
    "failed_here": pl.Int64,
    "failed_baseline": pl.Int64,
    "failed_both": pl.Int64,
    "budgets": pl.List(pl.Float64),
    "codes": pl.List(pl.String),
    "spread": pl.Float64,
    "baseline_spread": pl.Float64,
    "normal_p": pl.Float64,
    "unpaired_p": pl.Float64,
    "leans_on_normal": pl.Boolean,
}
"""Columns of `checks`, in order."""


def checks(values: pl.DataFrame, *, baseline: Baseline, scale: Scale, alpha: float = 0.05) -> pl.DataFrame:
    """One row per cell that is no baseline, in the order of `values` (columns as for `compare`).

    `seeds` are those with a finite value in each arm; `budgets` and `codes` those of their runs. `spread` is the
    standard deviation over seeds in units of the scale. `normal_p` is Shapiro and Wilk's p of the differences (from 5
    pairs, and able to object only from 8 or so), `unpaired_p` Welch's p of the same values without their pairs.
    `leans_on_normal` is true with fewer than 5 pairs (runs, unpaired), and where the sign-flip test does not share a p
    below alpha. Numbers that do not exist are null. Raises as `compare` does.
    """
    rows = [_row(pair(arm, base, scale), base, alpha) for arm, base in match_arms(arms(values), baseline)]
    return pl.DataFrame([[row[name] for name in SCHEMA] for row in rows], schema=SCHEMA, orient="row")


def _row(pairing: Pairing, base: Arm, alpha: float) -> dict[str, Any]:
    arm, differences = pairing.arm, pairing.differences
    ended = [run for side in (arm, base) for run in side.runs.values() if run.measured]
    failed, theirs = ({seed for seed, run in side.runs.items() if run.failed} for side in (arm, base))
    fewest = min(pairing.ours.size, pairing.theirs.size)
    return {
        "cell": arm.cell,
        "seeds": sorted(seed for seed, run in arm.runs.items() if run.measured),
        "baseline_seeds": sorted(seed for seed, run in base.runs.items() if run.measured),
        "failed_here": len(failed - theirs),
        "failed_baseline": len(theirs - failed),
        "failed_both": len(failed & theirs),
        "budgets": sorted({run.budget for run in ended if run.budget is not None}),
        "codes": sorted({"unknown" if run.code is None else run.code for run in ended}),
        "spread": or_null(pairing.ours.std(ddof=1) if pairing.ours.size > 1 else np.nan),
        "baseline_spread": or_null(pairing.theirs.std(ddof=1) if pairing.theirs.size > 1 else np.nan),
        "normal_p": or_null(_shapiro(differences) if pairing.spread else np.nan),
        "unpaired_p": or_null(p_zero(welch(pairing.ours, pairing.theirs))),
        "leans_on_normal": fewest < ROBUST_PAIRS or _disagrees(pairing, alpha),
    }


def _disagrees(pairing: Pairing, alpha: float) -> bool:
    """Whether the t test claims a difference that the sign-flip test does not."""
    return bool(p_zero(pairing.summary) <= alpha < sign_flip_p(pairing.differences))


def _shapiro(differences: np.ndarray) -> float:
    if differences.size < ROBUST_PAIRS or not np.isfinite(differences).all():
        return float("nan")
    from scipy import stats  # slow to import, and needed here alone

    return float(stats.shapiro(differences).pvalue)


def why_lines(row: Mapping[str, Any]) -> list[str]:
    """The row of a verdict (columns of `compare` and `checks`) as sentences, a topic each."""
    paired = row["method"] == "paired t"
    runs = (
        f"{row['pairs']} pairs of {row['planned']} planned"
        if paired
        else f"{row['runs']} and {row['baseline_runs']} runs"
    )
    return [
        f"verdict: {row['verdict']}; {row['reason']}",
        f"method: {row['method']}, {runs}",
        f"seeds: {_list(row['seeds'])} here, {_list(row['baseline_seeds'])} in the baseline",
        f"difference: {_number(row['difference'])} in units of the scale, "
        f"interval {_number(row['low'])} to {_number(row['high'])} of this comparison alone",
        f"family: {row['family']} comparison{'s' * (row['family'] != 1)}; "
        f"p {_number(row['p'])}, after Holm {_number(row['p_holm'])}",
        f"size: Hedges g {_number(row['hedges_g'])}; the cell is better in {_share(row['superiority'])} of "
        f"{'pairs' if paired else 'all pairs of runs'}",
        f"assumptions: {_assumptions(row)}",
        f"failures: {row['failed_here']} only here, {row['failed_baseline']} only in the baseline, "
        f"{row['failed_both']} in both",
        f"budgets: {_list(row['budgets'])} steps",
        f"code: {_list(row['codes'])}",
    ]


def _assumptions(row: Mapping[str, Any]) -> str:
    known = {
        "spread over seeds {} here": row["spread"],
        "{} in the baseline": row["baseline_spread"],
        "correlation of the pairs {}": row["pairing"],
        "without pairing p {}": row["unpaired_p"] if row["method"] == "paired t" else None,
        "sign flip p {}": row["sign_flip_p"],
        "normality (Shapiro and Wilk) p {}": row["normal_p"],
    }
    few = f"fewer than {ROBUST_PAIRS} pairs or the sign-flip test disagrees: holds for normal noise only"
    leans = few if row["leans_on_normal"] else "assumes both groups have noise of one shape and spread, or normal noise"
    return ", ".join([*(text.format(_number(value)) for text, value in known.items() if value is not None), leans])


def _list(values: list[Any]) -> str:
    return " ".join(f"{value:.0f}" if isinstance(value, float) else str(value) for value in values) or "none"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1e4 else f"{value:.0f}"
