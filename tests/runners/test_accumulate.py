"""A batch in micro-batches: the loss, the gradient and the running means of the whole."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from batch_in_parts import GENTLE, OPERATORS, ROUNDINGS, apart, dropping, numbers, split
from double_precision import in_double
from pydantic import ValidationError
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.runners.attempts.micro_batches import split as halved, written_micro_batches
from ablate.training.loop.train import train
from ablate.training.optimisers import AdamW, Training
from ablate.training.tasks import MaskedText
from ablate.training.tasks.task import UNSCORED
from ablate.training.trial import Execution, Trial
from ablate.variants import Operator, babyberta
from ablate.variants.model.parameters import NumberParameters


@pytest.mark.parametrize("operator", OPERATORS[1:], ids=lambda operator: operator.label)
def test_micro_batches_train_as_the_whole_batch_does(
    tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch, operator: Operator
) -> None:
    in_double(monkeypatch)
    trial, whole = tiny.changed(operator=operator, training=GENTLE), memory()
    train(trial, whole)
    for accumulate in (3, 8):
        world = memory()
        train(split(trial, accumulate), world)
        assert apart(numbers(whole), numbers(world)) < ROUNDINGS * torch.finfo(torch.float64).eps


def test_running_means_move_by_what_parts_see(tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout as well: a part draws the same where its means are taken and where it is trained on."""
    used: list[tuple[Tensor, Tensor]] = []
    original = NumberParameters.values

    def remember(layer: NumberParameters, query: Tensor, x: Tensor, present: Tensor | None) -> dict[str, Tensor]:
        found = original(layer, query, x, present)
        if layer.training and query.requires_grad and layer.layer == 2:
            used.append((found["rescale.scale"].detach().mean((0, 2)), found["rescale.mean"].flatten()))
        return found

    monkeypatch.setattr(NumberParameters, "values", remember)
    fast = Training(steps=20, optimiser=AdamW(lr=0.05))  # the scales must come to differ from token to token
    train(split(dropping(tiny.changed(training=fast), OPERATORS[2]), 4), memory())
    steps = [used[first : first + 4] for first in range(0, len(used), 4)]
    assert len(steps) == fast.steps
    before = torch.zeros(2)
    for parts in steps:
        assert all(torch.equal(mean, parts[0][1]) for _, mean in parts)
        average = torch.stack([scale.flatten() for scale, _ in parts]).mean(0)
        torch.testing.assert_close(parts[0][1], 0.9 * before + 0.1 * average, rtol=1e-6, atol=0)
        before = parts[0][1]


@pytest.mark.parametrize("operator", [OPERATORS[0], OPERATORS[2]], ids=lambda operator: operator.label)
def test_micro_batches_resume_exactly_with_dropout(tiny: Trial, memory: Callable, operator: Operator) -> None:
    trial, whole, parts = split(dropping(tiny, operator), 3), memory(), memory(stop_at=[4, 7])
    train(trial, whole)
    for stop in (4, 7):
        assert train(trial, parts).step == stop
        parts.stop_at.remove(stop)
    train(trial, parts)
    assert numbers(parts) == numbers(whole)


def test_a_part_counts_by_what_is_asked_in_it(
    tiny: Trial, memory: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences hide unlike numbers of tokens. A size gives the same parts as a number; each draws other numbers."""
    (tmp_path / "text.txt").write_text("".join(f"{'word ' * (n % 7)}{n}\n" for n in range(200)))
    task = MaskedText(source=str(tmp_path / "text.txt"), context=40, batch=8, validation_sentences=20)
    assert len({int(part.targets.ne(UNSCORED).sum()) for part in task.open().batch(3, 1).split(8)}) > 2
    model = babyberta(layers=1, heads=2, width=8, feedforward_width=16, max_positions=48)
    model = model.changed(dropout=0.0, attention_dropout=0.0)
    trial, whole = tiny.changed(task=task, model=model, training=GENTLE), memory()
    train(trial, whole)
    worlds = []
    for accumulate in (2, 8):
        worlds.append(memory())
        train(split(trial, accumulate), worlds[-1])
        assert apart(numbers(whole), numbers(worlds[-1])) < ROUNDINGS * torch.finfo(torch.float32).eps
    seeds, size = list[int](), memory()
    monkeypatch.setattr("ablate.training.loop.train._seed", lambda seed, _: seeds.append(seed))
    train(trial.changed(execution=Execution(micro_batch=4)), size)
    assert numbers(size) == numbers(worlds[0])
    assert len(set(seeds)) == len(seeds) > 2 * GENTLE.steps


@pytest.mark.parametrize(("most", "gpus", "accumulate"), [(8, 1, 1), (100, 1, 1), (3, 1, 3), (1, 2, 4), (3, 2, 2)])
def test_a_micro_batch_has_so_many_sequences_at_most(tiny: Trial, most: int, gpus: int, accumulate: int) -> None:
    trial = tiny.changed(execution=Execution(micro_batch=most, gpus=gpus))
    assert (trial.accumulate, trial.parts, trial.key) == (accumulate, accumulate * gpus, tiny.key)
    sizes = [len(part.inputs) for part in trial.task.open().batch(0, 1).split(trial.parts)]
    assert max(sizes) <= most
    assert accumulate == 1 or trial.task.batch > most * gpus * (accumulate - 1)
    sized = tiny.changed(execution=Execution(micro_batch=4))
    assert [sized.changed(task=tiny.task.changed(batch=batch)).accumulate for batch in (4, 5, 64)] == [1, 2, 16]


def test_a_batch_that_is_split_twice_or_not_into_sequences_is_refused(tiny: Trial) -> None:
    with pytest.raises(ValidationError, match=r"accumulate=4 and micro_batch=2 .* leave one out"):
        Execution(accumulate=4, micro_batch=2)
    words = r"execution.micro_batch=1 on execution.gpus=3 makes 9 of a task.batch of 8, .*; raise it, or lower"
    with pytest.raises(SpecError, match=words):
        tiny.changed(execution=Execution(micro_batch=1, gpus=3))
    assert split(tiny, 2, gpus=4).parts == 8
    with pytest.raises(SpecError, match=r"accumulate=3 on execution.gpus=3 makes 9 of a task.batch of 8"):
        split(tiny, 3, gpus=3)


def test_after_want_of_memory_a_size_becomes_twice_the_number_that_it_made(tiny: Trial) -> None:
    spec = tiny.changed(execution=Execution(micro_batch=3)).data()
    assert written_micro_batches(spec) == 3
    smaller = Trial.model_validate(halved(spec, 6))
    assert (smaller.accumulate, smaller.execution.micro_batch, smaller.key) == (6, None, tiny.key)
