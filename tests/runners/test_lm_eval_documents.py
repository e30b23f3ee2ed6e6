"""Documents and folders of lm-eval tasks: what is right, what may be read, and what is refused with its place."""

import json
import os
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from huggingface_hub import constants as hub
from torch import Tensor

from grid.errors import SpecError
from runners.evaluations import LmEval
from runners.evaluations.lm_eval_adapter import generation_limits, offline
from runners.tasks import Text
from runners.tasks.task import Items, Measurements
from runners.training.loop import train
from runners.trial import Trial

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
fewshot_split: test
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
    ("answer", None, "has None and the choices"),
    ("said", "B", r"has 'B' and the choices \['b', 'cc'\]"),
    ("several", [0, 2], r"has \[0, 2\] and the choices"),
]


@pytest.mark.parametrize(("field", "value", "words"), NO_ANSWERS)
def test_an_answer_that_is_no_choice_is_refused(field: str, value: object, words: str, tmp_path: Path) -> None:
    documents = [dict(each, choices=DOCUMENTS[0]["choices"], said="b") for each in DOCUMENTS]
    documents[2][field] = value
    with pytest.raises(SpecError, match=f"^the right answer is .*document 2 of .*'mine' {words}"):
        write_task(tmp_path / "t", documents, aimed_at(field)).open(TASK)


LINES = "".join(json.dumps(each) + "\n" for each in DOCUMENTS)
REFUSED = {
    "an unknown split": (LINES, ("test_split: test", "test_split: tset"), r"mine in .* cannot be loaded .*'tset'"),
    "no data": ("", ("", ""), r"mine in .* cannot be loaded"),
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


GROUP = """
group: both
task: [mine, other]
aggregate_metric_list: [{metric: acc}]
"""


def folder(place: Path, **files: str) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "items.jsonl").write_text(LINES)
    for name, text in {"mine": MINE, **files}.items():
        (place / f"{name}.yaml").write_text(text)
    return place


def uniform(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
    return torch.zeros(*inputs.shape, 256)


def test_examples_and_context_are_where_a_row_is_taken(tiny: Trial, memory: Any, tmp_path: Path) -> None:
    place = str(folder(tmp_path / "t"))
    both = tuple(LmEval(tasks=("mine",), include=place, fewshot=count) for count in (None, 1))
    world = memory()
    train(tiny.changed(task=TASK.changed(context=16), evaluations=(both[0], both[1].changed(context=15))), world)
    for fewshot, context in ((0, 16), (1, 15)):
        at = (("context", context), ("fewshot", fewshot))
        assert {row[2:] for row in world.evaluations if row[1] == "lm_eval.mine.acc"} >= {at}
        assert {row[2:] for row in world.single if row[1] == "lm_eval.mine.loss"} >= {at}


def test_a_group_is_where_its_tasks_are(tmp_path: Path) -> None:
    for count, expected in ((0, {"fewshot": 0, "context": 32}), (1, {"context": 32})):
        other = f"{MINE}num_fewshot: {count}\n".replace("task: mine", "task: other")
        place = folder(tmp_path / str(count), other=other, group=GROUP)
        rows = list(LmEval(tasks=("both",), include=str(place)).open(TASK).evaluate(uniform))
        points = {each.name: each.point for each in rows if isinstance(each, Measurements)}
        assert points["lm_eval.both.acc"] == expected
        assert points["lm_eval.other.acc"] == {"fewshot": count, "context": 32}
        assert {each.name for each in rows if isinstance(each, Items)} < set(points)


def test_the_network_is_left_out_only_while_the_harness_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    settings = (datasets.config, "HF_HUB_OFFLINE"), (datasets.config, "HF_DATASETS_OFFLINE"), (hub, "HF_HUB_OFFLINE")
    for module, name in settings:
        monkeypatch.setattr(module, name, False)
    with offline():
        assert all(getattr(*each) for each in settings)
        assert (os.environ["HF_HUB_OFFLINE"], os.environ["HF_DATASETS_OFFLINE"]) == ("1", "1")
    assert not any(getattr(*each) for each in settings)
    assert (os.environ["HF_HUB_OFFLINE"], os.environ.get("HF_DATASETS_OFFLINE")) == ("0", None)


INCLUDING = "include: {file}\ntask: mine\n"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"mine": MINE.replace("items.jsonl", ".items.jsonl")}, r"/\.items\.jsonl.*begins with a dot"),
        ({"mine": MINE.replace("items.jsonl", ".kept/items.jsonl")}, r"/\.kept/.*begins with a dot"),
        ({"mine": INCLUDING.format(file="../shared/base.yaml")}, r"'mine' reads .*shared/base\.yaml, .*outside of"),
        ({"mine": INCLUDING.format(file=".base.yaml"), ".base": MINE}, r"/\.base\.yaml.*begins with a dot"),
        (
            {"mine": INCLUDING.format(file="[near.yaml]"), "near": "include: ../shared/base.yaml\n"},
            r"shared/base\.yaml, .*outside of",
        ),
    ],
)
def test_what_is_no_part_of_the_key_is_not_read(files: dict[str, str], words: str, tmp_path: Path) -> None:
    folder(tmp_path / "shared", base=MINE)
    place = folder(tmp_path / "t", **files)
    (place / ".kept").mkdir()
    for hidden in (".items.jsonl", ".kept/items.jsonl"):
        (place / hidden).write_text(LINES)
    with pytest.raises(SpecError, match=words):
        LmEval(tasks=("mine",), include=str(place)).open(TASK)


def request(*args: object) -> Any:
    return type("Request", (), {"args": args, "task_name": "t", "doc_id": 7})()


def test_writing_is_greedy_and_ends() -> None:
    for asked, expected in (
        ({"do_sample": False, "temperature": 0.7, "until": "x"}, (256, ("x",))),
        ({"max_new_tokens": 3}, (3, ())),
        ({"max_gen_toks": 2, "max_tokens": 3, "until": ["x", "y"]}, (2, ("x", "y"))),
    ):
        assert generation_limits(request("", asked)) == expected
    for asked, words in (
        ({"temperature": 0.7}, "document 7 .* asks for samples"),
        ({"do_sample": True}, "asks for samples"),
        ({"max_gen_toks": 0}, "document 7 .* generates 0 tokens"),
    ):
        with pytest.raises(SpecError, match=words):
            generation_limits(request("", asked))
