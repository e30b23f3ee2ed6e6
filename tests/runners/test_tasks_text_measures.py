"""Losses per token, byte and word: against lm-eval's own counting, and by hand."""

import json
import math
from pathlib import Path

import pytest
import torch
from lm_eval.api.task import ConfigurableTask
from torch import Tensor

from runners import BytePairs, Bytes, Text, TokenizerFile
from runners.tasks.task import ratio
from runners.tasks.text.corpus import documents_of
from runners.tasks.text.text import sizes_at
from runners.tasks.text.tokenizers import Tokenizer

DOCUMENTS = [
    "One  word and\nanother — é, 世界.",
    "  begins and ends with blanks \n",
    "oneword",
    "a\tb\u00a0c\u2003d\r\ne",
    *(f"Document {number} has {'very ' * (number % 4)}few words." for number in range(40)),
]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in DOCUMENTS))
    return path


@pytest.fixture(params=["bytes", "byte_pairs", "words"])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    """Three that cut text in unlike ways; the last drops white space and knows few words."""
    if request.param == "bytes":
        return Bytes()
    if request.param == "byte_pairs":
        return BytePairs(vocabulary=270)
    from tokenizers import Tokenizer as Library, models, pre_tokenizers

    library = Library(models.WordLevel({"[UNK]": 0, "[SEP]": 1, "Document": 2, "very": 3}, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.add_special_tokens(["[UNK]", "[SEP]"])
    library.save(str(tmp_path / "t.json"))
    return TokenizerFile(path=str(tmp_path / "t.json"))


def open_task(lines: Path, tokenizer: Tokenizer, **fields: object) -> Text:
    values = {"source": str(lines), "context": 6, "validation_share": 0.3, "tokenizer": tokenizer, **fields}
    return Text.model_validate(values)


def logits(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
    """Some model: what comes next depends on what is there."""
    table = torch.randn(300, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return table[inputs]


def test_documents_have_the_bytes_and_words_of_lm_eval(lines: Path, tokenizer: Tokenizer) -> None:
    task = open_task(lines, tokenizer)
    for part, stream in zip(task.corpus(), task.streams(), strict=True):
        texts = documents_of(part)[:-1]
        in_bytes, in_words = sizes_at(task.encoder(), texts, stream, torch.arange(len(stream.ids)))
        bounds = stream.starts.tolist()[1:]
        found = zip(in_bytes.tensor_split(bounds), in_words.tensor_split(bounds), texts, strict=True)
        for of_bytes, of_words, text in found:
            assert of_bytes.sum() == ConfigurableTask.count_bytes(text) + 1  # and the end of the document
            assert of_words.sum() == ConfigurableTask.count_words(text)
            assert of_bytes[-1] == 1
            assert (of_bytes >= 0).all()


def test_rows_are_ratios_of_sums_over_the_windows(lines: Path, tokenizer: Tokenizer) -> None:
    task = open_task(lines, tokenizer, validation_windows=5, prefix=2)
    data, encoder, size = task.open(), task.encoder(), task.tokenizer.size
    found = {each.name: each for each in data.evaluate(lambda inputs: logits(inputs)[..., :size])}
    assert found.keys() == task.measures().keys()
    ids = task.streams().validation.ids.long()
    texts = documents_of(task.corpus().validation)
    sizes = sizes_at(encoder, texts, task.streams().validation, torch.arange(len(ids)))
    count = min(5, (len(ids) - 1) // 6)
    starts = torch.tensor([window * (len(ids) - 7) // max(count - 1, 1) for window in range(count)])
    places = (starts[:, None] + torch.arange(2, 7)).flatten()  # without the first, which the prefix leaves out
    log_p = logits(ids[places - 1])[:, :size].float().log_softmax(1).double()
    nats = -log_p.gather(1, ids[places, None]).sum().item()
    of_bytes, of_words = (float(each[places].sum()) for each in sizes)
    expected = {
        "validation_loss": nats / len(places),
        "perplexity": math.exp(nats / len(places)),
        "bits_per_byte": nats / of_bytes / math.log(2),
        "byte_perplexity": math.exp(nats / of_bytes),
        "word_perplexity": math.exp(nats / of_words),
    }
    assert {name: found[name].value for name in expected} == pytest.approx(expected, rel=1e-5)
    assert {each.items for each in found.values()} == {count}


def test_a_text_in_which_no_word_ends_has_no_word_perplexity(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 999)
    data = Text(source=str(tmp_path / "a.txt"), context=16, validation_windows=1).open()
    found = {each.name: each for each in data.evaluate(lambda x: logits(x)[..., :256])}
    assert math.isnan(found["word_perplexity"].value)
    assert found["word_perplexity"].se_items is None
    assert math.isfinite(found["perplexity"].value)


def test_the_error_of_a_ratio_is_that_of_a_mean_where_items_are_alike() -> None:
    x = torch.tensor([1.0, 4.0, 2.0, 9.0], dtype=torch.float64)
    found = ratio(x, torch.full((4,), 2.0, dtype=torch.float64))
    assert found.value == pytest.approx(2.0)
    assert found.se == pytest.approx(float((x / 2).std()) / 2)
    assert ratio(x[:1], x[:1]).se is None
    assert ratio(torch.tensor([1000.0]), torch.tensor([1.0])).exponential().value == math.inf


def test_the_error_of_a_ratio_is_the_spread_of_ratios_over_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    n = torch.randint(1, 9, (2000, 400), generator=generator).double()
    x = 1.5 * n + n.sqrt() * torch.randn(2000, 400, generator=generator, dtype=torch.float64)
    spread = float((x.sum(1) / n.sum(1)).std())
    told = sum(ratio(a, b).se or 0 for a, b in zip(x[:200], n[:200], strict=True)) / 200
    assert told == pytest.approx(spread, rel=0.08)  # five standard errors of a spread over 2000
