"""A model that counts positions scores an item independently of the other items."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from ablate.runners import MaskedText, MinimalPairs, Text
from ablate.runners.evaluations.likelihood import generate
from ablate.runners.evaluations.lm_eval_adapter import HarnessQuestion, score_questions
from ablate.runners.tasks.text.encoder import ByteEncoder

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
    judge = MinimalPairs.model_validate(fields).open(kind.model_validate({"source": source, "context": 40}))
    sentences = [list(b"x" * size) for size in (3, 30, 1, 17, 30, 4)]
    together = judge.scores(counting, sentences).tolist()
    assert together == [float(judge.scores(counting, [each])[0]) for each in sentences]
    assert len(set(together)) == 5
