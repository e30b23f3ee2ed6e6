"""Where text comes from: Parquet files and datasets, and what is refused."""

import json
import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from grid.errors import EnvironmentProblem, SpecError
from runners import HubText, Text
from runners.provenance.specfile import load_spec_file
from runners.tasks.text import hub as hub_module
from runners.tasks.text.corpus import split

DOCUMENTS = [f"Dokument {number} hat {'viele ' * (number % 7)}wörter." for number in range(60)]


def table(path: Path, texts: object, column: str = "text") -> Path:
    parquet.write_table(pyarrow.table({"id": list(range(len(texts))), column: texts}), path)
    return path


def small(source: Path, **fields: object) -> Text:
    return Text.model_validate({"source": str(source), "context": 16, "validation_windows": 9, **fields})


@pytest.fixture(autouse=True)
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
    rows = table(tmp_path / "a.parquet", [*DOCUMENTS[:30], None, *DOCUMENTS[30:]])
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


def test_one_long_document_is_never_cut_inside_a_character() -> None:
    document = ("世界" * 40 + "é" * 9).encode()
    cuts = {len(split([document], share).train) for share in (0.25, 0.255, 0.26, 0.265, 0.27)}
    assert len(cuts) > 1
    assert all(document[:cut].decode() for cut in cuts)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.parquet", b"PAR1 no table", "a .parquet text is a Parquet file; .*a.parquet: .*; write it again, or"),
        ("a.parquet", {"body": ["a"]}, "in a column `text` of strings; .*a.parquet has id, body; rename one"),
        ("a.parquet", {"text": [1, 2]}, "in a column `text` of strings; .*a.parquet, row 1 has 1; write a string"),
        ("a.parquet", {"text": ["a", "b\0c"]}, "no NUL, which ends documents; .*a.parquet, row 2 has one at byte 1"),
        ("a.txt", b"word " * 99 + b"\x1a", "no SUB, which hides tokens; .*a.txt has one at byte 495; remove it"),
        ("a.jsonl", b'{"text": "a\\u0000"}', "no NUL, which ends documents; .*a.jsonl, line 1 has one at byte 1"),
        ("a.txt", "word ".encode("utf-16-le") * 99, "no NUL, which ends documents; .*a.txt has one at byte 1"),
        ("a.jsonl", b"\n \n", "the train part of .*a.jsonl has 0 bytes; give more text"),
    ],
)
def test_what_is_no_text_is_refused_when_the_spec_is_built(
    tmp_path: Path, name: str, content: bytes | dict[str, list[object]], said: str
) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        ((column, values),) = content.items()
        table(path, values, column)
    with pytest.raises(ValidationError, match=said):
        small(path)


def test_a_column_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    broken = pyarrow.StringArray.from_buffers(1, pyarrow.py_buffer(b"\0\0\0\0\2\0\0\0"), pyarrow.py_buffer(b"\xff\xfe"))
    parquet.write_table(pyarrow.table({"text": broken}), tmp_path / "a.parquet")
    with pytest.raises(ValidationError, match=r"a text is UTF-8; .*a.parquet is not, in one of the rows after 0"):
        small(tmp_path / "a.parquet")


def test_a_dataset_is_read_once(dataset: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = HubText(name=str(dataset), column="body")
    task = Text(hub=hub, context=16)
    kept = [text for n, text in enumerate(DOCUMENTS) if n % 10 != 9]
    assert task.corpus() == split([text.encode() for text in kept], 0.1)
    (file,) = (cache / "texts").iterdir()
    assert file == hub.cached
    assert task.open().record["source"] == f"dataset {dataset}, split train"
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert Text(hub=hub, context=16).key == task.key == Text(source=str(file), context=16).key


def test_a_dataset_may_be_read_in_part(dataset: Path) -> None:
    task = Text(hub=HubText(name=str(dataset), column="body", documents=20), context=16)
    assert task.open().record["train_documents"] + task.open().record["validation_documents"] == 18
    assert task.key != Text(hub=HubText(name=str(dataset), column="body"), context=16).key


def test_a_folder_that_has_changed_is_read_again(dataset: Path) -> None:
    hub = HubText(name=str(dataset), column="body")
    before = Text(hub=hub, context=16)
    (dataset / "train.jsonl").write_text("\n".join(json.dumps({"body": text + "!"}) for text in DOCUMENTS))
    assert Text(hub=hub, context=16).key != before.key
    with pytest.raises(ValidationError, match="content_hash is"):
        Text.model_validate(before.data())


def test_a_spec_is_read_without_its_data(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Text(hub=HubText(name=str(dataset), column="body"), context=16)
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "elsewhere"))
    assert Text.model_validate(planned.data()).key == planned.key


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "a column holds the documents; dataset .* has no 'text', it has id, body"),
        ({"split": "nope"}, "cannot be read: .*nope"),
        ({"config": "nope"}, "cannot be read: .*nope"),
        ({"name": "/nowhere/dataset"}, "there is no folder /nowhere/dataset; give the name of a dataset, or a folder"),
        ({"column": "id"}, "hub.column 'id' holds texts; dataset .*, row 1 has 0"),
    ],
)
def test_a_wrong_dataset_is_refused(dataset: Path, cache: Path, fields: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Text(hub=HubText.model_validate({"name": str(dataset), **fields}), context=16)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_dataset_without_a_network_fails_at_once_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("datasets.load_dataset", None)  # which would try for 23 s
    with pytest.raises(
        EnvironmentProblem, match="the hub cannot be reached; build this spec once where it can"
    ) as told:
        Text(hub=HubText(name="someone/something"))
    assert "give a local copy as `source`" in str(told.value)


def test_a_lost_network_leaves_nothing_behind(dataset: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(Exception):
        """As an HTTP library raises it."""

    Lost.__module__ = "httpx"

    def rows(*_: object) -> object:
        yield {"text": "one"}
        raise Lost

    monkeypatch.setattr(hub_module, "_open", rows)
    with pytest.raises(EnvironmentProblem, match="the hub cannot be reached"):
        Text(hub=HubText(name=str(dataset)))
    assert not [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.parametrize("error", ["RepositoryNotFoundError", "RevisionNotFoundError", "HFValidationError"])
def test_what_the_hub_does_not_have_is_said(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    import huggingface_hub.errors

    kind = getattr(huggingface_hub.errors, error)

    def error_of(*_: object, **__: object) -> None:
        raise kind.__new__(kind)

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", error_of)
    with pytest.raises(ValidationError, match="the hub has no dataset a/b, split train of revision v9"):
        Text(hub=HubText(name="a/b", revision="v9"))


def test_the_commit_that_the_hub_names_is_the_one_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    asked: list[object] = []

    class Info:
        sha = "0123abcd"

    def load(name: str, config: str | None, **options: object) -> list[dict[str, str]]:
        asked.append((name, config, options))
        return [{"text": text} for text in DOCUMENTS]

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: Info)
    monkeypatch.setattr(datasets, "load_dataset", load)
    task = Text(hub=HubText(name="a/b", config="en"), context=16)
    assert asked == [("a/b", "en", {"split": "train", "revision": "0123abcd", "streaming": True})]
    assert task.corpus() == split([text.encode() for text in DOCUMENTS], 0.1)


def test_a_text_is_in_one_place(dataset: Path) -> None:
    with pytest.raises(ValidationError, match=r"a text is in one place; got source='.*' and hub='.*'"):
        Text(source=str(dataset), hub=HubText(name=str(dataset)))


def test_an_edited_cache_is_no_longer_the_text(dataset: Path) -> None:
    task = Text(hub=HubText(name=str(dataset), column="body"), context=16)
    assert task.hub is not None
    task.hub.cached.write_text(json.dumps({"text": "other " * 99}))
    with pytest.raises(SpecError, match="content_hash is"):
        task.open()


def test_a_spec_file_that_needs_a_network_is_not_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    (tmp_path / "spec.py").write_text("from runners import HubText, Text\n\ntask = Text(hub=HubText(name='a/b'))\n")
    with pytest.raises(EnvironmentProblem, match=r"spec.py:3: dataset a/b, split train is not in .*; build this spec"):
        load_spec_file(tmp_path / "spec.py")
