"""Text: what is read, how it is split, what it is called, and what is refused."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

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
from runners.tasks.text.python_documentation import python_documentation
from runners.tasks.text.text_source import TextTask

PROSE = "".join(f"Line {number} says that {number * number} is a square.\n" for number in range(400))


def uniform(inputs: Tensor) -> Tensor:
    return torch.zeros(*inputs.shape, 256)


@pytest.fixture
def prose(tmp_path: Path) -> Path:
    path = tmp_path / "prose.txt"
    path.write_text(PROSE)
    return path


def small(source: Path, **fields: object) -> Text:
    return Text.model_validate({"source": str(source), "context": 16, "batch": 4, "validation_windows": 9, **fields})


def test_targets_are_the_next_bytes_of_the_text(prose: Path) -> None:
    batch = small(prose).open().batch(seed=1, step=1)
    assert batch.inputs.shape == batch.targets.shape == (4, 16)
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    for row in batch.inputs.tolist():
        assert bytes(row) in PROSE.encode()


def test_validation_windows_do_not_overlap_and_are_not_trained_on(prose: Path) -> None:
    seen: list[Tensor] = []

    def remember(inputs: Tensor) -> Tensor:
        seen.append(inputs)
        return uniform(inputs)

    data = small(prose, validation_windows=10_000).open()
    list(data.evaluate(remember))
    windows = [bytes(row) for row in torch.cat(seen).tolist()]
    assert len(windows) == (data.record["validation_bytes"] - 1) // 16
    end = data.record["train_bytes"]
    for window in windows:
        end = PROSE.encode().index(window, end) + len(window)


def test_equal_documents_are_whole_on_one_side_whatever_their_order() -> None:
    documents = [f"document {n} ".encode() * (n % 5 + 1) for n in range(100)]
    several = [each for n, each in enumerate(documents) for _ in range(1 + n % 4)]
    for share in (0.1, 0.25, 0.5, 0.8):
        corpus = split(several, share)
        train, validation = (set(part.split(b"\0")) - {b""} for part in corpus)
        assert not train & validation
        assert train | validation == set(documents)
        assert count_repeated(corpus) == len(several) - len(documents)
        assert len(corpus.validation) / sum(map(len, corpus)) == pytest.approx(share, abs=0.03)
        assert split(reversed(several), share) == corpus


def test_one_long_document_is_cut_at_the_share_and_never_inside_a_character() -> None:
    assert [len(text) for text in split([b"x" * 999], 0.25)] == [750, 250]
    document = ("世界" * 40 + "é" * 9).encode()
    cuts = {len(split([document], share).train) for share in (0.25, 0.255, 0.26, 0.265, 0.27)}
    assert len(cuts) > 1
    assert all(document[:cut].decode() for cut in cuts)


def test_a_renamed_text_is_the_same_and_an_edited_one_does_not_pass_for_the_one_that_was_planned(prose: Path) -> None:
    planned, moved = small(prose), prose.with_name("moved.txt")
    moved.write_text(PROSE)
    assert small(moved).key == planned.key
    prose.write_text(PROSE.replace("square", "circle"))
    assert small(prose).key != planned.key
    with pytest.raises(SpecError, match="content_hash is"):
        planned.open()
    with pytest.raises(ValidationError, match="leave content_hash out"):
        Text.model_validate(planned.data())
    prose.unlink()
    assert Text.model_validate(planned.data()).key == planned.key
    with pytest.raises(SpecError, match="there is no text"):
        planned.open()


def write_parquet(path: Path, **columns: Any) -> None:
    parquet.write_table(pyarrow.table({"id": list(range(len(next(iter(columns.values()))))), **columns}), path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("gone.txt", None, "there is no text .*gone.txt; a text is a .txt, .jsonl or .parquet file"),
        ("empty.txt", b"", "a window has 17 tokens; the train part of .*empty.txt has 0"),
        ("short.txt", b"x" * 100, "the validation part of .*short.txt has 10 bytes; shorten context or give more text"),
        ("latin.txt", b"caf\xe9 " * 100, "a text is UTF-8; .*latin.txt is not, at byte 3; convert it"),
        ("page.html", b"<p>", "a text is a .txt, .jsonl or .parquet file, or a folder of these; got .*page.html"),
        ("bad.jsonl", b'{"text": "a"}\n{"text"\n', "one JSON object; .*bad.jsonl, line 2"),
        ("other.jsonl", b'{"body": "a"}\n', "in a field `text`; .*other.jsonl, line 1 has .*; rename the field"),
        ("nan.jsonl", b'{"text": NaN}\n', "in a field `text`; .*nan.jsonl, line 1 has nan; write a string"),
        ("half.jsonl", rb'{"text": "half \ud83d"}', "half.jsonl, line 1 has half a character at 5"),
        ("long.jsonl", b'{"text": "a", "id": ' + b"7" * 5000 + b"}\n", "one JSON object; .*long.jsonl, line 1"),
        ("deep.jsonl", b"[" * 200_000, "one JSON object; .*deep.jsonl, line 1"),
        ("nul.jsonl", b'{"text": "a\\u0000"}', "no NUL, which ends documents; .*nul.jsonl, line 1 has one at byte 1"),
        ("none.jsonl", b"\n \n", "the train part of .*none.jsonl has 0 bytes; give more text"),
        ("sub.txt", b"word " * 99 + b"\x1a", "no SUB, which hides tokens; .*sub.txt has one at byte 495; remove it"),
        ("a.parquet", b"PAR1 no table", "a .parquet text is a Parquet file; .*a.parquet: .*; write it again, or"),
        ("a.parquet", {"body": ["a"]}, "in a column `text` of strings; .*a.parquet has id, body; rename one"),
        ("a.parquet", {"text": [1, 2]}, "in a column `text` of strings; .*a.parquet, row 1 has 1; write a string"),
        ("a.parquet", {"text": ["a", "b\0c"]}, "no NUL, which ends documents; .*a.parquet, row 2 has one at byte 1"),
    ],
)
def test_a_text_that_teaches_nothing_is_refused(tmp_path: Path, name: str, content: Any, words: str) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        write_parquet(tmp_path / name, **content)
    with pytest.raises(ValidationError, match=words):
        small(tmp_path / name)


def test_a_folder_without_texts_or_a_column_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=re.escape(f"got {tmp_path}")):
        small(tmp_path)
    broken = pyarrow.StringArray.from_buffers(1, pyarrow.py_buffer(b"\0\0\0\0\2\0\0\0"), pyarrow.py_buffer(b"\xff\xfe"))
    write_parquet(tmp_path / "a.parquet", text=broken)
    with pytest.raises(ValidationError, match=r"a text is UTF-8; .*a.parquet is not, in one of the rows after 0"):
        small(tmp_path / "a.parquet")


def test_pythons_documentation_is_real_text_with_its_files_on_record() -> None:
    data = Text().open()
    assert data.record["train_bytes"] > 1_000_000
    assert 0.08 < data.record["validation_bytes"] / data.record["train_bytes"] < 0.12
    assert data.record["files"].keys() >= {"argparse.py", "json/__init__.py", "pydoc_data/topics.py"}
    assert not any("test" in name.split("/") for name in data.record["files"])
    assert data.record["content_hash"] == Text().content_hash


def test_a_module_is_one_document_and_a_topic_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nested = 'class A:\n    """two"""\n    if 1:\n        def f(self):\n            """three"""\n            x = "no"\n'
    files = {
        "module.py": f'"""one"""\ntry:\n    pass\nexcept E:\n    def g():\n        """one and a half"""\n{nested}',
        "pydoc_data/topics.py": "topics = {'with': 'The with statement', 'if': 'The if statement'}\n",
        "test/test_module.py": '"""left out"""',
        "package/tests/more.py": '"""left out"""',
        "site-packages/other.py": '"""left out"""',
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    origin = python_documentation.__wrapped__()
    assert set(origin.files) == {"module.py", "pydoc_data/topics.py"}
    assert list(origin.documents()) == [
        b"one\n\none and a half\n\ntwo\n\nthree",
        b"if\n\nThe if statement",
        b"with\n\nThe with statement",
    ]


BOM = b"\xef\xbb\xbf"
WORDS = "one two three four five six\n" * 40


ITEM = json.dumps({"question": "a", "choices": ["b", "c"], "answer": 0})


def documents_of(task: TextTask) -> list[str]:
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
    with pytest.raises(ValidationError, match=r"dataset .*/d, split train cannot be read: .*; correct its files"):
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
    document = (apart.windows(16, 9).inputs == 0).cumsum(1)
    assert torch.equal(shown[0], document[:, :, None] == document[:, None, :])
    assert losses[0] != losses[1]
