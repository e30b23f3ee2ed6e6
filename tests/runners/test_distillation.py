"""Distillation: its loss against closed forms and limits, and students that come to predict what their teacher does."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from batch_in_parts import GENTLE, ROUNDINGS, apart, numbers, split
from scipy.special import rel_entr, softmax as exact_softmax
from teachers import learning_trial, prose, teacher, teaching_trial, write_finished
from torch import Tensor
from torch.nn import functional as F

from ablate.grid.errors import SpecError
from ablate.training.loop.flops import Shape, count_flops
from ablate.training.loop.train import train
from ablate.training.optimisers import Training
from ablate.training.tasks import AskedLengths, AssociativeRecall, Batch, Data, Distillation, LinearFunctions
from ablate.training.tasks.distillation.distillation import divergence
from ablate.training.tasks.distillation.teacher import Teaching
from ablate.training.trial import METRICS, build_model
from ablate.variants import Tokens, gpt2


def draw(*shape: int, spread: float = 3.0, seed: int = 0) -> Tensor:
    return spread * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Distillation:
    """A text and an untrained teacher of two layers."""
    folder = tmp_path_factory.mktemp("taught")
    task = prose(folder)
    trial = teaching_trial(task)
    write_finished(folder / "campaign", trial)
    return Distillation(task=task, teacher=teacher(folder / "campaign", trial))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_divergence_and_the_entropy_are_those_of_the_definition(temperature: float) -> None:
    student, target = draw(2, 3, 7), draw(2, 3, 7, seed=1)
    q, p = (exact_softmax(each.double().numpy() / temperature, -1) for each in (student, target))
    kl, entropy = divergence(student, target, temperature)
    assert kl.numpy() == pytest.approx(rel_entr(p, q).sum(-1), rel=1e-5)
    assert entropy.numpy() == pytest.approx(-rel_entr(p, 1.0).sum(-1), rel=1e-5)


def losses(task: Distillation, outputs: Tensor) -> tuple[Data, Batch, list[float]]:
    data = task.open()
    part = data.complete_batch(data.batch(1, 1))
    return data, part, [float(each) for each in data.losses(outputs, part.targets)]


def test_the_loss_weighs_the_divergence_and_the_loss_of_the_task_itself(taught: Distillation) -> None:
    outputs = draw(6, 8, 256)
    both = taught.changed(temperature=2.0, cross_entropy_weight=0.25)
    data, part, (loss, kl, soft, own) = losses(both, outputs)
    labels = taught.task.open().batch(1, 1).targets
    assert own == pytest.approx(float(F.cross_entropy(outputs.flatten(0, 1), labels.flatten())), rel=1e-6)
    logits = part.targets[..., :-1]
    p, log_q = (logits / 2).softmax(-1), (outputs / 2).log_softmax(-1)
    assert soft == pytest.approx(float(-(p * log_q).sum(-1).mean()), rel=1e-5)
    assert soft - kl == pytest.approx(float(-(p * p.log()).sum(-1).mean()), rel=1e-5)
    assert loss == pytest.approx(4 * kl + 0.25 * own, rel=1e-6)
    assert data.logged == ("kl", "soft_cross_entropy", "cross_entropy")
    alone = losses(taught, outputs)
    assert len(alone[2]) == 3
    assert alone[0].logged == ("kl", "soft_cross_entropy")
    assert alone[2][0] == alone[2][1]
    assert float(data.loss(outputs, part.targets)) == loss
    for temperature in (0.1, 1.0, 5.0):
        data, _, (loss, *_) = losses(taught.changed(temperature=temperature), torch.zeros(6, 8, 256))
        assert 0 < loss <= data.constant_loss == pytest.approx(temperature**2 * math.log(256))


def test_targets_are_the_teachers_logits_and_the_tokens_and_no_teacher_drops(tmp_path: Path) -> None:
    task = prose(tmp_path).changed(packing="documents")
    trial = teaching_trial(task, model=gpt2(layers=2, heads=2, width=8, max_positions=12).changed(dropout=0.5))
    model = build_model(trial).eval()
    spread = {name: each + 0.3 * draw(*each.shape, spread=1.0) for name, each in model.state_dict().items()}
    model.load_state_dict(spread)
    write_finished(tmp_path / "campaign", trial, weights=spread)
    data = Distillation(task=task, teacher=teacher(tmp_path / "campaign", trial)).open()
    batch, plain = data.batch(3, 5), task.open().batch(3, 5)
    assert torch.equal(batch.targets, plain.targets)
    part = data.complete_batch(batch)
    assert part.targets.shape == (6, 8, 257)
    with torch.no_grad():
        assert torch.equal(part.targets[..., :-1], model(plain.inputs, plain.visible))
    assert torch.equal(part.targets[..., -1].long(), plain.targets)
    with torch.inference_mode():
        found = {row.name: row.value for row in data.evaluate(model)}
        blind = {row.name: row.value for row in data.evaluate(lambda inputs, _=None: model(inputs))}
    assert abs(found["validation_kl"]) < 1e-6
    assert found["teacher.validation_loss"] == pytest.approx(found["validation_loss"], rel=1e-5)
    assert blind["validation_kl"] > 1e-4


def test_validation_compares_at_temperature_one_on_the_windows_of_the_task(taught: Distillation) -> None:
    data = taught.changed(temperature=3.0, validation_sequences=7).open()
    outputs = draw(9, 8, 256)
    windows = taught.task.open().examples(9)

    def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        rows = [int((windows.inputs == row).all(1).nonzero()[0]) for row in inputs]
        return outputs[rows]

    found = {row.name: row for row in data.evaluate(predict)}
    logits = data.complete_batch(windows).targets[..., :-1]
    p, q = (exact_softmax(each.double().numpy(), -1)[:7] for each in (logits, outputs))
    assert found["validation_kl"].value == pytest.approx(rel_entr(p, q).sum(-1).mean(), rel=1e-5)
    soft = -(p * torch.tensor(q).log().numpy()).sum(-1).mean(-1)
    assert found["validation_soft_cross_entropy"].value == pytest.approx(soft.mean(), rel=1e-5)
    assert found["validation_soft_cross_entropy"].se_items == pytest.approx(soft.std(ddof=1) / math.sqrt(7), rel=1e-4)
    assert found["validation_kl"].items == 7


def test_what_is_recorded_is_what_is_declared_and_the_teacher_is_judged_once(
    taught: Distillation, memory: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    original = Teaching.predict
    monkeypatch.setattr(Teaching, "predict", lambda *given: asked.append(1) or original(*given))
    for number, task in enumerate((taught, taught.changed(cross_entropy_weight=1.0)), start=1):
        world = memory()
        train(learning_trial(task, training=Training(steps=3, evaluate_every=1)), world)
        beside = {"cross_entropy"} if task.cross_entropy_weight else set()
        assert set(world.logged[1]) - {*METRICS} == {"kl", "soft_cross_entropy"} | beside
        assert {name for _, name, *_ in world.evaluations} == set(task.measures())
        assert world.began[2]["teacher"]["content_hash"] == task.teacher.content_hash
        assert len(asked) == number


def test_micro_batches_learn_as_the_whole_batch_does(taught: Distillation, memory: Callable) -> None:
    """The loss leaves a prefix out; student and teacher see one another's documents or both do not."""
    both = taught.changed(temperature=2.0, cross_entropy_weight=0.5)
    prefixed = taught.changed(task=taught.task.changed(prefix=4))
    apart_from = taught.changed(task=taught.task.changed(packing="documents"))
    for task, parts in ((both, 4), (prefixed, 2), (apart_from, 2)):
        trial, whole, world = learning_trial(task, training=GENTLE.changed(steps=8)), memory(), memory()
        train(trial, whole)
        train(split(trial, parts), world)
        assert apart(numbers(whole), numbers(world)) < ROUNDINGS * torch.finfo(torch.float32).eps


def test_only_what_the_task_asks_for_is_learned(tmp_path: Path, memory: Callable) -> None:
    """Recall asks at some positions: there, and in parts that ask unequally often, the mean is over these."""
    task = AssociativeRecall(batch=6, pairs=3, context=24, evaluation=AskedLengths(lengths=(24,)))
    model = gpt2(layers=1, heads=2, width=8, max_positions=task.length)
    trial = teaching_trial(task, model=model)
    write_finished(tmp_path / "campaign", trial)
    distillation = Distillation(task=task, teacher=teacher(tmp_path / "campaign", trial))
    data = distillation.open()
    part = data.complete_batch(data.batch(1, 1))
    outputs = draw(*part.targets.shape[:2], task.vocabulary)
    asked = data.batch(1, 1).targets != -100
    assert 0 < int(asked.sum()) == data.terms([data.batch(1, 1).targets])[0] < asked.numel()
    wanted = divergence(outputs, part.targets[..., :-1], 1.0)[0][asked].mean()
    assert float(data.loss(outputs, part.targets)) == pytest.approx(float(wanted), rel=1e-6)


def test_what_cannot_be_distilled_is_refused(taught: Distillation) -> None:
    for fields, said in (
        ({"task": LinearFunctions()}, "and a teacher predicts tokens"),
        ({"task": taught}, "'distillation' has a teacher already"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"cross_entropy_weight": -1.0}, "cross_entropy_weight"),
        ({"batch": 3}, "batch"),
    ):
        with pytest.raises(SpecError, match=said):
            taught.changed(**fields)
    small = taught.changed(task=taught.task.changed(batch=2))
    assert small.batch == len(small.open().batch(1, 1).inputs) == 2
    with pytest.raises(SpecError, match=r"makes 3 of a task.batch of 2"):
        split(learning_trial(small), 3)


def test_a_plan_counts_the_teacher_s_forward_pass(taught: Distillation) -> None:
    student, trial = learning_trial(taught, training=Training(steps=10)), teaching_trial(taught.task)
    forward = count_flops(trial.model, trial.operators(), Tokens(256), "auto", Shape(6, 8), training=False)
    alone, together = (each.flops() for each in (student.changed(task=taught.task), student))
    assert together == alone + 10 * forward > alone


def test_a_teacher_sees_what_the_task_makes_visible(taught: Distillation) -> None:
    """The second half of a window does not depend on the first where that is hidden from it."""
    data, batch = taught.open(), taught.task.open().batch(1, 1)
    side = torch.arange(8) >= 4
    hidden = batch._replace(visible=(side[:, None] == side[None, :]).expand(6, 8, 8))
    changed = torch.cat((batch.inputs[:, :4].flip(1), batch.inputs[:, 4:]), 1)
    one, two, plain = (
        data.complete_batch(each).targets[:, 4:, :-1] for each in (hidden, hidden._replace(inputs=changed), batch)
    )
    torch.testing.assert_close(one, two, rtol=0, atol=1e-6)
    assert (plain - one).abs().max() > 1e-4
