"""Documents of an lm-eval task: what is right in them, and what is refused with its place before anything is asked."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grid.errors import SpecError
from runners.evaluations import LmEval
from runners.tasks import Text
from runners.tasks.task import Items, Measurements

DOCUMENTS: list[dict[str, Any]] = [
    {"question": "a", "choices": ["b", "cc"], "answer": 0, "said": "b", "several": [0, 1]},
    {"question": "b", "choices": ["a", "c"], "answer": 1, "said": "c", "several": [1]},
    {"question": "c", "choices": ["ab", "c"], "answer": 0, "said": "ab", "several": [0]},
]
MINE = """
task: mine
dataset_path: json
dataset_kwargs: {data_files: {test: items.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list: [{metric: acc}]
"""
TASK = Text(context=32, batch=2, validation_windows=2)


def write_task(place: Path, documents: str | list[dict[str, Any]] = DOCUMENTS, yaml: str = MINE) -> LmEval:
    place.mkdir()
    lines = documents if isinstance(documents, str) else "".join(json.dumps(each) + "\n" for each in documents)
    (place / "items.jsonl").write_text(lines)
    (place / "mine.yaml").write_text(yaml)
    return LmEval(tasks=("mine",), include=str(place))


def values(spec: LmEval) -> dict[str, dict[str, float]]:
    table = torch.randn(256, 256, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        return table[inputs]

    rows = list(spec.open(TASK).evaluate(predict))
    assert {each.name for each in rows if isinstance(each, Items)} <= {each.name for each in rows}
    items = {each.name: dict(zip(each.items, each.values, strict=True)) for each in rows if isinstance(each, Items)}
    assert all(each.name in items for each in rows if isinstance(each, Measurements))
    return items


def aimed_at(target: str) -> str:
    return MINE.replace("doc_to_target: answer", f"doc_to_target: {target}")


@pytest.mark.parametrize("target", ["said", '"{{said}}"', '"{{answer}}"'])
def test_an_answer_is_a_number_or_the_text_of_a_choice(target: str, tmp_path: Path) -> None:
    """Accuracy and cost are those of the number, however it is written."""
    by_number = values(write_task(tmp_path / "a"))
    assert set(by_number) == {"lm_eval.mine.acc", "lm_eval.mine.loss", "lm_eval.mine.truncated"}
    assert values(write_task(tmp_path / "b", yaml=aimed_at(target))) == by_number
    several = values(write_task(tmp_path / "c", yaml=aimed_at("several")))
    assert several["lm_eval.mine.acc"] == {**by_number["lm_eval.mine.acc"], "0": 1.0}
    costs = by_number["lm_eval.mine.loss"]
    assert several["lm_eval.mine.loss"] == {name: costs[name] for name in ("1", "2")}  # one alone is right


def test_contexts_that_compete_have_their_answer_in_the_text(tmp_path: Path) -> None:
    """As in WinoGrande: choices are contexts, the number of the right one is the text, the target continues each."""
    competing = MINE.replace('"{{question}}"', "answer").replace("doc_to_target: answer", "doc_to_target: question")
    found = values(write_task(tmp_path / "a", yaml=competing))
    swapped = [{**each, "choices": each["choices"][::-1], "answer": 1 - each["answer"]} for each in DOCUMENTS]
    assert values(write_task(tmp_path / "b", swapped, competing)) == found
    wrong = [{**each, "answer": 1 - each["answer"]} for each in DOCUMENTS]
    other = values(write_task(tmp_path / "c", wrong, competing))
    assert other["lm_eval.mine.acc"] == {name: 1 - value for name, value in found["lm_eval.mine.acc"].items()}
    assert other["lm_eval.mine.loss"] != found["lm_eval.mine.loss"]
    assert len(found["lm_eval.mine.loss"]) == 3


NO_ANSWERS = [
    ("answer", 5, "has 5 and the choices"),
    ("answer", -1, "has -1 and the choices"),
    ("answer", None, "has None and the choices"),
    ("said", "B", r"has 'B' and the choices \['b', 'cc'\]"),
    ("several", [0, 2], r"has \[0, 2\] and the choices"),
    ("several", [], r"has \[\] and the choices"),
]


@pytest.mark.parametrize(("field", "value", "words"), NO_ANSWERS)
def test_an_answer_that_is_no_choice_is_refused(field: str, value: object, words: str, tmp_path: Path) -> None:
    documents = [dict(each, choices=DOCUMENTS[0]["choices"], said="b") for each in DOCUMENTS]
    documents[2][field] = value
    with pytest.raises(SpecError, match=f"^the right answer is .*document 2 of .*'mine' {words}"):
        write_task(tmp_path / "t", documents, aimed_at(field)).open(TASK)


LINES = "".join(json.dumps(each) + "\n" for each in DOCUMENTS)
REFUSED = {
    "an unknown metric": (LINES, ("metric: acc", "metric: accc"), "mine in .* cannot be loaded"),
    "an unknown split": (LINES, ("test_split: test", "test_split: tset"), r"mine in .* cannot be loaded .*'tset'"),
    "no split": (LINES, ("test_split: test\n", ""), r"mine in .* cannot be loaded"),
    "no data": ("", ("", ""), r"mine in .* cannot be loaded"),
    "torn data": (LINES[:-9], ("", ""), r"mine in .* cannot be loaded .*in row 2"),
    "a template that fails at once": (LINES, ("{{question}}", "{{choices[7].upper()}}"), "loaded .UndefinedError"),
    "a template that fails later": (
        LINES.replace('"answer": 1', '"answer": 4'),
        ("{{question}}", "{{choices[answer].upper()}}"),
        "cannot be rendered .UndefinedError",
    ),
    "an unknown field": (LINES, ("doc_to_text", "doc_to_txt"), "TypeError.*doc_to_txt"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_task_that_cannot_be_made_says_why_and_where(case: str, tmp_path: Path) -> None:
    lines, (old, new), words = REFUSED[case]
    spec = write_task(tmp_path / "t", lines, MINE.replace(old, new) if old else MINE)
    with pytest.raises(SpecError, match=words):
        spec.open(TASK)
