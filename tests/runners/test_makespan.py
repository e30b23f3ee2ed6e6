"""When the last trial is done, against rounds counted by hand and a schedule by a heap."""

import heapq

import numpy as np
import pytest

from runners.planning.makespan import FEW_ROUNDS, wall_s
from runners.planning.posterior import DRAWS, SINGLE, Pooled


def pooled(*cells: tuple[int, float]) -> Pooled:
    """Trials and seconds of each cell, without any doubt."""
    total = sum(count * seconds for count, seconds in cells)
    return Pooled(np.full(DRAWS, total), [(count, np.full(SINGLE, seconds)) for count, seconds in cells])


@pytest.mark.parametrize(
    ("trials", "at_once", "rounds"), [(1, 1, 1), (1, 9, 1), (5, 4, 2), (8, 4, 2), (9, 4, 3), (999, 4, 250)]
)
def test_equal_trials_take_whole_rounds(trials: int, at_once: int, rounds: int) -> None:
    assert wall_s(pooled((trials, 7.0)), at_once, 0.0) == pytest.approx(7.0 * rounds)


def test_whoever_is_free_takes_the_next_one() -> None:
    cells = ((4, 3.0), (7, 11.0), (1, 40.0))
    order = [seconds for turn in range(7) for count, seconds in cells if turn < count]
    for at_once in range(1, 14):
        free = [0.0] * at_once
        for seconds in order:
            heapq.heapreplace(free, free[0] + seconds)
        assert wall_s(pooled(*cells), at_once, 0.0) == pytest.approx(max(free))


def test_the_longest_of_many_is_longer_than_one() -> None:
    one, many = (float(np.median(wall_s(pooled((trials, 10.0)), 50, 0.25))) for trials in (1, 50))
    assert one == pytest.approx(10.0)
    assert 10.0 * 1.5 < many < 10.0 * 2.0  # the largest of 50 normals is 2.2 standard deviations out


def test_it_is_never_less_than_an_even_share_and_the_shortcut_agrees() -> None:
    for trials in (FEW_ROUNDS * 3, FEW_ROUNDS * 3 + 1):
        found = wall_s(pooled((trials, 10.0)), 3, 0.25)
        assert (found >= 10.0 * trials / 3 * (1 - 1e-12)).all()
        assert np.median(found) == pytest.approx(10.0 * trials / 3, rel=0.06)
