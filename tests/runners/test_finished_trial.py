"""Teachers from campaigns: which weights are read, and what is refused before anything is trained."""

from pathlib import Path

import pytest
import torch
from teachers import learning_trial, prose, teacher, teaching_trial, write_finished
from torch import Tensor

from ablate import run_campaign
from ablate.grid import Grid
from ablate.grid.errors import SpecError, StoreError
from ablate.runners.checkpoint import save_checkpoint
from ablate.runners.provenance.code import Codes
from ablate.store.files.layout import Layout
from ablate.training.tasks import AssociativeRecall, BytePairs, Distillation, FinishedTrial, Grammar, Needle, Task, Text
from ablate.training.trial import Trial, build_model
from ablate.variants import gpt2, softmax
from ablate.variants.stages.visible import Prefix


@pytest.fixture
def task(tmp_path: Path) -> Text:
    return prose(tmp_path)


@pytest.fixture
def trial(task: Text) -> Trial:
    return teaching_trial(task)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "campaign"


def weights(trial: Trial, seed: int = 0) -> dict[str, Tensor]:
    return build_model(trial.changed(seed=seed)).state_dict()


def test_a_trial_that_a_campaign_has_trained_teaches_another(root: Path, trial: Trial) -> None:
    assert run_campaign(root, [Grid(name="teachers", base=trial, seeds=[0])]).done == 1
    task = Distillation(task=trial.task, teacher=teacher(root, trial))
    student = learning_trial(task)
    assert run_campaign(root, [Grid(name="students", base=student, seeds=[2])]).done == 1
    start = Layout(root).start(student.key, 1).read_text()
    assert trial.key in start
    assert str(task.teacher.content_hash) in start  # type: ignore[attr-defined]


def test_it_is_what_its_file_says(root: Path, trial: Trial) -> None:
    path = write_finished(root, trial)
    found = teacher(root, trial)
    assert (found.trial, found.content_hash) == (trial.key, path.name.split(".")[1])
    known = found.known_architecture()
    assert (known.model, known.operator, known.vocabulary) == (trial.model, trial.operator, 256)
    by_file = FinishedTrial(weights=str(path))
    assert by_file.key == found.key
    lower = found.changed(precision="bfloat16")  # the logits are rounded and come as float32
    one, two = (each.open(trial.task).logits(torch.arange(8)[None]) for each in (found, lower))
    assert one.dtype == two.dtype == torch.float32
    assert 0 < (one - two).abs().max() < 0.05 * one.abs().max()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(StoreError, match="it was torn or altered"):
        found.open(trial.task)
    path.write_bytes(whole)
    copied = path.rename(root.parent / path.name)
    assert FinishedTrial(weights=str(copied)).key == found.key


def test_other_weights_of_one_trial_are_another_teacher_and_the_latest_attempt_counts(root: Path, trial: Trial) -> None:
    write_finished(root, trial, 1)
    planned = teacher(root, trial)
    write_finished(root, trial, 2, weights=weights(trial, 1))
    write_finished(root, trial, 3, weights=weights(trial, 2), status="failed")
    later = teacher(root, trial)
    assert later.key != planned.key
    inputs = torch.arange(8)[None]
    for spec, seed in ((FinishedTrial.model_validate(planned.data()), 0), (later, 1)):
        with torch.no_grad():
            expected = build_model(trial.changed(seed=seed)).eval()(inputs)
        assert torch.equal(spec.open(trial.task).logits(inputs), expected)


def test_a_spec_is_read_where_its_teacher_is_not_and_the_student_knows_its_code(root: Path, trial: Trial) -> None:
    write_finished(root, trial)
    task = Distillation(task=trial.task, teacher=teacher(root, trial))
    student = learning_trial(task)
    assert "Score ssa" in Codes().sources(student)
    assert "Score ssa" not in Codes().sources(student.changed(task=trial.task))
    root.rename(root.with_name("away"))
    assert Distillation.model_validate(task.data()).key == task.key
    with pytest.raises(SpecError, match="holds no campaign"):
        task.open()


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("no campaign", "holds no campaign"),
        ("no trial", "there is no trial"),
        ("failed", "is failed"),
        ("not kept", "execution.keep_weights=True"),
        ("other hash", "no kept weights with content_hash 0{32}"),
    ],
)
def test_a_trial_that_cannot_teach_is_refused(root: Path, trial: Trial, state: str, said: str) -> None:
    fields = {"campaign": str(root), "trial": trial.key}
    if state != "no campaign":
        other = trial.changed(seed=5) if state == "no trial" else trial
        path = write_finished(root, other, status="failed" if state == "failed" else "ok")
        if state == "not kept":
            path.unlink()
        if state == "other hash":
            fields["content_hash"] = "0" * 32
    with pytest.raises(ValueError, match=said):
        FinishedTrial.model_validate(fields)


def test_a_teacher_is_named_in_one_way(root: Path, trial: Trial, tiny: Trial) -> None:
    path = write_finished(root, trial)
    at_work = save_checkpoint(root, trial.key, 3, {"model": weights(trial), "optimiser": {}, "norms": []})
    fields = {"campaign": str(root), "trial": trial.key}
    for wrong, said in (
        ({}, "give campaign and trial, or the file"),
        ({"campaign": str(root)}, "give campaign and trial, or the file"),
        ({**fields, "weights": str(path)}, "give campaign and trial, or the file"),
        ({"weights": str(path), "trial": "1" * 32}, f"trial is {'1' * 32} and .* has {trial.key}"),
        ({"weights": str(path.with_name(f"step-000000009.{'0' * 32}.pt"))}, "there is no file of weights"),
        ({"weights": str(path.with_name("model.pt"))}, "model.pt is not named step-<step>"),
        ({"weights": str(at_work)}, "is a checkpoint of a trial at work"),
    ):
        with pytest.raises(ValueError, match=said):
            FinishedTrial.model_validate(wrong)
    write_finished(root, tiny)
    with pytest.raises(ValueError, match="predicts numbers"):
        teacher(root, tiny)


def test_weights_that_are_no_numbers_or_do_not_fit_are_refused(root: Path, trial: Trial) -> None:
    broken = weights(trial)
    broken["layers.1.attention.out.weight"][3, 2] = float("nan")
    other = weights(trial.changed(model=gpt2(layers=1, heads=2, width=8, max_positions=12)))
    for attempt, state, said in ((1, broken, "layers.1.attention.out.weight"), (2, other, "do not fit its model")):
        write_finished(root, trial, attempt, weights=state)
        with pytest.raises(SpecError, match=said):
            Distillation(task=trial.task, teacher=teacher(root, trial)).open()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": gpt2(layers=1, heads=2, width=8, max_positions=7)}, "teacher .* has 7 pos"),
        ({"model": gpt2(layers=1, heads=2, width=8, max_positions=8).changed(sink_tokens=2)}, "up to 8 tokens"),
        ({"operator": softmax().changed(visible=Prefix(length=3))}, "the teacher .* cannot learn the task itself"),
    ],
)
def test_a_teacher_that_does_not_fit_the_task_is_refused(root: Path, task: Text, changes: dict, said: str) -> None:
    own = task.changed(context=5) if "model" in changes else task.changed(prefix=3)
    trial = teaching_trial(own, **changes)
    write_finished(root, trial)
    with pytest.raises(ValueError, match=said):
        Distillation(task=task, teacher=teacher(root, trial))
    assert Distillation(task=own, teacher=teacher(root, trial)).open() is not None


def test_another_vocabulary_or_tokenizer_is_refused(root: Path, task: Text) -> None:
    """Tokenizers of one size are told apart by what they make of a sample."""
    model = gpt2(layers=1, heads=2, width=8, max_positions=64)
    grammar = teaching_trial(Grammar(batch=2, context=8), model=model)
    write_finished(root, grammar)
    with pytest.raises(ValueError, match="has 265 tokens and the task 'text' has 256; use the teacher's tokenizer"):
        Distillation(task=task, teacher=teacher(root, grammar))
    pairs = task.changed(tokenizer=BytePairs(vocabulary=280))
    others = with_other_pairs(pairs, root.parent)
    trial = teaching_trial(pairs)
    write_finished(root, trial)
    assert Distillation(task=pairs, teacher=teacher(root, trial)).open() is not None
    with pytest.raises(SpecError, match=r"the teacher .* has token .* one tokenizer"):
        Distillation(task=others, teacher=teacher(root, trial)).open()


def with_other_pairs(task: Text, folder: Path) -> Text:
    path = folder / "other.txt"
    path.write_text("".join(f"quick brown fox {n} over lazy dogs, isn't it?\n" for n in range(400)))
    return task.changed(source=str(path), content_hash=None)


@pytest.mark.parametrize("then", ["edited", "removed"])
@pytest.mark.parametrize("recorded", [True, False])
def test_a_tokenizer_is_known_by_its_record(root: Path, tmp_path: Path, then: str, recorded: bool) -> None:
    """A student with the same one needs no file of the teacher's; one with another, or not known to, is refused."""
    for name in ("old", "same"):
        (tmp_path / name).mkdir()
    old, same = (prose(tmp_path / name).changed(tokenizer=BytePairs(vocabulary=280)) for name in ("old", "same"))
    trial = teaching_trial(old)
    other = with_other_pairs(old, tmp_path)
    path = write_finished(root, trial)
    if not recorded:
        path.unlink()
        save_checkpoint(path.parent, trial.key, 8, {"model": weights(trial), "spec": trial.data()})
    text = tmp_path / "old" / "prose.jsonl"
    text.write_text(text.read_text() + '{"text": "one more line"}\n') if then == "edited" else text.unlink()
    said = r"the teacher SSA .* learned cannot be known here: .*prose.jsonl"
    if recorded:
        assert Distillation(task=same, teacher=teacher(root, trial)).open() is not None
    for task in [other] if recorded else [other, same]:
        with pytest.raises(SpecError, match=said):
            Distillation(task=task, teacher=teacher(root, trial)).open()


@pytest.mark.parametrize(
    ("teachers", "students", "said"),
    [
        (Grammar(nouns=64, verbs=32), Grammar(nouns=32, verbs=64), r"the teacher .* learned .*one vocabulary"),
        (
            AssociativeRecall(keys=32, values=64, context=24, pairs=3),
            AssociativeRecall(keys=64, values=32, context=24, pairs=3),
            r"learned keys=32, the student's task 64",
        ),
        (AssociativeRecall(context=24, pairs=3), Needle(context=24), r"learned the task 'associative_recall' and"),
    ],
    ids=["grammar", "recall", "kinds"],
)
def test_tokens_with_two_meanings_are_refused(root: Path, teachers: Task, students: Task, said: str) -> None:
    assert teachers.inputs == students.inputs
    trial = teaching_trial(teachers, model=gpt2(layers=1, heads=2, width=8, max_positions=256))
    write_finished(root, trial)
    with pytest.raises(SpecError, match=said):
        Distillation(task=students, teacher=teacher(root, trial)).open()
