"""Results in doubt: rows that `end.json` promises are lost, or two finished attempts of the same code disagree."""

import duckdb

from store.database.connection import transaction

_LOST = """
    SELECT trial, 'lost' AS kind, format('{} of the shards that its end.json names cannot be read', count(*)) AS reason,
           false AS counts
    FROM (SELECT a.trial, unnest(a.shards) AS file FROM attempt a JOIN counted c USING (trial, attempt)
          WHERE a.status = 'ok' AND c.until IS NULL)
    WHERE file IN (SELECT file FROM bad_shard) AND split_part(file, '.', 2) NOT IN (SELECT blake2b FROM shard)
    GROUP BY trial
"""

# two attempts must agree if all that can change a bit on a CPU is equal; attempts of earlier releases count as before
_DISAGREEING = """
    WITH twice AS (
        SELECT a.trial, a.attempt AS first, b.attempt AS second,
               coalesce(a.device = 'cpu' AND a.shards IS NOT NULL AND b.shards IS NOT NULL
                   AND (a.device, a.path, a.threads, a.versions)
                   IS NOT DISTINCT FROM (b.device, b.path, b.threads, b.versions), false) AS cpu
        FROM attempt a JOIN attempt b ON b.trial = a.trial AND b.attempt > a.attempt
        WHERE a.status = 'ok' AND b.status = 'ok' AND a.code = b.code AND a.sources IS NOT DISTINCT FROM b.sources
    ),
    ended AS (
        (SELECT trial, attempt, name, step, MAP {}::MAP(VARCHAR, DOUBLE) AS point, value
         FROM metric SEMI JOIN twice USING (trial)
         QUALIFY step = max(step) OVER (PARTITION BY trial, attempt, name))
        UNION ALL
        (SELECT trial, attempt, name, step, point, value
         FROM evaluation SEMI JOIN twice USING (trial) JOIN shard s ON s.number = evaluation.shard AND NOT s.later
         QUALIFY step = max(step) OVER (PARTITION BY trial, attempt, name))
    ),
    different AS (
        SELECT t.trial, t.first, t.second, t.cpu, count(*) AS n, min((x.name, x.value, y.value)) AS example
        FROM twice t JOIN ended x ON x.trial = t.trial AND x.attempt = t.first
        JOIN ended y ON y.trial = t.trial AND y.attempt = t.second
            AND (x.name, x.step, x.point) = (y.name, y.step, y.point)
        WHERE x.value <> y.value GROUP BY ALL
    )
    SELECT trial, 'disagree' AS kind,
           format('attempts {} and {} are of the same code and differ in {} values, such as {}: {} and {}',
                  first, second, n, example[1], example[2], example[3]) AS reason, NOT cpu AS counts
    FROM different
"""


def find_doubts(connection: duckdb.DuckDBPyConnection) -> None:
    """Bring the table `doubt` in line with attempts and shards; it is written only if it changes."""
    execute = connection.execute
    searches = []
    if execute("SELECT EXISTS (FROM bad_shard)").fetchall()[0][0]:
        searches.append(_LOST)
    if execute("SELECT 1 FROM attempt WHERE status = 'ok' GROUP BY trial HAVING count(*) > 1 LIMIT 1").fetchall():
        searches.append(_DISAGREEING)
    rows = sorted(row for search in searches for row in execute(search).fetchall())
    if rows == execute("SELECT * FROM doubt ORDER BY ALL").fetchall():
        return
    with transaction(connection):
        execute("DELETE FROM doubt")
        if rows:
            connection.executemany("INSERT INTO doubt VALUES (?, ?, ?, ?)", rows)
