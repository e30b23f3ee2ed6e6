"""Minimal pairs: scores against plain loops and independent of other items, known preferences, orders, bad files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from ablate import MaskedText, MinimalPairs, Task, Text, Trial
from ablate.grid.errors import SpecError
from ablate.training.evaluations.evaluation import Evaluator
from ablate.training.evaluations.likelihood import generate
from ablate.training.evaluations.lm_eval_adapter import HarnessQuestion, score_questions
from ablate.training.loop.train import train
from ablate.training.tasks import Measurements
from ablate.training.tasks.text.encoder import END, SUBSTITUTE, ByteEncoder
from ablate.training.trial import build_model
from ablate.variants import babyberta, gpt2, softmax
from ablate.variants.stages.visible import Prefix

SCORINGS = ("masked", "holistic", "causal")
AGREEMENT = (
    ("the dogs by the tree sleep .", "the dog by the tree sleep ."),
    ("where are the cats ?", "where is the cats ?"),
    ("these boxes are red .", "this boxes are red ."),
)
"""Grammatical, then not."""
ORDER = (("the cat sees a bird .", "the cat a bird sees ."), ("give it to her !", "give it to she !"))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Two files as Zorro has them: odd lines are ungrammatical."""
    folder = tmp_path / "zorro"
    folder.mkdir()
    for name, content in (("Agreement-across_PP", AGREEMENT), ("word_order", ORDER)):
        (folder / f"{name}.txt").write_text("".join(f"{bad}\n{good}\n" for good, bad in content))
    return folder


@pytest.fixture(scope="module")
def prose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "prose.txt"
    path.write_text(
        "".join(f"the {word} {word}s see {n} birds .\n" for n in range(60) for word in ("dog", "cat", "child"))
    )
    return path


def task(prose: Path, scoring: str) -> Task:
    kind = Text if scoring == "causal" else MaskedText
    return kind.model_validate({"source": str(prose), "context": 40, "batch": 4})


def spec(pairs: Path, scoring: str = "masked", **fields: object) -> MinimalPairs:
    return MinimalPairs.model_validate({"source": str(pairs), "scoring": scoring, "longest": 40, **fields})


def trial(prose: Path, evaluation: MinimalPairs) -> Trial:
    sizes = {"layers": 1, "heads": 2, "width": 16, "max_positions": 48}
    causal = evaluation.scoring == "causal"
    model = gpt2(**sizes) if causal else babyberta(feedforward_width=32, **sizes)
    fields = {"task": task(prose, evaluation.scoring), "model": model, "operator": softmax()}
    return Trial.model_validate({**fields, "training": {"steps": 2}, "evaluations": (evaluation,)})


def by_hand(model: Callable[..., Tensor], sentence: str, scoring: str) -> float:
    """How good a sentence is: one at a time, without padding, in float64."""
    tokens = list(sentence.encode())
    framed = [END, *tokens, END]

    def log_p(inputs: list[int], place: int, token: int) -> float:
        logits = model(torch.tensor([inputs]))[0, place].double()
        return float(logits[token] - logits.logsumexp(0))

    if scoring == "holistic":
        return sum(log_p(framed, place, token) for place, token in enumerate(framed)) / len(framed)
    if scoring == "causal":
        return sum(log_p([END, *tokens[:at]], at, token) for at, token in enumerate(tokens))
    scores = []
    for place in range(1, len(tokens) + 1):
        masked = [*framed[:place], SUBSTITUTE, *framed[place + 1 :]]
        scores.append(log_p(masked, place, framed[place]))
    return sum(scores)


@pytest.mark.parametrize("scoring", SCORINGS)
def test_scores_and_accuracies_are_those_of_plain_loops(
    pairs: Path, prose: Path, scoring: str, memory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation, world = spec(pairs, scoring), memory()
    train(trial(prose, evaluation), world)
    assert {name for step, name, *_ in world.evaluations if step == 2} >= {"minimal_pairs", "minimal_pairs.word_order"}
    assert len(world.single[2, "minimal_pairs.agreement_across_pp"]) == 3
    model = build_model(trial(prose, evaluation)).eval()
    with torch.inference_mode():
        for parameter in model.parameters():
            parameter.mul_(3)  # so that sentences differ by more than rounding
        evaluator = evaluation.open(task(prose, scoring))
        sentences = [each for pair in (*AGREEMENT, *ORDER) for each in pair]
        expected = [by_hand(model, sentence, scoring) for sentence in sentences]
        scores = evaluator.scores(model, [list(sentence.encode()) for sentence in sentences])
        rows = values(evaluator, model)
        monkeypatch.setattr("ablate.training.evaluations.minimal_pairs._TOKENS", 64)  # many groups
        groups = evaluator.scores(model, [list(sentence.encode()) for sentence in sentences])
    assert scores.tolist() == pytest.approx(expected, rel=1e-5)
    assert groups.tolist() == pytest.approx(expected, rel=1e-5)
    right = [float(good > bad) for good, bad in zip(expected[::2], expected[1::2], strict=True)]
    assert 0 < sum(right) < 5
    assert rows["minimal_pairs.agreement_across_pp"] == pytest.approx(sum(right[:3]) / 3)
    assert rows["minimal_pairs.word_order"] == pytest.approx(sum(right[3:]) / 2)
    assert rows["minimal_pairs"] == pytest.approx((sum(right[:3]) / 3 + sum(right[3:]) / 2) / 2)


def values(evaluator: Evaluator, predict: Callable[..., Tensor]) -> dict[str, float]:
    return {each.name: each.value for each in evaluator.evaluate(predict) if isinstance(each, Measurements)}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("pairs.csv", b"a\nb\n", "pairs.csv has no minimal pairs"),
        ("empty.txt", b"\n", "empty.txt has 0 lines"),
        ("odd.txt", b"a\nb\nc\n", "odd.txt has 3 lines"),
        ("hole.txt", b"a\nb\n\nc\n", "hole.txt, line 3 is empty"),
        ("same.txt", b"a b\na c\nA d\na D\n", "same.txt, pair 2 has 'A d' twice"),
        ("latin.txt", b"caf\xe9\ncafe\n", "latin.txt is not UTF-8, at byte 3"),
    ],
)
def test_files_that_are_no_pairs_are_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValidationError, match=said):
        MinimalPairs(source=str(tmp_path / name))


def test_what_cannot_be_judged_is_refused_before_training(tiny: Trial, pairs: Path, prose: Path) -> None:
    encoder, causal = trial(prose, spec(pairs)), trial(prose, spec(pairs, "causal"))
    seen_ahead = {"task": causal.task.changed(prefix=8), "operator": softmax().changed(visible=Prefix(length=8))}
    assert causal.changed(**seen_ahead, evaluations=())
    for plain, fields, said in (
        (tiny, {"evaluations": (spec(pairs, longest=16),)}, "cannot evaluate LinearFunctions; it needs a task of text"),
        (encoder, {"evaluations": (spec(pairs, "causal"),)}, "needs scoring='masked' or 'holistic'"),
        (causal, {"evaluations": (spec(pairs, "holistic"),)}, "needs scoring='causal'"),
        (causal, seen_ahead, "'text' leaves 7 tokens out of its loss"),
        (causal, {"evaluations": (spec(pairs, "causal", longest=49),)}, "up to 49 tokens and the model has 48"),
    ):
        with pytest.raises(SpecError, match=said):
            plain.changed(**fields)
    with pytest.raises(SpecError, match=r"longest=20 .* 30 positions of agreement_across_pp in .*, pair 1, 'the"):
        spec(pairs, longest=20).open(task(prose, "masked"))


TABLE = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))


def counting(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
    """As an operator whose scores are over the number of positions: another length, another distribution."""
    return TABLE[(inputs + inputs.shape[1]) % 256]


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "text.txt").write_text("a question and an answer .\n" * 100)
    return str(tmp_path / "text.txt")


def test_of_questions() -> None:
    questions = [HarnessQuestion([*b"q" * size, *b"ab" * (1 + size % 3)], size) for size in (3, 4, 9, 17, 30)]
    together = score_questions(counting, questions, 256)
    assert together == [score_questions(counting, [each], 256)[0] for each in questions]
    assert len(set(together)) == 5


def test_of_what_is_written() -> None:
    prompts = [list(b"c" * size) for size in (3, 4, 9, 17, 30)]
    together = generate(counting, prompts, 6, ByteEncoder(), lambda _: False)
    assert together == [generate(counting, [each], 6, ByteEncoder(), lambda _: False)[0] for each in prompts]
    assert len(set(together)) == 5


@pytest.mark.parametrize("scoring", ["masked", "holistic", "causal"])
def test_of_sentences(tmp_path: Path, source: str, scoring: str) -> None:
    (tmp_path / "some.txt").write_text("a b .\na c .\n")
    fields = {"source": str(tmp_path / "some.txt"), "scoring": scoring, "longest": 40}
    kind = Text if scoring == "causal" else MaskedText
    evaluator = MinimalPairs.model_validate(fields).open(kind.model_validate({"source": source, "context": 40}))
    sentences = [list(b"x" * size) for size in (3, 30, 1, 17, 30, 4)]
    together = evaluator.scores(counting, sentences).tolist()
    assert together == [float(evaluator.scores(counting, [each])[0]) for each in sentences]
    assert len(set(together)) == 5
