"""lm-evaluation-harness over our models: its numbers against plain arithmetic, and what it must not be asked."""

import io
import json
import math
import os
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import pytest
import torch
from huggingface_hub import constants as hub
from pydantic import ValidationError
from torch import Tensor
from torch.nn.functional import one_hot

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.training.evaluations import LmEval, Stretch
from ablate.training.evaluations.likelihood import generate
from ablate.training.evaluations.lm_eval_adapter import RequestConverter, generation_limits, offline, score_questions
from ablate.training.loop.train import train
from ablate.training.optimisers import Training
from ablate.training.tasks import LinearFunctions, Text
from ablate.training.tasks.task import Items, Measurements
from ablate.training.tasks.text.encoder import ByteEncoder
from ablate.training.trial import Trial
from ablate.variants import Yarn, gpt2, llama2, softmax

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
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
HEAD = MINE[: MINE.index("output_type")]
ROLLING = f"""{HEAD.replace("mine", "rolling")}
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{question}}}}"
metric_list: [{{metric: bits_per_byte}}, {{metric: word_perplexity}}]
"""
WRITTEN = f"""{HEAD.replace("mine", "written")}
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{next}}}}"
generation_kwargs: {{until: ["d"], max_gen_toks: 6}}
metric_list: [{{metric: exact_match}}]
"""
ITEMS: list[dict[str, Any]] = [
    {"question": "a", "choices": ["b", "cc"], "answer": 0, "next": "bc", "said": "b", "several": [0, 1]},
    {"question": "b", "choices": ["a", "c a"], "answer": 1, "next": "c", "said": "c a", "several": [1]},
    {"question": "", "choices": ["abc", "c"], "answer": 0, "next": "", "said": "abc", "several": [0]},
    {"question": "ab c", "choices": ["b", "ab", "cab"], "answer": 2, "next": "", "said": "cab", "several": [2]},
    {"question": "c", "choices": ["c", "b"], "answer": 1, "next": "", "said": "b", "several": [1]},
]
TASK = Text(context=16, batch=2, validation_windows=2)
TABLE = torch.randn(256, 256, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
"""Logits of the next byte by the last one: a model whose likelihoods are known."""


def lines(items: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in items)


def write_tasks(place: Path, items: list[dict[str, Any]] = ITEMS, **tasks: str) -> str:
    """Write a folder of tasks, "mine" and the YAML of others, and its documents; return its path."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "items.jsonl").write_text(lines(items))
    for name, text in {"mine": MINE, "rolling": ROLLING, "written": WRITTEN, **tasks}.items():
        (place / f"{name}.yaml").write_text(text)
    return str(place)


def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
    return TABLE[inputs]


def log_likelihood(before: str, text: str) -> float:
    """Plain floats, byte by byte; a context begins with the end of a document."""
    ids = [0, *(before + text).encode()]
    total = 0.0
    for at in range(len(ids) - len(text.encode()), len(ids)):
        row = [float(each) for each in TABLE[ids[at - 1]]]
        total += row[ids[at]] - math.log(math.fsum(math.exp(each) for each in row))
    return total


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness's own tasks, of which reading all takes ten seconds: here one, whose data are on the Hub."""
    text = MINE.replace("mine", "hellaswag").replace("path: json", "path: Rowan/hellaswag")
    place = tmp_path / "registry"
    place.mkdir()
    (place / "hellaswag.yaml").write_text(text.replace("dataset_kwargs: {data_files: {test: items.jsonl}}\n", ""))
    monkeypatch.setattr("lm_eval.tasks.manager.__file__", str(place / "manager.py"))


def evaluate(spec: LmEval, model: Callable[..., Tensor] = predict) -> tuple[dict[str, Measurements], dict[str, Items]]:
    rows = list(spec.open(TASK).evaluate(model))
    found = {each.name: each for each in rows if isinstance(each, Measurements)}
    return found, {each.name: each for each in rows if isinstance(each, Items)}


def single(place: Path, items: list[dict[str, Any]] = ITEMS, **tasks: str) -> dict[str, dict[str, float]]:
    """Return the values of single documents of the task "mine" by metric."""
    _, found = evaluate(LmEval(tasks=("mine",), include=write_tasks(place, items, **tasks)))
    values = {name: dict(zip(each.items, each.values, strict=True)) for name, each in found.items()}
    return {name.removeprefix("lm_eval.mine."): each for name, each in values.items()}


def test_the_harness_itself_says_the_same_of_a_model_of_its_own_kind(tmp_path: Path) -> None:
    from lm_eval.api.model import LM
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    class Plain(LM):  # type: ignore[misc]
        """Knows nothing of tokens, batches or our code."""

        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            return [(log_likelihood(*each.args), False) for each in requests]

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            return [log_likelihood("", each.args[0]) for each in requests]

        def generate_until(self, requests: list[Any]) -> list[str]:
            raise NotImplementedError

    place = tmp_path / "t"
    texts = (text.replace("items.jsonl", str(place / "items.jsonl")) for text in (MINE, ROLLING))
    include = write_tasks(place, **dict(zip(("mine", "rolling"), texts, strict=True)))
    manager = TaskManager(include_path=include, include_defaults=False)
    theirs = simple_evaluate(model=Plain(), tasks=["mine", "rolling"], task_manager=manager, bootstrap_iters=10)
    found, items = evaluate(LmEval(tasks=("mine", "rolling"), include=include))
    mine, numbers = theirs["results"]["mine"], ["0", "1", "2", "3", "4"]
    for name in ("acc", "acc_norm"):
        values = [float(each[name]) for each in theirs["samples"]["mine"]]
        assert 0 < sum(values) < 5
        point = {"fewshot": 0, "context": 16}
        assert items[f"lm_eval.mine.{name}"] == (f"lm_eval.mine.{name}", point, numbers, values)
        row = found[f"lm_eval.mine.{name}"]
        assert (row.value, row.items) == (mine[f"{name},none"], 5)
        assert row.se_items == pytest.approx(mine[f"{name}_stderr,none"], rel=1e-12)
    gold = [-log_likelihood(each["question"], f" {each['choices'][each['answer']]}") for each in ITEMS]
    assert items["lm_eval.mine.loss"].values == pytest.approx(gold, rel=1e-12)
    assert found["lm_eval.mine.truncated"].value == 0
    for name in ("bits_per_byte", "word_perplexity"):
        value = theirs["results"]["rolling"][f"{name},none"]
        assert found[f"lm_eval.rolling.{name}"].value == pytest.approx(value, rel=1e-12)
        assert found[f"lm_eval.rolling.{name}"].se_items is None


GROUP = """
group: both
task: [mine, other]
aggregate_metric_list: [{metric: acc, weight_by_size: true}]
"""


def draw_questions() -> list[dict[str, Any]]:
    """Questions of random words, some with white space at their end, some of nothing."""
    made = random.Random(0)
    words = ("the", "cat", "sat", "on", "mat", "\u00e9t\u00e9", "warm!")
    items: list[dict[str, Any]] = []
    for number in range(40):
        choices = [*{" ".join(made.choices(words, k=made.randrange(1, 5))) for _ in range(4)}]
        question = " ".join(made.choices(words, k=made.randrange(5))) + "  " * (number % 5 == 0)
        items.append({"question": question, "choices": choices, "answer": number % len(choices)})
    return items


def mean_log_likelihood(item: dict[str, Any], choice: str) -> float:
    text = f"{item['question']} {choice}"
    return log_likelihood("", text) / len(text.encode())


def test_the_answer_of_lowest_perplexity_is_that_of_plain_python(tmp_path: Path) -> None:
    """Also in a group, where every document counts alike, and for a model that says nothing."""
    items = draw_questions()
    other = MINE.replace("task: mine", "task: other").replace("items.jsonl", "other.jsonl")
    place = write_tasks(tmp_path / "t", items, other=other, both=GROUP)
    (tmp_path / "t" / "other.jsonl").write_text(lines(items[:7]))
    spec = LmEval(tasks=("both",), include=place, context=512)
    found, single = evaluate(spec)
    expected = []
    for each in items:
        scores = [mean_log_likelihood(each, choice) for choice in each["choices"]]
        expected.append(float(max(range(len(scores)), key=scores.__getitem__) == each["answer"]))
    assert list(single["lm_eval.mine.acc_full"].values) == expected != list(single["lm_eval.mine.acc"].values)
    assert found["lm_eval.mine.acc_full"].value == sum(expected) / 40
    whole = found["lm_eval.both.acc_full"]
    assert (whole.items, whole.value) == (47, pytest.approx((sum(expected) + sum(expected[:7])) / 47))
    empty, _ = evaluate(spec, lambda inputs, _=None: TABLE[inputs] * torch.nan)
    assert empty["lm_eval.both.acc_full"].value == 0


def test_positions_are_stretched_and_rows_have_the_factor(tmp_path: Path) -> None:
    spec = LmEval(tasks=("mine",), include=write_tasks(tmp_path / "t"), scaling=Stretch(factor=4.0, original=16))
    model = llama2(layers=1, heads=1, width=8, feedforward_width=8)
    assert spec.positions(model) == Yarn(factor=4.0, original=16)
    assert spec.changed(scaling=None).positions(model) == model.positions
    found, _ = evaluate(spec)
    assert found["lm_eval.mine.acc"].point == {"fewshot": 0, "context": 16, "factor": 4}
    learned = gpt2(layers=1, heads=1, width=8, max_positions=64)
    trial = {"operator": softmax(), "training": {"steps": 1}, "task": TASK, "evaluations": (spec,), "model": learned}
    with pytest.raises(ValidationError, match="scaling"):
        Trial.model_validate(trial)


def test_a_resumed_evaluation_recalls_what_a_checkpoint_kept(tmp_path: Path) -> None:
    class Keeping:
        def __call__(self, *given: Tensor) -> Tensor:
            return predict(*given)

        def once(self, compute: Callable[[], Any]) -> Any:
            buffer = io.BytesIO()
            torch.save(compute(), buffer)
            buffer.seek(0)
            return torch.load(buffer, weights_only=True)

    spec = LmEval(tasks=("mine", "written"), include=write_tasks(tmp_path / "t"))
    assert evaluate(spec, Keeping()) == evaluate(spec)


SUMS = """
def score(doc, results):
    return {"score": float(results[0].strip() in doc["answers"])}
"""
LONG = f"""{HEAD.replace("mine", "long")}
output_type: generate_until
doc_to_text: "{{{{context}}}} {{{{question}}}}"
doc_to_target: "{{{{answers}}}}"
process_results: !function sums.score
generation_kwargs: {{until: [], max_gen_toks: 2, temperature: 1, do_sample: false}}
metric_list: [{{metric: score, aggregation: mean, higher_is_better: true}}]
"""


def test_a_task_in_the_form_of_longbench_is_written_and_scored(tmp_path: Path) -> None:
    """Its prompt keeps its end, and its own function scores what is written."""
    items = [
        {"context": f"{text} " * 9, "question": text, "answers": answers}
        for text, answers in (("a", ["x", "bc"]), ("c", ["d"]), ("f", ["gh"]))
    ]
    place = write_tasks(tmp_path / "t", items, long=LONG)
    (tmp_path / "t" / "sums.py").write_text(SUMS)
    found, single = evaluate(
        LmEval(tasks=("long",), include=place, context=12),
        lambda inputs, _=None: one_hot(inputs + 1, 256).float(),
    )
    assert list(single["lm_eval.long.score"].values) == [1.0, 0.0, 1.0]
    assert found["lm_eval.long.truncated"].value == 1


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
    role = "bos_token" if adds_bos else "eos_token"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=characters, **{role: "<s>"})
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, initializer_range=1.0, **sizes)).double()
    theirs = HFLM(pretrained=model, tokenizer=tokenizer, max_length=8, batch_size=1)
    for text in ("a", "abc cab", "abc cab bca, abcabc"):
        windows = RequestConverter(ByteEncoder(), 8, score_bos=adds_bos).windows(request(text))
        with torch.no_grad():
            ours = score_questions(lambda inputs, _=None: model(inputs).logits, windows, 256)
        (expected,) = theirs.loglikelihood_rolling([request(text)])
        assert sum(log_likelihood for log_likelihood, *_ in ours) == pytest.approx(expected, rel=1e-12)
        assert sum(each.scored for each in windows) == len(text) + adds_bos


def request(*args: object) -> Any:
    return type("Request", (), {"args": args, "task_name": "t", "doc_id": 7})()


def test_what_does_not_fit_loses_its_beginning_and_is_counted(tmp_path: Path) -> None:
    spec = LmEval(tasks=("mine",), include=write_tasks(tmp_path / "t"), context=4)
    seen: list[int] = []
    found, items = evaluate(spec, lambda inputs, _=None: seen.append(inputs.shape[1]) or predict(inputs))
    # the end of a document, the question, a blank and a choice, of which all but the last are read
    long = [float(any(1 + len(each["question"] + choice) > 4 for choice in each["choices"])) for each in ITEMS]
    assert list(items["lm_eval.mine.truncated"].values) == long
    assert found["lm_eval.mine.truncated"].value == sum(long) / 5 > 0
    assert max(seen) == 4
    # bigrams need no more than what is left
    right = [log_likelihood(each["question"], " " + each["choices"][each["answer"]]) for each in ITEMS]
    assert list(items["lm_eval.mine.loss"].values) == pytest.approx([-each for each in right], rel=1e-12)


def test_generation_is_greedy_ends_where_it_is_told_and_is_compared(tmp_path: Path) -> None:
    def alphabet(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        return one_hot((inputs + 1) * (inputs != ord("g")), 256).float()  # a document ends after "g"

    prompts = [list(b"a"), list(b"xxc"), list(b"f")]
    assert generate(alphabet, prompts, 2, ByteEncoder(), bool) == ["b", "d", "g"]
    assert generate(alphabet, prompts, 2, ByteEncoder(), str.isspace) == ["bc", "de", "g"]
    # "a" goes on with "bcd", which ends before "d", and "c" with nothing but that
    items = [ITEMS[0], {**ITEMS[4], "next": "d"}]
    written = LmEval(tasks=("written",), include=write_tasks(tmp_path / "t", items))
    found, values = evaluate(written, alphabet)
    assert list(values["lm_eval.written.exact_match"].values) == [1.0, 0.0]
    assert found["lm_eval.written.exact_match"].value == 0.5


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


def aim_at(target: str) -> str:
    return MINE.replace("doc_to_target: answer", f"doc_to_target: {target}")


def test_an_answer_is_a_number_or_the_text_of_a_choice(tmp_path: Path) -> None:
    """Accuracy and cost are those of the number, however it is written."""
    by_number = single(tmp_path / "a")
    for target in ("said", '"{{said}}"', '"{{answer}}"'):
        assert single(tmp_path / "b", mine=aim_at(target)) == by_number
    several = single(tmp_path / "c", mine=aim_at("several"))
    assert several["acc"] == {**by_number["acc"], "0": 1.0}
    assert several["loss"].items() == by_number["loss"].items() - {("0", by_number["loss"]["0"])}  # two are right


def test_contexts_that_compete_have_their_answer_in_the_text(tmp_path: Path) -> None:
    """As in WinoGrande: choices are contexts, the number of the right one is the text, the target continues each."""
    competing = aim_at("question").replace('"{{question}}"', "answer")
    choices = (["b", "cc"], ["a", "c"], ["ab", "c"])
    pairs = [{"question": "b", "choices": both, "answer": n % 2} for n, both in enumerate(choices)]
    found = single(tmp_path / "a", pairs, mine=competing)
    swapped = [{**each, "choices": each["choices"][::-1], "answer": 1 - each["answer"]} for each in pairs]
    assert single(tmp_path / "b", swapped, mine=competing) == found
    other = single(tmp_path / "c", [{**each, "answer": 1 - each["answer"]} for each in pairs], mine=competing)
    assert other["acc"] == {name: 1 - value for name, value in found["acc"].items()}
    assert other["loss"] != found["loss"]
    assert len(found["loss"]) == 3


def test_examples_and_context_are_where_a_row_is_taken(tiny: Trial, memory: Any, tmp_path: Path) -> None:
    place = write_tasks(tmp_path / "t")
    both = (LmEval(tasks=("mine",), include=place), LmEval(tasks=("mine",), include=place, fewshot=1, context=15))
    world = memory()
    train(tiny.changed(task=TASK, evaluations=both, training=Training(steps=1)), world)
    for fewshot, context in ((0, 16), (1, 15)):
        at = (("context", context), ("fewshot", fewshot))
        assert {row[2:] for row in world.evaluations if row[1] == "lm_eval.mine.acc"} >= {at}
        assert {row[2:] for row in world.single if row[1] == "lm_eval.mine.loss"} >= {at}


def test_a_group_is_where_its_tasks_are(tmp_path: Path) -> None:
    group = "group: both\ntask: [mine, other]\naggregate_metric_list: [{metric: acc}]\n"
    for count, expected in ((0, {"fewshot": 0, "context": 16}), (1, {"context": 16})):
        other = f"{MINE}num_fewshot: {count}\n".replace("task: mine", "task: other")
        place = write_tasks(tmp_path / str(count), other=other, group=group)
        found, items = evaluate(LmEval(tasks=("both",), include=place))
        assert found["lm_eval.both.acc"].point == expected
        assert found["lm_eval.other.acc"].point == {"fewshot": count, "context": 16}
        assert set(items) < set(found)


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


class Broken(NamedTuple):
    """A folder of tasks that is refused: words of the error, fields of the spec, documents and YAML files."""

    words: str
    fields: Mapping[str, Any] = {}
    second: Mapping[str, Any] = {}
    """Changes of the second document: the harness itself tries the first when it loads a task."""
    tasks: Mapping[str, str] = {}


def mine(old: str, new: str) -> dict[str, str]:
    assert old in MINE
    return {"mine": MINE.replace(old, new)}


OUTSIDE = "include: {file}\ntask: mine\n"
BROKEN: Mapping[str, Broken] = {
    "not in the harness": Broken("did you mean 'hellaswag'", {"tasks": ("hellaswak",), "include": None}),
    "broken YAML": Broken(
        "no lm-eval task 'bad' in readable YAML", {"tasks": ("bad",)}, {}, {"bad": "task: bad\n  x: [y"}
    ),
    "data elsewhere": Broken("outside of.*move it", tasks=mine("items.jsonl", "../items.jsonl")),
    "hidden data": Broken(r"/\.items\.jsonl.*begins with a dot", tasks=mine("items.jsonl", ".items.jsonl")),
    "data in a hidden folder": Broken(r"/\.kept/.*begins with a dot", tasks=mine("items.jsonl", ".kept/items.jsonl")),
    "a file outside": Broken(
        r"'mine' reads .*base\.yaml, .*outside of", tasks={"mine": OUTSIDE.format(file="../base.yaml")}
    ),
    "a hidden file": Broken(
        r"/\.base\.yaml.*begins with a dot", tasks={"mine": OUTSIDE.format(file=".base.yaml"), ".base": MINE}
    ),
    "a file outside of a file": Broken(
        r"base\.yaml, .*outside of",
        tasks={"mine": OUTSIDE.format(file="[near.yaml]"), "near": "include: ../base.yaml\n"},
    ),
    "no data": Broken(r"'mine' names .*none\.jsonl, which does not exist", tasks=mine("items.jsonl", "none.jsonl")),
    "an unknown split": Broken(r"cannot be loaded .*'tset'", tasks=mine("test_split: test", "test_split: tset")),
    "an unknown field": Broken("TypeError.*doc_to_txt", tasks=mine("doc_to_text", "doc_to_txt")),
    "a template that fails": Broken(
        "cannot be rendered .UndefinedError", {}, {"answer": 4}, mine("{{question}}", "{{choices[answer].upper()}}")
    ),
    "a text with NUL": Broken("document 1 .* cannot be encoded", {}, {"question": "a\0"}),
    "an empty answer": Broken(
        r"document 1 .* without tokens",
        {"tasks": ("rolling", "mine")},
        {"choices": ["b", ""]},
        {"mine": f"{MINE}target_delimiter: ''"},
    ),
    "a wrong index": Broken("document 1 of .*'mine' has 5 and the choices", {}, {"answer": 5}),
    "no such choice": Broken(r"has 'B' and the choices \['a', 'c a'\]", {}, {"said": "B"}, {"mine": aim_at("said")}),
    "one wrong index": Broken(r"has \[0, 2\] and", {}, {"several": [0, 2]}, {"mine": aim_at("several")}),
    "an answer that does not fit": Broken("has 4 tokens; the model sees 3", {"context": 3}),
    "more to write than fits": Broken("generates 6 tokens; the model", {"tasks": ("written",), "context": 6}),
    "forbidden examples": Broken("sets num_fewshot to 0", {"fewshot": 3}, {}, {"mine": f"{MINE}num_fewshot: 0"}),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.usefixtures("registry")
def test_what_cannot_be_asked_is_refused_before_any_training(case: str, tmp_path: Path) -> None:
    """Files that are no part of the key are not read."""
    broken = BROKEN[case]
    include = write_tasks(tmp_path / "t", [ITEMS[0], {**ITEMS[1], **broken.second}, *ITEMS[2:]], **broken.tasks)
    (tmp_path / "base.yaml").write_text(MINE)
    (tmp_path / "t" / ".kept").mkdir()
    for hidden in (".items.jsonl", ".kept/items.jsonl"):
        (tmp_path / "t" / hidden).write_text(lines(ITEMS))
    with pytest.raises(SpecError, match=broken.words):
        LmEval(**{"tasks": ("mine",), "include": include, **broken.fields}).open(TASK)


def test_documents_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for content in ("", '{"question": '):
        include = write_tasks(tmp_path / "t")
        (tmp_path / "t" / "items.jsonl").write_text(content)
        with pytest.raises(SpecError, match=r"mine in .* cannot be loaded"):
            LmEval(tasks=("mine",), include=include).open(TASK)


@pytest.mark.usefixtures("registry")
def test_without_the_package_or_its_data_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentProblem, match=r"hellaswag cannot be loaded without network.*cache of Hugging Face"):
        LmEval(tasks=("hellaswag",)).open(TASK)
    spec = LmEval(tasks=("mine",), include=write_tasks(tmp_path / "t"))
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(EnvironmentProblem, match=r'pip install "ablate\[lm-eval\]"'):
        spec.open(TASK)


def test_a_model_that_reads_no_text_is_not_asked(tmp_path: Path) -> None:
    spec = LmEval(tasks=("mine",), include=write_tasks(tmp_path / "t"))
    common = {"operator": softmax(), "training": {"steps": 1}, "task": TASK, "evaluations": (spec,)}
    model = llama2(layers=1, heads=1, width=8, feedforward_width=8)
    with pytest.raises(ValidationError, match="cannot evaluate LinearFunctions; it needs a task of text"):
        Trial.model_validate({**common, "task": LinearFunctions(points=3, batch=2), "model": model})
    assert Trial.model_validate({**common, "model": model}).longest == 16
    assert Trial.model_validate({**common, "model": model, "evaluations": (spec.changed(context=64),)}).longest == 64
