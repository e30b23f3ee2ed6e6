"""Rows that follow from others: states of trials, attempts that count, doubts, rows of removed attempts."""

from typing import Final

import duckdb

from ablate.store.database.connection import transaction
from ablate.store.files.shards import TABLES
from ablate.store.state import CASE

_ROWS: Final = (*TABLES, "last_value", "recorded")


def derive_trials(connection: duckdb.DuckDBPyConnection) -> None:
    """Bring the tables `trial` and `counted` in line with plans and attempts."""
    for statement in (_DROP_UNKNOWN, _UPDATE_SPECS, _ADD_PLANNED, _ADD_UNPLANNED, _UPDATE_STATES, *_COUNT):
        connection.execute(statement)


# the plan that counts for a trial: its latest submission, or, before any, the last grid by name
_PLANNED = """
    planned WHERE starts_with(source, 'grids/') OR trial NOT IN (SELECT trial FROM removal)
    OR trial IN (SELECT trial FROM attempt)
"""
_LATEST = f"""
    SELECT trial, arg_max(cell, source) AS cell, arg_max(operator, source) AS operator, arg_max(seed, source) AS seed,
           arg_max(spec, source) AS spec
    FROM {_PLANNED} GROUP BY trial
"""
_DROP_UNKNOWN = f"""
    DELETE FROM trial WHERE trial NOT IN (SELECT trial FROM {_PLANNED} UNION SELECT trial FROM attempt)
"""
_UPDATE_SPECS = f"""
    UPDATE trial SET cell = p.cell, operator = p.operator, seed = p.seed, spec = p.spec, task = p.spec->>'$.task.kind'
    FROM ({_LATEST}) p WHERE p.trial = trial.trial
    AND (trial.cell, trial.operator, trial.seed, trial.spec) IS DISTINCT FROM (p.cell, p.operator, p.seed, p.spec)
"""
_ADD_PLANNED = f"""
    INSERT INTO trial BY NAME
    SELECT p.*, p.spec->>'$.task.kind' AS task, 'pending' AS state, 0 AS attempts
    FROM ({_LATEST}) p ANTI JOIN trial USING (trial)
"""
_ADD_UNPLANNED = """
    INSERT INTO trial BY NAME
    SELECT DISTINCT trial, 'pending' AS state, 0 AS attempts FROM attempt ANTI JOIN trial USING (trial)
"""
_UPDATE_STATES = f"""
    WITH latest AS (
        SELECT trial, count(*) AS attempts,
               max(attempt) AS attempt,
               max(attempt) FILTER (WHERE status = 'ok') AS ok,
               max(attempt) FILTER (WHERE status IS NOT NULL) AS ended,
               max(attempt) FILTER (WHERE alive) AS live,
               sum(wall_s) AS wall_s
        FROM attempt GROUP BY trial
    ),
    facts AS (
        SELECT l.trial, l.attempts, l.wall_s, a.step, a.parameters, a.operator_parameters,
               l.ok IS NOT NULL AS ok,
               a.status = 'failed' AND coalesce(l.live, 0) < l.ended AS failed,
               CASE WHEN failed THEN a.reason END AS reason,
               l.live IS NOT NULL AS live,
               a.status = 'stopped' AND l.ended = l.attempt AS stopped,
               true AS begun
        FROM latest l LEFT JOIN attempt a ON a.trial = l.trial AND a.attempt = coalesce(l.ok, l.ended)
    ),
    every AS (
        SELECT t.trial, {CASE} AS state, f.reason, coalesce(f.attempts, 0) AS attempts,
               f.step, f.wall_s, f.parameters, f.operator_parameters
        FROM trial t LEFT JOIN facts f USING (trial)
    )
    UPDATE trial SET state = e.state, reason = e.reason, attempts = e.attempts, step = e.step, wall_s = e.wall_s,
                     parameters = e.parameters, operator_parameters = e.operator_parameters
    FROM every e WHERE e.trial = trial.trial
    AND (trial.state, trial.reason, trial.attempts, trial.step, trial.wall_s, trial.parameters,
         trial.operator_parameters)
        IS DISTINCT FROM (e.state, e.reason, e.attempts, e.step, e.wall_s, e.parameters, e.operator_parameters)
"""
_CHAINS = """
    WITH RECURSIVE chain(trial, attempt, until) AS (
        SELECT trial, coalesce(max(attempt) FILTER (WHERE status = 'ok'), max(attempt)), NULL::BIGINT
        FROM attempt GROUP BY trial
        UNION ALL
        SELECT a.trial, a.resumed_attempt, least(a.resumed_step, c.until)
        FROM attempt a JOIN chain c USING (trial, attempt) WHERE a.resumed_attempt < a.attempt
    )
    SELECT trial, attempt, until FROM chain
"""
_COUNT = (
    f"CREATE OR REPLACE TEMP TABLE chained AS {_CHAINS}",
    "DELETE FROM counted WHERE NOT EXISTS (FROM chained c WHERE c.trial = counted.trial "
    "AND c.attempt = counted.attempt AND c.until IS NOT DISTINCT FROM counted.until)",
    "INSERT INTO counted SELECT * FROM chained ANTI JOIN counted USING (trial, attempt)",
    "DROP TABLE chained",
)
"""Only rows that change are written: a campaign has one for each of very many trials."""

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
        WHERE a.status = 'ok' AND b.status = 'ok' AND coalesce(a.sources, to_json(a.code)) IS NOT NULL
            AND (a.code, a.sources) IS NOT DISTINCT FROM (b.code, b.sources)
    ),
    ended AS (
        (SELECT trial, attempt, name, step, MAP {}::MAP(VARCHAR, DOUBLE) AS point, value
         FROM metric SEMI JOIN twice USING (trial)
         WHERE NOT starts_with(name, 'system.')  -- load of the machine
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
    """Bring the table `doubt` in line with attempts and shards; it is written only if it changes.

    A result is in doubt if rows that `end.json` promises are lost, or two finished attempts of the same code disagree.
    """
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
