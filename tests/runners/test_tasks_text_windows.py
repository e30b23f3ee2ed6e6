"""Windows of text: borders of documents, prefixes, replaced tokens, and how much there is to learn from."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from ablate import FixedToken, NoIntervention, RandomTokens, Text, Training, Trial
from ablate.training.optimisers import AdamW
from ablate.training.optimisers.schedules import Constant
from ablate.training.trial import build_model
from ablate.variants import gpt2, softmax
from ablate.variants.stages.visible import Prefix

DOCUMENTS = [f"{number}: " + "ab cd "[: 1 + number % 6] * (1 + number % 5) for number in range(150)]
UNSCORED = -100


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in DOCUMENTS))
    return path


def small(source: Path, **fields: object) -> Text:
    return Text.model_validate({"source": str(source), "context": 20, "batch": 6, "validation_windows": 4, **fields})


def trial(task: Text, **fields: object) -> Trial:
    return Trial.model_validate(
        {
            "task": task,
            "model": gpt2(layers=1, heads=2, width=16),
            "operator": softmax(),
            "training": Training(steps=2, optimiser=AdamW(lr=1e-3), schedule=Constant()),
            **fields,
        }
    )


def test_packing_lets_a_query_see_its_own_document_from_the_end_before_it_on(lines: Path) -> None:
    across, apart = (small(lines, packing=packing).open().batch(3, 5) for packing in ("across", "documents"))
    assert torch.equal(across.inputs, apart.inputs)
    assert torch.equal(across.targets, apart.targets)
    assert across.visible is None
    documents = (apart.inputs == 0).cumsum(1)  # by the definition: an end begins the next
    assert torch.equal(apart.visible, documents[:, :, None] == documents[:, None, :])
    assert (documents.amax(1) > 1).sum() >= 3  # most documents are shorter than a window


def test_the_loss_begins_after_the_prefix(lines: Path) -> None:
    plain, prefixed = small(lines).open(), small(lines, prefix=5).open()
    before, after = plain.batch(1, 1), prefixed.batch(1, 1)
    assert torch.equal(before.inputs, after.inputs)
    assert (after.targets[:, :4] == UNSCORED).all()
    assert torch.equal(after.targets[:, 4:], before.targets[:, 4:])
    outputs = torch.randn(6, 20, 256, generator=torch.Generator().manual_seed(0))
    expected = plain.loss(outputs[:, 4:], before.targets[:, 4:]).item()
    assert prefixed.loss(outputs, after.targets).item() == pytest.approx(expected)
    assert prefixed.terms([after.targets]) == [int((after.targets != UNSCORED).sum())] == [6 * 16]
    seeing = softmax().changed(visible=Prefix(length=5))
    assert trial(small(lines, prefix=5), operator=seeing).task.unscored == 4
    with pytest.raises(ValidationError, match="leave 4 out of the loss"):
        trial(small(lines, prefix=4), operator=seeing)


@pytest.mark.parametrize("positions", [(1,), (1, 2), (2,), (3, 7, 20)])
def test_random_tokens_are_uniform_and_not_asked_for(lines: Path, positions: tuple[int, ...]) -> None:
    plain = small(lines).open()
    data = small(lines, intervention=RandomTokens(positions=positions)).open()
    counts = torch.zeros(256)
    for step in range(100):
        before, after = plain.batch(1, step), data.batch(1, step)
        for at in range(20):
            if at + 1 not in positions:
                assert torch.equal(before.inputs[:, at], after.inputs[:, at])
            else:
                counts += torch.bincount(after.inputs[:, at], minlength=256)
            asked = UNSCORED if at + 2 in positions else before.targets[:, at]
            assert (after.targets[:, at] == asked).all()
    drawn = 600 * len(positions)
    assert counts.sum() == drawn
    statistic = float(((counts - drawn / 256).square() / (drawn / 256)).sum())
    assert abs(statistic - 255) < 6 * (2 * 255) ** 0.5  # chi squared, 255 degrees of freedom


@pytest.mark.parametrize(("position", "token"), [(1, 26), (2, 26), (3, 65)])
def test_a_fixed_token_is_where_it_is_fixed_in_training_and_evaluation(lines: Path, position: int, token: int) -> None:
    fixed = FixedToken(position=position, token=None if token == 26 else token)
    data, plain = small(lines, intervention=fixed).open(), small(lines).open()
    for after, before in ((data.batch(1, 1), plain.batch(1, 1)), (data.examples(4), plain.examples(4))):
        assert (after.inputs[:, position - 1] == token).all()
        changed = (after.inputs != before.inputs).any(0).nonzero()[:, 0].tolist()
        assert changed == [position - 1]
        asked = (after.targets == UNSCORED).all(0).nonzero()[:, 0].tolist()
        assert asked == ([position - 2] if position > 1 else [])
        assert (after.targets != UNSCORED).sum() == 20 * len(after.targets) - len(asked) * len(after.targets)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prefix": 21}, "the prefix of 21 .* a window of 20"),
        ({"context": 1, "intervention": FixedToken(position=2)}, "replaces token 2 of a window whose first 1 "),
        ({"intervention": RandomTokens(positions=(3, 21))}, "the intervention replaces token 21"),
        ({"intervention": FixedToken(token=256)}, "intervention.token=256 is no id of the tokenizer, 0 to 255"),
        ({"prefix": 2, "packing": "documents"}, "prefix=2 .* use packing='across'"),
        ({"training_tokens": 20}, "training_tokens=20 fill no window of 21 tokens"),
        ({"training_tokens": 10**6}, "training_tokens=1000000 are more than .* bytes"),
    ],
)
def test_windows_without_meaning_are_refused(lines: Path, fields: dict[str, object], words: str) -> None:
    assert len(small(lines, prefix=20, intervention=NoIntervention()).scored) == 1
    with pytest.raises(ValidationError, match=words):
        small(lines, **fields)


def test_a_model_predicts_a_packed_document_as_if_it_were_alone(lines: Path) -> None:
    task = small(lines, packing="documents")
    model = build_model(trial(task, model=gpt2(layers=2, heads=2, width=16).changed(positions={"kind": "none"})))
    batch = task.open().batch(3, 5)
    checked = 0
    with torch.inference_mode():
        for row in range(6):
            ends = (batch.inputs[row] == 0).nonzero()[:, 0].tolist()
            whole = model(batch.inputs[row : row + 1], batch.visible[row : row + 1])
            for start, stop in pairwise([*ends, 20]):
                alone = model(batch.inputs[row : row + 1, start:stop])
                torch.testing.assert_close(whole[:, start:stop], alone, rtol=1e-4, atol=1e-5)
                checked += 1
    assert checked > 5
