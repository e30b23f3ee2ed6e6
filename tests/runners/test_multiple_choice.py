"""Multiple choice: models whose choices are computed by hand, files that are refused, and how questions are shown."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from runners import MultipleChoice, Text
from runners.evaluations.multiple_choice import RULES
from runners.tasks import Items, Measurements, Predict

P = {"a": 1 / 2, "b": 1 / 4, " ": 1 / 8}
REST = (1 - sum(P.values())) / (256 - len(P))
BITS = [-math.log2(P.get(chr(byte), REST)) for byte in range(256)]


def unigram(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
    """Every byte has a probability of its own, whatever came before."""
    return (-math.log(2) * torch.tensor(BITS, dtype=torch.float64)).expand(*inputs.shape, 256)


def asking(path: Path, *items: Mapping[str, Any], **fields: Any) -> MultipleChoice:
    path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return MultipleChoice(source=str(path), **fields)


def item(question: str, *choices: str, answer: int = 0, **more: object) -> dict[str, object]:
    return {"question": question, "choices": list(choices), "answer": answer, **more}


def rows(spec: MultipleChoice, predict: Predict, task: Text) -> dict[str, Measurements]:
    found = [each for each in spec.open(task).evaluate(predict) if isinstance(each, Measurements)]
    keyed = {each.name.replace("multiple_choice_", ""): each for each in found}
    assert len(keyed) == len(found)
    return keyed


def chosen(spec: MultipleChoice, task: Text) -> dict[str, dict[str, float]]:
    """By rule, what is right of every item."""
    found = [each for each in spec.open(task).evaluate(unigram) if isinstance(each, Items)]
    assert [each.point for each in found] == [{}] * len(found)
    rules = [each.name.removeprefix("multiple_choice_").partition(".")[0] for each in found]
    return {rule: dict(zip(each.items, each.values, strict=True)) for rule, each in zip(rules, found, strict=True)}


def scores(question: str, choice: str) -> tuple[float, ...]:
    """In plain Python, in bits, more is better."""
    answer = [BITS[byte] for byte in (" " + choice).encode()]
    before = [BITS[byte] for byte in question.encode()]
    total = -sum(answer)
    mean = -sum(before + answer) / len(before + answer)
    return total, total / len(choice), total / len(choice.encode()), total / len(answer), mean


def draw_questions(count: int) -> list[dict[str, object]]:
    """Questions of random letters, among them some of two bytes; the answer is anywhere."""
    made = torch.Generator().manual_seed(0)

    def word(most: int) -> str:
        size = int(torch.randint(1, most, (), generator=made))
        return "".join("aabbz\u00e9"[int(i)] for i in torch.randint(6, (size,), generator=made))

    items = []
    for _ in range(count):
        number = int(torch.randint(2, 5, (), generator=made))
        answer = int(torch.randint(number, (), generator=made))
        question, choices = word(40), list[str]()
        while len(choices) < number:
            choices += {word(9)} - set(choices)
        items.append(item(question, *choices, answer=answer))
    return items


def test_every_rule_is_that_of_plain_python(tmp_path: Path, task: Text) -> None:
    items = draw_questions(150)
    found = chosen(asking(tmp_path / "set.jsonl", *items), task)
    agreed = set()
    for at, rule in enumerate(RULES):
        for number, each in enumerate(items, start=1):
            of_choices = [scores(str(each["question"]), choice)[at] for choice in each["choices"]]  # type: ignore[attr-defined]
            right = of_choices.pop(int(each["answer"]))  # type: ignore[call-overload]
            if min(abs(right - other) for other in of_choices) > 1e-9:
                assert found[rule][f"set/{number}"] == float(all(right > other for other in of_choices))
                agreed.add((at, number))
    assert len(agreed) > 5 * 130
    assert len({tuple(each.values()) for rule, each in found.items() if rule in RULES}) == 5
    tied = asking(tmp_path / "tied.jsonl", item("a", "ab", "ba"), item("a", "ba", "ab"))
    for predict in (unigram, lambda inputs: unigram(inputs) * torch.nan):  # a tie and a model that says nothing
        assert {rows(tied, predict, task)[rule].value for rule in RULES} == {0.0}
    for number, each in enumerate(items, start=1):
        bits = -scores(str(each["question"]), each["choices"][each["answer"]])[0]  # type: ignore[index]
        assert found["loss"][f"set/{number}"] == pytest.approx(bits * math.log(2))


def test_rows_are_means_over_items_and_over_sets(tmp_path: Path, task: Text) -> None:
    """Sets are groups, or files; the row without a set is the mean of theirs, whatever their sizes."""
    (tmp_path / "sets").mkdir()
    easy, hard = item("b", "a", "zz"), item("b", "zz", "a", "b", "ab")
    asking(tmp_path / "sets" / "Plain Set.jsonl", easy, easy, hard)
    spec = asking(tmp_path / "sets" / "two.jsonl", {**easy, "group": "A+"}, {**hard, "group": "A+"}, easy)
    whole = MultipleChoice(source=str(tmp_path / "sets"))
    assert (spec.sets, whole.sets) == (("a", "two"), ("a", "plain_set", "two"))
    found = rows(whole, unigram, task)
    values = {name: found[f"acc.{name}"].value for name in whole.names}
    assert values == {"a": 0.5, "plain_set": pytest.approx(2 / 3), "two": 1}
    assert found["acc"].value == pytest.approx((0.5 + 2 / 3 + 1) / 3)
    assert (found["acc"].items, found["acc"].se_items) == (6, None)  # a single item has no standard error
    assert found["acc.plain_set"].se_items == pytest.approx(1 / 3)
    assert found["chance.acc.plain_set"].value == pytest.approx((0.5 + 0.5 + 0.25) / 3)
    two = rows(MultipleChoice(source=str(tmp_path / "sets"), sets=("plain_set", "a")), unigram, task)
    assert two["acc"].se_items == pytest.approx(math.hypot(1 / 3, 0.5) / 2)
    assert {name.partition(".")[2] for name in two if name.startswith("acc.")} == {"a", "plain_set"}


def seen_tokens(spec: MultipleChoice, task: Text) -> list[list[int]]:
    shown: list[list[int]] = []

    def remember(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        shown.extend(inputs.tolist())
        return unigram(inputs)

    rows(spec, remember, task)
    return shown


def test_what_a_model_reads(tmp_path: Path, task: Text) -> None:
    """The end of a document, context, question and answer but for its last token, without padding."""
    spec = asking(tmp_path / "set.jsonl", {"context": "A b", "question": "c? ", "choices": ["d", "ee"], "answer": 0})
    assert [bytes(ids) for ids in seen_tokens(spec, task)] == [b"\0A b\nc?  ", b"\0A b\nc?  e"]
    lines = seen_tokens(spec.changed(delimiter="\n"), task)
    assert [bytes(ids) for ids in lines] == [b"\0A b\nc? \n", b"\0A b\nc? \ne"]


def test_what_does_not_fit_loses_its_beginning_and_is_counted(tmp_path: Path, task: Text) -> None:
    spec = asking(tmp_path / "set.jsonl", item("abcdefgh", "ij", "k"), item("ab", "c", "d"), context=9)
    shown = {bytes(ids).rstrip(b"\0") for ids in seen_tokens(spec, task)}
    assert shown == {b"bcdefgh i", b"abcdefgh ", b"\0ab "}
    assert rows(spec, unigram, task)["truncated"].value == 0.5
    assert rows(spec.changed(context=10), unigram, task)["truncated"].value == 0.5
    assert rows(spec.changed(context=11), unigram, task)["truncated"].value == 0


GOOD = item("b", "a", "zz")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "has no items"),
        ("[1]", r"one JSON object; .*line 1 has '\[1\]'"),
        (b"\xff", "a text is UTF-8; .* is not, at byte 0; convert it"),
        ({**GOOD, "anwser": 1}, "no field 'anwser'"),
        ({"choices": ["a", "b"], "answer": 0}, "has a question or a context"),
        (item("b", "a", " "), r"none of them empty; .*line 1 has \['a', ' '\]"),
        (item("b", "a", "a", "c"), r"choices differ.*line 1 has \['a', 'a', 'c'\]"),
        ([item("b", "a", "c", group=name) for name in ("C", "C++")], r"line 2 has 'C\+\+' and there is 'C'"),
        ([item("b", "a", "c", group="SET"), item("b", "a", "c")], "line 2 has 'set' and there is 'SET'"),
        (item("b", "a", "c", answer=2), "index of a choice, 0 to 1; .* has 2"),
        (item("b", "a", "c") | {"answer": True}, "index of a choice, 0 to 1; .* has True"),
        (item("b", "a", "c", group="?"), "name of a set needs letters or digits"),
        ([item("b", "a", "c", id="x")] * 2, "line 2 repeats 'x'"),
    ],
)
def test_a_file_that_asks_nothing_is_refused(tmp_path: Path, lines: object, said: str) -> None:
    path = tmp_path / "set.jsonl"
    several: Sequence[object] = lines if isinstance(lines, list) else [lines]
    texts = [each if isinstance(each, str | bytes) else json.dumps(each) for each in several]
    path.write_bytes(b"\n".join(each if isinstance(each, bytes) else each.encode() for each in texts))
    with pytest.raises(ValueError, match=said):
        MultipleChoice(source=str(path))
