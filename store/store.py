"""Reading a campaign's results: SQL over a published snapshot, and the questions that every page asks."""

import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, Self, Unpack, final

import duckdb
import polars as pl

from ablate.grid.errors import EnvironmentProblem, NotFoundError, SpecError, StoreError
from ablate.grid.suggestions import suggest_name
from ablate.store.database import queries, quoting
from ablate.store.database.connection import (
    DatabaseHeld,
    engine_errors,
    open_live,
    stored_version,
    translate_error,
    with_suggestion,
)
from ablate.store.database.grid_views import column_name
from ablate.store.database.query_log import note
from ablate.store.database.readonly import check_dates, check_reads, check_types, locked_connection
from ablate.store.files.layout import STORE_SCHEMA, Layout
from ablate.store.files.plans import require_version
from ablate.store.ingest.content_hash import content_hash
from ablate.store.ingest.database_snapshot import publish
from ablate.store.ingest.ingest import IngestOptions, ingest
from ablate.store.ingest.ingest_lock import ingest_lock

_NO_COLUMN = re.compile(r'(?:Referenced column|does not have a column named) "([^"]+)"')
_LOG = logging.getLogger(__name__)


@final
class Store:
    """The results of one campaign as they were when it was opened; nothing can be changed through it."""

    def __init__(self, layout: Layout, connection: duckdb.DuckDBPyConnection, stale: str | None) -> None:
        self.layout = layout
        self._connection = connection
        self.stale = stale
        """Why the newest files may be missing, in words; None when all of them are in."""
        self._answers: dict[tuple[str, str, int | None], pl.DataFrame] | None = None
        """Results by query, parameters and `most`; None if they are not kept."""
        self._tuned: dict[str, Collection[str]] = {}

    @classmethod
    def open(
        cls,
        root: Path,
        *,
        refresh: bool = True,
        memory_bytes: int | None = None,
        keep_answers: bool = False,
        **options: Unpack[IngestOptions],
    ) -> Self:
        """Open the newest snapshot of the campaign `root`.

        With `refresh` it first ingests what is new, unless another process is doing so, with the `options` of `ingest`.
        `memory_bytes` is the memory, and the disk beside, that a query may take. With `keep_answers` a query runs once.
        Raises NotFoundError: there is no campaign, or, without `refresh`, no snapshot yet; StoreError: the store or a
        grid has another version, or cannot be read.
        """
        layout = Layout(root)
        if not layout.exists():
            raise NotFoundError(f"there is no campaign in {layout.root}; `ablate run` makes one")
        for name in layout.grid_names():
            require_version(layout, name)
        layout.check_store()
        stale = _refresh(layout, options) if refresh else None
        if not layout.snapshot.exists():
            raise NotFoundError(f"{layout.root} has no snapshot yet; open it with refresh, or run `ablate status`")
        try:
            connection = locked_connection(layout.snapshot, memory_bytes=memory_bytes)
        except DatabaseHeld as problem:
            if not refresh:
                raise
            _LOG.warning("ablate: %s", problem)
            with suppress(EnvironmentProblem), ingest_lock(layout, wait=True):
                with open_live(layout.live):  # nobody else writes it
                    pass
                publish(layout)  # a new file, which nobody holds
            connection = locked_connection(layout.snapshot, memory_bytes=memory_bytes)
        store = cls(layout, connection, stale)
        store._answers = {} if keep_answers else None
        return store

    def interrupt(self) -> None:
        """Stop the query that another thread runs."""
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sql(
        self, query: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None, *, most: int | None = None
    ) -> pl.DataFrame:
        """The result of one reading SQL statement over the tables and views of the store; `most` rows of it.

        Raises SpecError: the statement has an error, would change something, or has values that no frame can hold;
        StoreError: the snapshot is damaged there; EnvironmentProblem: it needs more memory or disk than there is.
        """
        note(query, parameters)
        key = (query, repr(parameters), most)
        if self._answers and key in self._answers:
            return self._answers[key].clone()
        try:
            check_reads(self._connection, query)
            relation = self._connection.sql(query, params=parameters)
            check_types(relation)
            frame: pl.DataFrame = (relation if most is None else relation.limit(most)).pl()
        except duckdb.OutOfMemoryException as error:
            raise EnvironmentProblem(f"SQL: {with_suggestion(error)}; ask for less at once") from error
        except duckdb.Error as error:
            if "Corrupt database" in str(error):  # no fault of the query
                raise translate_error(error, self.layout.snapshot) from error
            raise SpecError(f"SQL: {with_suggestion(error)}{self._in_rows(error)}") from error
        check_dates(frame)
        if self._answers is not None:
            self._answers[key] = frame.clone()
        return frame

    def _in_rows(self, error: duckdb.Error) -> str:
        """Where a measurement is that a query asked for as a column which there is not; empty for other errors."""
        missing = _NO_COLUMN.search(str(error))
        rows = self._connection.execute("SELECT DISTINCT name FROM v_final ORDER BY name").fetchall() if missing else []
        name = next(
            (name for (name,) in rows if missing and missing[1].lower() in (name, column_name(name).lower())), None
        )
        return "" if name is None else f"; its values are rows: FROM v_final WHERE name = {quoting.text(name)}"

    def grids(self) -> list[str]:
        """Names of the campaign's grids, sorted."""
        return self.sql("SELECT DISTINCT grid FROM grid ORDER BY grid")["grid"].to_list()

    def grid(self, name: str) -> dict[str, Any]:
        """The header of the grid `name`. Raises NotFoundError, or StoreError if its plan is damaged."""
        headers = self.sql("SELECT header FROM grid WHERE grid = $grid", {"grid": name})
        if headers.is_empty():
            self.require_plan(name)
            self.require_read([name])
            known = self.grids()
            stale = f"; {self.stale}" if self.stale else ""
            there = (", ".join(map(repr, known)) or "none") + suggest_name(name, known)
            raise NotFoundError(f"there is no grid {name!r}; the campaign has {there}{stale}")
        header: dict[str, Any] = json.loads(headers["header"][0])
        if over := self._tuned.get(name):
            header["axes"] = [each | ({"tune": True} if each["name"] in over else {}) for each in header["axes"]]
            if "matched" in header:
                header["matched"] = [each for each in header["matched"] if each not in over]
        return header

    def tuned_over(self, grid: str, axes: Collection[str]) -> "Store":
        """The same store, in which `axes` are nuisance axes of `grid`, too."""
        other = copy(self)
        other._tuned = {**self._tuned, grid: axes}
        return other

    def require_read(self, grids: Collection[str]) -> None:
        """Raise EnvironmentProblem if one of `grids` is planned on disk and was not read when the store was opened."""
        for name in sorted({*grids} & {*self.layout.grid_names()} - {*self.grids()}):
            why = self.stale or "its plan is newer than the database"
            raise EnvironmentProblem(
                f"grid {name!r} of {self.layout.root} is planned and not read yet: {why}; ask again"
            )

    def require_plan(self, grid: str) -> None:
        """Raise StoreError if the plan of `grid` is damaged, so that what is not found in it may be lost."""
        files = {"header": f"grids/{grid}.json", "lines": f"grids/{grid}.trials.jsonl"}
        damage = self.sql("SELECT file, reason FROM bad_record WHERE file IN ($header, $lines) ORDER BY ALL", files)
        for file, reason in damage.rows():
            raise StoreError(f"the plan of grid {grid!r} cannot be read: {file}: {reason}; {queries.PLAN}")

    def list_names(self, grid: str, view: str) -> list[str]:
        """Names of the values in `view` (v_final, v_metric, v_evaluation, v_probe) of trials of `grid`, sorted."""
        rows = view if view == "v_final" else f"{view} JOIN grid_trial USING (trial)"
        names = self.sql(f"SELECT DISTINCT name FROM {rows} WHERE grid = $grid ORDER BY ALL", {"grid": grid})
        return names["name"].to_list()

    def final(self, grid: str, name: str, point: Mapping[str, float] | None = None) -> pl.DataFrame:
        """Return the last value of `name` at `point` for every planned trial of `grid`; null unless it is done.

        `name` is an evaluation, or else a training metric. `point` may leave out coordinates that do not vary. Columns:
        grid, cell, label, operator, trial, seed, state, value, se_items. Raises SpecError if several points match.
        """
        self.grid(grid)
        condition, parameters = queries.agrees(point or {})
        rows = self.sql(
            f"""
            WITH found AS (
                SELECT * FROM v_final WHERE grid = $grid AND name = $name AND {condition}
                QUALIFY source = min(source) OVER ()    -- an evaluation before a metric of the same name
            )
            SELECT g.grid, g.cell, g.label, g.operator, g.trial, g.seed, t.state, f.value, f.se_items, f.point
            FROM grid_trial g JOIN trial t USING (trial) LEFT JOIN found f USING (trial)
            WHERE g.grid = $grid ORDER BY g.position
            """,
            {"grid": grid, "name": name, **parameters},
        )
        present = (entry for entry in rows["point"] if entry is not None)
        points = sorted({tuple(sorted(entry.items())): str(entry) for entry in present}.values())
        if len(points) > 1:
            raise SpecError(
                f"{name!r} has {len(points)} points that agree with {dict(point or {})}, such as {points[0]} and "
                f"{points[1]}; say at which one"
            )
        return rows.drop("point")

    def evaluation(self, grid: str, name: str, where: Mapping[str, float] | None = None) -> pl.DataFrame:
        """The final values of the evaluation `name` at each point that agrees with `where`, a row per done trial.

        Columns: cell, label, operator, trial, seed, step, one per coordinate of the points, value, items, se_items.
        """
        self.grid(grid)
        condition, parameters = queries.agrees(where or {})
        of = f"v_final WHERE grid = $grid AND name = $name AND source = 'evaluation' AND {condition}"
        parameters = {"grid": grid, "name": name, **parameters}
        points = queries.coordinates(self.sql, of, parameters)
        columns = f"cell, label, operator, trial, seed, step{points}, value, items, se_items"
        return self.sql(f"SELECT {columns} FROM {of} ORDER BY ALL", parameters)

    def curves(self, grid: str, name: str, *, buckets: int = 400) -> pl.DataFrame:
        """The metric `name` of every trial by step, in at most `buckets` buckets of equal width.

        Columns: cell, label, operator, trial, seed, step (the bucket's first), mean, low, high of its finite values, n,
        n_finite.
        """
        self.grid(grid)
        if buckets < 1:
            raise SpecError(f"buckets={buckets} are too few for curves; give at least 1")
        return self.sql(
            """
            WITH chosen AS (
                SELECT g.cell, g.label, g.operator, g.trial, g.seed, g.position, m.step, m.value
                FROM v_metric m JOIN grid_trial g USING (trial) WHERE g.grid = $grid AND m.name = $name
            ),
            width AS (SELECT CAST(ceil((max(step) + 1) / $buckets) AS BIGINT) AS width FROM chosen)
            SELECT cell, label, operator, trial, seed, step // width * width AS step,
                   avg(value) FILTER (WHERE isfinite(value)) AS mean, min(value) FILTER (WHERE isfinite(value)) AS low,
                   max(value) FILTER (WHERE isfinite(value)) AS high, count(*) AS n,
                   count(*) FILTER (WHERE isfinite(value)) AS n_finite
            FROM chosen, width
            GROUP BY cell, label, operator, trial, seed, position, step // width * width
            ORDER BY position, 6
            """,
            {"grid": grid, "name": name, "buckets": buckets},
        )

    def progress(self, grid: str) -> pl.DataFrame:
        """How far each cell is: cell, label, operator, planned, unreadable and a count per state."""
        header = self.grid(grid)
        rows = self.sql("SELECT * EXCLUDE (grid) FROM v_progress WHERE grid = $grid", {"grid": grid})
        return queries.in_plan_order(self.sql, header, rows)

    def failures(self, grid: str | None = None, trials: Collection[str] | None = None) -> pl.DataFrame:
        """The failed ones of `trials` by kind, commonest first; by default all of one grid or of all grids.

        Columns: fingerprint, reason, n, example, labels, message, traceback.
        """
        if grid is not None:
            self.grid(grid)
        return self.sql(
            """
            WITH counted AS (
                SELECT a.* FROM attempt a JOIN trial t USING (trial)
                WHERE t.state = 'failed' AND a.status IS NOT NULL
                  AND ($grid IS NULL OR trial IN (SELECT trial FROM grid_trial WHERE grid = $grid))
                  AND ($trials IS NULL OR list_contains(CAST($trials AS VARCHAR[]), trial))
                QUALIFY a.attempt = max(a.attempt) OVER (PARTITION BY a.trial)
            ),
            labelled AS (
                SELECT trial, list_sort(list(DISTINCT label)) AS labels FROM grid_trial SEMI JOIN counted USING (trial)
                WHERE $grid IS NULL OR grid = $grid GROUP BY trial
            )
            SELECT fingerprint, min(reason) AS reason, count(*) AS n, min(trial) AS example,
                   list_sort(list_distinct(flatten(list(coalesce(labels, []))))) AS labels,
                   arg_min(message, trial) AS message, arg_min(traceback, trial) AS traceback
            FROM counted LEFT JOIN labelled USING (trial) GROUP BY fingerprint ORDER BY n DESC, fingerprint
            """,
            {"grid": grid, "trials": None if trials is None else sorted(trials)},
        )

    def unreadable(self, grid: str) -> list[str]:
        """Keys of the trials of `grid` that are done and whose result is in no shard that can be read; sorted."""
        self.grid(grid)
        trials = self.sql("SELECT trial FROM v_unreadable WHERE grid = $grid ORDER BY trial", {"grid": grid})
        return trials["trial"].to_list()

    def warnings(self, grid: str | None = None) -> list[str]:
        """Return a sentence per stale, damaged or missing file and per grid of mixed code; of all grids or one."""
        stale = [f"results may be out of date: {self.stale}"] if self.stale else []
        return [*stale, *self.damage(grid), *queries.mixtures(self.sql, grid)]

    def damage(self, grid: str | None = None) -> list[str]:
        """Return the warnings about damaged or missing files; as `warnings`."""
        return queries.damage(self.sql, grid)

    def bad_shards(self) -> pl.DataFrame:
        """Shards that are not served: file, reason."""
        return self.sql("SELECT file, reason FROM bad_shard ORDER BY file")

    def bad_records(self) -> pl.DataFrame:
        """JSON files and lines that could not be read: file, reason."""
        return self.sql("SELECT file, reason FROM bad_record ORDER BY file, reason")

    def content_hash(self) -> str:
        """32 hexadecimal digits, equal for stores that hold the same rows."""
        with engine_errors(self.layout.snapshot):
            return content_hash(self._connection)


def _is_older(snapshot: Path) -> bool:
    with suppress(DatabaseHeld), engine_errors(snapshot), duckdb.connect(":memory:") as connection:
        connection.execute(f"ATTACH {quoting.text(str(snapshot))} AS store (READ_ONLY)")
        connection.execute("USE store")
        return stored_version(connection, snapshot) < STORE_SCHEMA
    return False


def _refresh(layout: Layout, options: IngestOptions) -> str | None:
    """Ingest what is new; why that was not possible, if there is a snapshot to serve instead."""
    waits = not layout.snapshot.exists()
    try:
        counts = ingest(layout, wait=waits, **options)
        if counts.busy and _is_older(layout.snapshot):
            counts = ingest(layout, conclude=options.get("conclude"))
    except EnvironmentProblem as problem:
        if waits or _is_older(layout.snapshot):
            raise
        return f"the newest files are not in ({problem})"
    if counts.unread_plans:
        return "a large plan is not read yet, nor is what came later; `ablate table` reads all"
    if counts.unread_fans:
        left = f"new results in {len(counts.unread_fans)} of {len(layout.fans())} directories of trials"
        return f"{left} are not read yet; `ablate status` again reads more, `ablate table` all"
    return "another process is ingesting; its next snapshot has the newest files" if counts.busy else None
