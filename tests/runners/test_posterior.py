"""The posterior of the remaining time: the prior without trials, their mean with many, and what it promises between."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from runners.planning.posterior import (
    BY_WORK,
    DRAWS,
    MOMENT_SD,
    TIMED_SD,
    UNKNOWN_WORK,
    Left,
    Path,
    Scatter,
    Seen,
    interval,
    totals,
    trial_scatter,
)

HERE = ("cpu 1", "grid", "softmax", "cell")


def sd_of_one(scatter: Scatter) -> float:
    return math.sqrt(sum(sd**2 for sd in scatter))


def spent(seen: Sequence[Seen], left: Sequence[Left], scatter: Scatter = BY_WORK) -> tuple[float, float, float]:
    return interval(totals(seen, left, scatter).trial_s)


def test_without_trials_it_is_the_prior() -> None:
    draws = np.log(totals([], [Left(HERE, 100.0, 1)], BY_WORK).trial_s)
    sd = sd_of_one(BY_WORK)
    assert draws.mean() == pytest.approx(math.log(100.0), abs=4 * sd / math.sqrt(DRAWS))
    assert draws.std() == pytest.approx(sd, rel=4 / math.sqrt(2 * DRAWS))
    assert sd == pytest.approx(0.7, abs=0.03)  # what the documentation says
    median, low, high = spent([], [Left(HERE, 100.0, 1)])
    assert 0 < low < median < high


def test_with_many_trials_it_is_their_mean_and_the_interval_shrinks() -> None:
    source = random.Random(0)
    widths = []
    for count in (5, 50, 5000):
        logs = [math.log(3.0) + source.gauss(0, 0.2) for _ in range(count)]
        median, low, high = spent([Seen(HERE, log) for log in logs], [Left(HERE, 10.0, 2000)])
        widths.append((high - low) / median)
    assert widths[0] > widths[1] > widths[2]
    mean = sum(10.0 * math.exp(log) for log in logs) / len(logs)
    assert median == pytest.approx(2000 * mean, rel=0.01)
    assert widths[2] < 0.02


def test_draws_agree_with_the_normal_of_many_dimensions() -> None:
    """The tree against the covariance matrix of all terms, solved at once."""
    other = ("cpu 1", "grid", "ssa", "cell")
    away = ("cuda 1", "grid", "softmax", "cell")
    scatter, seen = BY_WORK, [Seen(HERE, 0.5), Seen(other, -0.2), Seen(away, 1.0), Seen(other, 0.4, timed=True)]
    seen.append(Seen(("cpu 1", "second", "softmax", "a few steps"), 1.1, timed=True))
    noise = trial_scatter(seen, scatter)
    for target in (HERE, other, away, ("cpu 1", "new", "softmax", "cell"), ("cpu 1", "second", "softmax", "cell")):
        paths = [each.path for each in seen]
        own = np.diag([(TIMED_SD if each.timed else noise) ** 2 for each in seen])
        own += np.array([[MOMENT_SD**2 * (a.timed and b.timed) for b in seen] for a in seen])
        between = np.array([[_shared(a, b, scatter) for b in paths] for a in paths]) + own
        to = np.array([_shared(target, path, scatter) for path in paths])
        mean = to @ np.linalg.solve(between, [each.log_ratio for each in seen])
        variance = _shared(target, target, scatter) + noise**2 - to @ np.linalg.solve(between, to)
        draws = np.log(totals(seen, [Left(target, 1.0, 1)], scatter).trial_s)
        assert draws.mean() == pytest.approx(mean, abs=4 * math.sqrt(variance / DRAWS)), target
        assert draws.std() == pytest.approx(math.sqrt(variance), rel=4 / math.sqrt(2 * DRAWS)), target


def _shared(one: Path, two: Path, scatter: Scatter) -> float:
    """Covariance of two cells: the terms they have in common."""
    found = scatter.root**2
    for level, (a, b, sd) in enumerate(zip(one, two, scatter.levels, strict=True)):
        if one[: level + 1] != two[: level + 1]:
            assert a != b or level > 0
            break
        found += sd**2
    return found


@pytest.mark.parametrize("finished", [0, 1, 3])
def test_the_interval_covers_what_it_promises(finished: int) -> None:
    """Of campaigns drawn from the hierarchy, 80 % of the true totals lie in the interval, within its binomial bound."""
    campaigns, source, covered = 400, random.Random(finished), 0
    for _ in range(campaigns):
        seen, left, total = _campaign(source, finished)
        _, low, high = interval(totals(seen, left, BY_WORK).trial_s)
        covered += low <= total <= high
    bound = 4 * math.sqrt(0.8 * 0.2 / campaigns)
    assert abs(covered / campaigns - 0.8) < bound


ELSEWHERE = {"a grid": ("cpu 1", "other"), "a place": ("cuda 1", "grid"), "both": ("cuda 1", "other")}


@pytest.mark.parametrize("place", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("finished", [0, 2])
def test_it_covers_as_much_by_timed_steps_beside_trials_that_finished_elsewhere(
    finished: int, place: tuple[str, str]
) -> None:
    """What a plan is made from before a grid has begun on a machine: steps of its operators, trials of others."""
    campaigns, source, covered = 400, random.Random(finished), 0
    for _ in range(campaigns):
        seen, left, total = _timed_campaign(source, finished, place)
        _, low, high = interval(totals(seen, left, BY_WORK).trial_s)
        covered += low <= total <= high
    bound = 4 * math.sqrt(0.8 * 0.2 / campaigns)
    assert abs(covered / campaigns - 0.8) < bound


def _timed_campaign(
    source: random.Random, finished: int, elsewhere: tuple[str, str]
) -> tuple[list[Seen], list[Left], float]:
    """3 operators of many trials each and a few steps of each timed; `finished` trials of another place or grid."""
    drawn: dict[Path, float] = {}

    def log(path: Path) -> float:
        nodes = [path[:depth] for depth in range(len(path) + 1)]
        for node in nodes:
            drawn.setdefault(node, source.gauss(0, BY_WORK[len(node)]))
        return sum(drawn[node] for node in nodes)

    moment, seen, left, total = source.gauss(0, MOMENT_SD), [], [], 0.0
    for operator in "abc":
        timed = ("cpu 1", "grid", operator, "a few steps")
        seen.append(Seen(timed, log(timed) + moment + source.gauss(0, TIMED_SD), timed=True))
        cell = ("cpu 1", "grid", operator, "cell")
        left.append(Left(cell, 10.0, 20))
        total += sum(10.0 * math.exp(log(cell) + source.gauss(0, BY_WORK.trial)) for _ in range(20))
    away = (*elsewhere, "d", "cell")
    seen += [Seen(away, log(away) + source.gauss(0, BY_WORK.trial)) for _ in range(finished)]
    return seen, left, total


def _campaign(source: random.Random, finished: int) -> tuple[list[Seen], list[Left], float]:
    """3 operators of 2 cells, `finished` trials of the first operator's cells done and 4 of each cell remaining."""
    common = source.gauss(0, BY_WORK.root) + source.gauss(0, BY_WORK.place) + source.gauss(0, BY_WORK.grid)
    seen, left, total = [], [], 0.0
    for operator in range(3):
        of_operator = common + source.gauss(0, BY_WORK.operator)
        for cell in range(2):
            path, seconds = ("cpu 1", "grid", str(operator), str(cell)), 10.0 * (1 + operator + cell)
            log = of_operator + source.gauss(0, BY_WORK.cell)
            if operator == 0:
                seen += [Seen(path, log + source.gauss(0, BY_WORK.trial)) for _ in range(finished)]
            left.append(Left(path, seconds, 4))
            total += sum(seconds * math.exp(log + source.gauss(0, BY_WORK.trial)) for _ in range(4))
    return seen, left, total


def test_one_trial_whose_node_hung_does_not_wreck_it() -> None:
    source = random.Random(1)
    usual = [Seen(HERE, source.gauss(0, 0.1)) for _ in range(9)]
    left = [Left(HERE, 10.0, 20)]
    plain, _, highest = spent(usual, left)
    median, _, high = spent([*usual, Seen(HERE, math.log(1000.0))], left)
    assert median < 1.1 * plain
    assert high < 1.3 * highest
    few = [Seen((*HERE[:3], str(cell)), source.gauss(0, 0.1)) for cell in range(6)]
    assert spent([*few, Seen((*HERE[:3], "hung"), math.log(1000.0))], left)[0] < 1.3 * spent(few, left)[0]


def test_trials_elsewhere_say_less_than_trials_here() -> None:
    left, slow = [Left(HERE, 10.0, 10)], math.log(4.0)
    nothing = spent([], left)
    there = spent([Seen(("cuda 1", *HERE[1:]), slow)] * 20, left)
    here = spent([Seen(HERE, slow)] * 20, left)
    assert nothing[0] < there[0] < here[0]
    assert here[2] / here[1] < there[2] / there[1] < nothing[2] / nothing[1]


def test_timed_steps_say_less_than_finished_trials() -> None:
    left, slow = [Left(HERE, 10.0, 10)], math.log(4.0)
    timed = spent([Seen(HERE, slow, timed=True)], left)
    ran = spent([Seen(HERE, slow)] * 4, left)
    assert spent([], left)[0] < timed[0] < 1.02 * ran[0]
    assert ran[2] / ran[1] < timed[2] / timed[1] < spent([], left)[2] / spent([], left)[1]


def test_more_work_never_takes_less() -> None:
    seen = [Seen(HERE, 0.3), Seen(HERE, 0.2)]
    found = [spent(seen, [Left(HERE, seconds, 5)]) for seconds in (1e-3, 1.0, 2.0, 1e6)]
    assert found == sorted(found)
    assert all(0 < low <= median <= high for median, low, high in found)


def test_gpus_weigh_and_the_same_question_has_the_same_answer() -> None:
    left = [Left(HERE, 10.0, 5, gpus=0.25), Left((*HERE[:3], "wide"), 20.0, 5, gpus=4.0)]
    first, again = totals([], left, BY_WORK), totals([], left[::-1], BY_WORK)
    assert (first.trial_s == again.trial_s).all()
    assert (first.gpu_s > first.trial_s * 0.25).all()
    assert (first.gpu_s < first.trial_s * 4).all()


def test_without_a_prior_trials_alone_decide() -> None:
    seen = [Seen(HERE, math.log(5000.0) + 0.01 * at) for at in range(5)]
    median, low, high = spent(seen, [Left(HERE, 1.0, 10)], UNKNOWN_WORK)
    assert median == pytest.approx(50_000, rel=0.1)
    assert low > 40_000
    assert high < 62_500
