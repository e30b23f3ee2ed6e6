"""Compaction: many small shards become few large ones, so that a campaign of very many trials has few files.

A large shard lists the names and rows of its members in the footer. It is published before the members' files are
deleted, so a crash in between loses nothing: the next ingest finds the members in both and keeps the large one.
"""

import duckdb

from store.files.atomic import write_atomic
from store.files.layout import Layout
from store.files.shards import BadShard, ShardInfo, encode_members, verify_shard
from store.ingest.ingest_shards import ShardIngest
from store.ingest.ingested import Ingested

SMALL_BYTES = 256 * 1024  # shards of fewer bytes are joined

LEAST, MOST = 1000, 5000  # from `LEAST` small shards of a table on they are joined, at most `MOST` at once


def compact(layout: Layout, connection: duckdb.DuckDBPyConnection) -> int:
    """Join the small shards of each table that has many, after their ingest; return the number of joined files."""
    small = connection.execute(
        'SELECT "table", list(file ORDER BY number) FROM shard WHERE NOT later AND inside IS NULL AND bytes < $small '
        'GROUP BY "table" HAVING count(*) >= $least ORDER BY ALL',
        {"small": SMALL_BYTES, "least": LEAST},
    ).fetchall()
    paths = {path.name: path for path in layout.shards()} if small else {}
    joined = 0
    for _, names in small:
        shards: list[ShardInfo] = []
        for name in names[:MOST]:
            try:
                shards += [verify_shard(paths[name])] if name in paths else []
            except BadShard:  # the next ingest puts it aside
                continue
        if len(shards) > 1:
            encoded = encode_members(shards)
            large = write_atomic(layout.shard(encoded.name), encoded.data)
            ShardIngest(layout, connection, Ingested()).insert_joined(verify_shard(large))
            joined += len(shards)
    return joined
