"""A field of a record is written in one place: its file, its check, its column and its value in SQL follow."""

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from synthetic import Campaign

from ablate.grid.errors import StoreError
from ablate.store.database import connection, schema_docs
from ablate.store.files import attempts, records
from ablate.store.files.atomic import read_json, write_json
from ablate.store.store import Store

TABLES = {
    "attempt": (records.Start, records.End),
    "evaluated": (records.Evaluated,),
    "grid_trial": (records.PlanLine,),
    "grid": (records.Header,),
    "axis": (records.PlannedAxis,),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_columns_of_a_table_follow_from_the_fields_of_its_records(table: str) -> None:
    types = dict(schema_docs.column_types()[table])
    for record in TABLES[table]:
        columns = {name: column.type for name, column in record.columns().items()}
        assert columns
        assert columns.items() <= types.items()
        assert record.row({}).keys() == columns.keys()


def test_a_new_field_is_one_edit(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    class End(records.End):
        joules: Annotated[records.Float | None, "energy"] = None

    for module in (records, attempts):
        monkeypatch.setattr(module, "End", End)
    caches = (schema_docs.ddl, schema_docs.relations, connection._empty)
    for cached in caches:
        cached.cache_clear()
    assert "joules" in attempts.end_record("ab" * 16, 1, 0, 0.0)
    first, second = (campaign.layout.end(campaign.line("SSA · 8", seed)["trial"], 1) for seed in (0, 1))
    write_json(first, {**read_json(first), "joules": 2})
    write_json(second, {**read_json(second), "joules": "many"})
    with Store.open(campaign.root) as store:
        counts = store.sql("SELECT count(*) AS all, count(joules) AS said, sum(joules) AS joules FROM attempt").row(0)
        assert counts == (12, 1, 2.0)
        assert [file for file, *_ in store.bad_records().rows()] == [second.relative_to(campaign.root).as_posix()]
        assert store.sql("SELECT comment FROM duckdb_columns() WHERE column_name = 'joules'").row(0) == ("energy",)
    monkeypatch.undo()
    for cached in caches:
        cached.cache_clear()


WRONG: list[tuple[type[records.Record], Any]] = [
    (records.Resumed, {"attempt": True, "step": 1}),
    (records.Resumed, {"attempt": 1.0, "step": 1}),
    (records.Resumed, {"attempt": "1", "step": 1}),
    (records.Resumed, {"attempt": 2**31, "step": 1}),
    (records.Resumed, {"attempt": 1, "step": 2**63}),
    (records.Resumed, {"attempt": 1}),
    (records.PlannedAxis, {"name": "x", "path": None, "labels": []}),
    (records.Removal, {"trials": {"x": 1}}),
    (records.Removal, {"trials": {"AB" * 16: 1}}),
    (records.WrittenRows, {"rows": 1, "step": 1, "shards": ["../x.parquet"]}),
]


@pytest.mark.parametrize(("kind", "record"), WRONG)
def test_a_value_of_another_type_is_refused_and_none_is_converted(
    kind: type[records.Record], record: dict[str, Any]
) -> None:
    with pytest.raises(StoreError):
        kind.check(record)


def test_fields_of_later_releases_and_texts_that_are_no_unicode_are_read(tmp_path: Path) -> None:
    path = tmp_path / "end.json"
    record = {
        "schema": 1,
        "trial": "x",
        "attempt": 1,
        "status": "failed",
        "ended": 1,
        "message": "a\udc80",
        "later": [1],
    }
    path.write_text(json.dumps(record))
    found = records.End.row(vars(records.End.read(path)))
    assert (found["message"], found["ended"], found["cost"]) == ("a?", 1.0, None)
