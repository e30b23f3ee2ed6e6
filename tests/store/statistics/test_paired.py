"""Paired differences against scipy, and words over a family of comparisons."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from ablate.store.statistics import Paired, decide, holm, p_zero, summarise, t_interval
from ablate.store.statistics.paired_differences import (
    hedges_g,
    p_beyond,
    p_within,
    pairing_correlation,
    sign_flip_p,
    superiority,
)
from ablate.store.statistics.verdict import holm_levels

SIZES = [2, 3, 5, 8, 21]


def two_arms(n: int, shift: float = 0.4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    shared = rng.normal(size=n)
    return shared + rng.normal(shift, 0.7, n), shared + rng.normal(0, 0.7, n)


@pytest.mark.parametrize("n", SIZES)
def test_p_and_interval_are_those_of_scipys_paired_t_test(n: int) -> None:
    ours, theirs = two_arms(n)
    pairs = summarise(ours - theirs)
    theirs_too = stats.ttest_rel(ours, theirs)
    assert p_zero(pairs) == pytest.approx(theirs_too.pvalue, rel=1e-10)
    for alpha in (0.05, 0.01):
        expected = theirs_too.confidence_interval(1 - alpha)
        assert t_interval(pairs, alpha) == pytest.approx((expected.low, expected.high), rel=1e-10)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rope", [0.05, 0.5, 3.0])
def test_p_within_is_twice_the_two_one_sided_tests_of_scipy(n: int, rope: float) -> None:
    differences = np.subtract(*two_arms(n))
    below = stats.ttest_1samp(differences, rope, alternative="less").pvalue
    above = stats.ttest_1samp(differences, -rope, alternative="greater").pvalue
    assert p_within(summarise(differences), rope) == pytest.approx(min(1, 2 * max(below, above)), rel=1e-9)


@pytest.mark.parametrize("rope", [0.0, 0.1, 0.4, 1.5])
def test_a_p_below_alpha_is_the_same_as_the_interval_beside_or_inside_the_rope(rope: float) -> None:
    pairs = summarise(np.random.default_rng(3).normal(0.3, 0.5, (4000, 5)))
    for alpha in (0.05, 0.01):
        low, high = t_interval(pairs, alpha)
        assert ((p_beyond(pairs, rope) < alpha) == ((low > rope) | (high < -rope))).all()
        assert ((p_within(pairs, rope) < alpha) == ((low > -rope) & (high < rope))).all()


@pytest.mark.parametrize("n", [3, 5, 20])
def test_hedges_g_is_unbiased_by_the_mean_of_the_noncentral_t(n: int) -> None:
    pairs = Paired(np.array(float(n)), np.array(1.0), np.array(1.0))
    true = 0.8
    expected_of_g = hedges_g(pairs) * stats.nct.mean(n - 1, true * np.sqrt(n)) / np.sqrt(n)
    assert expected_of_g == pytest.approx(true, rel=1e-9)


def test_what_two_pairs_or_no_spread_cannot_say_is_nan_and_not_infinite() -> None:
    two = summarise(np.array([0.1, 0.2]))
    flat = summarise(np.full(4, 0.5))
    one = summarise(np.array([0.5]))
    none = summarise(np.array([]))
    assert np.isnan(hedges_g(two))
    for pairs in (flat, one, none):
        assert np.isnan([p_zero(pairs), p_beyond(pairs, 0.1), p_within(pairs, 0.1), hedges_g(pairs)]).all()
        assert np.isnan(t_interval(pairs)).all()


@pytest.mark.parametrize("n", [6, 8, 11])
def test_the_sign_flip_p_is_scipys_exact_permutation_of_samples(n: int) -> None:
    ours, theirs = two_arms(n)
    expected = stats.permutation_test(
        (ours, theirs), lambda a, b: (a - b).mean(), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert sign_flip_p(ours - theirs) == pytest.approx(expected, rel=1e-12)


def test_the_sign_flip_p_starts_at_six_pairs_where_it_can_reach_five_per_cent() -> None:
    assert np.isnan(sign_flip_p(np.arange(1.0, 6.0)))
    assert sign_flip_p(np.arange(1.0, 7.0)) == 2 / 2**6


def test_beyond_twenty_pairs_the_sign_flip_p_stays_near_the_t_test_and_never_reaches_zero() -> None:
    ours, theirs = two_arms(30, shift=0.25)
    assert sign_flip_p(ours - theirs) == pytest.approx(stats.ttest_rel(ours, theirs).pvalue, abs=0.02)
    assert sign_flip_p(np.full(40, 1.0)) > 0
    assert sign_flip_p(ours - theirs) == sign_flip_p(ours - theirs)


@pytest.mark.parametrize("unit", [0.1, 0.7, 1e-9])
def test_sign_flips_count_ties_with_the_observed_pattern_in_spite_of_rounding(unit: float) -> None:
    whole = np.array([1.0, 2.0, 3.0, 6.0, 7.0, -4.0, 9.0, -1.0])
    assert sign_flip_p(whole * unit) == sign_flip_p(whole)
    assert sign_flip_p(np.full(7, unit)) == 2 / 2**7


def test_superiority_counts_wins_in_the_direction_of_better_and_ties_half() -> None:
    differences = np.array([-1.0, -2.0, 0.0, 3.0])
    assert superiority(differences, better="lower") == 2.5 / 4
    assert superiority(differences, better="higher") == 1.5 / 4
    assert np.isnan(superiority(np.array([]), better="lower"))


def test_the_pairing_correlation_is_pearsons_and_nan_where_it_is_not_defined() -> None:
    ours, theirs = two_arms(8)
    assert pairing_correlation(ours, theirs) == pytest.approx(stats.pearsonr(ours, theirs).statistic)
    assert np.isnan(pairing_correlation(ours[:2], theirs[:2]))
    assert np.isnan(pairing_correlation(np.ones(5), theirs[:5]))


P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=6)


@given(P_VALUES)
def test_holm_is_the_closed_test_of_bonferroni(p: list[float]) -> None:
    everyone = range(len(p))
    subsets = [s for size in range(1, len(p) + 1) for s in combinations(everyone, size)]
    closed = [max(min(1.0, len(s) * min(p[j] for j in s)) for s in subsets if i in s) for i in everyone]
    assert holm(np.array(p)) == pytest.approx(closed)


def test_a_comparison_that_cannot_be_tested_stays_nan_and_still_counts_in_the_family() -> None:
    adjusted = holm(np.array([0.01, np.nan, 0.04]))
    assert adjusted[[0, 2]] == pytest.approx([0.03, 0.08])
    assert np.isnan(adjusted[1])


def test_a_claim_of_a_difference_always_excludes_zero_after_holm() -> None:
    rng = np.random.default_rng(6)
    pairs = Paired(np.full((500, 7), 4.0), rng.normal(0, 0.3, (500, 7)), rng.uniform(0.01, 0.3, (500, 7)))
    judged = decide(pairs, rope=0.1, alpha=0.05, better="lower")
    claims = np.isin(judged.words, ["better", "worse", "real, size unproven"])
    small = judged.words == "equivalent"
    assert ((claims | small) >= (judged.p_holm <= 0.05)).all()
    assert (claims <= (judged.p_holm <= 0.05)).all()
    assert (small & (judged.p_holm <= 0.05)).any()
    assert (judged.p == p_zero(pairs)).all()
    assert claims.any()
    assert not claims.all()


@given(P_VALUES, st.sampled_from([0.01, 0.05, 0.3]))
def test_p_is_at_most_its_level_exactly_if_holm_rejects(p: list[float], alpha: float) -> None:
    values = np.array(p)
    adjusted, levels = holm(values), holm_levels(values, alpha)
    clear = np.abs(adjusted - alpha) > 1e-12
    assert ((values <= levels) == (adjusted <= alpha))[clear].all()


def test_the_interval_that_decides_shows_the_word() -> None:
    rng, rope = np.random.default_rng(8), 0.1
    pairs = Paired(np.full((800, 6), 4.0), rng.normal(0, 0.3, (800, 6)), 10 ** rng.uniform(-3, -0.3, (800, 6)))
    judged = decide(pairs, rope=rope, alpha=0.05, better="lower")
    (low, high), (plain_low, plain_high) = t_interval(pairs, judged.level), t_interval(pairs)
    beyond, zero = (low > rope) | (high < -rope), (low <= 0) & (high >= 0)
    within = (low >= -rope) & (high <= rope)
    shown = {
        "better": beyond & (high < 0),
        "worse": beyond & (low > 0),
        "real, size unproven": ~zero & ~beyond & (~within | (p_within(pairs, rope) <= judged.p)),
        "equivalent": within,
        "undecided": zero & ~within,
    }
    assert set(judged.words.flat) == shown.keys()
    for word, holds in shown.items():
        assert holds[judged.words == word].all(), word
    assert ((low <= plain_low) & (high >= plain_high)).all()


def test_a_wider_rope_never_turns_another_word_into_better_or_worse() -> None:
    rng = np.random.default_rng(7)
    pairs = Paired(np.full((500, 4), 5.0), rng.normal(0, 0.3, (500, 4)), rng.uniform(0.01, 0.3, (500, 4)))
    before = np.ones((500, 4), dtype=bool)
    for rope in (0.0, 0.05, 0.1, 0.4):
        now = np.isin(decide(pairs, rope=rope, alpha=0.05, better="lower").words, ["better", "worse"])
        assert (now <= before).all()
        before = now
