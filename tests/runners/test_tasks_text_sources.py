"""Where text comes from: Parquet files and datasets, and what is refused."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def dataset_text(dataset: Path, **fields: Any) -> Text:
    return Text(hub=HubText(name=str(dataset), column="body", **fields), context=16)


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


def test_a_dataset_without_a_network_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("datasets.load_dataset", None)  # which would try for 23 s
    with pytest.raises(EnvironmentProblem, match=r"cannot be reached; build this .*give a local copy as `source`"):
        Text(hub=HubText(name="someone/something"))
    (tmp_path / "spec.py").write_text("from runners import HubText, Text\n\ntask = Text(hub=HubText(name='a/b'))\n")
    with pytest.raises(EnvironmentProblem, match=r"spec.py:3: dataset a/b, split train is not in .*; build this spec"):
        load_spec_file(tmp_path / "spec.py")


def test_a_lost_network_leaves_nothing_behind(dataset: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(*_: object) -> Iterator[dict[str, str]]:
        yield {"text": "one"}
        raise type("Lost", (Exception,), {"__module__": "httpx"})  # as an HTTP library raises it

    monkeypatch.setattr(hub_module, "_open", rows)
    with pytest.raises(EnvironmentProblem, match="the hub cannot be reached"):
        Text(hub=HubText(name=str(dataset)))
    assert not [path for path in cache.rglob("*") if path.is_file()]
