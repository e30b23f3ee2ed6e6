"""Durations come from finished trials of the cell, else of the grid scaled by FLOPs, else from measured steps."""

import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from toy_campaign import toy_grid

from ablate import AssociativeRecall, LinearFunctions, ShiftGrid, Training, Trial
from ablate.grid import Experiment, Grid, over
from ablate.grid.durations import format_hours
from ablate.grid.overrides import override
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.backends.slurm.spec import Needs, Slurm
from ablate.runners.cli.campaign_plan import PlanOptions, plan_campaign, plan_data, plan_lines
from ablate.runners.planning.duration import (
    MOST_COUNTED,
    Estimate,
    PlannedWorkers,
    estimate,
    schedule_s,
)
from ablate.runners.planning.work import PEAK, UTILISATION, Work
from ablate.runners.planning.worklist import collect_cells, list_trials
from ablate.store.files.atomic import write_json
from ablate.store.files.layout import Layout
from ablate.variants import gpt2, softmax, ssa


def write_attempt(root: Path, key: str, wall_s: float, *, attempt: int = 1, status: str = "ok", **start: Any) -> None:
    """Write the files of an attempt, as its worker would."""
    layout, now = Layout(root), time.time()
    layout.attempt(key, attempt).mkdir(parents=True)
    begun = {"schema": 1, "trial": key, "attempt": attempt, "host": "elsewhere", "pid": 1, "started": now - wall_s}
    write_json(layout.start(key, attempt), {**begun, "device": "cpu", "threads": 1, "resumed_from": None, **start})
    end = {"schema": 1, "trial": key, "attempt": attempt, "status": status, "wall_s": wall_s, "ended": now}
    write_json(layout.end(key, attempt), end)


def finish(root: Path, grid: Grid, seconds: Mapping[str, float], seeds: int = 1, **start: Any) -> None:
    """Finish the trials of the first seeds of each operator in `seconds`."""
    for planned in grid.trials():
        if planned.seed < seeds and planned.operator in seconds:
            write_attempt(root, planned.key, seconds[planned.operator], **start)


def estimate_grid(root: Path, grid: Grid, pool: Any = lambda _: PlannedWorkers(1), seconds: Any = None) -> Estimate:
    return estimate(list_trials(Layout(root), [grid], collect_cells([grid])), [grid], pool, seconds)


def small(*axes: Any, seeds: int = 3) -> Grid:
    judged = ShiftGrid(sigma_x=(1.0,), sigma_f=(1.0,), functions=4, sequences=4, points=8)
    base = Trial(
        task=LinearFunctions(points=8, batch=4, evaluation=judged),
        model=gpt2(layers=1, heads=2, width=16),
        operator=softmax(),
        training=Training(steps=1000),
    )
    return Grid(name="small", base=base, axes=axes or [over("operator", [softmax(), ssa()])], seeds=range(seeds))


def test_the_schedule_is_longest_first_and_within_the_known_bounds() -> None:
    """Graham 1969: at most 4/3 - 1/(3m) times the best schedule, which no schedule beats below the two bounds."""
    assert schedule_s([3, 3, 2, 2, 2], 2) == 7
    assert schedule_s([1] * 5, 4) == 2
    assert schedule_s([], 3) == 0
    source = random.Random(0)
    for workers in (1, 3, 7):
        seconds = [source.random() for _ in range(40)]
        least = max(max(seconds), sum(seconds) / workers)
        assert least <= schedule_s(seconds, workers) * (1 + 1e-12) <= 2 * least


def test_a_cell_takes_the_mean_of_its_finished_trials(tmp_path: Path) -> None:
    grid = toy_grid(seeds=range(10), steps=100)
    finish(tmp_path, grid, {"falling": 400.0, "rising": 100.0}, seeds=5)
    found = estimate_grid(tmp_path, grid, lambda _: PlannedWorkers(4))
    assert found.trial_s == pytest.approx(5 * 400 + 5 * 100)
    assert found.hours == pytest.approx(found.trial_s / 3600)
    assert found.wall_s == pytest.approx(800)
    assert (found.unit, found.finished, found.unknown) == ("CPU-h", 10, 0)
    assert found.basis == "from 10 finished trials"
    longer = toy_grid(seeds=range(10), steps=1000)
    finish(tmp_path, longer, {"falling": 400.0, "rising": 400.0}, seeds=2, device="cuda")  # another kind of device
    found = estimate_grid(tmp_path, longer)
    assert found.trial_s is found.wall_s is found.hours is None
    assert found.unknown == 16


def test_a_finished_grid_says_what_a_trial_cost_and_on_what(tmp_path: Path) -> None:
    grid = toy_grid(seeds=range(2), device="auto")
    finish(tmp_path, grid, {"falling": 7200.0, "rising": 3600.0}, seeds=2, device="cuda")
    found = estimate_grid(tmp_path, grid, lambda _: PlannedWorkers(1, gpus=1.0))
    assert (found.hours, found.unit, found.hours_of(grid.name, 4)) == (0.0, "GPU-h", pytest.approx(6.0))


def test_a_trial_counts_with_all_attempts_or_not_at_all(tmp_path: Path) -> None:
    grid = toy_grid(seeds=range(4))
    keys = [planned.key for planned in grid.trials() if planned.label == "falling"]
    write_attempt(tmp_path, keys[0], 10.0, status="stopped")
    write_attempt(tmp_path, keys[0], 5.0, attempt=2, resumed_from={"attempt": 1, "step": 3})
    write_attempt(tmp_path, keys[1], 10.0)
    Layout(tmp_path).end(keys[1], 1).unlink()  # killed
    write_attempt(tmp_path, keys[1], 7.0, attempt=2)
    found = estimate_grid(tmp_path, grid)
    assert (found.finished, found.trial_s) == (1, pytest.approx(6 * 15.0))


def test_a_model_is_measured_once_and_scaled_to_its_other_cells(tmp_path: Path) -> None:
    measured: list[int] = []

    def seconds(trial: Any) -> float:
        measured.append(trial.training.steps)
        return 0.01 * trial.training.steps

    grid = small(over("training.steps", [1000, 3000]))
    found = estimate_grid(tmp_path, grid, seconds=seconds)
    assert found.trial_s == pytest.approx(3 * 10 + 3 * 30)
    assert len(measured) == 1


def test_pools_have_their_own_hours_and_the_slower_one_decides(tmp_path: Path) -> None:
    def pool(trial: Any) -> PlannedWorkers:
        many = trial.operator == "falling"
        return PlannedWorkers(6, 2, 0.5, name="many") if many else PlannedWorkers(1, gpus=4.0, name="one")

    grid = toy_grid(seeds=range(12), steps=100, device="cuda")
    finish(tmp_path, grid, {"falling": 3600.0, "rising": 3600.0}, seeds=6, device="cuda")
    found = estimate_grid(tmp_path, grid, pool=pool)
    assert (found.unit, found.workers, found.at_once) == ("GPU-h", 7, 13)
    assert found.hours == pytest.approx(6 * 0.5 + 6 * 4.0)
    assert found.wall_s == pytest.approx(6 * 3600)


def test_a_cluster_gives_each_class_its_own_gpus(tmp_path: Path) -> None:
    """A GPU of its own takes four times the hours of one shared by four; without GPUs the hours are CPU-hours."""

    def plan(slurm: Slurm) -> Estimate:
        return plan_campaign(
            RunRequest(tmp_path), [small()], PlanOptions(slurm=slurm, seconds=lambda _: 3600.0)
        ).estimate

    needs = (Needs(where={"operator": "SSA"}, per_gpu=1),)
    finish(tmp_path, small(), {"softmax": 3600.0, "SSA": 3600.0}, device="cuda")
    plain, wide = plan(Slurm(per_gpu=4)), plan(Slurm(per_gpu=4, needs=needs))
    assert plain.unit == wide.unit == "GPU-h"
    assert plain.hours == pytest.approx(4 * 0.25)
    assert wide.hours == pytest.approx(2 * 0.25 + 2 * 1)
    cpu = plan(Slurm(gpus=0, per_gpu=3, workers=1))
    assert (cpu.unit, cpu.workers, cpu.at_once, cpu.hours) == ("CPU-h", 1, 3, pytest.approx(4))
    assert plan(Slurm(workers=6, max_parallel=2)).workers == 2
    toys = plan_campaign(RunRequest(tmp_path), [toy_grid()], PlanOptions(seconds=lambda _: 3600.0))
    assert plan_data(toys)["estimate"]["hours"] == 6.0


def test_without_a_measured_step_a_plan_sums_the_work_of_its_trials(tmp_path: Path) -> None:
    """The work is that of the trials that are left; the dense layers have 6 FLOPs per parameter and token."""
    grid = small(over("training.steps", [1000, 3000]), over("operator", [softmax(), ssa()]), seeds=2)
    left = [planned for planned in grid.trials() if planned.seed == 1 or planned.trial.training.steps == 3000]
    for planned in grid.trials():
        if planned.key not in {each.key for each in left}:
            write_attempt(tmp_path, planned.key, 5.0, device="cuda")  # a time on another device tells no duration here
    plan = plan_campaign(RunRequest(tmp_path), [grid])
    assert plan.to_do == len(left) == 6
    assert isinstance(plan.work, Work)
    assert plan.work.flops == pytest.approx(sum(each.trial.flops() for each in left))
    steps = 2 * 1000 + 4 * 3000
    assert plan.work.tokens == steps * 4 * grid.base.task.length  # type: ignore[attr-defined]
    dense = 6 * 12 * 16**2 * plan.work.tokens
    assert 1 < plan.work.flops / dense < 3  # read-in, read-out and attention besides
    data = plan_data(plan)["work"]
    assert data["gpu_hours"] * 3600 * UTILISATION * PEAK == pytest.approx(plan.work.flops) == data["flops"]
    assert any(str(plan.work) in line for line in plan_lines(plan))
    timed = plan_campaign(RunRequest(tmp_path), [grid], PlanOptions(seconds=lambda _: 1.0))
    assert timed.work is None


def test_the_work_of_a_training_does_not_depend_on_how_it_is_split() -> None:
    trial = small().base
    assert isinstance(trial, Trial)
    alone = trial.flops()
    assert alone > 0
    for split in ({"accumulate": 2}, {"micro_batch": 1}, {"gpus": 2}, {"gpus": 2, "accumulate": 2}):
        assert trial.changed(execution=trial.execution.changed(**split)).flops() == pytest.approx(alone)


def test_the_work_of_a_training_does_not_depend_on_what_is_evaluated() -> None:
    recall = AssociativeRecall(context=32)
    longer = recall.changed(evaluation=recall.evaluation.changed(lengths=(32, 256)))
    model, training = gpt2(layers=1, heads=2, width=16), Training(steps=3)
    short, long = (Trial(task=task, model=model, operator=softmax(), training=training) for task in (recall, longer))
    assert (long.tokens(), long.flops()) == (short.tokens(), short.flops())
    assert long.tokens() == recall.batch * 32 * 3


def test_the_work_of_many_models_is_scaled_by_their_steps(tmp_path: Path) -> None:
    """FLOPs that are the same per step for all models are summed exactly, though few models are counted."""
    counted: list[int] = []

    class Many(Experiment):
        kind: Literal["tests_many_models"] = "tests_many_models"
        steps: int = 1

        def train(self, run: Any) -> None: ...

        def flops(self) -> float:
            counted.append(self.steps)
            return 7.0 * self.steps

    grid = Grid(name="many", base=Many(), axes=[over("steps", range(1, 202))], seeds=range(3))
    plan = plan_campaign(RunRequest(tmp_path), [grid])
    assert plan.work == Work(pytest.approx(3 * 7.0 * sum(range(1, 202))), None)
    assert len(set(counted)) <= MOST_COUNTED


def test_a_grid_of_one_seed_offers_seeds_and_their_cost(tmp_path: Path) -> None:
    """The cost is that of the grid with these seeds; a finished trial does not change it, nor does another grid."""
    one, other = small(seeds=1), small(over("training.steps", [50_000]), seeds=3).named("other")
    (offer,) = [line for line in plan_lines(plan_campaign(RunRequest(tmp_path), [one, other])) if "seeds=" in line]
    seeds = offer.partition("`")[2].partition("`")[0]
    whole = plan_campaign(RunRequest(tmp_path), [override(one, [seeds])])
    assert isinstance(whole.work, Work)
    assert whole.to_do == 10
    assert format_hours(whole.work.gpu_hours, "GPU-h") in offer
    assert "10 trials" in offer
    assert not [line for line in plan_lines(whole) if "seeds=" in line and "overrides" not in line]
    timed = PlanOptions(seconds=lambda _: 3600.0)
    (offer,) = [line for line in plan_lines(plan_campaign(RunRequest(tmp_path), [one], timed)) if "seeds=" in line]
    assert "10 CPU-h" in offer
