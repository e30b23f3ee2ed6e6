"""An estimate goes by what is nearest: trials of the cell, its operator, its grid, other devices, a few steps, work."""

import math
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from toy_campaign import toy_grid
from toy_training import Falling, ToyTrial

from grid import Grid, Spec, over
from runners import LinearFunctions, ShiftGrid, Training, Trial
from runners.cli.plan import PlanOptions, plan_campaign
from runners.cli.plan_text import plan_data, plan_lines
from runners.planning.estimate import Estimate, Means, Pool, estimate, finished_trials
from runners.planning.grid_cells import walk
from runners.planning.roofline import Place, Prior
from runners.planning.survey import survey
from runners.slurm.spec import Needs, Slurm
from store.files.atomic import write_json
from store.files.layout import Layout
from variants import gpt2, softmax, ssa


def ran(root: Path, key: str, wall_s: float, *, attempt: int = 1, status: str = "ok", **start: Any) -> None:
    """An attempt as its worker would have left it."""
    layout, now = Layout(root), time.time()
    layout.attempt(key, attempt).mkdir(parents=True)
    begun = {"schema": 1, "trial": key, "attempt": attempt, "host": "elsewhere", "pid": 1, "started": now - wall_s}
    write_json(layout.start(key, attempt), {**begun, "device": "cpu", "threads": 1, "resumed_from": None, **start})
    end = {"schema": 1, "trial": key, "attempt": attempt, "status": status, "wall_s": wall_s, "ended": now}
    write_json(layout.end(key, attempt), end)


def estimated(root: Path, grid: Grid, **means: Any) -> Estimate:
    return estimate(survey(Layout(root), [grid], walk([grid])), [grid], Means(**means))


def by_steps(trial: Any, place: Place, gpu: str | None) -> Prior:
    """A second per step, ten times as fast on a GPU."""
    del gpu
    seconds = trial.steps * (0.1 if place.device == "cuda" else 1.0)
    return Prior(seconds, seconds)


def test_before_anything_ran_it_is_the_prior_in_hours_and_shared_by_no_more_workers_than_trials(tmp_path: Path) -> None:
    grid = toy_grid(steps=3600)
    found = estimated(tmp_path, grid, prior=by_steps, workers=4)
    assert found.trial_s is not None
    assert found.hours == found.trial_s.times(1 / 3600)
    assert found.unit == "CPU-h"
    assert found.hours.low < 6.0 < found.hours.high
    assert found.basis == "from a roofline prior"
    six, many = (estimated(tmp_path, grid, prior=by_steps, workers=workers) for workers in (6, 600))
    assert many.wall_s == six.wall_s
    assert many.workers == 600


def test_the_last_round_is_waited_for(tmp_path: Path) -> None:
    """Finished trials fix the time of one; five on four workers take two rounds, not five quarters of one."""
    grid = toy_grid(seeds=range(60), steps=100)
    source = random.Random(0)
    for planned in grid.trials():
        if planned.seed < 55 or planned.label == "rising":
            ran(tmp_path, planned.key, 100.0 * math.exp(source.gauss(0, 0.01)))
    one, four, five = (estimated(tmp_path, grid, prior=by_steps, workers=workers).wall_s for workers in (1, 4, 5))
    assert one is not None
    assert four is not None
    assert five is not None
    assert one.median == pytest.approx(500.0, rel=0.03)
    assert four.median == pytest.approx(200.0, rel=0.06)
    assert four.low < 200.0 < four.high
    assert 100.0 < five.median < 115.0  # the longest of five


def test_on_gpus_hours_are_those_of_the_gpus_that_a_trial_occupies(tmp_path: Path) -> None:
    grid = toy_grid(steps=3600, device="cuda")
    here, packed, whole = (
        estimated(tmp_path, grid, prior=by_steps, pool=lambda _, gpus=gpus: Pool(1, gpus=gpus))
        for gpus in (None, 0.25, 2.0)
    )
    assert here.unit == packed.unit == whole.unit == "GPU-h"
    assert here.hours is not None
    assert here.hours.low < 0.6 < here.hours.high
    assert packed.hours == pytest.approx(here.hours.times(0.25))
    assert whole.hours == pytest.approx(here.hours.times(2))
    assert packed.trial_s == here.trial_s


def finish(root: Path, grid: Grid, seconds: Mapping[str, float], seeds: int = 1, **start: Any) -> None:
    """Finish the trials of the first seeds, each operator in its own time."""
    for planned in grid.trials():
        if planned.seed < seeds and planned.label in seconds:
            ran(root, planned.key, seconds[planned.label], **start)


def test_finished_trials_overrule_the_prior_and_inform_operators_that_have_none(tmp_path: Path) -> None:
    grid = toy_grid(seeds=range(10), steps=100)
    prior = estimated(tmp_path, grid, prior=by_steps).trial_s
    finish(tmp_path, grid, {"falling": 400.0}, seeds=5)
    found = estimated(tmp_path, grid, prior=by_steps)
    assert prior is not None
    assert found.trial_s is not None
    assert found.basis == "from 5 finished trials and a roofline prior"
    assert prior.median < 2500 < found.trial_s.median < 5 * 400 + 10 * 400 * 1.1  # rising is pulled to four times, too
    assert found.trial_s.high / found.trial_s.low < prior.high / prior.low
    finish(tmp_path, toy_grid(seeds=range(5), steps=100), {"rising": 100.0}, seeds=5)
    both = estimated(tmp_path, grid, prior=by_steps).trial_s
    assert both is not None
    assert both.median == pytest.approx(5 * 400 + 5 * 100, rel=0.1)


def test_cells_of_more_work_take_longer_by_the_ratio_of_their_priors(tmp_path: Path) -> None:
    grid = Grid(name="long", base=ToyTrial(), axes=[over("steps", [100, 1000])], seeds=range(8))
    for planned in grid.trials():
        if planned.trial.steps == 100:  # type: ignore[attr-defined]
            ran(tmp_path, planned.key, 50.0)
    found = estimated(tmp_path, grid, prior=by_steps).trial_s
    assert found is not None
    assert found.low < 8 * 500.0 < found.high
    assert found.high / found.low < 1.6


def test_trials_of_another_device_inform_by_the_ratio_of_the_priors_alone(tmp_path: Path) -> None:
    grid = toy_grid(seeds=range(10), steps=1000)
    prior = estimated(tmp_path, grid, prior=by_steps).trial_s
    finish(tmp_path, grid, {"falling": 400.0, "rising": 400.0}, seeds=2, device="cuda")  # 4 times their prior there
    away = estimated(tmp_path, grid, prior=by_steps).trial_s
    here = tmp_path / "here"
    finish(here, grid, {"falling": 4000.0, "rising": 4000.0}, seeds=2)
    near = estimated(here, grid, prior=by_steps).trial_s
    assert prior is not None
    assert away is not None
    assert near is not None
    assert 16 / 20 * prior.median * 1.3 < away.median < near.median
    assert near.high / near.low < away.high / away.low < prior.high / prior.low
    threads = tmp_path / "threads"
    finish(threads, grid, {"falling": 4000.0, "rising": 4000.0}, seeds=2, threads=8)
    other = estimated(threads, grid, prior=by_steps).trial_s
    assert other is not None
    assert other.high / other.low > near.high / near.low


def test_two_operators_of_one_label_have_times_of_their_own(tmp_path: Path) -> None:
    """Also for cells of which nothing has finished: they take what their own operator does."""
    twins = over("operator", [Falling(), Falling(rate=0.5)], labels=["fast", "slow"])
    grid = Grid(name="twins", base=ToyTrial(), axes=[twins, over("steps", [20, 30])], seeds=range(9))
    for planned in grid.trials():
        trial: Any = planned.trial
        if trial.steps == 20:
            ran(tmp_path, planned.key, 1.0 if trial.operator.rate == Falling().rate else 50.0)
    found = estimated(tmp_path, grid).trial_s
    assert found is not None
    assert found.low < 9 * 51 < found.high
    assert found.median > 250


def test_a_trial_counts_with_all_attempts_or_by_one_that_did_it_all(tmp_path: Path) -> None:
    grid = toy_grid(seeds=range(4))
    keys = [planned.key for planned in grid.trials() if planned.label == "falling"]
    ran(tmp_path, keys[0], 10.0, status="stopped")
    ran(tmp_path, keys[0], 5.0, attempt=2, resumed_from={"attempt": 1, "step": 3})
    ran(tmp_path, keys[1], 10.0)
    Layout(tmp_path).end(keys[1], 1).unlink()  # killed
    ran(tmp_path, keys[1], 7.0, attempt=2)
    ran(tmp_path, keys[2], 10.0)
    Layout(tmp_path).end(keys[2], 1).unlink()
    ran(tmp_path, keys[2], 7.0, attempt=2, resumed_from={"attempt": 1, "step": 3})
    found = finished_trials(survey(Layout(tmp_path), [grid], walk([grid])))
    assert {each.trial.key: each.seconds for each in found} == {keys[0]: 15.0, keys[1]: 7.0}


def test_what_cannot_be_counted_is_told_and_taken_for_a_usual_trial(tmp_path: Path) -> None:
    def prior(trial: Any, place: Place, gpu: str | None) -> Prior:
        if trial.operator.kind == "rising":
            raise RuntimeError("no shapes\nat all")
        return by_steps(trial, place, gpu)

    found = estimated(tmp_path, toy_grid(steps=100), prior=prior)
    assert found.problems == ("rising: RuntimeError: no shapes",)
    assert found.trial_s is not None
    assert found.trial_s.low < 600 < found.trial_s.high


def test_operators_that_cannot_be_counted_are_less_certain(tmp_path: Path) -> None:
    """They take what trials of theirs took, once some have; before, a wide interval about a usual trial."""

    def prior(trial: Any, place: Place, gpu: str | None) -> Prior:
        if trial.operator.kind == "rising":
            raise RuntimeError("no shapes")
        return by_steps(trial, place, gpu)

    def ratio(found: Estimate) -> float:
        assert found.trial_s is not None
        return found.trial_s.high / found.trial_s.low

    grid = toy_grid(seeds=range(9), steps=100)
    whole, part = estimated(tmp_path, grid, prior=by_steps), estimated(tmp_path, grid, prior=prior)
    assert ratio(part) > 1.3 * ratio(whole)
    for planned in grid.trials():
        if planned.seed < 4:
            ran(tmp_path, planned.key, 5000.0 if planned.label == "rising" else 100.0)
    found = estimated(tmp_path, grid, prior=prior)
    assert found.trial_s is not None
    assert found.trial_s.median == pytest.approx(5 * 5000 + 5 * 100, rel=0.15)


def test_pools_have_their_own_hours_and_the_slower_one_decides(tmp_path: Path) -> None:
    def pool(trial: Any) -> Pool:
        return Pool(6, 2, 0.5, name="many") if trial.operator == "falling" else Pool(1, gpus=4.0, name="one")

    grid = toy_grid(seeds=range(12), steps=100, device="cuda")
    for planned in grid.trials():
        if planned.seed < 6:
            ran(tmp_path, planned.key, 3600.0, device="cuda")
    found = estimated(tmp_path, grid, prior=by_steps, pool=pool)
    assert found.hours is not None
    assert found.wall_s is not None
    assert (found.workers, found.at_once) == (7, 13)
    assert found.hours.median == pytest.approx(6 * 0.5 + 6 * 4.0, rel=0.1)
    assert found.wall_s.median == pytest.approx(6 * 3600, rel=0.1)


def test_timed_steps_join_the_prior_until_trials_have_finished(tmp_path: Path) -> None:
    def seconds(trial: Spec) -> float:
        return 8.0 * trial.steps  # type: ignore[attr-defined, no-any-return]

    grid = toy_grid(seeds=range(5), steps=100)
    timed = estimated(tmp_path, grid, prior=by_steps, seconds=seconds)
    assert timed.basis == "from a few steps of 2 of 2 operators (without evaluation) and a roofline prior"
    assert timed.trial_s is not None
    assert 2 * 10 * 100 < timed.trial_s.median < 8 * 10 * 100  # some of it may be the load of the moment
    finish(tmp_path, grid, {"falling": 100.0, "rising": 100.0}, seeds=4)
    assert estimated(tmp_path, grid, prior=by_steps, seconds=seconds).basis.startswith("from 8 finished trials")


def small(**changes: Any) -> Grid:
    judged = ShiftGrid(sigma_x=(1.0,), sigma_f=(1.0,), functions=4, sequences=4, points=8)
    base = Trial(
        task=LinearFunctions(points=8, batch=4, evaluation=judged),
        model=gpt2(layers=1, heads=2, width=16),
        operator=softmax(),
        training=Training(steps=1000),
        **changes,
    )
    return Grid(name="small", base=base, axes=[over("operator", [softmax(), ssa()])], seeds=range(3))


def test_the_plan_of_real_trials_has_hours_on_any_gpu_without_having_one(tmp_path: Path) -> None:
    plans = {
        gpu: plan_campaign(tmp_path, [small()], PlanOptions(slurm=Slurm(gpu_type=gpu, per_gpu=2, workers=2)))
        for gpu in ("h200", "v100")
    }
    for plan in plans.values():
        assert plan.estimate.unit == "GPU-h"
        assert plan.estimate.hours is not None
        assert plan.estimate.trial_s is not None
        assert plan.estimate.hours == pytest.approx(plan.estimate.trial_s.times(0.5 / 3600))
    (line,) = [line for line in plan_lines(plans["h200"]) if "to do" in line]
    assert line.startswith("  to do: 6 trials, 0.")
    assert " GPU-h (80 %: 0." in line
    assert line.endswith(" s) on 2 workers with 4 trials at once, from a roofline prior")
    data = plan_data(plans["h200"])["estimate"]
    assert set(data["hours"]) == {"median", "low", "high"}
    assert data["unit"] == "GPU-h"


def test_a_prior_is_asked_once_for_every_cell_whatever_its_seeds(tmp_path: Path) -> None:
    asked: list[str] = []

    def prior(trial: Any, place: Place, gpu: str | None) -> Prior:
        asked.append(trial.operator.label)
        return by_steps(trial, place, gpu)

    estimated(tmp_path, toy_grid(seeds=range(50)), prior=prior)
    assert sorted(asked) == ["falling", "rising"]


def test_a_cluster_gives_each_class_its_own_gpus(tmp_path: Path) -> None:
    """A GPU of its own is four times the hours of one shared by four; without GPUs hours are those of CPUs."""
    needs = (Needs(where={"operator": "SSA"}, per_gpu=1),)
    plain, wide, none = (
        plan_campaign(tmp_path, [small()], PlanOptions(slurm=slurm)).estimate
        for slurm in (Slurm(per_gpu=4), Slurm(per_gpu=4, needs=needs), Slurm(gpus=0, per_gpu=3, workers=1))
    )
    assert plain.hours is not None
    assert plain.trial_s is not None
    assert wide.hours is not None
    assert plain.unit == wide.unit == "GPU-h"
    assert plain.hours == pytest.approx(plain.trial_s.times(0.25 / 3600))
    assert 1.5 * plain.hours.median < wide.hours.median < 4 * plain.hours.median
    assert (none.unit, none.workers, none.at_once) == ("CPU-h", 1, 3)


def test_no_more_workers_than_may_run_at_once_share_the_trials(tmp_path: Path) -> None:
    slurm = Slurm(workers=6, max_parallel=2)
    assert plan_campaign(tmp_path, [small()], PlanOptions(slurm=slurm)).estimate.workers == 2
