"""Is a variant more than its simplest explanations: paired tests against each of its controls.

A variant is *beyond its controls* if it differs from every one of them as it does from its baseline, in one direction.
That is an intersection-union test (Berger 1982). The p of a variant is the largest of its two-sided tests, each at the
full alpha, so nothing is selected and no seed is set apart. A control that the variant does not exceed has p 1.
Holm's adjustment is over the variants, a family apart from that of the comparisons with the baseline.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from ablate.store.statistics.arms import Arm, Baseline, Pairing, arms, match_arms, pair
from ablate.store.statistics.paired_differences import or_null, p_zero, t_interval
from ablate.store.statistics.scales import Scale
from ablate.store.statistics.verdict import holm

CONTROLLED: Final[dict[str, Any]] = {
    **dict.fromkeys(("cell", "label", "beyond"), pl.String),
    **dict.fromkeys(("p", "p_holm"), pl.Float64),
    **dict.fromkeys(("control", "control_label"), pl.String),
    "pairs": pl.Int64,
    **dict.fromkeys(("difference", "low", "high"), pl.Float64),
    **dict.fromkeys(("controls", "family"), pl.Int64),
    "untested": pl.List(pl.String),
}


class _Exceeded(NamedTuple):
    """A variant against one control."""

    control: Arm
    pairing: Pairing
    p: float
    """1 if the difference has another sign than that from the baseline; NaN without a test."""
    excess: float
    """The difference in the direction of that from the baseline."""


def beyond_controls(
    values: pl.DataFrame,
    *,
    baseline: Baseline,
    controls: Mapping[str, Sequence[str]],
    missing: Mapping[str, Sequence[str]] | None = None,
    scale: Scale,
    alpha: float = 0.05,
) -> pl.DataFrame:
    """One row per variant that has controls, in the order of `values`: those of `compare`, and the runs of controls.

    `controls` has the cells of each variant's controls, `missing` the labels of those that the grid does not have.
    `beyond` is "yes" if the variant exceeds every control at the family's `alpha`, and "no" if it is not shown to
    exceed one. It is "unknown" if all that are tested are exceeded and others are `untested`. Shown is the control
    that decides, which has the largest p, with the interval of this comparison alone, in units of the scale. Raises as
    `compare` does.
    """
    cells, missing = arms(values), missing or {}
    pairs = [
        (arm, base) for arm, base in match_arms(cells, baseline) if controls.get(arm.cell) or missing.get(arm.cell)
    ]
    tests = [_test(arm, base, [cells[each] for each in controls.get(arm.cell, ())], scale) for arm, base in pairs]
    absent = [
        [*missing.get(arm.cell, ()), *(each.control.label for each in own if np.isnan(each.p))]
        for (arm, _), own in zip(pairs, tests, strict=True)
    ]
    known = np.array([max((each.p for each in own if each.p >= 0), default=np.nan) for own in tests], dtype=np.float64)
    largest = np.where([bool(each) for each in absent], np.nan, known)
    adjusted = holm(largest)
    rows = []
    for i, (arm, _) in enumerate(pairs):
        word = "unknown" if absent[i] and not known[i] > alpha else "yes" if adjusted[i] <= alpha else "no"
        fields: dict[str, Any] = {"cell": arm.cell, "label": arm.label, "beyond": word, "untested": absent[i]}
        fields |= {"p": or_null(largest[i]), "p_holm": or_null(adjusted[i]), **_deciding(tests[i], alpha)}
        rows.append({**fields, "controls": len(tests[i]), "family": len(pairs)})
    return pl.DataFrame([[row.get(name) for name in CONTROLLED] for row in rows], schema=CONTROLLED, orient="row")


def _test(arm: Arm, base: Arm, controls: Sequence[Arm], scale: Scale) -> list[_Exceeded]:
    sign = float(np.sign(pair(arm, base, scale).summary.mean))
    return [_against(arm, control, sign, scale) for control in controls]


def _against(arm: Arm, control: Arm, sign: float, scale: Scale) -> _Exceeded:
    pairing = pair(arm, control, scale)
    excess = sign * float(pairing.summary.mean)
    if pairing.problem is not None or pairing.method != "paired t":
        return _Exceeded(control, pairing, np.nan, excess)
    return _Exceeded(control, pairing, float(p_zero(pairing.summary)) if excess > 0 else 1.0, excess)


def _deciding(tests: Sequence[_Exceeded], alpha: float) -> dict[str, Any]:
    """The control with the largest p of those that were tested; if several are not exceeded, that with the least."""
    tested = [each for each in tests if not np.isnan(each.p)]
    if not tested:
        return {}
    control, pairing, *_ = max(tested, key=lambda each: (each.p, -each.excess))
    summary = pairing.summary
    low, high = t_interval(summary, alpha)
    return {
        "control": control.cell,
        "control_label": control.label,
        "pairs": pairing.shared,
        "difference": float(summary.mean),
        "low": or_null(low),
        "high": or_null(high),
    }
