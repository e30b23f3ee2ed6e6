"""Plans and records into tables: what changed on disk since the last time, and the states that follow from it."""

import math
import random
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, final

import duckdb
import pyarrow as pa

from ablate.store.database.connection import transaction
from ablate.store.files import attempt_records
from ablate.store.files.annotations import FILE, read_annotations
from ablate.store.files.attempt_records import AttemptRow, attempt_signature, evaluated_on_disk, read_attempt
from ablate.store.files.layout import Layout, Unlisted
from ablate.store.files.plans import PlanFile, baseline_of_cell, column_type, plan_signatures, read_plan
from ablate.store.files.record_fields import Problem, clean_text, json_text, relative, signed_size
from ablate.store.files.removals import read_removals
from ablate.store.ingest.derived_rows import derive_trials
from ablate.store.ingest.ingest_counts import Ingested

_MAY_HAVE_CHANGED = "left(trial, 2) NOT IN (SELECT unnest(CAST($unchanged AS VARCHAR[])))"

MOST_PLAN_BYTES = 40 << 20  # most bytes of plans that an ingest of limited time reads; it takes about 2 s


@final
class RecordIngest:
    """Brings the JSON files of a campaign into the live database."""

    def __init__(
        self,
        layout: Layout,
        connection: duckdb.DuckDBPyConnection,
        counts: Ingested,
        unchanged: Collection[str],
        most_s: float,
    ) -> None:
        """Skip the trial directories `unchanged`, except attempts that had not ended; count in `counts`.

        After `most_s` seconds, new attempts wait for the next call, and so do directories without damaged records. Each
        call reads at least one of them, so repeated calls read everything.
        """
        self._layout = layout
        self._connection = connection
        self._counts = counts
        self._unchanged = frozenset(unchanged)
        self._most_s = most_s
        self._until = time.monotonic() + most_s
        self._unlisted: list[Unlisted] = []

    def run(self) -> None:
        """Read new, changed and vanished plans and attempts, and derive the state of every trial, all or nothing.

        Otherwise an ingest that is killed in between would leave stale states for ever.
        """
        with transaction(self._connection):
            self._plans()
            self._removals()
            problems = [*self._attempts(), *self._read_evaluations()]
            problems += [(relative(self._layout, path), reason) for path, reason in self._unlisted]
            self._replace_problems("trials/", problems)
            if self._counts.plans + self._counts.attempts + self._counts.bad_records:
                derive_trials(self._connection)
            self._annotations()

    def run_plans(self) -> None:
        """Read new, changed and vanished plans alone."""
        with transaction(self._connection):
            self._plans()
            if self._counts.plans:
                derive_trials(self._connection)

    def plans_are_large(self) -> bool:
        """Return True if the new and changed plans are too large to be read in a few seconds."""
        changed, _, on_disk = self._changed_plans()
        return sum(signed_size(each) for source in changed for each in on_disk[source].split()) > MOST_PLAN_BYTES

    def _changed_plans(self) -> tuple[list[str], list[str], dict[str, str]]:
        on_disk = plan_signatures(self._layout)
        known = dict(self._connection.execute("SELECT source, signature FROM plan_file").fetchall())
        changed = [source for source, signature in on_disk.items() if known.get(source) != signature]
        return changed, [source for source in known if source not in on_disk], on_disk

    def _plans(self) -> None:
        changed, vanished, on_disk = self._changed_plans()
        if not changed and not vanished:
            return
        for source in [*vanished, *changed]:
            self._drop_plan(source)
        lines: dict[bytes, dict[str, Any]] = {}
        for source in changed:
            self._insert_plan(read_plan(self._layout, source, lines), on_disk[source])
        self._counts.plans += len(changed) + len(vanished)

    def _drop_plan(self, source: str) -> None:
        execute = self._connection.execute
        if source.startswith("grids/"):
            for table in ("grid", "axis", "grid_trial"):
                execute(f"DELETE FROM {table} WHERE grid = $grid", {"grid": source.removeprefix("grids/")})
        for table in ("planned", "plan_file"):
            execute(f"DELETE FROM {table} WHERE source = $source", {"source": source})
        # the files of a plan are <source>.json and <source>.trials.jsonl, or lie in the directory <source>
        prefixes = {"dot": f"{source}.json", "lines": f"{source}.trials.jsonl", "inside": f"{source}/"}
        execute("DELETE FROM bad_record WHERE file IN ($dot, $lines) OR starts_with(file, $inside)", prefixes)

    def _insert_plan(self, plan: PlanFile, signature: str) -> None:
        from ablate.store.files.records import Header, PlanLine

        self._insert("plan_file", [{"source": plan.source, "signature": signature}])
        names, header = ("trial", "cell", "operator", "seed", "spec"), plan.header or {}
        planned = [{"source": plan.source, **{name: clean_text(line[name]) for name in names}} for line in plan.lines]
        self._insert("planned", planned)
        if plan.source.startswith("grids/"):
            rows = [
                PlanLine.row(line) | {"position": position, "baseline": baseline_of_cell(header, line["cell"])}
                for position, line in enumerate(plan.lines)
            ]
            self._insert("grid_trial", rows)
        if header:
            self._insert("grid", [{**Header.row(header), "header": json_text(header)}])
            self._insert("axis", _axes(header, plan.lines))
        self._problems(plan.problems)

    def _removals(self) -> None:
        removals = read_removals(self._layout)
        rows = sorted(removals.last.items())
        if rows != self._connection.execute("SELECT * FROM removal ORDER BY ALL").fetchall():
            self._connection.execute("DELETE FROM removal")
            self._insert("removal", [{"trial": trial, "last": last} for trial, last in rows])
            self._counts.plans += 1
        self._replace_problems("removals/", removals.problems)

    def _annotations(self) -> None:
        """Bring tags and notes on the trials and grids that there are in line with the file."""
        noted, execute = read_annotations(self._layout), self._connection.execute
        subjects = {"trials": [trial for trial, _ in noted.tags if trial], "grids": self._layout.planned_grids()}
        known = {None, *subjects["grids"]}
        query = "SELECT trial FROM trial WHERE list_contains($trials, trial)"
        known.update(trial for (trial,) in execute(query, {"trials": subjects["trials"]}).fetchall())
        tags = [(*subject, tag) for subject, tags in noted.tags.items() for tag in tags if known.issuperset(subject)]
        notes = [(*subject, *said) for subject, *said in noted.notes if known.issuperset(subject)]
        for table, names, rows in (("tag", ("tag",), tags), ("note", ("written", "note"), notes)):
            if sorted(rows, key=str) != sorted(execute(f"FROM {table}").fetchall(), key=str):
                execute(f"DELETE FROM {table}")
                self._insert(table, [dict(zip(("trial", "grid", *names), row, strict=True)) for row in rows])
                self._counts.plans += 1
        self._replace_problems(FILE, noted.problems)

    def _problems(self, problems: Iterable[Problem]) -> None:
        rows = [{"file": file, "reason": clean_text(reason), "found": time.time()} for file, reason in problems]
        self._insert("bad_record", rows)
        self._counts.bad_records += len(rows)

    def _replace_problems(self, beginning: str, problems: Sequence[Problem]) -> None:
        """Problems of the files whose names begin so: those that are whole or gone by now are dropped."""
        execute, of = self._connection.execute, "FROM bad_record WHERE starts_with(file, $beginning)"
        before = execute(f"SELECT file, reason {of} ORDER BY ALL", {"beginning": beginning}).fetchall()
        if before != sorted(problems):
            execute(f"DELETE {of}", {"beginning": beginning})
            self._problems(problems)
            self._counts.bad_records += not problems

    def _attempts(self) -> list[Problem]:
        """Attempts that are new, had not ended when they were last read, or have changed since; and those gone."""
        self._until = max(self._until, time.monotonic() + self._most_s / 4)  # plans and shards may have taken all time
        execute = self._connection.execute
        ended = f"SELECT trial, attempt, signature FROM attempt WHERE status IS NOT NULL AND {_MAY_HAVE_CHANGED}"
        signatures = {(trial, attempt): signature for trial, attempt, signature in self._query_changed(ended)}
        unended = execute("FROM attempt WHERE status IS NULL")
        columns = [column[0] for column in unended.description]
        open_before = {row[:2]: dict(zip(columns, row, strict=True)) for row in unended.fetchall()}
        rows: list[AttemptRow] = []
        problems: list[Problem] = []
        seen, fresh = set[str](), False
        missing = {*signatures, *open_before}
        gone: list[tuple[str, int]] = []
        for key, attempt, directory in self._to_read(open_before, seen):
            place = (key, attempt)
            known = place in missing
            missing.discard(place)
            before = signatures.get(place)
            if not known and fresh and time.monotonic() > self._until:
                self._counts.unread_fans.add(key[:2])
                continue
            if before is not None and before == attempt_signature(directory):
                continue
            fresh = fresh or not known
            row, faults = read_attempt(self._layout, *place)
            problems += faults
            rows += [row] if row is not None and row != open_before.get(place) else []
            gone += [place] if row is None and known else []
        unread = self._counts.unread_fans - seen
        gone += sorted(place for place in missing if place[0][:2] not in unread)
        places = [*gone, *((row["trial"], row["attempt"]) for row in rows)]
        if places:
            leaving = pa.table({"trial": [place[0] for place in places], "attempt": [place[1] for place in places]})
            self._connection.register("leaving", leaving)
            execute("DELETE FROM attempt WHERE (trial, attempt) IN (SELECT (trial, attempt) FROM leaving)")
            self._connection.unregister("leaving")
        self._insert("attempt", rows)
        self._counts.attempts += len(rows) + len(gone)
        return problems

    def _to_read(self, open_before: Iterable[tuple[str, int]], seen: set[str]) -> Iterator[tuple[str, int, str]]:
        """Yield the attempts in directories that may have changed, which are added to `seen`, and open ones of others.

        If time is limited, directories come in a random order, so that each has its turn in repeated calls.
        """
        files = self._connection.execute("SELECT file FROM bad_record WHERE starts_with(file, 'trials/')").fetchall()
        damaged = {file.split("/")[1] for (file,) in files}
        fans = [fan for fan in self._layout.fans() if fan not in self._unchanged]
        if math.isfinite(self._until):
            random.shuffle(fans)
        for fan in sorted(fans, key=lambda fan: fan not in damaged):
            if not seen <= damaged and fan not in damaged and time.monotonic() > self._until:
                self._counts.unread_fans.add(fan)
            else:
                seen.add(fan)
                yield from self._layout.every_attempt([fan], self._unlisted)
        for key, attempt in open_before:
            if key[:2] not in seen:
                yield key, attempt, str(self._layout.attempt(key, attempt))

    def _query_changed(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query restricted by `_MAY_HAVE_CHANGED` to directories that may have changed."""
        return self._connection.execute(query, {"unchanged": [*self._unchanged, *self._counts.unread_fans]}).fetchall()

    def _read_evaluations(self) -> list[Problem]:
        """Later evaluations that are new or have changed; and those gone, or damaged by now."""
        execute = self._connection.execute
        ok = f"SELECT trial, attempt FROM attempt WHERE status = 'ok' AND {_MAY_HAVE_CHANGED} ORDER BY ALL"
        finished = self._query_changed(ok)
        on_disk = evaluated_on_disk(self._layout, finished, self._unlisted)
        columns = "trial, attempt, evaluation, signature"
        rows_before = self._query_changed(f"SELECT {columns} FROM evaluated WHERE {_MAY_HAVE_CHANGED}")
        known = {row[:3]: row[3] for row in rows_before}
        changed = [place for place, signature in on_disk.items() if known.get(place) != signature]
        leaving = [place for place in known if place not in on_disk or place in changed]
        evaluations = [attempt_records.evaluated_row(self._layout, place, on_disk[place]) for place in changed]
        rows = [each for each in evaluations if isinstance(each, dict)]
        for place in leaving:
            execute("DELETE FROM evaluated WHERE trial = ? AND attempt = ? AND evaluation = ?", place)
        self._insert("evaluated", rows)
        self._counts.evaluated += len({*leaving, *((row["trial"], row["attempt"], row["evaluation"]) for row in rows)})
        return [each for each in evaluations if isinstance(each, tuple)]

    def _insert(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        if not rows:
            return
        self._connection.register("incoming", pa.Table.from_pylist(list(rows)))
        self._connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
        self._connection.unregister("incoming")


def _axes(header: dict[str, Any], lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    from ablate.store.files.records import PlannedAxis

    types = [column_type(line["axes"].get(axis["name"]) for line in lines) for axis in header["axes"]]
    return [
        {**PlannedAxis.row(axis), "grid": header["grid"], "position": position, "type": kind}
        for position, (axis, kind) in enumerate(zip(header["axes"], types, strict=True))
    ]
