"""Text: what is read, how it is split, what it is called, and what is refused."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow
import pytest
import torch
from pyarrow import parquet
from pydantic import ValidationError
from torch import Tensor

from ablate import HubText, MaskedText, Text
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.provenance.specfile import load_spec_file
from ablate.training.evaluations.minimal_pairs import read_pairs
from ablate.training.tasks.text import hub as hub_module
from ablate.training.tasks.text.corpus import count_repeated, split
from ablate.training.tasks.text.text_source import TextTask

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


def write_parquet(path: Path, **columns: Any) -> None:
    parquet.write_table(pyarrow.table({"id": list(range(len(next(iter(columns.values()))))), **columns}), path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("gone.txt", None, "there is no text .*gone.txt; a text is a .txt, .jsonl or .parquet file"),
        ("empty.txt", b"", "the train part of .*empty.txt has 0 .* a window 17 tokens"),
        (
            "short.txt",
            b"x" * 100,
            "the validation part of .*short.txt has 10 bytes, .*; shorten context or give more text",
        ),
        ("latin.txt", b"caf\xe9 " * 100, "latin.txt is not UTF-8, at byte 3; convert it"),
        (
            "page.html",
            b"<p>",
            "page.html holds no text; a text is a .txt, .jsonl or .parquet file, or a folder of these",
        ),
        ("bad.jsonl", b'{"text": "a"}\n{"text"\n', "bad.jsonl, line 2 is no JSON object"),
        ("other.jsonl", b'{"body": "a"}\n', "other.jsonl, line 1 has .* in a field `text`; set column to the field"),
        ("nan.jsonl", b'{"text": NaN}\n', "nan.jsonl, line 1 has nan, .* in a field `text`; write a string"),
        ("half.jsonl", rb'{"text": "half \ud83d"}', "half.jsonl, line 1 has half a character at 5"),
        ("long.jsonl", b'{"text": "a", "id": ' + b"7" * 5000 + b"}\n", "long.jsonl, line 1 is no JSON object"),
        ("deep.jsonl", b"[" * 200_000, "deep.jsonl, line 1 is no JSON object"),
        ("nul.jsonl", b'{"text": "a\\u0000"}', "nul.jsonl, line 1 has NUL, which ends documents, at byte 1"),
        ("none.jsonl", b"\n \n", "the train part of .*none.jsonl has 0 bytes, .*; give more text"),
        ("sub.txt", b"word " * 99 + b"\x1a", "sub.txt has SUB, which hides tokens, at byte 495; remove it"),
        ("a.parquet", b"PAR1 no table", "a.parquet is no Parquet file: .*; write it again, or"),
        ("a.parquet", {"body": ["a"]}, "a.parquet has id, body, .* in a column `text` of strings; set column to one"),
        ("a.parquet", {"text": [1, 2]}, "a.parquet, row 1 has 1, .* in a column `text` of strings; write a string"),
        ("a.parquet", {"text": ["a", "b\0c"]}, "a.parquet, row 2 has NUL, which ends documents, at byte 1"),
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
    with pytest.raises(ValidationError, match=re.escape(f"{tmp_path} holds no text")):
        small(tmp_path)
    broken = pyarrow.StringArray.from_buffers(1, pyarrow.py_buffer(b"\0\0\0\0\2\0\0\0"), pyarrow.py_buffer(b"\xff\xfe"))
    write_parquet(tmp_path / "a.parquet", text=broken)
    with pytest.raises(ValidationError, match=r"a.parquet is not UTF-8 in one of the rows after 0"):
        small(tmp_path / "a.parquet")


def test_pythons_documentation_is_real_text_with_its_files_on_record() -> None:
    text = Text()
    data = text.open()
    assert data.record["train_bytes"] > 1_000_000
    assert 0.08 < data.record["validation_bytes"] / data.record["train_bytes"] < 0.12
    assert data.record["files"].keys() >= {"argparse.py", "json/__init__.py", "pydoc_data/topics.py"}
    assert not any("test" in name.split("/") for name in data.record["files"])
    assert data.record["content_hash"] == text.content_hash


BOM = b"\xef\xbb\xbf"
WORDS = "one two three four five six\n" * 40


def documents_of(task: TextTask) -> list[str]:
    return sorted(each for part in task.corpus() for each in part.decode().split("\0") if each)


def test_a_byte_order_mark_is_no_part_of_a_text_or_a_sentence(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": f"{n} {WORDS}"}) for n in range(9))
    for suffix, whole in ((".txt", WORDS), (".jsonl", lines)):
        (tmp_path / f"a{suffix}").write_bytes(whole.encode())
        (tmp_path / f"b{suffix}").write_bytes(BOM + whole.encode())
        plain, marked = (small(tmp_path / f"{name}{suffix}") for name in "ab")
        assert plain.corpus() == marked.corpus()
        assert "\ufeff" not in "".join(documents_of(marked))
    (tmp_path / "p.txt").write_bytes(BOM + b"the dogs sleeps\nthe dogs sleep\n")
    assert read_pairs(tmp_path / "p.txt").pairs == (("the dogs sleeps", "the dogs sleep"),)


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


def test_the_kind_of_a_file_is_in_the_hash_and_its_name_is_not(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.TXT", "d.jsonl"):
        (tmp_path / name).write_text(json.dumps({"text": WORDS}))
    one, renamed, capitals, lines = (small(tmp_path / name) for name in ("a.txt", "b.txt", "c.TXT", "d.jsonl"))
    assert one.key == renamed.key == capitals.key != lines.key  # the same bytes are two texts
    assert documents_of(one) != documents_of(lines)


DOCUMENTS = [f"Dokument {number} hat {'viele ' * (number % 7)}wörter." for number in range(60)]


def dataset_text(dataset: Path, **fields: Any) -> Text:
    return Text(hub=HubText(name=str(dataset), column="body", **fields), context=16)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A folder that `datasets` can read: two columns, some rows without a text."""
    folder = tmp_path / "dataset"
    folder.mkdir()
    rows = [{"id": n, "body": None if n % 10 == 9 else text} for n, text in enumerate(DOCUMENTS)]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_parquet_jsonl_and_text_of_the_same_documents_are_split_alike(tmp_path: Path) -> None:
    rows = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": [*DOCUMENTS[:30], None, *DOCUMENTS[30:]]}), rows)
    lines = tmp_path / "a.jsonl"
    lines.write_text("\n".join(json.dumps({"text": text}) for text in DOCUMENTS))
    folder = tmp_path / "folder"
    folder.mkdir()
    for number, text in enumerate(DOCUMENTS):
        (folder / f"{number}.txt").write_text(text)
    expected = split([text.encode() for text in DOCUMENTS], 0.1)
    assert [small(source).corpus() for source in (rows, lines, folder)] == [expected] * 3
    record = small(rows).open().record
    assert record["train_documents"] + record["validation_documents"] == len(DOCUMENTS)
    assert record["validation_documents"] == expected.validation.count(0)
    assert record["train_tokens"] == record["trained_on_tokens"] == len(expected.train)


def test_a_dataset_is_read_once(dataset: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = dataset_text(dataset)
    kept = [text for n, text in enumerate(DOCUMENTS) if n % 10 != 9]
    assert task.corpus() == split([text.encode() for text in kept], 0.1)
    assert task.open().record["source"] == f"dataset {dataset}, split train"
    part = dataset_text(dataset, documents=20)
    assert part.open().record["train_documents"] + part.open().record["validation_documents"] == 18
    assert part.key != task.key
    assert task.hub.cached.parent == cache / "texts"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "datasets", None)
        assert dataset_text(dataset).key == task.key == Text(source=str(task.hub.cached), context=16).key
        patch.setenv("ABLATE_CACHE", str(cache / "elsewhere"))
        assert Text.model_validate(task.data()).key == task.key
    task.hub.cached.write_text(json.dumps({"text": "other " * 99}))
    with pytest.raises(SpecError, match="content_hash is"):
        task.open()


@pytest.mark.parametrize("kind", [Text, MaskedText])
def test_text_for_validation_is_whole_and_not_trained_on(tmp_path: Path, kind: type[TextTask]) -> None:
    for name, part in (("train", DOCUMENTS[:45]), ("held", DOCUMENTS[45:]), ("other", DOCUMENTS[44:])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in part))
    train, held, other = (str(tmp_path / f"{name}.jsonl") for name in ("train", "held", "other"))
    task = kind(source=train, validation=held, context=64)
    parts = [sorted(part.decode().split("\0")[:-1]) for part in task.corpus()]
    assert parts == [sorted(DOCUMENTS[:45]), sorted(DOCUMENTS[45:])]
    assert (
        len({task.key, kind(source=train, context=64).key, kind(source=train, validation=other, context=64).key}) == 3
    )
    assert kind.model_validate(task.data()).key == task.key
    record = task.open().record
    assert (list(record["files"]), list(record["validation_files"])) == (["train.jsonl"], ["held.jsonl"])
    (tmp_path / "none.txt").write_text("\n")
    for fields, words in (
        ({"validation": train}, "train.jsonl of .* is also in .*train.jsonl, .*; give another file"),
        ({"source": str(tmp_path), "validation": held}, "held.jsonl of .* is also in"),
        ({"validation": str(tmp_path / "gone.txt")}, "there is no text .*gone.txt"),
        ({"validation": str(tmp_path / "none.txt")}, "the validation part of .*none.txt has"),
        (
            {"validation": held, "validation_share": 0.2},
            "validation_share=0.2 splits a text that has no validation",
        ),
    ):
        with pytest.raises(ValidationError, match=words):
            kind.model_validate({"source": train, "context": 64, **fields})


def test_documents_are_in_the_column_that_is_named(tmp_path: Path, dataset: Path, cache: Path) -> None:
    rows = [{"text": "none", "body": text} for text in DOCUMENTS]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    write_parquet(tmp_path / "a.parquet", text=["none"] * len(DOCUMENTS), body=DOCUMENTS)
    (tmp_path / "a.txt").write_text(PROSE)
    for name in ("a.jsonl", "a.parquet"):
        task = small(tmp_path / name, column="body")
        assert task.corpus() == split([text.encode() for text in DOCUMENTS], 0.1)
        held = small(tmp_path / "a.txt", validation=str(tmp_path / name), column="body")
        assert documents_of(held) == sorted([*DOCUMENTS, PROSE])
    assert MaskedText(source=str(tmp_path / "a.jsonl"), column="body").corpus() == task.corpus()
    for name, words in (
        ("a.jsonl", "a.jsonl, line 1 has .*, .* in a field `title`; set column"),
        ("a.parquet", "a.parquet has id, text, body, .* in a column `title` of strings; set column"),
        ("a.txt", "column names a field of .jsonl and .parquet files; got 'title' for .*a.txt; leave it out"),
    ):
        with pytest.raises(ValidationError, match=words):
            small(tmp_path / name, column="title")
    with pytest.raises(SpecError, match=r"the column of a dataset is hub.column; got 'body'"):
        dataset_text(dataset).changed(column="body")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "dataset .* has no column 'text' of documents; it has id, body"),
        ({"split": "nope"}, "cannot be read: .*nope"),
        ({"config": "nope"}, "cannot be read: .*nope"),
        ({"name": "/nowhere/dataset"}, "there is no folder /nowhere/dataset; give the name of a dataset, or a folder"),
        ({"column": "id"}, "dataset .*, row 1 has 0, and hub.column 'id' holds texts"),
    ],
)
def test_a_wrong_dataset_is_refused(dataset: Path, cache: Path, fields: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Text(hub=HubText.model_validate({"name": str(dataset), **fields}), context=16)
    assert not [path for path in cache.rglob("*") if path.is_file()]


class Missing(BaseHTTPRequestHandler):
    """A hub that has nothing."""

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD  # noqa: N815

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Set the address of the hub."""

    def use(address: str) -> None:
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("datasets.config.HF_ENDPOINT", address)

    return use


@pytest.mark.usefixtures("cache")
def test_a_dataset_without_a_network_is_a_problem_of_the_machine(
    tmp_path: Path, hub: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub("http://127.0.0.1:9")
    monkeypatch.setattr("time.sleep", lambda _: None)  # between the tries of `datasets`
    with pytest.raises(EnvironmentProblem, match="give a local copy as `source`"):
        Text(hub=HubText(name="someone/something"))
    (tmp_path / "spec.py").write_text("from ablate import HubText, Text\n\ntask = Text(hub=HubText(name='a/b'))\n")
    with pytest.raises(EnvironmentProblem, match=r"spec.py:3: dataset a/b, split train is not in"):
        load_spec_file(tmp_path / "spec.py")


def test_a_dataset_that_the_hub_lacks_is_a_mistake_in_the_spec(
    tmp_path: Path, cache: Path, hub: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is a name that no dataset can have, and one that `datasets` would take for a file here."""
    (tmp_path / "someone").mkdir()
    monkeypatch.chdir(tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Missing) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        hub(f"http://127.0.0.1:{server.server_port}")
        try:
            for name in ("someone/something", "some one", "a/b/c", "someone"):
                with pytest.raises(ValidationError, match=name):
                    Text(hub=HubText(name=name))
        finally:
            server.shutdown()
            serving.join()
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_lost_network_leaves_nothing_behind(dataset: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(*_: object) -> Iterator[dict[str, str]]:
        yield {"text": "one"}
        raise type("Lost", (Exception,), {"__module__": "httpx"})  # as an HTTP library raises it

    monkeypatch.setattr(hub_module, "_open", rows)
    with pytest.raises(EnvironmentProblem, match="the hub cannot be reached"):
        Text(hub=HubText(name=str(dataset)))
    assert not [path for path in cache.rglob("*") if path.is_file()]
