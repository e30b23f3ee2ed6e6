"""Evaluations of lm-eval beside one another, and what may be read for them."""

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

ITEMS = """
{"question": "a", "choices": ["b", "cc"], "answer": 0}
{"question": "b", "choices": ["a", "c"], "answer": 1}
"""
MINE = """
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
GROUP = """
group: both
task: [mine, other]
aggregate_metric_list: [{metric: acc}]
"""
TASK = Text(context=32, batch=2, validation_windows=2)


def folder(place: Path, **files: str) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "items.jsonl").write_text(ITEMS.lstrip())
    for name, text in {"mine": "task: mine" + MINE, **files}.items():
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
        other = f"task: other{MINE}num_fewshot: {count}\n"
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
        ({"mine": "task: mine" + MINE.replace("items.jsonl", ".items.jsonl")}, r"/\.items\.jsonl.*begins with a dot"),
        ({"mine": "task: mine" + MINE.replace("items.jsonl", ".kept/items.jsonl")}, r"/\.kept/.*begins with a dot"),
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
        (place / hidden).write_text(ITEMS.lstrip())
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
