"""docs/sql.md says what the store holds: every column, from the DDL's own comments, with queries that answer."""

import re
from hashlib import blake2b
from pathlib import Path

import pytest

from ablate.store.database.schema_docs import Relation, column_types, ddl, example, meaning, relations
from ablate.store.files.layout import STORE_SCHEMA
from ablate.store.store import Store

DOCS = Path(__file__).parents[2] / "docs" / "sql.md"
COLUMNS = {name: [column for column, _ in types] for name, types in column_types().items()}


MADE = {24: "b63c3deda656a8b08e14c0b6880aa313"}
"""Hash of the statements that make an empty database, by version."""


def named(relation: Relation) -> str:
    return relation.name


def test_every_table_view_and_macro_of_a_store_is_described(reading: Store) -> None:
    tables = reading.sql(
        "SELECT table_name AS name FROM duckdb_tables() WHERE database_name = 'store' "
        "UNION SELECT view_name FROM duckdb_views() WHERE database_name = 'store' AND NOT internal "
        "UNION SELECT function_name FROM duckdb_functions() WHERE database_name = 'store' AND NOT internal "
        "AND NOT starts_with(function_name, '_')"
    )["name"].to_list()
    assert {name for name in tables if not re.match("grid_quick|trials_", name)} == set(COLUMNS)


@pytest.mark.parametrize("relation", relations(), ids=named)
def test_every_column_has_a_meaning_and_no_meaning_is_of_no_column(relation: Relation) -> None:
    columns = COLUMNS[relation.name]
    assert [name for name in columns if not meaning(relation, name)] == []
    assert set(relation.columns) <= set(columns)
    assert relation.meaning
    assert "|" not in relation.meaning + "".join(str(meaning(relation, name)) for name in columns)


@pytest.mark.parametrize("relation", relations(), ids=named)
def test_the_example_of_each_answers_about_it(relation: Relation, reading: Store) -> None:
    query = example(relation)
    assert re.search(rf"\b{relation.name}\b", query)
    reading.sql(query)


@pytest.mark.parametrize("query", re.findall(r"```sql\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL))
def test_every_query_of_the_page_answers(query: str, reading: Store) -> None:
    for statement in filter(str.strip, query.split(";\n")):
        reading.sql(statement)


def test_a_store_carries_the_meanings(reading: Store) -> None:
    of_columns = "FROM duckdb_columns() WHERE database_name = 'store' AND NOT internal AND coalesce(comment, '') = ''"
    assert reading.sql(f"SELECT table_name, column_name {of_columns}").rows() == []


def test_a_store_with_other_tables_views_or_macros_has_another_version(reading: Store) -> None:
    digest = blake2b(digest_size=16)
    for statements in ddl():
        digest.update(statements.encode())
    for table in ("published", "published_note", "published_operator"):
        digest.update(str(reading.sql(f"FROM {table} ORDER BY ALL").rows()).encode())
    said = (
        "a store that was made before is opened with the old ones: raise STORE_SCHEMA, and say here what it is made of"
    )
    assert {STORE_SCHEMA: digest.hexdigest()} == {STORE_SCHEMA: MADE.get(STORE_SCHEMA)}, said
