"""docs/sql.md, from the comments of the DDL."""

from collections.abc import Mapping, Sequence
from typing import Final

import duckdb
from markdown import fill_template

from store.database.schema_docs import ddl, example, meaning, relations

_HEADINGS: Final = {"view": "## Views", "macro": "## Macros", "table": "## Tables"}


def make_sql_page() -> dict[str, str]:
    """Write the page, by path below docs/."""
    types = _column_types()
    parts = []
    for kind, heading in _HEADINGS.items():
        parts.append(heading)
        for each in relations():
            if each.kind == kind:
                called = f"{each.name}({each.arguments})" if kind == "macro" else each.name
                rows = [f"| {name} | {of} | {meaning(each, name) or ''} |" for name, of in types[each.name]]
                columns = "\n".join(["| column | type | description |", "|---|---|---|", *rows])
                parts.append(f"### `{called}`\n\n{each.meaning}\n\n{columns}\n\n```sql\n{example(each)};\n```")
    return {"sql.md": fill_template("sql", {"relations": "\n\n".join(parts)})}


def _column_types() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Name and type of each column of every table, view and macro."""
    found: dict[str, Sequence[tuple[str, str]]] = {}
    with duckdb.connect() as connection:
        for statements in ddl():
            connection.execute(statements)
        for each in relations():
            given = ", ".join("NULL" for argument in each.arguments.split(",") if ":=" not in argument)
            shown = f"{each.name}({given})" if each.kind == "macro" else each.name
            described = connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE FROM {shown})")
            found[each.name] = described.fetchall()
    return found
