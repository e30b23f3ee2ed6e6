"""Long contexts: what a model reads and writes, and how it is scored."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from grid.errors import SpecError
from runners import LongContext, Text
from runners.evaluations.longbench import ANSWER_TOKENS, PROMPTS, SCORES
from runners.tasks import Items, Measurements, Predict


def item(dataset: str = "qasper", **more: object) -> dict[str, object]:
    return {"input": "Q?", "context": "words", "answers": ["42"], "dataset": dataset, "all_classes": None, **more}


def asking(path: Path, *items: Mapping[str, Any], **fields: Any) -> LongContext:
    path.write_text("".join(json.dumps(each) + "\n" for each in items), encoding="utf-8")
    return LongContext(source=str(path), **{"context": 64, "new_tokens": 8, **fields})


def saying(*answers: str) -> Predict:
    """A model that answers a prompt of n tokens with answer n modulo the number of answers, and then ends."""

    def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        logits = torch.zeros(*inputs.shape, 256)
        for row, ids in enumerate(inputs.tolist()):
            for at in range(len(ids)):
                begin = bytes(ids[: at + 1]).find(b"|") + 1
                if begin:
                    text = answers[begin % len(answers)].encode() + b"\0"
                    logits[row, at, text[min(at + 1 - begin, len(text) - 1)]] = 1
        return logits

    return predict


def rows(spec: LongContext, predict: Predict, task: Text) -> dict[str, Measurements]:
    found = [each for each in spec.open(task).evaluate(predict) if isinstance(each, Measurements)]
    assert [each.point for each in found] == [{"factor": spec.point["factor"]}] * len(found)
    return {each.name: each for each in found}


ASK = "{context} {input}|"


def test_answers_are_what_the_model_writes(tmp_path: Path, task: Text) -> None:
    """Prompts of two lengths are answered differently: "42" is right and "no 42" half of it."""
    named = item("trec", all_classes=["42"], _id="abc", length=7)  # a line may hold more than is read
    spec = asking(tmp_path / "a.jsonl", item(), item(context="words!"), named, template=ASK)
    found = rows(spec, saying("42", "no 42"), task)
    items = {each.name: each for each in spec.open(task).evaluate(saying("42", "no 42")) if isinstance(each, Items)}
    assert sorted(items["long_context.qasper"].values) == pytest.approx([2 / 3, 1.0])
    assert list(items["long_context.trec"].items) == ["abc"]
    assert found["long_context.qasper"].value == pytest.approx(5 / 6)
    assert found["long_context.trec"].value == 1
    assert found["long_context"].value == pytest.approx((5 / 6 + 1) / 2)
    assert found["long_context_truncated"].value == 0
    assert sorted(found) == sorted(spec.measures())


def test_writing_stops_at_the_end_at_a_line_or_when_there_is_enough(tmp_path: Path, task: Text) -> None:
    calls: list[tuple[int, ...]] = []

    def counting(predict: Predict) -> Predict:
        def run(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
            calls.append(tuple(inputs.shape))
            return predict(inputs)

        return run

    for dataset, said, expected, passes in (
        ("qasper", "42", 1, 3),
        ("qasper", "42\nmore", 2 / 3, 8),
        ("triviaqa", "42\nmore", 1, 3),
        ("triviaqa", "\n42\nmore", 1, 4),
        ("qasper", "42 and so on", 1 / 2, 8),  # "42 and s"
    ):
        calls.clear()
        spec = asking(tmp_path / "a.jsonl", item(dataset), template=ASK)
        found = rows(spec, counting(saying(said)), task)[f"long_context.{dataset}"]
        assert found.value == pytest.approx(expected)
        assert calls == [(1, len("\0words Q?|") + step) for step in range(passes)]


def record_inputs(spec: LongContext, task: Text) -> list[bytes]:
    seen: list[bytes] = []

    def remember(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        seen.extend(map(bytes, inputs.tolist()))
        return F.one_hot(torch.zeros_like(inputs), 256).float()  # the end, at once

    rows(spec, remember, task)
    return seen


def test_what_does_not_fit_loses_its_middle(tmp_path: Path, task: Text) -> None:
    spec = asking(tmp_path / "a.jsonl", item(context="abcdefghijklmnop"), template="{context}-{input}")
    whole = b"\0abcdefghijklmnop-Q?"
    for context, expected in ((64, whole), (28, whole), (27, b"\0abcdefghiklmnop-Q?"), (17, b"\0abcdp-Q?")):
        assert record_inputs(spec.changed(context=context), task) == [expected]
    assert record_inputs(spec.changed(context=16), task) == [b"\0abc-Q?"]  # room for 7: the odd one stays empty
    assert rows(spec.changed(context=28), saying("42"), task)["long_context_truncated"].value == 0
    assert rows(spec.changed(context=27), saying("42"), task)["long_context_truncated"].value == 1
    spec = asking(tmp_path / "a.jsonl", item(context="{input}", input="{context}"), template="<{input}> ({context})")
    assert record_inputs(spec, task) == [b"\0<{context}> ({input})"]


def test_longbench_has_a_prompt_and_an_answer_length_for_each_set(tmp_path: Path, task: Text) -> None:
    assert SCORES.keys() == PROMPTS.keys() == ANSWER_TOKENS.keys()
    ask = {**item("lcc", context="a = 1\n", input="unused", answers=["b"]), "_id": "code"}
    spec = asking(
        tmp_path / "a.jsonl", ask, item("trec", context="{input}", all_classes=["42"]), template="{context}-{input}"
    )
    named = spec.changed(prompts="longbench", context=700)
    assert named.key == named.changed(template="{input} {context}", new_tokens=3).key
    code = b"\0Please complete the code given below. \na = 1\nNext line of code:\n"
    question = b"\0Please determine the type of the question below. Here are some examples of questions.\n\n{input}\nQ?"
    assert record_inputs(named, task) == [code, question]

    written: list[int] = []

    def talk(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        written.append(inputs.shape[-1])
        return F.one_hot(torch.full_like(inputs, ord("x")), 256).float()

    rows(named.changed(sets=("lcc",)), talk, task)
    assert written == [len(code) + step for step in range(64)]
    with pytest.raises(SpecError, match=r"LongBench's longest answer \+ 3 = 67; got context=66"):
        named.changed(context=66)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (item("dureader"), "dataset is one of narrativeqa, .*; .*line 1 has 'dureader'"),
        (item("trec", all_classes=["a"]), r"answers of trec must be among all_classes; .*\['42'\]"),
        (item("trec"), "answers of trec must be among all_classes"),
        (item("passage_retrieval_en"), r"'Paragraph' and a number; got '42', in .*line 1; correct it"),
        (item(answers=[]), "'answers' of an item is a list of texts"),
        (item(context=None), "'context' of an item is a text; .* has None"),
    ],
)
def test_a_file_that_asks_nothing_is_refused(tmp_path: Path, line: Mapping[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        asking(tmp_path / "a.jsonl", line)
