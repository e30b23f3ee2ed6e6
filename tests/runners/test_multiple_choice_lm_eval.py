"""Multiple choice beside lm-evaluation-harness: the same model on the same questions is right about the same ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from runners import MultipleChoice, Text
from runners.tasks import Items, Measurements
from runners.tasks.text.encoder import ByteEncoder, Encoder
from variants import Transformer, llama2, softmax

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of lm-eval and what it imports

RULES = ("acc", "acc_norm", "acc_bytes")
YAML = """
task: ours
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}]
"""
WORDS = ("the", "cat", "sat", "on", "a", "mat", "then", "it", "ran", "dogs", "bark", "night.", "\u00e9t\u00e9", "warm!")


def draw_questions(count: int) -> list[dict[str, Any]]:
    """Questions of random words, some with white space at their end, some of nothing."""
    made = torch.Generator().manual_seed(0)

    def words(least: int, most: int) -> str:
        size = int(torch.randint(least, most, (), generator=made))
        return " ".join(WORDS[int(i)] for i in torch.randint(len(WORDS), (size,), generator=made))

    items = []
    for number in range(count):
        choices = list(dict.fromkeys(words(1, 5) for _ in range(4)))
        question = words(0, 9) + ("  " if number % 5 == 0 else "")
        items.append({"question": question, "choices": choices, "answer": number % len(choices)})
    return items


@pytest.fixture
def model() -> Transformer:
    backbone = llama2(layers=2, heads=2, width=16, feedforward_width=32)
    made = Transformer(backbone, [softmax()] * 2, inputs=Text(context=8).inputs, seed=0).double().eval()
    for parameter in made.parameters():
        parameter.data *= 4  # far from equally likely
    return made


@pytest.fixture
def language_model() -> Callable[..., Any]:
    """An LM of lm-eval that scores one request at a time."""
    from lm_eval.api.model import TemplateLM

    class OneByOne(TemplateLM):
        def __init__(self, encoder: Encoder, model: Any = None) -> None:
            super().__init__()
            self.encoder, self.model = encoder, model

        @property
        def eot_token_id(self) -> int:
            return self.encoder.end

        def tok_encode(self, string: str, **_: Any) -> list[int]:
            return list(self.encoder.encode(string).ids)

        def _loglikelihood_tokens(self, requests: Any, **_: Any) -> list[tuple[float, bool]]:
            return [self._score(context, answer) for _, context, answer in requests]

        def _score(self, context: list[int], answer: list[int]) -> tuple[float, bool]:
            begin = [] if context == [self.encoder.end] else [self.encoder.end]
            whole = [*begin, *context, *answer]
            with torch.inference_mode():
                found = self.model(torch.tensor([whole[:-1]]))[0].log_softmax(-1)[-len(answer) :]
            return float(found.gather(1, torch.tensor(answer)[:, None]).sum()), False

        def loglikelihood_rolling(self, requests: Any, **_: Any) -> list[float]:
            raise NotImplementedError

        def generate_until(self, requests: Any, **_: Any) -> list[str]:
            raise NotImplementedError

    return OneByOne


def by_lm_eval(folder: Path, data: Path, language_model: Any) -> dict[str, dict[str, float]]:
    """By rule, what is right of every item, asked of lm-eval without any network."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    (folder / "ours.yaml").write_text(YAML.replace("DATA", str(data)))
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    common = {"task_manager": manager, "bootstrap_iters": 0, "log_samples": True}
    found = simple_evaluate(model=language_model, tasks=["ours"], **common)
    rights = {rule: {f"set/{each['doc_id'] + 1}": each[rule] for each in found["samples"]["ours"]} for rule in RULES}
    return {**rights, "aggregated": {rule: found["results"]["ours"][f"{rule},none"] for rule in RULES}}


def test_lm_eval_is_right_about_the_same_questions(
    tmp_path: Path, model: Any, language_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
    data = tmp_path / "set.jsonl"
    data.write_text("".join(json.dumps(each) + "\n" for each in draw_questions(40)), encoding="utf-8")
    theirs = by_lm_eval(tmp_path, data, language_model(ByteEncoder(), model))
    task, spec = Text(context=8), MultipleChoice(source=str(data))
    with torch.inference_mode():
        found = list(spec.open(task).evaluate(model))
    means = {each.name: each.value for each in found if isinstance(each, Measurements)}
    single = {each.name: dict(zip(each.items, each.values, strict=True)) for each in found if isinstance(each, Items)}
    for rule in RULES:
        assert single[f"multiple_choice_{rule}.set"] == theirs[rule]
        assert means[f"multiple_choice_{rule}"] == pytest.approx(theirs["aggregated"][rule], abs=1e-12)
    assert theirs["acc"] != theirs["acc_norm"] != theirs["acc_bytes"]
    assert 0 < theirs["aggregated"]["acc"] < 1
