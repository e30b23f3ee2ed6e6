"""Tokenizers: nothing is lost, nothing but the training part is learned from, and a file is what its hash says."""

import json
import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st
from lm_eval.api.task import ConfigurableTask
from pydantic import ValidationError
from tokenizers import Tokenizer as Library, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ablate import BytePairs, Bytes, RandomTokens, Text, TokenizerFile
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.training.tasks.counter_rng import Draws
from ablate.training.tasks.task import over_ratio
from ablate.training.tasks.text.corpus import documents_of
from ablate.training.tasks.text.encoder import Encoder, sizes_of_spans
from ablate.training.tasks.text.text import sizes_at
from ablate.training.tasks.text.tokenizers import LibraryEncoder, Tokenizer

PROSE = "".join(f"The {n}th line says: don't add {n * n} words — é, 世界 and 🎉.\n" for n in range(200))
TEXTS = st.text(st.characters(exclude_characters=["\0", "\x1a"], exclude_categories=["Cs"]), max_size=60)


@pytest.fixture(scope="module")
def learned() -> LibraryEncoder:
    return BytePairs(vocabulary=400).encoder(lambda: [PROSE])


@pytest.fixture(params=["bytes", "byte_pairs"])
def encoder(request: pytest.FixtureRequest, learned: LibraryEncoder) -> Encoder:
    return learned if request.param == "byte_pairs" else Bytes().encoder(list)


def words(path: Path, **vocabulary: int) -> Path:
    library = Library(models.WordLevel({"[UNK]": 0, **vocabulary}, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.add_special_tokens(["[UNK]", "[SEP]", "[MASK]"])
    library.save(str(path))
    return path


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_byte_pairs_lose_nothing_and_count_every_byte(text: str, learned: LibraryEncoder) -> None:
    encoded = learned.encode(text)
    assert learned.decode(encoded.ids) == text
    assert learned.sizes(text, encoded).sum() == len(text.encode())
    assert learned.special.isdisjoint(encoded.ids)
    for token, size in zip(encoded.ids, learned.sizes(text, encoded), strict=True):
        assert size == len(learned._bytes[token])
    (ids,) = learned.ids([text])
    assert ids.tolist() == list(encoded.ids)
    plain = Bytes().encoder(list)
    ids, spans = plain.encode(text)
    assert bytes(ids) == text.encode()
    assert plain.decode(ids) == text
    assert [text[start:end] for start, end in spans] == [each for each in text for _ in each.encode()]


def test_a_special_token_is_no_text_and_spans_are_the_characters_of_tokens(encoder: Encoder) -> None:
    text = "an <end> and a <mask>"
    ids = encoder.encode(text).ids
    assert encoder.special == {encoder.end, encoder.mask}
    assert encoder.special.isdisjoint(ids)
    assert encoder.decode([encoder.end, *ids, encoder.mask]) == text
    encoded = encoder.encode(PROSE[:300])
    assert {place for start, end in encoded.spans for place in range(start, end)} == set(range(300))
    starts = [start for start, _ in encoded.spans]
    assert starts == sorted(starts)


def test_sizes_from_spans() -> None:
    cases: list[tuple[str, list[tuple[int, int]], list[int]]] = [
        ("abc", [(0, 1), (1, 3)], [1, 2]),
        ("a é", [(0, 1), (2, 3)], [1, 3]),  # a blank that no token stands for counts with the next
        ("é  ", [(0, 1)], [4]),  # and at the end with the last
        ("世", [(0, 1)] * 3, [1, 1, 1]),
        ("世", [(0, 1)] * 2, [1, 2]),
        ("", [], []),
    ]
    for text, spans, sizes in cases:
        assert sizes_of_spans(text, spans).tolist() == sizes


def test_only_the_training_part_is_learned_from(tmp_path: Path) -> None:
    documents = [f"document {number} says zyx{number} " * 12 for number in range(60)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in documents))
    task = Text(source=str(path), context=16, validation_share=0.2, tokenizer=BytePairs(vocabulary=300))
    train = task.corpus().train.decode().split("\0")[:-1]
    assert 0 < len(train) < len(documents)
    alone = BytePairs(vocabulary=300).encoder(lambda: train)
    everything = BytePairs(vocabulary=300).encoder(lambda: documents)
    assert task.encoder().record == alone.record != everything.record
    assert task.encoder() is task.changed(batch=3).encoder()


def test_a_text_that_is_too_small_or_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("aab " * 400)
    with pytest.raises(SpecError, match=r"pairs for \d+ of 5000 tokens"):
        Text(source=str(path), context=16, tokenizer=BytePairs(vocabulary=5000)).open()
    with pytest.raises(ValidationError, match="greater than or equal to 258"):
        BytePairs(vocabulary=257)
    path.write_text("one two three " * 100)
    with pytest.raises(SpecError, match=r"the validation part of .* a window 101 tokens"):
        Text(source=str(path), context=100, tokenizer=BytePairs(vocabulary=264)).open()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match="a NUL or SUB character"):
        Bytes().encoder(list).encode("a\x1ab")
    with pytest.raises(EnvironmentProblem, match=r'needs the package tokenizers; pip install "ablate\[tokenizers\]"'):
        BytePairs().encoder(lambda: [PROSE])


@pytest.mark.parametrize(
    ("content", "fields", "said"),
    [
        (None, {}, "there is no tokenizer file .*t.json; give the path of a tokenizer.json"),
        (b"{}", {}, "t.json is no tokenizer.json .*; write it with Tokenizer.save"),
        ("words", {"end": "<stop>"}, "tokenizer.end='<stop>' is no token of .*t.json; name one it has"),
        ("words", {"vocabulary": 3}, "tokenizer.vocabulary=3 is .* raise it"),
        ("words", {"end": "[SEP]", "mask": "[SEP]"}, r"are both '\[SEP\]'"),
        (None, {"content_hash": "0" * 32, "vocabulary": 4}, "there is no tokenizer file .*t.json; give the path"),
        (None, {"path": " "}, "tokenizer.path is ' '; name a file or a folder"),
        ("nothing", {}, "t.json has none of .*; set tokenizer.end"),
    ],
)
def test_others_are_refused(tmp_path: Path, content: bytes | str | None, fields: dict[str, object], said: str) -> None:
    path = tmp_path / "t.json"
    if content == "words":
        words(path, the=1)
    elif content == "nothing":
        Library(models.WordLevel({"a": 0}, unk_token="a")).save(str(path))
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(ValidationError, match=said):
        TokenizerFile.model_validate({"path": str(path), **fields})


def test_a_folder_that_a_tokenizer_was_saved_to_is_its_file(tmp_path: Path) -> None:
    library = Library.from_file(str(words(tmp_path / "t.json", the=1, cat=2)))
    PreTrainedTokenizerFast(tokenizer_object=library, eos_token="[SEP]").save_pretrained(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("tokenizer.json")
    by_folder, by_file = (TokenizerFile(path=str(path)) for path in (file.parent, file))
    assert by_folder == by_file
    assert by_folder.encoder(list).encode("the cat").ids == [1, 2]
    file.unlink()
    assert TokenizerFile.model_validate(by_folder.data()) == by_folder
    with pytest.raises(ValidationError, match=r"there is no tokenizer file .*saved/tokenizer.json; give"):
        TokenizerFile(path=str(file.parent))


def test_a_vocabulary_may_be_longer_than_its_tokens(tmp_path: Path) -> None:
    path = words(tmp_path / "t.json", the=1, cat=2)
    exact, padded = (TokenizerFile(path=str(path), vocabulary=size) for size in (5, 12))
    assert (exact.end, exact.mask) == ("[SEP]", "[MASK]")
    assert exact.key == TokenizerFile(path=str(path)).key != padded.key
    encoder = padded.encoder(list)
    assert (padded.size, encoder.vocabulary, encoder.record["vocabulary"], encoder.filled) == (12, 12, 12, 5)
    assert encoder.special == {3, 4, *range(5, 12)}
    assert encoder.encode("the cat").ids == exact.encoder(list).encode("the cat").ids
    assert encoder.decode([1, 7, 2]) == "the cat"
    drawn = RandomTokens(positions=(1, 2)).tokens(Draws(0), 500, encoder)
    assert set(drawn.flatten().tolist()) == set(range(5))
    (tmp_path / "a.txt").write_text("the cat " * 200)
    data = Text(source=str(tmp_path / "a.txt"), context=8, tokenizer=padded).open()
    assert int(data.batch(0, 1).inputs.max()) < 5
    unseen = TokenizerFile.model_validate(padded.data() | {"path": str(tmp_path / "no.json"), "vocabulary": 3})
    (tmp_path / "no.json").write_bytes(path.read_bytes())
    with pytest.raises(SpecError, match=r"tokenizer.vocabulary=3 is less than .* raise it"):
        unseen.encoder(list)


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
    return TokenizerFile(path=str(words(tmp_path / "t.json", Document=1, very=2)))


def open_task(lines: Path, tokenizer: Tokenizer, **fields: object) -> Text:
    values = {"source": str(lines), "context": 6, "validation_share": 0.3, "tokenizer": tokenizer, **fields}
    return Text.model_validate(values)


def logits(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
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


def test_the_error_of_a_ratio_is_the_spread_of_ratios_over_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    n = torch.randint(1, 9, (2000, 400), generator=generator).double()
    x = 1.5 * n + n.sqrt() * torch.randn(2000, 400, generator=generator, dtype=torch.float64)
    spread = float((x.sum(1) / n.sum(1)).std())
    told = sum(over_ratio("", a, b).se_items or 0 for a, b in zip(x[:200], n[:200], strict=True)) / 200
    assert told == pytest.approx(spread, rel=0.08)  # five standard errors of a spread over 2000
