import math

import pytest
from scipy import stats

from ablate.store.statistics import failures, holm
from ablate.store.statistics.failures import fisher_p, wilson_interval

COUNTS = [(0, 1), (0, 5), (1, 5), (5, 5), (3, 8), (17, 40)]


@pytest.mark.parametrize(("events", "n"), COUNTS)
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_wilson_interval_is_scipys(events: int, n: int, alpha: float) -> None:
    expected = stats.binomtest(events, n).proportion_ci(1 - alpha, method="wilson")
    assert wilson_interval(events, n, alpha) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(("events", "n"), COUNTS)
@pytest.mark.parametrize(("other", "m"), COUNTS)
def test_fishers_p_is_scipys(events: int, n: int, other: int, m: int) -> None:
    expected = stats.fisher_exact([[events, n - events], [other, m - other]]).pvalue
    assert fisher_p(events, n, other, m) == pytest.approx(expected, rel=1e-9)


def test_every_ended_run_counts_and_only_an_attempt_that_failed_is_a_failure(frame) -> None:
    values = frame(
        {"softmax": [1.0] * 8, "SSA": [None] * 6 + [math.nan, math.inf], "late": [None] * 8},
        {
            **{("SSA", seed): "failed" for seed in range(6)},
            **{("late", seed): ("running", "pending")[seed % 2] for seed in range(8)},
        },
    )
    softmax, ssa, late = failures(values, baseline="key of softmax").iter_rows(named=True)
    assert (softmax["ended"], softmax["failed"], softmax["p"]) == (8, 0, None)
    assert (ssa["ended"], ssa["failed"], ssa["not_finite"], ssa["rate"]) == (8, 6, 2, 0.75)
    assert ssa["p"] == pytest.approx(fisher_p(6, 8, 0, 8))
    assert ssa["p_holm"] == pytest.approx(holm_of_two(ssa["p"]))
    assert (late["ended"], late["rate"], late["low"], late["p"]) == (0, None, None, None)


def holm_of_two(p: float) -> float:
    import numpy as np

    return float(holm(np.array([p, math.nan]))[0])
