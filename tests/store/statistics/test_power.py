import numpy as np
import pytest

from ablate.store.statistics import detectable
from ablate.store.statistics.paired_differences import Floats
from ablate.store.statistics.power import power, seeds_needed

ONE = np.array([1.0])


@pytest.mark.parametrize("alpha", [0.05, 1e-6])
@pytest.mark.parametrize("n", [3.0, 10.0, 1e6])
def test_power_rises_with_the_difference_from_the_level_to_one_without_gaps(alpha: float, n: float) -> None:
    sizes = np.geomspace(1e-6, 1e8, 500)
    found = power(sizes, np.ones(500), np.full(500, n), alpha=alpha)
    assert (np.diff(found) > -1e-9).all()
    assert found[[0, -1]] == pytest.approx([alpha, 1.0], rel=1e-3)


def test_the_smallest_standardised_differences_found_are_the_known_ones() -> None:
    found = detectable(np.ones(4), np.array([3.0, 5.0, 8.0, 10.0]), alpha=0.05)
    assert found == pytest.approx([3.26, 1.68, 1.16, 1.00], abs=0.005)


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 20])
def test_detectable_is_the_difference_of_eighty_per_cent_power(alpha: float) -> None:
    n, sd = np.array([3.0, 5.0, 50.0]), np.array([0.1, 2.0, 1e-6])
    assert power(detectable(sd, n, alpha=alpha), sd, n, alpha=alpha) == pytest.approx(0.8, abs=1e-9)


def test_seeds_needed_is_the_first_number_whose_power_suffices() -> None:
    sd = np.array([0.03, 0.05, 0.2, 1.0, 5.0])
    found = seeds_needed(0.05, sd, alpha=0.01)
    size = np.full(5, 0.05)
    assert (power(size, sd, found, alpha=0.01) >= 0.8).all()
    fewer = power(size, sd, found - 1, alpha=0.01)
    assert (fewer < 0.8).all()


def test_seeds_needed_is_at_least_three_and_nan_where_no_number_answers() -> None:
    assert seeds_needed(1.0, np.array([1e-9, 7.0]), alpha=0.05)[0] == 3
    assert np.isnan(seeds_needed(0.05, np.array([0.0, np.nan, np.inf, 1e9]), alpha=0.05)).all()
    assert np.isnan(seeds_needed(0.0, ONE, alpha=0.05)).all()


def test_nothing_is_detectable_below_three_pairs_or_without_a_known_spread() -> None:
    assert np.isnan(detectable(np.array([1.0, 0.0, np.nan]), np.array([2.0, 5.0, 5.0]), alpha=0.05)).all()


def test_many_comparisons_of_one_size_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def count(difference: Floats, sd: Floats, n: Floats, *, alpha: float) -> Floats:
        nonlocal asked
        asked += np.size(difference)
        return power(difference, sd, n, alpha=alpha)

    monkeypatch.setattr("ablate.store.statistics.power.power", count)
    sd, n = np.linspace(0.1, 2.0, 6000), np.resize([2.0, 5.0, 10.0], 6000)
    found = detectable(sd, n, alpha=0.01)
    assert asked < 6000
    alone = [detectable(sd[at : at + 1], n[at : at + 1], alpha=0.01)[0] for at in range(30)]
    assert np.array_equal(found[:30], alone, equal_nan=True)
    asked = 0
    assert np.isnan(seeds_needed(0.0, sd, alpha=0.01)).all()  # without a margin no number of seeds answers
    assert asked == 0
