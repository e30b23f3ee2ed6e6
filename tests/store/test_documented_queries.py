"""A query of docs/sql.md answers what it says."""

import re
from pathlib import Path

import duckdb
import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_the_share_of_sequences_with_a_higher_rank_pairs_them() -> None:
    blocks = re.findall(r"```sql\n(.*?)```", (DOCS / "sql.md").read_text(encoding="utf-8"), re.DOTALL)
    (query,) = [block for block in blocks if "effective_rank_median" in block]
    store = duckdb.connect()
    store.execute("create table trials_quickstart (trial varchar, label varchar, seed integer, status varchar)")
    for row in (("a", "softmax", 0, "ok"), ("b", "softmax", 1, "ok"), ("c", "SSA", 0, "ok"), ("d", "SSA", 1, "failed")):
        store.execute("insert into trials_quickstart values (?, ?, ?, ?)", row)
    store.execute(
        "create table v_probe (trial varchar, step integer, name varchar, layer integer, "
        "point map(varchar, double), value double)"
    )
    ranks = {"a": (1.0, 2.0, 3.0, 4.0), "b": (9.0, 9.0, 9.0, 9.0), "c": (2.0, 2.0, 4.0, 5.0), "d": (10.0,) * 4}
    for trial, values in ranks.items():
        for sequence, value in enumerate(values, start=1):
            for step, shown in ((1, -value), (2, value)):
                point = f"map {{'sequence': {sequence}.0}}"
                row = f"('{trial}', {step}, 'effective_rank_median', 0, {point}, {shown})"
                store.execute(f"insert into v_probe values {row}, ('{trial}', {step}, 'entropy', 0, map {{}}, 1)")
    for trial, rank in (("a", 3.0), ("c", float("nan"))):
        point = "map {'sequence': 5.0}"
        store.execute(f"insert into v_probe values (?, 2, 'effective_rank_median', 0, {point}, ?)", (trial, rank))
    assert store.execute(query).fetchall() == [("SSA", 0, pytest.approx(75.0), 4)]
