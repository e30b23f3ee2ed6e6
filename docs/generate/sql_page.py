"""docs/sql.md, from the comments of the DDL."""

from typing import Final

from markdown import fill_template

from ablate.store.database.schema_docs import column_types, example, meaning, relations

_HEADINGS: Final = {"view": "## Views", "macro": "## Macros", "table": "## Tables"}


def make_sql_page() -> dict[str, str]:
    """Write the page, by path below docs/."""
    types = column_types()
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
