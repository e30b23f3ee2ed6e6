"""Masked text: patterns against their distribution in closed form, sums against plain loops, and that it is learned."""

import json
import math
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ablate import MaskedText, Probing, Trial
from ablate.grid.errors import SpecError
from ablate.training.tasks.counter_rng import CPU, Draws
from ablate.training.tasks.text import masked_text
from ablate.training.tasks.text.encoder import END, SUBSTITUTE, ByteEncoder
from ablate.training.tasks.text.masked_text import Masking, Sentences
from ablate.training.trial import build_model
from ablate.variants import babyberta, softmax

COLOURS = ("red", "green", "blue", "grey")
PROSE = "".join(f"the {COLOURS[n % 4]} box is {COLOURS[n % 4]}, {n * n}\n" for n in range(300))
UNASKED = -100


@pytest.fixture
def prose(tmp_path: Path) -> Path:
    path = tmp_path / "prose.txt"
    path.write_text(PROSE)
    return path


def small(source: Path, **fields: object) -> MaskedText:
    return MaskedText.model_validate({"source": str(source), "context": 40, "validation_sentences": 20, **fields})


def encoder_trial(task: MaskedText, **fields: object) -> Trial:
    model = babyberta(layers=1, heads=2, width=16, feedforward_width=32, max_positions=48).changed(
        dropout=0.0, attention_dropout=0.0
    )
    base = {"task": task, "model": model, "operator": softmax(), "training": {"steps": 3}, "probing": Probing()}
    return Trial.model_validate({**base, **fields})


def own(row: list[int], visible: list[bool]) -> list[int]:
    """The tokens of a sentence without its ends and padding."""
    size = sum(visible)
    assert row[0] == row[size - 1] == END
    assert row[size:] == [END] * (len(row) - size)
    return row[1 : size - 1]


def hidden_patterns(size: int, rate: float, count: int) -> Counter[tuple[bool, ...]]:
    """How often each pattern comes, of one sentence of `size` tokens."""
    masking = Masking(ByteEncoder(), size, masked=rate, random=0.0, patterns=count)
    chosen = torch.zeros(count, dtype=torch.int64)
    targets = masking.batch(Sentences([[65] * size]), chosen, torch.arange(count), Draws(0)).targets
    return Counter(tuple(row) for row in (targets[:, 1 : size + 1] != UNASKED).tolist())


@pytest.mark.parametrize(("size", "rate"), [(1, 0.15), (2, 0.15), (4, 0.3), (5, 0.6)])
def test_patterns_are_independent_draws_of_which_those_that_hide_nothing_are_left_out(size: int, rate: float) -> None:
    count = 40_000
    found = hidden_patterns(size, rate, count)
    expected = {
        pattern: math.prod(rate if hidden else 1 - rate for hidden in pattern) / (1 - (1 - rate) ** size)
        for pattern in product((False, True), repeat=size)
        if any(pattern)
    }
    assert found.keys() <= expected.keys()
    chi_square = sum((found[key] - count * p) ** 2 / (count * p) for key, p in expected.items())
    freedom = len(expected) - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom) + 1e-9  # for 1 pattern, exactly 0


def test_a_mask_stands_for_nine_in_ten_and_any_ordinary_token_for_the_rest() -> None:
    sentences = Sentences([list(b"ordinary words"), list(b"and more of them")])
    masking = Masking(ByteEncoder(), 16, masked=0.5, random=0.1, patterns=4000)
    batch = masking.batch(sentences, torch.arange(8000) % 2, torch.arange(8000) // 2, Draws(5))
    hidden = batch.targets != UNASKED
    shown = batch.inputs[hidden]
    total = len(shown)
    swapped = shown[shown != SUBSTITUTE]
    assert len(swapped) / total == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / total))
    counts = torch.bincount(swapped, minlength=256)
    assert counts[[END, SUBSTITUTE]].tolist() == [0, 0]
    expected = len(swapped) / 254
    chi_square = float(((counts - expected) ** 2 / expected).sum()) - 2 * expected
    assert chi_square < 253 + 4 * math.sqrt(2 * 253)


class _Copies(TorchDispatchMode):
    """Counts copies from the CPU to another device."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        self.count += func is torch.ops.aten._to_copy.default and args[0].is_cpu and given.get("device") != CPU
        return func(*args, **given)


def test_the_host_waits_for_no_copy_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """All numbers of a step go to the device by `move`; what is there already stays."""
    moved = []

    def move(values: Tensor, device: torch.device) -> Tensor:
        moved.append(values)
        return torch.empty_like(values, device=device)

    monkeypatch.setattr(masked_text, "move", move)
    sentences, chosen = Sentences([list(b"some words"), list(b"and more")]), torch.arange(2)
    masking = Masking(ByteEncoder(), 16, masked=0.5, random=0.1, patterns=2)
    for _ in range(2):
        with _Copies() as copies:
            sentences.to(torch.device("meta"))
            batch = masking.batch(sentences, chosen, chosen, Draws(0))
    assert (copies.count, len(moved), batch.inputs.device.type) == (0, 6, "meta")


def test_each_sentence_has_its_patterns_whatever_the_step_and_other_seeds_others(prose: Path) -> None:
    data = small(prose, patterns=3, batch=1024).open()

    def patterns(seed: int) -> dict[tuple[int, ...], set[Any]]:
        found: dict[tuple[int, ...], set[Any]] = {}
        for step in range(10):
            inputs, targets, visible = data.batch(seed, step)
            hidden = targets != UNASKED
            whole = torch.where(hidden, targets, inputs)
            for row, shown, seen in zip(whole.tolist(), inputs.tolist(), visible[:, 0].tolist(), strict=True):
                found.setdefault(tuple(own(row, seen)), set()).add(tuple(own(shown, seen)))
        return found

    one, other = patterns(1), patterns(2)
    assert {len(shown) for shown in one.values()} == {3}
    assert sum(one[sentence] == other[sentence] for sentence in one.keys() & other.keys()) == 0


def test_lines_are_sentences_and_those_that_do_not_fit_are_dropped_and_counted(tmp_path: Path) -> None:
    texts = [f"  line {n}  \n\n{'x' * 9}\n{'y' * 8}\r\n" for n in range(20)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    data = MaskedText(source=str(path), context=10, validation_share=0.2).open()
    record = data.record
    assert record["train_dropped"] + record["validation_dropped"] == 20
    assert record["train_sentences"] + record["validation_sentences"] == 40
    assert record["train_tokens"] + record["validation_tokens"] == sum(len(f"line {n}") + 8 for n in range(20))


def test_padding_and_what_stands_there_changes_nothing(prose: Path) -> None:
    task = small(prose, batch=4)
    data = task.open()
    model = build_model(encoder_trial(task)).eval()
    batch = data.batch(1, 1)
    padding = ~batch.visible[:, 0]
    assert padding.any()
    changed = batch.inputs.masked_fill(padding, 65)
    before, after = model(batch.inputs, batch.visible), model(changed, batch.visible)
    assert torch.equal(before[~padding], after[~padding])
    assert not torch.equal(model(batch.inputs)[~padding], model(changed)[~padding])


def test_an_evaluation_is_that_of_one_sentence_after_another(prose: Path) -> None:
    task = small(prose)
    data = task.open()
    model = build_model(encoder_trial(task)).eval()
    with torch.inference_mode():
        found = {each.name: each for each in data.evaluate(model)}
        sample = data.examples(1000)
        nats, right, lengths = [], [], []
        for row, targets, visible in zip(sample.inputs, sample.targets, sample.visible[:, 0], strict=True):
            size = int(visible.sum())
            logits = model(row[None, :size])[0].double()
            asked = [(place, int(token)) for place, token in enumerate(targets) if token != UNASKED]
            nats += [float(logits[place].logsumexp(0) - logits[place, token]) for place, token in asked]
            right += [int(logits[place].argmax()) == token for place, token in asked]
            lengths.append(len(asked))
    assert len(lengths) == found["validation_loss"].items == 20
    assert found["validation_loss"].value == pytest.approx(sum(nats) / len(nats), rel=1e-5)
    assert found["masked_accuracy"].value == pytest.approx(sum(right) / len(right))
    assert set(found) == set(task.measures())


def test_the_unigram_predictor_is_counted_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in PROSE.split("\n")))
    data = small(path, validation_sentences=10_000).open()
    lines = {bytes(own(row, seen)) for row, seen in whole(data)}
    training = b"".join(line.encode() for line in PROSE.split("\n") if line.encode() not in lines)
    counts = Counter(training)
    costs = {byte: math.log(len(training) + 254) - math.log(counts[byte] + 1) for byte in range(256)}
    sample = data.examples(10_000)
    asked = [token for token in sample.targets.flatten().tolist() if token != UNASKED]
    found = {each.name: each.value for each in data.evaluate(lambda x, _: torch.zeros(*x.shape, 256))}
    assert found["unigram.validation_loss"] == pytest.approx(sum(costs[token] for token in asked) / len(asked))
    commonest = max(counts, key=lambda byte: counts[byte])
    assert found["unigram.masked_accuracy"] == pytest.approx(asked.count(commonest) / len(asked))
    assert found["validation_loss"] == pytest.approx(math.log(256))
    assert found["masked_accuracy"] == 0  # all as likely: no answer
    assert data.constant_loss == pytest.approx(sum(n * costs[byte] for byte, n in counts.items()) / len(training))


def whole(data: Any) -> list[tuple[list[int], list[bool]]]:
    sample = data.examples(10_000)
    shown = torch.where(sample.targets != UNASKED, sample.targets, sample.inputs)
    return list(zip(shown.tolist(), sample.visible[:, 0].tolist(), strict=True))


def test_what_cannot_be_learned_is_refused(prose: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"at most task.context=5 tokens .* 2\d\d are longer"):
        small(prose, context=5).open()
    with pytest.raises(ValidationError, match="there is no text"):
        small(tmp_path / "gone.txt")
    for content in ("", "  \n \n", "all of it is one word"):
        (tmp_path / "little.txt").write_text(content)
        with pytest.raises(ValidationError, match=r"the \w+ part of .* has no line of text"):
            small(tmp_path / "little.txt", validation_share=0.01)
    for fields in ({"mask_rate": 0}, {"mask_rate": 1}, {"random_rate": 1.1}, {"patterns": 0}, {"context": 2}):
        with pytest.raises(ValidationError, match=next(iter(fields))):
            small(prose, **fields)
