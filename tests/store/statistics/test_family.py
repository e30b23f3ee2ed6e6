from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ablate.store.statistics import Paired, holm, judge, p_zero, t_interval
from ablate.store.statistics.verdict import holm_levels

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
    judged = judge(pairs, rope=0.1, alpha=0.05, better="lower")
    claims = np.isin(judged.words, ["better", "worse", "real, size unproven"])
    assert (claims == (judged.p_holm <= 0.05)).all()
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
    judged = judge(pairs, rope=rope, alpha=0.05, better="lower")
    (low, high), (plain_low, plain_high) = t_interval(pairs, judged.level), t_interval(pairs)
    beyond, zero = (low > rope) | (high < -rope), (low <= 0) & (high >= 0)
    within = (low >= -rope) & (high <= rope)
    shown = {
        "better": beyond & (high < 0),
        "worse": beyond & (low > 0),
        "real, size unproven": ~zero & ~beyond,
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
        now = np.isin(judge(pairs, rope=rope, alpha=0.05, better="lower").words, ["better", "worse"])
        assert (now <= before).all()
        before = now
