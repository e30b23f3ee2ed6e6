"""Tokenizers: nothing is lost, nothing but the training part is learned from, and a file is what its hash says."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError
from tokenizers import Tokenizer as Library, decoders, models, pre_tokenizers

from grid.errors import EnvironmentProblem, SpecError
from runners import BytePairs, Bytes, RandomTokens, Text, TokenizerFile
from runners.tasks.counter_rng import Draws
from runners.tasks.text.encoder import Encoder, sizes_of_spans
from runners.tasks.text.tokenizers.byte_pairs import LONGEST
from runners.tasks.text.tokenizers.library_encoder import LibraryEncoder

PROSE = "".join(f"The {n}th line says: don't add {n * n} words — é, 世界 and 🎉.\n" for n in range(200))
TEXTS = st.text(st.characters(exclude_characters=["\0", "\x1a"], exclude_categories=["Cs"]), max_size=60)


@pytest.fixture(scope="module")
def learned() -> LibraryEncoder:
    return BytePairs(vocabulary=400).encoder(lambda: [PROSE])


@pytest.fixture(params=["bytes", "byte_pairs"])
def encoder(request: pytest.FixtureRequest, learned: LibraryEncoder) -> Encoder:
    return learned if request.param == "byte_pairs" else Bytes().encoder(list)


def words(path: Path, **vocabulary: int) -> Path:
    """A tokenizer.json of whole words."""
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


def test_the_most_frequent_pair_is_joined_first() -> None:
    """By the definition, on words; no two pairs are equally frequent."""
    text = " ab" * 9 + " ac" * 4 + " abd" * 6
    pieces = [[bytes([b]) for b in word.encode()] for word in re.findall(r" ?\w+", text)]
    joined: list[bytes] = []
    for _ in range(4):
        counts = Counter(pair for word in pieces for pair in pairwise(word))
        ((best, _),) = counts.most_common(1)
        joined.append(b"".join(best))
        for word in pieces:
            at = 0
            while at + 1 < len(word):
                if (word[at], word[at + 1]) == best:
                    word[at : at + 2] = [joined[-1]]
                at += 1
    encoder = BytePairs(vocabulary=258 + 4).encoder(lambda: [text])
    assert [encoder._bytes[258 + at] for at in range(4)] == joined
    assert len(set(joined)) == 4


def test_the_same_text_gives_the_same_tokens_in_every_process(learned: LibraryEncoder) -> None:
    made = f"BytePairs(vocabulary=400).encoder(lambda: [{PROSE!r}]).record['hash']"
    env = {**os.environ, "PYTHONHASHSEED": "1", "TOKENIZERS_PARALLELISM": "true", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", f"from runners import BytePairs\nprint({made})"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == learned.record["hash"]


def write_documents(path: Path, documents: list[str]) -> Path:
    path.write_text("\n".join(json.dumps({"text": text}) for text in documents))
    return path


def test_only_the_training_part_is_learned_from(tmp_path: Path) -> None:
    documents = [f"document {number} says zyx{number} " * 12 for number in range(60)]
    path = write_documents(tmp_path / "a.jsonl", documents)
    task = Text(source=str(path), context=16, validation_share=0.2, tokenizer=BytePairs(vocabulary=300))
    train = task.corpus().train.decode().split("\0")[:-1]
    assert 0 < len(train) < len(documents)
    alone = BytePairs(vocabulary=300).encoder(lambda: train)
    everything = BytePairs(vocabulary=300).encoder(lambda: documents)
    assert task.encoder().record == alone.record != everything.record
    assert task.encoder() is task.changed(batch=3).encoder()


def test_a_text_is_its_documents_each_with_its_end(tmp_path: Path) -> None:
    documents = [f"Dokument {number} — é {'wort ' * number}" for number in range(1, 30)]
    path = write_documents(tmp_path / "a.jsonl", documents)
    for tokenizer in (Bytes(), BytePairs(vocabulary=300)):
        task = Text(source=str(path), context=8, tokenizer=tokenizer)
        encoder, seen = task.encoder(), []
        for stream in task.streams():
            ids = stream.ids.tolist()
            bounds = [*stream.starts.tolist(), len(ids)]
            assert [ids[end - 1] for end in bounds[1:]] == [encoder.end] * len(stream.starts)
            seen += [encoder.decode(ids[a:b]) for a, b in pairwise(bounds)]
        assert sorted(seen) == sorted(documents)


def test_a_text_that_is_too_small_or_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("aab " * 400)
    with pytest.raises(SpecError, match=r"pairs for \d+ of 5000 tokens"):
        Text(source=str(path), context=16, tokenizer=BytePairs(vocabulary=5000)).open()
    with pytest.raises(ValidationError, match="greater than or equal to 258"):
        BytePairs(vocabulary=257)
    path.write_text("one two three " * 100)
    with pytest.raises(SpecError, match=r"a window has 101 tokens; the validation part of"):
        Text(source=str(path), context=100, tokenizer=BytePairs(vocabulary=264)).open()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(EnvironmentProblem, match=r'needs the package tokenizers; pip install "ablate\[tokenizers\]"'):
        BytePairs().encoder(lambda: [PROSE])


def test_a_file_is_what_its_hash_says_and_its_place_does_not_matter(tmp_path: Path) -> None:
    path = words(tmp_path / "tokenizer.json", the=1, end=2)
    spec = TokenizerFile(path=str(path))
    assert (spec.vocabulary, spec.end, spec.mask) == (5, "[SEP]", "[MASK]")
    moved = path.rename(tmp_path / "moved.json")
    assert TokenizerFile(path=str(moved)).key == spec.key
    assert TokenizerFile.model_validate(spec.data()).key == spec.key  # read where the file is not
    with pytest.raises(SpecError, match="there is no tokenizer file"):
        spec.encoder(list)
    other = words(path, the=1, other=2)
    assert TokenizerFile(path=str(other)).key != spec.key
    with pytest.raises(ValidationError, match=r"tokenizer\.content_hash is"):
        TokenizerFile.model_validate(spec.data())
    with pytest.raises(SpecError, match=r"tokenizer\.content_hash is"):
        spec.encoder(list)


def test_a_file_s_tokens_are_the_package_s_and_unknown_words_are_text(tmp_path: Path) -> None:
    path = words(tmp_path / "tokenizer.json", the=1, cat=2)
    encoder = TokenizerFile(path=str(path)).encoder(list)
    text = "the cat  sees [SEP] the"
    encoded = encoder.encode(text)
    raw = Library.from_file(str(path))
    raw.encode_special_tokens = True
    assert list(encoded.ids) == raw.encode(text, add_special_tokens=False).ids
    assert encoder.end == 3
    assert encoder.special == {3, 4}
    assert 0 in encoded.ids
    assert encoder.sizes(text, encoded).sum() == len(text)


def test_a_file_made_by_the_package_counts_bytes_exactly(tmp_path: Path) -> None:
    library = Library(models.BPE({"Ã": 0, "©": 1, "x": 2, "xÃ": 3, "</s>": 4}, [("x", "Ã")]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["</s>"])
    library.save(str(tmp_path / "t.json"))
    encoder = TokenizerFile(path=str(tmp_path / "t.json")).encoder(list)
    encoded = encoder.encode("xé")
    assert list(encoded.ids) == [3, 1]
    assert encoder.sizes("xé", encoded).tolist() == [2, 1]  # spans alone cannot tell where a character is cut
    assert encoder.mask is None
    assert np.array_equal(encoder.ids(["xé"])[0], [3, 1])


@pytest.mark.parametrize(
    ("content", "fields", "said"),
    [
        (None, {}, "there is no tokenizer file .*t.json; give the path of a tokenizer.json"),
        (b"{}", {}, "t.json is not: .*; write it with Tokenizer.save"),
        ("words", {"end": "<stop>"}, "tokenizer.end is a token of .*t.json; it has no '<stop>'; name one it has"),
        ("words", {"vocabulary": 3}, "it is 3 and .* raise it"),
        ("words", {"end": "[SEP]", "mask": "[SEP]"}, r"got '\[SEP\]' as both"),
        (None, {"content_hash": "0" * 32, "vocabulary": 4}, "there is no tokenizer file .*t.json; give the path"),
        (None, {"path": " "}, "tokenizer.path names a file or a folder; got ' '; '.' is the folder you are in"),
        ("nothing", {}, "a token ends every document; .* has none of .*; set tokenizer.end"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(
    tmp_path: Path, content: bytes | str | None, fields: dict[str, object], said: str
) -> None:
    path = tmp_path / "t.json"
    if content == "words":
        words(path, the=1)
    elif content == "nothing":
        Library(models.WordLevel({"a": 0}, unk_token="a")).save(str(path))
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(ValidationError, match=said):
        TokenizerFile.model_validate({"path": str(path), **fields})


def test_a_vocabulary_may_be_longer_than_its_tokens(tmp_path: Path) -> None:
    path = words(tmp_path / "t.json", the=1, cat=2)
    exact, padded = (TokenizerFile(path=str(path), vocabulary=size) for size in (5, 12))
    assert exact.key == TokenizerFile(path=str(path)).key != padded.key
    encoder = padded.encoder(list)
    assert (padded.size, encoder.vocabulary, encoder.record["vocabulary"], encoder.filled) == (12, 12, 12, 5)
    assert encoder.special == {3, 4, *range(5, 12)}
    assert encoder.encode("the cat").ids == exact.encoder(list).encode("the cat").ids
    assert (encoder.decode([1, 7, 2]), encoder.piece(7)) == ("the cat", "<7>")
    drawn = RandomTokens(positions=(1, 2)).tokens(Draws(0), 500, encoder)
    assert set(drawn.flatten().tolist()) == set(range(5))
    (tmp_path / "a.txt").write_text("the cat " * 200)
    data = Text(source=str(tmp_path / "a.txt"), context=8, tokenizer=padded).open()
    assert int(data.batch(0, 1).inputs.max()) < 5
    unseen = TokenizerFile.model_validate(padded.data() | {"path": str(tmp_path / "no.json"), "vocabulary": 3})
    (tmp_path / "no.json").write_bytes(path.read_bytes())
    with pytest.raises(SpecError, match=r"it is 3 and .* raise it"):
        unseen.encoder(list)


@pytest.mark.parametrize("unit", ["a", " ", "日本"])
def test_words_that_take_forever_to_learn_from_are_refused(unit: str) -> None:
    word, spec = unit * (LONGEST // len(unit)), BytePairs(vocabulary=259)
    spec.encoder(lambda: [PROSE, f"1{word}1"])
    with pytest.raises(SpecError, match=f"at most {LONGEST} characters; one of {LONGEST + 2 * len(unit)} begins"):
        spec.encoder(lambda: [PROSE, f"1{word}{unit}{unit}1"])
    spec.encoder(lambda: [PROSE, f"{word[: LONGEST // 2]}. " * 3, "。".join([word, word])])
