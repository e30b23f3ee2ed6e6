"""A run that is stopped and resumed measures what the uninterrupted run measures, bit for bit."""

from collections.abc import Callable
from pathlib import Path

import pytest
from torch.nn import functional as F

from runners.optimisers import AdamW
from runners.optimisers.schedules import WSD
from runners.tasks import Text
from runners.training.loop import train
from runners.trial import Trial
from variants import Operator, Transformer, integral, llama2, principled, softmax, ssa

OPERATORS = [softmax(), ssa(), integral(2), principled("query", gate_width=2)]


@pytest.fixture(params=["linear_functions", "text"])
def trial(request: pytest.FixtureRequest, tiny: Trial, tmp_path: Path) -> Trial:
    training = tiny.training.changed(optimiser=AdamW(lr=1e-2, weight_decay=0.1), schedule=WSD(warmup=3), clip=1.0)
    if request.param == "linear_functions":
        return tiny.changed(training=training)
    (tmp_path / "text.txt").write_text("".join(f"{number} is not {number + 1}. " for number in range(300)))
    task = Text(source=str(tmp_path / "text.txt"), context=11, batch=3, validation_windows=4)
    return tiny.changed(task=task, model=llama2(layers=2, heads=2, width=8, feedforward_width=16), training=training)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.label)
def test_every_operator_resumes_exactly(trial: Trial, memory: Callable, operator: Operator) -> None:
    _resume(trial.changed(operator=operator), memory, [2, 6, 10])


@pytest.mark.parametrize("stops", [[1], [5], [7], [11], [12], list(range(1, 13))], ids=str)
def test_a_run_resumes_exactly_wherever_it_stops(trial: Trial, memory: Callable, stops: list[int]) -> None:
    _resume(trial.changed(operator=ssa()), memory, stops)


def _resume(trial: Trial, memory: Callable, stops: list[int]) -> None:
    whole, parts = memory(), memory(stop_at=stops)
    train(trial, whole)
    for stop in stops:
        finished = train(trial, parts)
        assert (finished.step, finished.stopped) == (stop, True)
        parts.stop_at.remove(stop)
    assert not train(trial, parts).stopped
    assert parts.logged == whole.logged
    assert parts.evaluations == whole.evaluations
    assert parts.probes == whole.probes


@pytest.mark.parametrize("killed_after", [6, 9, 12])
def test_a_killed_run_goes_on_from_its_last_checkpoint(trial: Trial, memory: Callable, killed_after: int) -> None:
    whole, parts = memory(), memory(save_at=[2, 5, 8])
    train(trial, whole)

    class Killed(BaseException):
        pass

    def die(step: int, steps: int, loss: float) -> None:
        parts.step = step
        if step == killed_after:
            raise Killed

    parts.progress = die
    with pytest.raises(Killed):
        train(trial, parts)
    del parts.progress
    finished = train(trial, parts)
    assert finished.step == 12
    assert (parts.logged, parts.evaluations) == (whole.logged, whole.evaluations)


def test_a_checkpoint_is_a_copy_that_training_does_not_touch(trial: Trial, memory: Callable) -> None:
    states = []
    world = memory(save_at=[3, 12])
    world.save = lambda _, state: states.append(state)
    train(trial, world)
    early, late = (state["model"]["norm.weight"] for state in states)
    assert not early.equal(late)


def test_a_stop_at_the_last_step_leaves_its_evaluation_to_the_resumed_run(trial: Trial, memory: Callable) -> None:
    world = memory(stop_at=[12])
    assert train(trial, world).stopped
    assert 12 not in {step for step, *_ in world.evaluations}
    world.stop_at.clear()
    finished = train(trial, world)
    assert not finished.stopped
    assert 12 in {step for step, *_ in world.evaluations}


def test_random_numbers_drawn_inside_the_model_resume_too(
    trial: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Transformer.forward
    monkeypatch.setattr(Transformer, "forward", lambda self, *x: F.dropout(plain(self, *x), 0.5, self.training))
    _resume(trial, memory, [3, 8])
