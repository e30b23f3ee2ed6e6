"""Every schedule against its closed form."""

import math
from itertools import pairwise

import pytest
import torch
import transformers
from pydantic import ValidationError

from runners.optimisers import AdamW, Training
from runners.optimisers.schedules import WSD, Constant, Cosine, Linear, Schedule

EVERY = [member(warmup=warmup) for member in Schedule.members().values() for warmup in (0, 7)]


@pytest.mark.parametrize("schedule", EVERY, ids=lambda schedule: schedule.canonical)
def test_the_rate_rises_linearly_to_the_peak_and_never_again(schedule: Schedule) -> None:
    factors = [schedule.factor(step, 63) for step in range(63)]
    assert factors[: schedule.warmup] == [(step + 1) / 7 for step in range(schedule.warmup)]
    assert factors[schedule.warmup] == 1
    after = factors[schedule.warmup :]
    assert after == sorted(after, reverse=True)
    assert min(after) >= 0


def test_a_cosine_is_halfway_at_half_time_and_would_reach_its_floor_after_the_last_step() -> None:
    schedule = Cosine(warmup=20, floor=0.2)
    assert schedule.factor(60, 100) == pytest.approx(0.6)
    assert schedule.after_warmup(100, 100) == pytest.approx(0.2)
    assert schedule.factor(40, 100) == pytest.approx(0.2 + 0.8 * math.cos(math.pi / 8) ** 2)


def test_a_line_falls_by_equal_steps_from_the_peak_and_would_reach_its_floor_after_the_last_step() -> None:
    schedule = Linear(warmup=20, floor=0.2)
    factors = [schedule.factor(step, 100) for step in range(100)]
    assert factors[20] == 1
    assert [a - b for a, b in pairwise(factors[20:])] == pytest.approx([0.8 / 80] * 79)
    assert schedule.after_warmup(100, 100) == pytest.approx(0.2)
    assert factors == pytest.approx([WSD(warmup=20, decay=0.8, floor=0.2).factor(step, 100) for step in range(100)])


@pytest.mark.parametrize(("warmup", "steps"), [(0, 7), (3, 8), (7, 63)])
def test_a_line_is_that_of_transformers_but_for_the_warmup_which_is_one_step_ahead(warmup: int, steps: int) -> None:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = transformers.get_linear_schedule_with_warmup(optimiser, warmup, steps).lr_lambdas[0]
    ours = Linear(warmup=warmup)
    assert [ours.factor(step, steps) for step in range(warmup, steps)] == pytest.approx(
        [theirs(step) for step in range(warmup, steps)]
    )
    assert [ours.factor(step, steps) for step in range(warmup)] == pytest.approx(
        [theirs(step + 1) for step in range(warmup)]
    )


def test_wsd_is_at_its_peak_until_the_decay_and_then_falls_on_a_line() -> None:
    schedule = WSD(warmup=10, decay=0.25, floor=0.1)
    factors = [schedule.factor(step, 100) for step in range(100)]
    assert set(factors[10:76]) == {1.0}
    steps = [before - after for before, after in pairwise(factors[75:])]
    assert steps == pytest.approx([0.9 / 25] * 24)
    assert schedule.after_warmup(100, 100) == pytest.approx(0.1)


def test_wsd_without_decay_is_constant_and_all_decay_is_a_line() -> None:
    assert {WSD(decay=0).factor(step, 9) for step in range(9)} == {1.0}
    assert [WSD(decay=1).factor(step, 9) for step in range(9)] == pytest.approx([left / 9 for left in range(9, 0, -1)])


def test_a_decay_that_would_begin_in_the_warmup_is_refused() -> None:
    fits = Training(steps=110, schedule=WSD(warmup=88, decay=0.2))
    assert [fits.schedule.factor(step, 110) for step in (87, 88, 99)] == [1, 1, 0.5]
    with pytest.raises(ValidationError, match="warmup 89 must end before the decay of 22"):
        Training(steps=110, schedule=WSD(warmup=89, decay=0.2))
    Training(steps=110, schedule=WSD(warmup=110, decay=0))


def test_the_learning_rate_is_the_peak_times_the_factor() -> None:
    training = Training(steps=100, optimiser=AdamW(lr=0.5), schedule=Constant(warmup=4))
    assert [training.lr(step) for step in range(1, 6)] == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.5])


def test_a_warmup_longer_than_training_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"the warm-up ends within training; got .* 11 of 10"):
        Training(steps=10, schedule=Cosine(warmup=11))
    Training(steps=10, schedule=Cosine(warmup=10)).lr(10)


@pytest.mark.parametrize(("step", "judged"), [(0, False), (4, False), (5, True), (10, True), (12, True), (11, False)])
def test_evaluation_is_periodic_and_at_the_end(step: int, judged: bool) -> None:
    assert Training(steps=12, evaluate_every=5).evaluates(step) is judged
    assert Training(steps=12).evaluates(step) is (step == 12)
