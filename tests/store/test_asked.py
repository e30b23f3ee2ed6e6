"""Logged queries can be run again and give the same answer."""

from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import pytest
from synthetic import write_campaign

from ablate.store.database.query_log import logged_queries, with_values
from ablate.store.store import Store


@pytest.mark.parametrize(
    "value", [None, True, 0, -7, 2**62, 0.1, -1e-300, float("inf"), "it's $name", '"', "ü\n", [1, 2], ["a", "b'"], []]
)
def test_a_statement_with_its_values_written_in_gives_the_same(value: Any) -> None:
    query = (
        'SELECT $x IS NOT DISTINCT FROM $x AS same, $x AS x, \'$x\' AS text, "$x" AS y FROM (SELECT 1 AS "$x") -- $x'
    )
    connection = duckdb.connect()
    expected = connection.execute(query, {"x": value}).fetchall()
    assert connection.execute(with_values(query, {"x": value})).fetchall() == expected
    assert connection.execute(with_values("SELECT $1, $2", [value, "b"])).fetchall() == [(value, "b")]


def test_every_statement_is_noted_once_in_the_thread_that_asks(tmp_path: Path) -> None:
    write_campaign(tmp_path, operators=("softmax",), seeds=range(1))
    with Store.open(tmp_path) as store:
        other = Thread(target=lambda: store.sql("SELECT 3 AS other"))
        with logged_queries() as found:
            store.sql("SELECT $a AS a", {"a": "x"})
            store.sql("SELECT $a AS a", {"a": "x"})
            other.start()
            other.join()
            store.sql("SELECT 2 AS b")
        store.sql("SELECT 4 AS after")
    assert found == ["SELECT 'x' AS a", "SELECT 2 AS b"]
