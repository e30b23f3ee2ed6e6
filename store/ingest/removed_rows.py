"""Rows of removed attempts: left out of every table, and read again once the attempts are back."""

import duckdb

from store.database.connection import transaction
from store.files.shards import TABLES

_ROWS = (*TABLES, "last_value", "recorded")


def restore_rows(connection: duckdb.DuckDBPyConnection) -> None:
    """Have every shard read again if an attempt is back whose rows were left out."""
    if connection.execute("SELECT 1 FROM left_out SEMI JOIN attempt USING (trial, attempt) LIMIT 1").fetchall():
        with transaction(connection):
            for table in (*_ROWS, "shard", "left_out"):
                connection.execute(f"DELETE FROM {table}")


def leave_out_rows(connection: duckdb.DuckDBPyConnection) -> None:
    """Delete the rows of removed attempts that are not back."""
    gone = (
        "SELECT trial, attempt FROM recorded r JOIN removal USING (trial) "
        "WHERE attempt <= last AND (trial, attempt) NOT IN (SELECT (trial, attempt) FROM attempt)"
    )
    if not connection.execute(f"{gone} LIMIT 1").fetchall():
        return
    with transaction(connection):
        connection.execute(f"CREATE OR REPLACE TEMP TABLE gone AS {gone}")
        connection.execute("INSERT INTO left_out FROM gone ANTI JOIN left_out USING (trial, attempt)")
        for table in _ROWS:
            connection.execute(f"DELETE FROM {table} WHERE (trial, attempt) IN (SELECT (trial, attempt) FROM gone)")
        connection.execute("DROP TABLE gone")
