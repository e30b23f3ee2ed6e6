"""The training loop: it learns, says what it does, is paired across operators, and resumes exactly."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from ablate.grid import Grid, over
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.execution import Inline
from ablate.runners.execution.run import run_campaign
from ablate.runners.processes.process_group import RankPlace, World
from ablate.runners.processes.step_values import STEPS_BEHIND, StepValues
from ablate.runners.processes.training_context import Diverged, NullContext
from ablate.store.files.layout import Layout
from ablate.store.store import Store
from ablate.training.evaluations import MinimalPairs
from ablate.training.loop import train as loop
from ablate.training.loop.model_predict import ModelPredict
from ablate.training.loop.train import train, train_as
from ablate.training.optimisers import AdamW, Muon, Training, UncorrectedAdamW
from ablate.training.optimisers.optimiser import Optimiser
from ablate.training.optimisers.schedules import WSD, Cosine
from ablate.training.tasks import Batch, LinearFunctions, Text
from ablate.training.tasks.counter_rng import CPU
from ablate.training.tasks.synthetic.linear_functions import LinearFunctionsData
from ablate.training.trial import Execution, Trial, build_model
from ablate.variants import Operator, Rotary, integral, llama2, principled, softmax, ssa

OPERATORS = [softmax(), ssa(), integral(2), principled("query", gate_width=2)]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.label)
def test_every_operator_learns(tiny: Trial, memory: Callable, tmp_path: Path, operator: Operator) -> None:
    (tmp_path / "dull.txt").write_text("dull as ditchwater, " * 60)
    task = Text(source=str(tmp_path / "dull.txt"), context=8, batch=8, validation_windows=5)
    training = Training(steps=30, optimiser=AdamW(lr=2e-2), schedule=Cosine(warmup=5), clip=1.0)
    world = memory()
    train(tiny.changed(operator=operator, training=training, task=task), world)
    losses = world.losses()
    assert losses[0] == pytest.approx(math.log(256), rel=0.02)
    assert losses[-1] < 3


def test_the_attempt_records_the_path_of_its_sequences(tiny: Trial, memory: Callable) -> None:
    """A point is two tokens."""
    for points, path in ((5, "reference"), (33, "cpu")):
        world = memory()
        evaluation = tiny.task.evaluation.changed(points=points)
        task = tiny.task.changed(points=points, evaluation=evaluation)
        model = tiny.model.changed(positions=Rotary())
        train(tiny.changed(task=task, model=model, operator=ssa(), training=Training(steps=1)), world)
        assert world.began == ("cpu", path, None)


def test_every_step_is_logged_and_evaluations_are_where_they_are_due(tiny: Trial, memory: Callable) -> None:
    world = memory()
    finished = train(tiny, world)
    assert sorted(world.logged) == list(range(1, 13))
    assert set(world.logged[1]) == {"loss", "grad_norm", "learning_rate"}
    assert {(step, name) for step, name, *_ in world.evaluations} == {
        (step, name) for step in (5, 10, 12) for name in tiny.task.measures()
    }
    assert (finished.step, finished.stopped) == (12, False)
    assert world.began == ("cpu", "sdpa", None)
    assert finished.train_s > 0
    assert finished.evaluate_s > 0
    assert finished.parameters == sum(p.numel() for p in build_model(tiny).parameters())


def test_a_run_leaves_the_callers_random_numbers_and_threads_alone(tiny: Trial, memory: Callable) -> None:
    expected = torch.manual_seed(5).get_state()
    threads = torch.get_num_threads()
    train(tiny.changed(execution=Execution(threads=threads + 1), training=Training(steps=1)), memory())
    assert torch.equal(torch.get_rng_state(), expected)
    assert torch.get_num_threads() == threads


def test_all_operators_get_the_same_batches(tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Tensor]] = []
    original = LinearFunctionsData.batch

    def remember(data: LinearFunctionsData, seed: int, step: int, device: torch.device) -> Batch:
        batch = original(data, seed, step, device)
        seen[-1].append(batch.inputs)
        return batch

    monkeypatch.setattr(LinearFunctionsData, "batch", remember)
    for operator in OPERATORS:
        seen.append([])
        train(tiny.changed(operator=operator, training=Training(steps=3)), memory())
    assert len(seen[0]) == 3
    assert all(torch.equal(a, b) for other in seen[1:] for a, b in zip(seen[0], other, strict=True))


def test_the_flat_step_is_the_step_of_pytorchs_own_optimiser(tiny: Trial, memory: Callable) -> None:
    """Three steps of AdamW with decay and clipping, tensor by tensor, on the same batches."""
    optimiser = AdamW(lr=1e-2, weight_decay=0.1)
    trial = tiny.changed(operator=ssa(), training=Training(steps=3, optimiser=optimiser, clip=0.5))
    world = memory()
    train(trial, world)
    model, data = build_model(trial), trial.task.open()
    numbers = {id(p) for p in model.number_parameters()}
    decayed = [p for p in model.parameters() if p.ndim > 1 and id(p) not in numbers]
    others = [p for p in model.parameters() if p.ndim == 1 or id(p) in numbers]
    plain = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0}], lr=1e-2, weight_decay=0.1)
    for step in (1, 2, 3):
        batch = data.batch(trial.seed, step)
        loss = data.loss(model(batch.inputs), batch.targets)
        plain.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        plain.step()
        assert world.logged[step]["loss"] == pytest.approx(loss.item(), rel=1e-4)
        assert world.logged[step]["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)


class Spoiled(LinearFunctions):
    """One number that the model reads is `value`, or all targets of step 4 are."""

    kind: Literal["spoiled"] = "spoiled"
    part: Literal["inputs", "targets"]
    value: Literal["nan", "inf", "-inf", "1e9"]

    def open(self) -> LinearFunctionsData:
        data = super().open()
        data.batch = self._batch
        return data

    def _batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        batch = LinearFunctionsData(self).batch(seed, step, device)
        if self.part == "inputs":
            batch.inputs[2, 3] = float(self.value)
        elif step == 4:
            batch.targets.fill_(float(self.value))
        return batch


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_numbers_that_are_none_are_refused_before_training(tiny: Trial, memory: Callable, value: str) -> None:
    world = memory(save_at=[1])
    with pytest.raises(SpecError, match=f"first batch has {value} in sequence 2 at position 3"):
        train(tiny.changed(task={**tiny.task.data(), "kind": "spoiled", "part": "inputs", "value": value}), world)
    assert (world.logged, world.checkpoints, world.evaluations) == ({}, [], {})


@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("value", ["1e9", "nan", "inf"])
def test_a_loss_beyond_all_bounds_ends_the_trial_and_is_logged(
    tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch, value: str, behind: int
) -> None:
    monkeypatch.setitem(STEPS_BEHIND, "cpu", behind)
    world, task = memory(save_at=[4]), {**tiny.task.data(), "kind": "spoiled", "part": "targets", "value": value}
    with pytest.raises(Diverged) as caught:
        train(tiny.changed(task=task, execution=Execution(log_every=100)), world)
    assert caught.value.step == 4
    assert not world.logged[4]["loss"] <= 1000
    assert (world.checkpoints, world.evaluations) == ([], {})


def test_parameters_that_are_ruined_diverge(tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of a step is taken before its update, so only the parameters show what the last one did."""
    with pytest.raises(Diverged) as caught:
        train(tiny.changed(training=Training(steps=1, optimiser=AdamW(lr=1e38, weight_decay=1.0))), memory())
    assert caught.value.step == 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EnvironmentProblem, match="no CUDA device; use 'auto' or 'cpu'"):
        train(tiny.changed(execution=Execution(device="cuda")), memory())


def test_a_gpu_without_bfloat16_is_an_environment_problem(tiny: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **how: asked.append(how))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    trial = tiny.changed(training=Training(steps=1, precision="bfloat16"))
    world = World(RankPlace(), torch.device("cuda"))
    with pytest.raises(EnvironmentProblem, match=r"Tesla T4 .* precision='bfloat16'; use"):
        train_as(world, trial, NullContext())
    assert asked == [{"including_emulation": False}]  # emulation is slower than float32


@pytest.mark.parametrize(("path", "device"), [("triton", "cpu"), ("cpu", "cuda")])
def test_a_path_that_does_not_compute_on_the_device_is_refused(path: Any, device: Any) -> None:
    with pytest.raises(ValidationError, match=f"device='{device}' is not for path='{path}'"):
        Execution(path=path, device=device)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.label)
def test_bfloat16_trains_close_to_float32(tiny: Trial, memory: Callable, operator: Operator) -> None:
    exact, lower = memory(), memory(save_at=[6])
    train(tiny.changed(operator=operator, training=Training(steps=6)), exact)
    train(tiny.changed(operator=operator, training=Training(steps=6, precision="bfloat16")), lower)
    assert lower.losses() != exact.losses()
    assert lower.losses() == pytest.approx(exact.losses(), rel=0.02)
    _, state = lower.restore()
    assert {weights.dtype for weights in state["model"].values()} == {torch.float32}


def test_long_evaluations_end(tiny: Trial, memory: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each life may ask four times whether to stop: for two steps and a few forward passes."""
    (tmp_path / "text.txt").write_text("a question and an answer. " * 100)
    (tmp_path / "pairs.txt").write_text("".join(f"{'q' * n} a\n{'q' * n} bb\n" for n in range(1, 9)))
    trial = tiny.changed(
        task=Text(source=str(tmp_path / "text.txt"), context=8, batch=2, validation_windows=3),
        evaluations=(MinimalPairs(source=str(tmp_path / "pairs.txt"), scoring="causal", longest=12),),
        training=Training(steps=2),
    )
    passes: list[int] = []
    plain = ModelPredict.__call__
    monkeypatch.setattr(ModelPredict, "__call__", lambda *given: passes.append(1) or plain(*given))
    whole = memory()
    train(trial, whole)
    needed, lives = len(passes), 0
    passes.clear()
    checkpoints: list[tuple[int, bytes]] = []
    stopped = True
    while stopped:
        questions = iter([False] * 4)
        world = memory()
        world.checkpoints = checkpoints
        world.stop_requested = lambda questions=questions: next(questions, True)
        stopped = train(trial, world).stopped
        lives += 1
        assert not stopped or not world.evaluations
    assert lives > 2
    assert len(passes) == needed
    assert (world.evaluations, world.single, world.probes) == (whole.evaluations, whole.single, whole.probes)


@pytest.fixture(params=["linear_functions", "text"])
def trial(request: pytest.FixtureRequest, tiny: Trial, tmp_path: Path) -> Trial:
    training = tiny.training.changed(optimiser=AdamW(lr=1e-2, weight_decay=0.1), schedule=WSD(warmup=3), clip=1.0)
    if request.param == "linear_functions":
        return tiny.changed(training=training)
    (tmp_path / "text.txt").write_text("".join(f"{number} is not {number + 1}. " for number in range(300)))
    task = Text(source=str(tmp_path / "text.txt"), context=11, batch=3, validation_windows=4)
    return tiny.changed(task=task, model=llama2(layers=2, heads=2, width=8, feedforward_width=16), training=training)


RESUMED = {
    "softmax": (softmax(), AdamW(lr=1e-2, weight_decay=0.1), [1]),
    "ssa": (ssa(), UncorrectedAdamW(weight_decay=0.1), [2, 6, 10]),
    "integral": (integral(2), AdamW(lr=1e-2), list(range(1, 13))),
    "principled": (principled("query", gate_width=2), Muon(lr=1e-2, rest_lr=1e-3, precision="bfloat16"), [1, 7]),
}


@pytest.mark.parametrize(("operator", "optimiser", "stops"), RESUMED.values(), ids=RESUMED)
def test_every_operator_resumes_exactly_with_any_optimiser(
    trial: Trial, memory: Callable, operator: Operator, optimiser: Optimiser, stops: list[int]
) -> None:
    trial = trial.changed(operator=operator, training=trial.training.changed(optimiser=optimiser))
    whole, parts = memory(), memory(stop_at=stops)
    train(trial, whole)
    for stop in stops:
        finished = train(trial, parts)
        assert (finished.step, finished.stopped) == (stop, True)
        assert stop not in {step for step, *_ in parts.evaluations}
        parts.stop_at.remove(stop)
    assert not train(trial, parts).stopped
    assert (parts.logged, parts.evaluations, parts.probes) == (whole.logged, whole.evaluations, whole.probes)


def test_losses_that_are_read_a_step_later_are_the_same(
    trial: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU computes the next step meanwhile. Evaluations and checkpoints follow all losses of their step."""
    at_once, late, parts = memory(), memory(), memory(stop_at=[2, 6], save_at=[4, 9])
    train(trial, at_once)
    monkeypatch.setitem(STEPS_BEHIND, "cpu", 1)
    train(trial, late)
    while train(trial, parts).stopped:
        assert parts.checkpoints[-1][0] == parts.step == max(parts.logged)
        parts.stop_at -= {parts.step, parts.step - 1}
    for each in (late, parts):
        assert (each.logged, each.evaluations, each.probes) == (at_once.logged, at_once.evaluations, at_once.probes)


@pytest.mark.parametrize("behind", [0, 1])
def test_the_time_of_every_step_is_time_of_training(
    trial: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    """Also if an evaluation or a checkpoint waits for the step. On this clock only waits take time."""
    now, wait = [0.0], StepValues.wait

    def wait_long(values: StepValues) -> list[float]:
        now[0] += 1
        return wait(values)

    monkeypatch.setattr(StepValues, "wait", wait_long)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setitem(STEPS_BEHIND, "cpu", behind)
    ended = train(trial, memory(save_at=[4, 9]))
    assert (ended.train_s, ended.evaluate_s, ended.probe_s) == (12, 0, 0)


@pytest.mark.parametrize("killed_after", [6, 12])
def test_a_killed_run_goes_on_from_its_last_checkpoint(trial: Trial, memory: Callable, killed_after: int) -> None:
    whole, parts = memory(), memory(save_at=[2, 5, 8])
    train(trial, whole)

    def die(step: int, steps: int, loss: float) -> None:
        parts.step = step
        if step == killed_after:
            raise KeyboardInterrupt

    parts.progress = die
    with pytest.raises(KeyboardInterrupt):
        train(trial, parts)
    del parts.progress
    assert train(trial, parts).step == 12
    assert (parts.logged, parts.evaluations) == (whole.logged, whole.evaluations)


def test_a_trial_that_diverges_ends_there(tiny: Trial, tmp_path: Path) -> None:
    """The step in the record is the one whose loss is out of bounds, which is the last that was logged."""
    grid = Grid(name="rates", base=tiny, axes=[over("training.optimiser.lr", [1e-3, 1e4])], seeds=[0])
    result = run_campaign(tmp_path, [grid], Inline(), RunRequest(progress=False))
    assert (result.done, result.failed) == (1, 1)
    (wild,) = (planned.key for planned in grid.trials() if planned.axes["lr"] == 1e4)
    end = json.loads(Layout(tmp_path).end(wild, 1).read_bytes())
    assert (end["status"], end["reason"]) == ("failed", "diverged")
    assert 1 < end["step"] < tiny.training.steps
    with Store.open(tmp_path, refresh=False) as store:
        rows = store.sql(f"select step, value from metric where trial = '{wild}' and name = 'loss' order by step")
    *losses, (last, loss) = rows.rows()
    bound = 1000 * tiny.task.open().constant_loss
    assert last == end["step"] == 1 + len(losses)
    assert not loss <= bound
    assert all(value <= bound for _, value in losses)
    assert f"at step {last}" in end["message"]
    assert math.isnan(loss) or f"{loss}" in end["message"]
