"""Files of text as they lie: folders, links, packed files, marks at their beginning, and texts that have moved."""

import gzip
import json
import os
from pathlib import Path

import pyarrow
import pytest
import torch
from pyarrow import parquet
from pydantic import ValidationError
from torch import Tensor

from grid.errors import EnvironmentProblem, SpecError
from runners import BytePairs, HubText, MaskedText, MinimalPairs, MultipleChoice, Text, TokenizerFile
from runners.evaluations.minimal_pairs import read_pairs
from runners.tasks.text.corpus import count_repeated, split
from runners.tasks.text.text_source import TextTask

BOM = b"\xef\xbb\xbf"
WORDS = "one two three four five six\n" * 40


def small(source: Path | str, **fields: object) -> Text:
    return Text.model_validate({"source": str(source), "context": 16, "validation_windows": 3, **fields})


ITEM = json.dumps({"question": "a", "choices": ["b", "c"], "answer": 0})


def documents_of(task: TextTask) -> list[str]:
    """The documents, sorted."""
    return sorted(each for part in task.corpus() for each in part.decode().split("\0") if each)


def test_a_byte_order_mark_is_no_part_of_a_text_a_sentence_or_an_item(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": f"{n} {WORDS}"}) for n in range(9))
    for suffix, whole in ((".txt", WORDS), (".jsonl", lines)):
        (tmp_path / f"a{suffix}").write_bytes(whole.encode())
        (tmp_path / f"b{suffix}").write_bytes(BOM + whole.encode())
        plain, marked = (small(tmp_path / f"{name}{suffix}") for name in "ab")
        assert plain.corpus() == marked.corpus()
        assert "\ufeff" not in "".join(documents_of(marked))
    (tmp_path / "p.txt").write_bytes(BOM + b"the dogs sleeps\nthe dogs sleep\n")
    assert read_pairs(tmp_path / "p.txt").pairs == (("the dogs sleeps", "the dogs sleep"),)
    (tmp_path / "q.jsonl").write_bytes(BOM + ITEM.encode())
    assert MultipleChoice(source=str(tmp_path / "q.jsonl")).names == ("q",)


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    """Capitals in suffixes, links to files and folders, and folders that a link leads back into."""
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "folder"
    (elsewhere / "deep").mkdir(parents=True)
    (folder / "inside").mkdir(parents=True)
    (folder / "a.TXT").write_text("a" + WORDS)
    (folder / "inside" / "b.Jsonl").write_text(json.dumps({"text": "b" + WORDS}))
    parquet.write_table(pyarrow.table({"text": ["c" + WORDS]}), folder / "c.PARQUET")
    (elsewhere / "deep" / "d.txt").write_text("d" + WORDS)
    (tmp_path / "e.txt").write_text("e" + WORDS)
    (folder / "notes.md").write_text("no text")
    (folder / "link").symlink_to(elsewhere)
    (folder / "again").symlink_to(elsewhere / "deep")
    (folder / "e.txt").symlink_to(tmp_path / "e.txt")
    (elsewhere / "back").symlink_to(folder)
    assert documents_of(small(folder, validation_share=0.4)) == sorted(name + WORDS for name in "abcde")
    assert small(folder / "a.TXT").corpus().train.startswith(b"aone")
    (folder / "e.txt").unlink()
    (folder / "e.txt").symlink_to(tmp_path / "gone.txt")
    with pytest.raises(EnvironmentProblem, match=r"cannot read .*e.txt: No such file"):
        small(folder)


@pytest.mark.parametrize("name", ["b.jsonl.gz", "b.TXT.ZST", "b.parquet.zip"])
def test_a_packed_text_is_refused_and_not_passed_over(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.txt").write_text(WORDS)
    (tmp_path / name).write_bytes(gzip.compress(WORDS.encode()))
    for source in (tmp_path, tmp_path / name):
        with pytest.raises(ValidationError, match=f"a text is read unpacked; got .*{name}; unpack it to .*, or move"):
            small(source)


@pytest.mark.parametrize("kind", [Text, MaskedText, MinimalPairs, MultipleChoice])
def test_no_source_is_not_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Text]) -> None:
    (tmp_path / "a.txt").write_text(WORDS)
    monkeypatch.chdir(tmp_path)
    for empty in ("", " "):
        with pytest.raises(ValidationError, match=r"source names a file or a folder; got ' ?'; '.' is the folder you"):
            kind.model_validate({"source": empty})


def test_the_kind_of_a_file_is_in_the_hash_and_its_name_is_not_unless_it_names_a_set_of_items(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.TXT", "d.jsonl"):
        (tmp_path / name).write_text(json.dumps({"text": WORDS}))
    one, renamed, capitals, lines = (small(tmp_path / name) for name in ("a.txt", "b.txt", "c.TXT", "d.jsonl"))
    assert one.key == renamed.key == capitals.key != lines.key  # the same bytes are two texts
    assert documents_of(one) != documents_of(lines)
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text(ITEM)
    first, second = (MultipleChoice(source=str(tmp_path / f"{name}.jsonl"), sets=None) for name in ("one", "two"))
    assert first.content_hash != second.content_hash


def test_a_dataset_whose_files_are_broken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "train.jsonl").write_text('{"text": "a"}\n{"text": \n')
    with pytest.raises(ValidationError, match=r"dataset .*/d, split train cannot be read: .*; mend its files"):
        Text(hub=HubText(name=str(tmp_path / "d")))


def test_a_dataset_in_a_folder_is_that_folder_wherever_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert HubText(name="./d").name == HubText(name="~/d").name == HubText(name=str(tmp_path / "d")).name
    assert HubText(name="owner/name").name == "owner/name"


def word_file(path: Path) -> TokenizerFile:
    vocabulary = {"<end>": 0, "?": 1, "one": 2, "two": 3, "<mask>": 4}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}
    whole = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    path.write_text(json.dumps(whole))
    return TokenizerFile(path=str(path))


@pytest.mark.parametrize("kind", [Text, MaskedText])
def test_a_tokenizer_that_learns_nothing_needs_no_text(tmp_path: Path, kind: type[TextTask]) -> None:
    (tmp_path / "a.txt").write_text(WORDS)
    task = kind.model_validate({"source": str(tmp_path / "a.txt"), "context": 16})
    tasks = [task, task.changed(tokenizer=word_file(tmp_path / "t.json"))]
    pairs = task.changed(tokenizer=BytePairs(vocabulary=262))
    before = pairs.encoder().record
    (tmp_path / "a.txt").rename(tmp_path / "b.txt")
    for each in tasks:
        again = type(each).model_validate(each.data())  # as a finished trial is read
        assert again.encoder().decode(again.encoder().encode("one two").ids) == "one two"
    with pytest.raises(SpecError, match=r"'byte_pairs' is learned from the text .* there is no text .*a.txt"):
        pairs.encoder()
    (tmp_path / "b.txt").rename(tmp_path / "a.txt")
    assert pairs.encoder().record == before


@pytest.mark.parametrize("asked", ["corpus", "streams", "open"])
def test_a_text_that_has_changed_is_not_read(tmp_path: Path, asked: str) -> None:
    (tmp_path / "a.txt").write_text(WORDS)
    task = small(tmp_path / "a.txt")
    task.streams()
    (tmp_path / "a.txt").write_text(WORDS + "seven")
    os.utime(tmp_path / "a.txt", ns=(1, 1))
    with pytest.raises(SpecError, match="content_hash is"):
        getattr(task, asked)()


def test_equal_documents_are_on_one_side() -> None:
    documents = [f"document {n} {'x' * (n % 5)}".encode() for n in range(40)]
    several = [each for n, each in enumerate(documents) for _ in range(1 + n % 4)]
    for share in (0.1, 0.25, 0.5, 0.8):
        found = split(several, share)
        train, validation = (set(part.split(b"\0")) - {b""} for part in found)
        assert not train & validation
        assert train | validation == set(documents)
        assert count_repeated(found) == len(several) - len(documents)


def test_a_text_is_not_cut_among_equal_documents() -> None:
    long, short = b"long " * 200, b"short"
    for documents in ([long] * 3 + [short], [short] + [long + b"."] * 2, [long] * 2 + [long + b"!"]):
        found = split(documents, 0.3)
        assert min(map(len, found)) > 0
        assert not (set(found.train.split(b"\0")) & set(found.validation.split(b"\0"))) - {b""}
    alone = split([long] * 10, 0.3)  # there are no others
    assert min(map(len, alone)) > 0
    assert len(alone.train) + len(alone.validation) == 10 * (len(long) + 1)


def test_documents_that_are_packed_are_validated_apart(tmp_path: Path) -> None:
    """A model that copies the first token it may see: it sees the document's own."""
    lines = [f"{chr(97 + n % 26)}{n}" for n in range(200)]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))
    shown: list[Tensor | None] = []

    def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        shown.append(visible)
        first = inputs if visible is None else inputs.gather(1, visible.long().argmax(2))
        return torch.nn.functional.one_hot(first, 256).float()

    apart, across = (small(tmp_path / "a.jsonl", packing=packing).open() for packing in ("documents", "across"))
    losses = [next(iter(data.evaluate(predict))).value for data in (apart, across)]
    assert [each is None for each in shown] == [False, True]
    document = (apart.windows(16, 3).inputs == 0).cumsum(1)
    assert shown[0] is not None
    assert torch.equal(shown[0], document[:, :, None] == document[:, None, :])
    assert losses[0] != losses[1]
