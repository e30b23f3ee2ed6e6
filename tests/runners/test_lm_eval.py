"""lm-evaluation-harness over our models: its numbers against plain arithmetic, and what it must not be asked."""

import json
import math
import random
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from grid.errors import EnvironmentProblem, SpecError
from runners.evaluations import LmEval, MultipleChoice
from runners.evaluations.likelihood import generate
from runners.evaluations.lm_eval_adapter import RequestConverter, score_questions
from runners.tasks import LinearFunctions, Text
from runners.tasks.task import Items, Measurements
from runners.tasks.text.encoder import ByteEncoder
from runners.trial import Trial
from variants import gpt2, llama2, softmax

HEAD = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
fewshot_split: test
"""
CHOICE = (
    HEAD
    + """\
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
{more}
"""
)
ROLLING = (
    HEAD.format(name="rolling", data="items.jsonl")
    + """\
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list: [{metric: bits_per_byte}, {metric: word_perplexity}]
"""
)
WRITTEN = (
    HEAD.format(name="written", data="items.jsonl")
    + """\
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{next}}"
generation_kwargs: {until: ["d"], max_gen_toks: 6}
metric_list: [{metric: exact_match}]
"""
)
ITEMS = [
    {"question": "a", "choices": ["b", "cc"], "answer": 0, "next": "bc"},
    {"question": "b", "choices": ["a", "c a"], "answer": 1, "next": "c"},
    {"question": "", "choices": ["abc", "c"], "answer": 0, "next": ""},
    {"question": "ab c", "choices": ["b", "ab", "cab"], "answer": 2, "next": ""},
    {"question": "c", "choices": ["c", "b"], "answer": 1, "next": ""},
]
TASK = Text(context=16, batch=2, validation_windows=2)


def folder(place: Path, items: list[dict[str, Any]] = ITEMS, more: str = "", data: str = "items.jsonl") -> Path:
    place.mkdir(exist_ok=True)
    (place / "items.jsonl").write_text("".join(json.dumps(each) + "\n" for each in items))
    (place / "mine.yaml").write_text(CHOICE.format(name="mine", data=data, more=more))
    (place / "rolling.yaml").write_text(ROLLING)
    (place / "written.yaml").write_text(WRITTEN)
    return place


@pytest.fixture
def table() -> Tensor:
    """Logits of the next byte by the last one: a model whose likelihoods are known."""
    return torch.randn(256, 256, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3


def bigrams(table: Tensor) -> Callable[..., Tensor]:
    def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        return table[inputs]

    return predict


def log_likelihood(table: Tensor, before: str, text: str) -> float:
    """Plain floats, byte by byte; a context begins with the end of a document."""
    ids = [0, *(before + text).encode()]
    total = 0.0
    for at in range(len(ids) - len(text.encode()), len(ids)):
        row = [float(each) for each in table[ids[at - 1]]]
        total += row[ids[at]] - math.log(math.fsum(math.exp(each) for each in row))
    return total


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness's own tasks, of which reading all takes ten seconds: here one, whose data are on the Hub."""
    place = tmp_path / "registry"
    place.mkdir()
    text = CHOICE.format(name="hellaswag", data="x", more="").replace("path: json", "path: Rowan/hellaswag")
    (place / "hellaswag.yaml").write_text(text.replace("dataset_kwargs: {data_files: {test: x}}\n", ""))
    monkeypatch.setattr("lm_eval.tasks.manager.__file__", str(place / "manager.py"))


def evaluate(spec: LmEval, predict: Callable[..., Tensor]) -> tuple[dict[str, Measurements], dict[str, Items]]:
    rows = list(spec.open(TASK).evaluate(predict))
    found = {each.name: each for each in rows if isinstance(each, Measurements)}
    return found, {each.name: each for each in rows if isinstance(each, Items)}


def test_accuracy_is_what_plain_arithmetic_says(tmp_path: Path, table: Tensor) -> None:
    found, items = evaluate(LmEval(tasks=("mine",), include=str(folder(tmp_path / "t"))), bigrams(table))
    costs = [[log_likelihood(table, each["question"], f" {choice}") for choice in each["choices"]] for each in ITEMS]
    lengths = [[len(choice) for choice in each["choices"]] for each in ITEMS]
    right = [float(row.index(max(row)) == each["answer"]) for row, each in zip(costs, ITEMS, strict=True)]
    normed = [[cost / size for cost, size in zip(*pair, strict=True)] for pair in zip(costs, lengths, strict=True)]
    right_normed = [float(row.index(max(row)) == each["answer"]) for row, each in zip(normed, ITEMS, strict=True)]
    assert 0 < sum(right) < 5
    point = {"fewshot": 0, "context": 16}
    assert items["lm_eval.mine.acc"] == ("lm_eval.mine.acc", point, ["0", "1", "2", "3", "4"], right)
    assert list(items["lm_eval.mine.acc_norm"].values) == right_normed
    acc = found["lm_eval.mine.acc"]
    assert acc.value == pytest.approx(sum(right) / 5, abs=1e-15)
    p = acc.value
    assert acc.se_items == pytest.approx(math.sqrt(p * (1 - p) / 4), rel=1e-12)
    assert acc.items == 5
    gold = [-row[each["answer"]] for row, each in zip(costs, ITEMS, strict=True)]
    assert items["lm_eval.mine.loss"].values == pytest.approx(gold, rel=1e-12)
    assert found["lm_eval.mine.truncated"].value == 0


def test_the_harness_itself_says_the_same_of_a_model_of_its_own_kind(tmp_path: Path, table: Tensor) -> None:
    from lm_eval.api.model import LM
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    class Plain(LM):  # type: ignore[misc]
        """Knows nothing of tokens, batches or our code."""

        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            return [(log_likelihood(table, *each.args), False) for each in requests]

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            return [log_likelihood(table, "", each.args[0]) for each in requests]

        def generate_until(self, requests: list[Any]) -> list[str]:
            raise NotImplementedError

    place = folder(tmp_path / "t", data=str(tmp_path / "t" / "items.jsonl"))
    (place / "rolling.yaml").write_text(ROLLING.replace("items.jsonl", str(place / "items.jsonl")))
    manager = TaskManager(include_path=str(place), include_defaults=False)
    theirs = simple_evaluate(model=Plain(), tasks=["mine", "rolling"], task_manager=manager, bootstrap_iters=10)
    found, _ = evaluate(LmEval(tasks=("mine", "rolling"), include=str(place)), bigrams(table))
    for name in ("acc", "acc_norm"):
        assert found[f"lm_eval.mine.{name}"].value == theirs["results"]["mine"][f"{name},none"]
        assert found[f"lm_eval.mine.{name}"].se_items == pytest.approx(
            theirs["results"]["mine"][f"{name}_stderr,none"], rel=1e-12
        )
    for name in ("bits_per_byte", "word_perplexity"):
        value = theirs["results"]["rolling"][f"{name},none"]
        assert found[f"lm_eval.rolling.{name}"].value == pytest.approx(value, rel=1e-12)
        assert found[f"lm_eval.rolling.{name}"].se_items is None


def test_multiple_choice_is_right_about_the_same_questions(tmp_path: Path, table: Tensor) -> None:
    """Questions of random words, some with white space at their end, some of nothing."""
    made = random.Random(0)
    words = ("the", "cat", "sat", "on", "mat", "\u00e9t\u00e9", "warm!")
    items: list[dict[str, Any]] = []
    for number in range(40):
        choices = [*{" ".join(made.choices(words, k=made.randrange(1, 5))) for _ in range(4)}]
        question = " ".join(made.choices(words, k=made.randrange(5))) + "  " * (number % 5 == 0)
        items.append({"question": question, "choices": choices, "answer": number % len(choices)})
    metrics = "metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}]"
    place = folder(tmp_path / "t", items)
    mine = place / "mine.yaml"
    mine.write_text(re.sub("metric_list: .*", metrics, mine.read_text()))
    _, theirs = evaluate(LmEval(tasks=("mine",), include=str(place), context=512), bigrams(table))
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(each) + "\n" for each in items))
    ours = {
        each.name: each
        for each in MultipleChoice(source=str(tmp_path / "set.jsonl")).open(TASK).evaluate(bigrams(table))
        if isinstance(each, Items)
    }
    for rule in ("acc", "acc_norm", "acc_bytes"):
        values = list(theirs[f"lm_eval.mine.{rule}"].values)
        assert list(ours[f"multiple_choice_{rule}.set"].values) == values
        assert 0 < sum(values) < 40


@pytest.mark.parametrize("adds_bos", [False, True])
def test_rolling_likelihoods_are_those_of_the_harness_class_for_hugging_face(adds_bos: bool) -> None:
    """A tokenizer without a BOS lends its EOS as context, which is not scored; one that adds a BOS has it scored."""
    from lm_eval.models.huggingface import HFLM
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    characters = Tokenizer(models.WordLevel({"<s>": 0, **{chr(at): at for at in range(1, 128)}}, unk_token="<s>"))
    characters.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    if adds_bos:
        characters.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=characters, **{"bos_token" if adds_bos else "eos_token": "<s>"}
    )
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, initializer_range=1.0, **sizes)).double()

    def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        return model(inputs).logits

    for text in ("a", "abc cab", "abc cab bca, abcabc"):
        request = type("Request", (), {"args": (text,), "task_name": "t", "doc_id": 0})()
        theirs = HFLM(pretrained=model, tokenizer=tokenizer, max_length=8, batch_size=1).loglikelihood_rolling(
            [request]
        )
        windows = RequestConverter(ByteEncoder(), 8, score_bos=adds_bos).windows(request)
        with torch.no_grad():
            ours = score_questions(predict, windows, 256)
        assert sum(log_likelihood for log_likelihood, _ in ours) == pytest.approx(theirs[0], rel=1e-12)
        assert sum(each.scored for each in windows) == len(text) + adds_bos


def test_what_does_not_fit_loses_its_beginning_and_is_counted(tmp_path: Path, table: Tensor) -> None:
    spec = LmEval(tasks=("mine",), include=str(folder(tmp_path / "t")), context=4)
    seen: list[int] = []

    def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        seen.append(inputs.shape[1])
        return table[inputs]

    found, items = evaluate(spec, predict)
    # the end of a document, the question, a blank and a choice, of which all but the last are read
    long = [float(any(1 + len(each["question"] + choice) > 4 for choice in each["choices"])) for each in ITEMS]
    assert list(items["lm_eval.mine.truncated"].values) == long
    assert found["lm_eval.mine.truncated"].value == sum(long) / 5 > 0
    assert max(seen) == 4
    # bigrams need no more than what is left
    right = [log_likelihood(table, each["question"], " " + each["choices"][each["answer"]]) for each in ITEMS]
    assert list(items["lm_eval.mine.loss"].values) == pytest.approx([-each for each in right], rel=1e-12)


def test_generation_is_greedy_ends_where_it_is_told_and_is_compared(tmp_path: Path) -> None:
    table = torch.zeros(256, 256)
    for here, following in zip("abcdef", "bcdefg", strict=True):
        table[ord(here), ord(following)] = 1.0
    prompts = [list(b"a"), list(b"xxc"), list(b"f")]
    assert generate(bigrams(table), prompts, 2, ByteEncoder(), bool) == ["b", "d", "g"]
    assert generate(bigrams(table), prompts, 2, ByteEncoder(), str.isspace) == ["bc", "de", "g"]
    # "a" goes on with "bcd", which ends before "d", and "c" with nothing but that
    items = [ITEMS[0], {**ITEMS[4], "next": "d"}]
    found, single = evaluate(LmEval(tasks=("written",), include=str(folder(tmp_path / "t", items))), bigrams(table))
    assert list(single["lm_eval.written.exact_match"].values) == [1.0, 0.0]
    assert found["lm_eval.written.exact_match"].value == 0.5


def test_the_key_follows_the_content_of_the_folder_and_not_its_place(tmp_path: Path) -> None:
    first = LmEval(tasks=("mine",), include=str(folder(tmp_path / "a")))
    assert LmEval(tasks=("mine",), include=str(folder(tmp_path / "b"))).key == first.key
    (tmp_path / "b" / ".cache").write_text("left by an editor")
    assert LmEval(tasks=("mine",), include=str(tmp_path / "b")).key == first.key
    assert LmEval(tasks=("mine",), include=str(folder(tmp_path / "c", ITEMS[:4]))).key != first.key
    with pytest.raises(ValidationError, match=r"content_hash is .*restore it"):
        LmEval(tasks=("mine",), include=str(tmp_path / "c"), content_hash=first.content_hash)
    folder(tmp_path / "a", ITEMS[:4])
    with pytest.raises(SpecError, match="content_hash is"):
        first.open(TASK)
    assert LmEval.model_validate({**first.data(), "include": str(tmp_path / "gone")}).key == first.key


Case = tuple[str, dict[str, Any], dict[str, Any], dict[str, str]]
BROKEN: Mapping[str, Case] = {  # words of the error, fields of the spec, the folder and further files of it
    "not in the harness": ("did you mean 'hellaswag'", {"tasks": ("hellaswak",), "include": None}, {}, {}),
    "broken YAML": (
        "no lm-eval task 'bad' in readable YAML",
        {"tasks": ("bad",)},
        {},
        {"bad.yaml": "task: bad\n  x: [y\n"},
    ),
    "data elsewhere": ("outside of.*move it", {}, {"data": "../items.jsonl"}, {}),
    "no data": (r"'mine' names .*none\.jsonl, which does not exist", {}, {"data": "none.jsonl"}, {}),
    "torn data": ("mine in .* cannot be loaded .*JSON parse error", {}, {}, {"items.jsonl": '{"question": '}),
    "a text with NUL": ("document 0 .* the tokenizer refuses", {}, {"items": [{**ITEMS[0], "question": "a\0"}]}, {}),
    "an empty answer": (
        r"document 1 .* without tokens",
        {"tasks": ("rolling", "mine")},
        {"items": [ITEMS[0], {**ITEMS[0], "choices": ["b", ""]}], "more": "target_delimiter: ''"},
        {},
    ),
    "an answer that does not fit": ("has 4 tokens; the model sees 3", {"context": 3}, {}, {}),
    "more to write than fits": ("generates 6 tokens; the model", {"tasks": ("written",), "context": 6}, {}, {}),
    "samples": (
        "only greedy",
        {"tasks": ("written",)},
        {},
        {"written.yaml": WRITTEN.replace("{un", "{do_sample: true, un")},
    ),
    "examples where the task forbids them": ("sets num_fewshot to 0", {"fewshot": 3}, {"more": "num_fewshot: 0"}, {}),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.usefixtures("registry")
def test_what_cannot_be_asked_is_refused_before_any_training(case: str, tmp_path: Path) -> None:
    words, fields, contents, files = BROKEN[case]
    place = folder(tmp_path / "t", **contents)
    for name, text in files.items():
        (place / name).write_text(text)
    with pytest.raises(SpecError, match=words):
        LmEval(**{"tasks": ("mine",), "include": str(place), **fields}).open(TASK)


@pytest.mark.usefixtures("registry")
def test_without_the_package_or_its_data_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentProblem, match=r"hellaswag cannot be loaded without network.*cache of Hugging Face"):
        LmEval(tasks=("hellaswag",)).open(TASK)
    spec = LmEval(tasks=("mine",), include=str(folder(tmp_path / "t")))
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(EnvironmentProblem, match=r'pip install "ablate\[lm-eval\]"'):
        spec.open(TASK)


def test_a_model_that_reads_no_text_is_not_asked(tmp_path: Path) -> None:
    spec = LmEval(tasks=("mine",), include=str(folder(tmp_path / "t")))
    common = {"operator": softmax(), "training": {"steps": 1}, "task": TASK, "evaluations": (spec,)}
    short = gpt2(layers=1, heads=1, width=8, max_positions=32)
    model = llama2(layers=1, heads=1, width=8, feedforward_width=8)
    with pytest.raises(ValidationError, match="needs a task of text; got LinearFunctions"):
        Trial.model_validate({**common, "task": LinearFunctions(points=3, batch=2), "model": model})
    assert Trial.model_validate({**common, "model": model}).longest == 16
    with pytest.raises(ValidationError, match="up to 64 tokens and the model has 32 positions"):
        Trial.model_validate({**common, "model": short, "evaluations": (spec.changed(context=64),)})
