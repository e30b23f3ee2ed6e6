"""Text of `ablate status`: progress of each cell, running trials, failures and notes."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from grid.durations import format_duration, format_hours
from runners.monitoring.failure_groups import kind_line, kinds
from runners.monitoring.trial_locations import AtWork, State, TrialLocations
from runners.output import age, format_count, say, write, write_table
from runners.slurm.submissions import AT_WORK, SubmissionStatus, WorkerStatus
from runners.slurm.worker_records import GAVE_UP

if TYPE_CHECKING:
    import polars as pl

    from store.store import Store

OF_STATE: dict[str, State] = {
    "ok": "done",
    "failed": "failed",
    "running": "running",
    "queued": "queued",
    "pending": "pending",
    "lost": "lost",
    "unknown": "unknown",
}
"""The state that each column of a cell counts."""

_ALWAYS = ("label", "planned", "ok", "failed", "running", "pending")
_YOUNG_S = 60.0
_MOST_CELLS = 200
_MOST_ROWS = 20
_MOST_REASONS = 3
_MOST_NOTES = 5


class Status(NamedTuple):
    """The state of some grids of a campaign."""

    grids: "dict[str, pl.DataFrame]"
    """One row per cell: planned, a column per state, unreadable."""
    failures: "pl.DataFrame"
    """As `Store.failures`, of which `n` are failed now and `again` queued again."""
    bad_shards: "pl.DataFrame"
    where: TrialLocations
    warnings: list[str]
    overrides: dict[str, list[str]]
    """The overrides with which each grid was run, of those that had any."""
    notes: "pl.DataFrame"
    """Notes on trials and grids, the latest first: grid, trial, label, seed, written, note."""

    def keep(self, store: "Store", trials: "Sequence[tuple[str, str]]") -> "Status":
        """Only the cells and the running ones of these trials, each a grid and a key."""
        import polars as pl

        wanted, keys = set(trials), {key for _, key in trials}
        rows = store.sql("SELECT grid, trial, cell FROM grid_trial").rows()
        cells = {(grid, cell) for grid, trial, cell in rows if (grid, trial) in wanted}
        grids = {
            name: frame.filter(pl.col("cell").is_in([cell for grid, cell in cells if grid == name]))
            for name, frame in self.grids.items()
        }
        at_work = tuple(each for each in self.where.at_work if each.trial in keys)
        kept = {name: frame for name, frame in grids.items() if len(frame)}
        return self._replace(grids=kept, where=replace(self.where, at_work=at_work))

    def data(self) -> dict[str, Any]:
        """As plain data."""
        where = self.where
        return {
            "grids": {name: frame.rows(named=True) for name, frame in self.grids.items()},
            "failures": self.failures.rows(named=True),
            "notes": self.notes.rows(named=True),
            "bad_shards": self.bad_shards.rows(named=True),
            "trials": {key: found._asdict() for key, found in sorted(where.trials.items()) if found.state != "done"},
            "running": [found._asdict() for found in where.at_work],
            "workers": [worker._asdict() for status in where.submissions for worker in status.workers],
            "submissions": [submission_data(status) for status in where.submissions],
            "overrides": self.overrides,
            "endings": list(where.endings),
            "when": where.when,
        }


def submission_data(status: SubmissionStatus) -> dict[str, Any]:
    """A submission to a cluster as plain data."""
    record = status.record
    return {
        "submission": record.submission,
        "written": record.written,
        "cancelled": status.cancelled.all,
        "cancelled_trials": sorted(status.cancelled.trials),
        "hours": status.hours,
        "unit": status.unit,
        "budget": record.budget,
        "classes": {found.name: status.standing(found.name) for found in record.classes},
    }


def read_status(store: "Store", where: TrialLocations, grids: Sequence[str], grid: str | None) -> Status:
    """The state of `grids`; failures of `grid` only, where one was asked for."""
    found = {name: cells(store, name, where) for name in grids}
    warnings = [*store.warnings(), *where.notes]
    headers = {name: json.loads(header) for name, header in store.sql("SELECT grid, header FROM grid").rows()}
    overrides = {
        name: header["overrides"] for name, header in headers.items() if name in grids and "overrides" in header
    }
    failures, notes = kinds(store, grid, where.again), _notes(store, grids)
    return Status(found, failures, store.bad_shards(), where, warnings, overrides, notes)


def cells(store: "Store", grid: str, where: TrialLocations) -> "pl.DataFrame":
    """One row per cell of `grid`: label, planned, how many of its trials are in each state, and their tags.

    The store counts those that have ended, `where` all others and those that are tried again.
    """
    import polars as pl

    frame = store.progress(grid)
    trials = store.sql(
        """
        SELECT g.cell, trial, t.status = 'failed' AS failed FROM grid_trial g JOIN trial t USING (trial)
        WHERE g.grid = $grid
          AND (t.status NOT IN ('ok', 'failed') OR trial IN (SELECT unnest(CAST($again AS VARCHAR[]))))
        """,
        {"grid": grid, "again": sorted(where.again)},
    )
    tags = store.sql(
        "SELECT cell, array_to_string(list_sort(list_distinct(flatten(list(tags)))), ' ') AS tags FROM v_annotation "
        "WHERE grid = $grid GROUP BY cell",
        {"grid": grid},
    )
    columns = {"trial": list(where.trials), "state": [each.state for each in where.trials.values()]}
    states = pl.DataFrame(columns, schema={"trial": pl.String, "state": pl.String})
    now = ((pl.col("state") == state).sum().cast(pl.Int64).alias(f"{name}_now") for name, state in OF_STATE.items())
    counts = trials.join(states, on="trial").group_by("cell").agg(*now, pl.col("failed").sum().alias("again"))
    ended = {"ok": pl.col("ok"), "failed": pl.col("failed") - pl.col("again").fill_null(0)}
    shown = [*frame.columns, *(name for name in OF_STATE if name not in frame.columns)]
    return (
        frame.join(counts, on="cell", how="left", maintain_order="left")
        .with_columns(
            (ended.get(name, pl.lit(0)) + pl.col(f"{name}_now").fill_null(0)).cast(pl.Int64).alias(name)
            for name in OF_STATE
        )
        .select(shown)
        .join(tags, on="cell", how="left", maintain_order="left")
        .with_columns(pl.col("tags").fill_null(""))
    )


def _notes(store: "Store", grids: Sequence[str]) -> "pl.DataFrame":
    return store.sql(
        """
        SELECT coalesce(n.grid, g.grid) AS grid, n.trial, g.label, g.seed, n.written, n.note
        FROM note n LEFT JOIN grid_trial g ON g.trial = n.trial
        WHERE coalesce(n.grid, g.grid) IN (SELECT unnest(CAST($grids AS VARCHAR[])))
        QUALIFY row_number() OVER (PARTITION BY n.trial, n.grid, n.written ORDER BY g.grid) = 1 ORDER BY n.written DESC
        """,
        {"grids": list(grids)},
    )


def write_status(found: Status) -> None:
    """A table per grid, who is at work, then failures by kind; warnings on stderr."""
    for name, frame in found.grids.items():
        columns = [column for column in ("label", "planned", *OF_STATE) if column in _ALWAYS or frame[column].sum()]
        write(f"{name}: {frame['ok'].sum()} of {format_count(int(frame['planned'].sum()), 'trial')} done")
        if name in found.overrides:
            write(f"overrides: {' '.join(found.overrides[name])}")
        columns += ["tags"] if any(frame["tags"]) else []
        shown = frame if len(frame) <= _MOST_CELLS else _telling(frame)
        write_table(columns, shown.select(columns).rows())
        if len(shown) < len(frame):
            write(f"... and {format_count(len(frame) - len(shown), 'more cell')}; --json has all")
    for row in found.notes.head(_MOST_NOTES).rows(named=True):
        about = (
            f"grid {row['grid']}" if row["trial"] is None else f"{row['trial'][:8]} {row['label']} seed {row['seed']}"
        )
        write(f"note, {age(row['written'])} old, on {about}: {row['note']}")
    _write_running(found.where.at_work)
    for line in submission_lines(found.where.submissions):
        write(line)
    _write_workers(found.where)
    for line in (*found.where.endings, *loose_ends(found.where)):
        write(line)
    for row in found.failures.rows(named=True):
        line = kind_line(row["n"], row["again"], row["reason"], row["message"])
        write(f"{line} (trial {str(row['example'])[:12]})")
    for warning in found.warnings:
        say(f"ablate: {warning}")


def _telling(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Choose cells to show: active cells first, then unfinished ones, in the order of the grid."""
    import polars as pl

    busy = pl.sum_horizontal("failed", "running", "queued", "lost", "unknown") > 0
    rank = pl.when(busy).then(0).when(pl.col("ok") < pl.col("planned")).then(1).otherwise(2).alias("rank")
    place = pl.int_range(pl.len()).alias("place")
    return frame.with_columns(rank, place).sort("rank", "place").head(_MOST_CELLS).sort("place").select(frame.columns)


def _write_running(found: Sequence[AtWork]) -> None:
    if not found:
        return
    rows = [
        (
            each.trial[:8],
            each.label,
            each.seed,
            each.attempt,
            each.host,
            *_progress(each),
            _format_last_sign(each.quiet_s),
        )
        for each in found[:_MOST_ROWS]
    ]
    write_table(("running", "cell", "seed", "attempt", "node", "step", "steps/s", "loss", "seen"), rows)
    _say_more(len(found), "running trial")


def _progress(found: AtWork) -> tuple[str, float | None, float | None]:
    step = "-" if found.step is None else f"{found.step}/{found.steps}"
    pace = None if found.steps_per_s is None else float(f"{found.steps_per_s:.3g}")
    return step, pace, found.loss


def _format_last_sign(quiet_s: float) -> str | None:
    return None if quiet_s < _YOUNG_S else f"{format_duration(quiet_s)} ago"


def submission_lines(submissions: Iterable[SubmissionStatus]) -> list[str]:
    """A line per submission that has workers at work or that may be: how many, and what they used of the budget."""
    lines = []
    for status in submissions:
        standings = Counter(worker.standing for worker in status.workers)
        counted = ", ".join(f"{standings[name]} {name}" for name in AT_WORK if standings[name])
        if counted:
            lines.append(f"{status.record.submission}: workers: {counted}; {used(status)}")
        if status.held is not None:
            lines.append(status.held)
    return lines


def used(status: SubmissionStatus) -> str:
    """Hours of a submission's workers so far, of its budget if it has one."""
    unit = {"gpuh": "GPU-h", "cpuh": "CPU-h"}[status.unit]
    budget = status.record.budget
    limit = f"of {budget['hours']:g} " if budget else ""
    return f"{format_hours(status.hours)} {limit}{unit} used"


def _write_workers(where: TrialLocations) -> None:
    """Choose workers to show: waiting, running, or ended with a lost or released trial."""
    submitted = {status.record.submission: status.record.written for status in where.submissions}
    gave_up = _gave_up(where)
    workers = [worker for status in where.submissions for worker in status.workers if worker.standing != "ended"]
    workers = [worker for worker in workers if worker not in gave_up]
    jobs = {found.job for found in where.trials.values() if found.state == "lost"} - {None}
    shown = [worker for worker in workers if worker.standing != "gone" or worker.job in jobs]
    rows = [
        (
            f"{worker.resources}-{worker.number}",
            worker.job,
            worker.standing,
            worker.node,
            None if worker.time_left_s is None else format_duration(worker.time_left_s),
            worker.ok + worker.failed,
            worker.says or worker.words or None,
            _last_seen(worker, submitted[worker.submission]),
        )
        for worker in sorted(shown, key=lambda worker: worker.standing == "gone")[:_MOST_ROWS]
    ]
    if rows:
        write_table(("worker", "job", "state", "node", "time left", "trials", "reason", "seen"), rows)
        _say_more(len(shown), "worker")
    ends = Counter(worker.words for worker in workers if worker.standing == "gone" and worker.job not in jobs)
    if ends:
        write(f"gone: {format_count(ends.total(), 'worker')} that lost no trial ({_reasons(ends)})")
    left = any(found.state in ("pending", "lost") for found in where.trials.values())
    if left and gave_up:
        reasons = _reasons(Counter(worker.says or worker.words for worker in gave_up))
        output = next((f", see {worker.output}" for worker in gave_up if worker.output), "")
        write(f"gave up: {format_count(len(gave_up), 'worker')} ({reasons}{output}); `ablate failures` says what to do")


def _gave_up(where: TrialLocations) -> list[WorkerStatus]:
    """The workers that could not train, or whose output says that they are not queued again."""
    return [
        worker
        for status in where.submissions
        if not status.cancelled.all
        for worker in status.workers
        if worker.output or (worker.standing == "ended" and worker.words in GAVE_UP)
    ]


def _last_seen(worker: WorkerStatus, submitted: float) -> str | None:
    """How old the last sign of a worker is; of one of which nobody knows, however young it is."""
    quiet_s = time.time() - worker.seen
    if worker.standing != "unknown":
        return _format_last_sign(quiet_s)
    since = f"{format_duration(max(0.0, quiet_s))} ago"
    return f"submitted {since}" if worker.seen == submitted else since


def _reasons(found: "Counter[str]") -> str:
    listed = "; ".join(f"{n} x {words}" for words, n in found.most_common(_MOST_REASONS))
    return f"{listed}; ..." if len(found) > _MOST_REASONS else listed


def _say_more(count: int, noun: str) -> None:
    if count > _MOST_ROWS:
        write(f"... and {format_count(count - _MOST_ROWS, f'more {noun}')}; --json has all")


def loose_ends(where: TrialLocations) -> list[str]:
    """A sentence for trials that are lost, and for those of which nobody knows."""
    lines = []
    gone = {worker.job for worker in _gave_up(where)}
    for state in ("lost", "unknown"):
        found = [each for each in where.trials.values() if each.state == state]
        if found:
            seen = [each.since for each in found if each.since is not None]
            last = f", last seen {age(max(seen))} ago" if seen else ""
            them = "it" if len(found) == 1 else "them"
            again = f"`ablate retry --lost` queues {them} again" if state == "lost" else ""
            if again and all(each.job in gone for each in found):
                again = f"their workers gave up: `ablate failures` says what to correct before {again}"
            if again and all(each.logged for each in found):
                again = f"start your program that logged {them} again"
            advice = f"; {again}" if again else ""
            lines.append(f"{state}: {format_count(len(found), 'trial')}{last}{advice}")
    return lines
