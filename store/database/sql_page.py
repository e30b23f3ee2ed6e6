"""Writes docs/sql.md from the comments of the DDL; `python -m store.database.sql_page`."""

import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

import duckdb

from store.database.schema_docs import Relation, meaning, relations

_HEADINGS: Final = {"view": "## Views", "macro": "## Macros", "table": "## Tables"}
_MACROS: Final = {
    "final": "select grid, label, value from final('mse') where point['sigma_f'] = 5 order by value",
    "paired": "select grid, label, avg(difference) as difference from paired('mse', 'softmax · 8') group by all",
    "best_over": "select rest, level, mean, levels, remark from best_over('width', 'mse') where point['sigma_f'] = 5",
    "curve": "select grid, label, step, median(value) as loss from curve('loss') group by all order by all",
    "last_probe": "select grid, label, layer, head, avg(value) as v from last_probe('number.strength') group by all",
}
_OTHERS: Final = {
    "axis": "select name, type, labels from axis where grid = 'quickstart' order by position",
    "v_cell_stats": "select grid, label, n, mean, low, high from v_cell_stats where name = 'mse' order by mean",
    "v_cost": "select grid, label, sum(train_s) as train_s, count(train_s) as of_trials from v_cost group by all",
    "v_failure": "select reason, n, message from v_failure order by n desc",
    "v_metric": "select step, avg(value) as loss from v_metric where name = 'loss' group by all order by step",
    "v_pair": "select grid, label, avg(log_ratio) as log_ratio from v_pair where name = 'mse' group by all",
    "v_progress": "select grid, label, planned, ok, failed, running from v_progress order by all",
    "published": "select paper, paper_table, printed, unit from published where measurement = 'mse' limit 5",
    "trial": "select status, count(*) as trials from trial group by all",
}


def page() -> str:
    """The whole text of docs/sql.md."""
    types = column_types()
    parts = []
    for kind, heading in _HEADINGS.items():
        parts.append(heading)
        for each in relations():
            if each.kind == kind:
                called = f"{each.name}({each.arguments})" if kind == "macro" else each.name
                rows = [f"| {name} | {of} | {meaning(each, name) or ''} |" for name, of in types[each.name]]
                table = "\n".join(["| column | type | description |", "|---|---|---|", *rows])
                parts.append(f"### `{called}`\n\n{each.meaning}\n\n{table}\n\n```sql\n{example(each)};\n```")
    text = files("store.database").joinpath("sql_page.md").read_text(encoding="utf-8")
    return text.replace("<!-- relations -->", "\n\n".join(parts))


def example(relation: Relation) -> str:
    """A query that shows a use of `relation`."""
    plain = f'from "{relation.name}" limit 5' if relation.name == "grid" else f"from {relation.name} limit 5"
    return {**_MACROS, **_OTHERS}.get(relation.name, plain)


def column_types() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Name and type of each column of every table, view and macro."""
    found: dict[str, Sequence[tuple[str, str]]] = {}
    with duckdb.connect() as connection:
        for name in ("schema", "views", "macros"):
            connection.execute(files("store.database").joinpath(f"{name}.sql").read_text(encoding="utf-8"))
        for each in relations():
            given = ", ".join("NULL" for argument in each.arguments.split(",") if ":=" not in argument)
            shown = f"{each.name}({given})" if each.kind == "macro" else each.name
            described = connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE FROM {shown})").fetchall()
            found[each.name] = described
    return found


if __name__ == "__main__":
    Path("docs/sql.md").write_text(page(), encoding="utf-8")
    sys.stdout.write("docs/sql.md\n")
