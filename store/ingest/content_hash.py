"""One hash of everything the database says, whatever the order in which it was told."""

from hashlib import blake2b

import duckdb

_WHAT = {
    **dict.fromkeys(("grid", "axis", "grid_trial", "planned", "counted", "doubt", "tag", "note", "recorded"), "*"),
    **dict.fromkeys(("metric", "evaluation", "item", "probe"), "* EXCLUDE (shard)"),
    # whether a process lives is a fact of the moment, so a running trial counts as lost here
    "trial": "* REPLACE (CASE WHEN state = 'running' THEN 'lost' ELSE state END AS state)",
    "attempt": "* EXCLUDE (alive, signature)",
    "evaluated": "* EXCLUDE (signature)",
    "last_value": "* EXCLUDE (shard, value)",  # either of two values at one step may be the last
    "shard": "* EXCLUDE (number, bytes, inside, signature, ingested)",
    "bad_shard": "* EXCLUDE (found, signature)",
    "bad_record": "* EXCLUDE (found)",
}


def content_hash(connection: duckdb.DuckDBPyConnection) -> str:
    """32 hexadecimal digits, equal for stores that hold the same rows; times of ingest do not count.

    Comparable between stores that the same version of the engine reads.
    """
    digest = blake2b(digest_size=16)
    for table, columns in _WHAT.items():
        query = f"SELECT count(*), sum(hash(r)::HUGEINT) FROM (SELECT {columns} FROM {table}) r"
        digest.update(f"{table} {connection.execute(query).fetchall()}\n".encode())
    return digest.hexdigest()
