"""A plan says what a run would do, and does nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_campaign import run_quietly, toy_grid
from toy_training import Falling, ToyTrial, train

from grid import Grid, Spec, forbid, over
from grid.errors import SpecError
from runners import BytePairs, Text, Training, Trial
from runners.cli.plan import PlanOptions, RunPlan, plan_campaign, plan_lines
from runners.planning.step_timing import MEASURED_STEPS, measure_seconds
from runners.training.loop import train as train_trial
from runners.training.training_context import TrainingContext, TrainingResult
from runners.trial import parameters
from variants import gpt2, softmax, ssa


def files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file())


def counts(plan: RunPlan) -> tuple[int, ...]:
    return (plan.ok, plan.failed, plan.running, plan.pending, plan.to_do)


def test_a_plan_knows_what_is_done_and_what_failed(tmp_path: Path) -> None:
    run_quietly(tmp_path, toy_grid(seeds=[0], fates=["ok", "raises"]))
    before = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    grid = toy_grid(fates=["ok", "raises"])
    plan = plan_campaign(tmp_path, [grid])
    assert counts(plan) == (2, 2, 0, 8, 8)
    said = "\n".join(plan_lines(plan))
    assert "2 done, 2 failed before, 8 pending" in said
    assert "--retry" in said
    assert counts(plan_campaign(tmp_path, [grid], PlanOptions(retry=True))) == (2, 2, 0, 8, 10)
    assert {path: path.stat().st_mtime_ns for path in files(tmp_path)} == before


def test_a_plan_counts_what_rules_left_out_and_shared_trials_once(tmp_path: Path) -> None:
    whole = toy_grid("whole")
    rule = forbid(lambda trial: trial.operator.kind == "rising", reason="rising numbers are forbidden")
    part = type(whole)(name="part", base=whole.base, axes=whole.axes, rules=[rule], seeds=whole.seeds)
    plan = plan_campaign(tmp_path, [whole, part])
    assert [(grid.name, grid.cells, grid.trials) for grid in plan.grids] == [("whole", 2, 6), ("part", 1, 3)]
    assert plan.grids[1].pruned == (("rising numbers are forbidden", 1),)
    assert len(plan.trials) == plan.to_do == 6


def test_a_plan_writes_nothing_and_without_anything_to_go_by_the_time_is_unknown(tmp_path: Path) -> None:
    plan = plan_campaign(tmp_path / "campaign", [toy_grid()])
    assert counts(plan) == (0, 0, 0, 6, 6)
    assert list(tmp_path.iterdir()) == []
    assert plan.estimate.trial_s is plan.estimate.hours is plan.estimate.wall_s is None
    assert plan.estimate.basis.startswith("unknown")
    assert any("--calibrate" in line for line in plan_lines(plan))
    with pytest.raises(SpecError, match="'toy' is given twice"):
        plan_campaign(tmp_path, [toy_grid(), toy_grid()])


def test_each_operator_is_measured_and_counted_once_and_shared_by_the_workers(tmp_path: Path) -> None:
    measured: list[str] = []

    def seconds(trial: Spec) -> float:
        assert isinstance(trial, ToyTrial)
        measured.append(trial.operator.label)
        return 10.0 if trial.operator.label == "falling" else 30.0

    def count(trial: Spec) -> tuple[int, int]:
        assert isinstance(trial, ToyTrial)
        return (100, 1 if trial.operator.label == "falling" else 2)

    plan = plan_campaign(tmp_path, [toy_grid()], PlanOptions(workers=2, seconds=seconds, parameters=count))
    assert plan.estimate.trial_s == 3 * 10 + 3 * 30
    assert plan.estimate.wall_s == 30 + 30
    assert "measured steps of 2 models" in plan.estimate.basis
    assert sorted(measured) == ["falling", "rising"]
    rows = {each.operator: (each.trials, each.parameters, each.operator_parameters) for each in plan.operators}
    assert rows == {"falling": (3, 100, 1), "rising": (3, 100, 2)}


def test_finished_trials_are_used_before_measured_steps(tmp_path: Path) -> None:
    grid = toy_grid(step_s=0.002)
    run_quietly(tmp_path, toy_grid(seeds=[0], step_s=0.002))
    estimate = plan_campaign(tmp_path, [grid], PlanOptions(seconds=lambda _: 1e9)).estimate
    assert (estimate.basis, estimate.finished) == ("from 2 finished trials", 2)
    assert estimate.trial_s is not None
    assert 4 * 20 * 0.002 <= estimate.trial_s < 1e6
    run_quietly(tmp_path, grid)
    done = plan_campaign(tmp_path, [grid]).estimate
    assert done.trial_s == done.wall_s == 0.0


def test_measuring_stops_after_a_few_steps_and_scales_to_all() -> None:
    steps: list[int] = []

    def slow(trial: Spec, context: TrainingContext) -> TrainingResult:
        assert isinstance(trial, ToyTrial)
        result = train(trial.changed(execution=trial.execution.changed(step_s=0.001)), context)
        steps.append(result.step)
        return result

    found = measure_seconds(ToyTrial(steps=100_000, fate_at=200_000), slow)
    assert found is not None
    assert found >= 100_000 * 0.001
    assert steps == [1 + MEASURED_STEPS]
    assert measure_seconds(ToyTrial(steps=1), train) is None  # too few


def test_a_plan_says_which_operator_could_not_be_timed_and_why(tmp_path: Path) -> None:
    def seconds(trial: Spec) -> float | None:
        assert isinstance(trial, ToyTrial)
        if trial.seed:
            raise RuntimeError("shapes differ\n  [3]\n  [4]")
        if trial.operator.label == "falling":
            return measure_seconds(trial.changed(fate="raises", fate_at=1), train)
        return 5.0

    plan = plan_campaign(tmp_path, [toy_grid(seeds=[0])], PlanOptions(seconds=seconds))
    assert plan.estimate.problems == ("falling: ValueError: seed 0 met its fate",)
    assert (plan.estimate.trial_s, plan.estimate.unknown) == (5.0, 1)
    assert "1 trial of unknown duration" in plan.estimate.basis
    assert "  could not be measured: falling: ValueError: seed 0 met its fate" in plan_lines(plan)
    plan = plan_campaign(tmp_path, [toy_grid(seeds=[1])], PlanOptions(seconds=seconds))
    assert plan.estimate.problems == ("falling: RuntimeError: shapes differ", "rising: RuntimeError: shapes differ")


def text_trial(tmp_path: Path, vocabulary: int) -> Trial:
    (tmp_path / "a.txt").write_text("aab " * 400)
    task = Text(source=str(tmp_path / "a.txt"), context=16, tokenizer=BytePairs(vocabulary=vocabulary))
    return Trial(task=task, model=gpt2(layers=1, heads=2, width=16), operator=softmax(), training=Training(steps=9))


def test_what_is_refused_when_it_is_tried_is_an_error_and_no_trouble_with_timing(tmp_path: Path) -> None:
    grid = Grid(name="few", base=text_trial(tmp_path, 5000), axes=[], seeds=[0])
    options = PlanOptions(seconds=lambda trial: measure_seconds(trial, train_trial))  # type: ignore[arg-type]
    plan = plan_campaign(tmp_path / "campaign", [grid], options)
    assert plan.estimate.problems == ()
    (message,) = plan.refused
    assert plan.estimate.refused == (message,)
    assert "of 5000 tokens" in message
    assert f"  error: trials fail before their first step: {message}" in plan_lines(plan)


def test_models_of_other_sizes_are_counted_each_for_itself(tmp_path: Path) -> None:
    """Tokens of a vocabulary are rows of two tables, steps are nothing of a model."""
    base = text_trial(tmp_path, 258)
    axes = [
        over("task.tokenizer.vocabulary", [259, 258]),
        over("operator", [softmax(), ssa()]),
        over("training.steps", [8, 9]),
    ]
    grid = Grid(name="sizes", base=base, axes=axes, seeds=[0])
    rows = plan_campaign(tmp_path / "campaign", [grid], PlanOptions(parameters=parameters)).operators
    assert {each.trials for each in rows} == {2}
    for operator, own in (("softmax", 0), ("SSA", 4)):
        few, many = (each for each in rows if each.operator == operator)
        assert few.operator_parameters == many.operator_parameters == own
        assert few.parameters is not None
        assert many.parameters == few.parameters + (16 if base.model.tied else 32)


def twins() -> Grid:
    """Two operators that differ and share a label."""
    operators = [Falling(), Falling(rate=0.5)]
    return Grid(name="twins", base=ToyTrial(), axes=[over("operator", operators, labels=["fast", "slow"])], seeds=[0])


def test_two_operators_of_one_label_are_two_rows_with_parameters_and_times_of_their_own(tmp_path: Path) -> None:
    def rate(trial: Spec) -> float:
        return float(trial.operator.rate)  # type: ignore[attr-defined]

    grid = twins()
    plan = plan_campaign(
        tmp_path, [grid], PlanOptions(parameters=lambda trial: (int(10 * rate(trial)), 0), seconds=rate)
    )
    rows = sorted((each.operator, each.trials, each.parameters) for each in plan.operators)
    assert rows == [("fast", 1, 9), ("slow", 1, 5)]  # the labels of their cells
    assert plan.estimate.trial_s == pytest.approx(0.9 + 0.5)
    wide = Grid(name="wide", base=grid.base, axes=[*grid.axes, over("steps", [20, 30])], seeds=[0])
    names = {each.key: each.operator for each in plan_campaign(tmp_path, [wide]).operators}
    assert names == {key: f"falling [{key[:6]}]" for key in names}
    assert len(names) == 2
