"""Text of `ablate status`: progress of each cell, running trials, failures and notes."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from ablate.grid.durations import format_duration
from ablate.runners.attempts.worker_records import GAVE_UP
from ablate.runners.backends.backend import AT_WORK, SubmissionStatus, WorkerStatus
from ablate.runners.monitoring.failure_groups import count_failures
from ablate.runners.monitoring.trial_locations import RunningTrial, TrialLocations, hours_used
from ablate.runners.monitoring.unread_grids import UnreadGrid, find_unread
from ablate.runners.output import LONG_LABEL, age, format_count, write, write_prose, write_table
from ablate.store.database.queries import levels_of_cells
from ablate.store.state import COUNTED, ENDED, UNCLAIMED, State
from ablate.store.store import Store

_ALWAYS = ("label", "planned", State.DONE, State.FAILED, State.RUNNING, State.PENDING)
_YOUNG_S = 60.0
_MOST_CELLS = 40
_MOST_ROWS = 20
_MOST_REASONS = 3
_MOST_NOTES = 5


class Status(NamedTuple):
    """The state of some grids of a campaign."""

    grids: dict[str, pl.DataFrame]
    """One row per cell: planned, a column per state, unreadable."""
    failures: pl.DataFrame
    """As `Store.failures`; `n` are failed now and `again` are queued again."""
    bad_shards: pl.DataFrame
    where: TrialLocations
    warnings: list[str]
    overrides: dict[str, list[str]]
    """Overrides with which grids were run."""
    notes: pl.DataFrame
    """Notes, latest first: grid, trial, label, seed, written, note."""
    levels: Mapping[str, tuple[list[str], Mapping[str, list[str]]]]
    """Axes of each grid with a long label, and the labels of each cell on them."""
    unread: Sequence[UnreadGrid] = ()
    """Grids that are planned and not in the store yet."""

    def keep(self, store: Store, grid: str | None, trials: Sequence[tuple[str, str]]) -> "Status":
        """Count only `trials` (grid, key) by cell; keep those that run, and the failures in `grid` (None: any)."""
        keys = {key for _, key in trials}
        grids = {name: cells(store, name, self.where, [key for of, key in trials if of == name]) for name in self.grids}
        at_work = tuple(each for each in self.where.at_work if each.trial in keys)
        kept = {name: frame for name, frame in grids.items() if len(frame)}
        failures = count_failures(store, grid, self.where.retrying, keys)
        kept_trials = {key: trial for key, trial in self.where.trials.items() if key in keys}
        where = replace(self.where, at_work=at_work, trials=kept_trials)
        return self._replace(grids=kept, failures=failures, where=where)

    def data(self) -> dict[str, Any]:
        """Convert to plain data."""
        where = self.where
        return {
            "grids": {name: frame.rows(named=True) for name, frame in self.grids.items()},
            "failures": self.failures.rows(named=True),
            "notes": self.notes.rows(named=True),
            "bad_shards": self.bad_shards.rows(named=True),
            "trials": {
                key: trial._asdict() for key, trial in sorted(where.trials.items()) if trial.state != State.DONE
            },
            "running": [trial._asdict() for trial in where.at_work],
            "workers": [worker._asdict() for status in where.submissions for worker in status.workers],
            "submissions": [submission_data(status) for status in where.submissions],
            "overrides": self.overrides,
            "unread": [each._asdict() for each in self.unread],
            "endings": list(where.endings),
            "when": where.when,
        }


def submission_data(status: SubmissionStatus) -> dict[str, Any]:
    """Convert the status of a submission to plain data."""
    record = status.record
    return {
        "submission": record.submission,
        "written": record.written,
        "cancelled": status.cancelled.all,
        "cancelled_trials": sorted(status.cancelled.trials),
        "hours": status.hours,
        "unit": status.unit,
        "budget": record.budget,
        "classes": {each.name: status.standing(each.name) for each in record.classes},
    }


def read_status(store: Store, where: TrialLocations, grids: Sequence[str], grid: str | None) -> Status:
    """Read the state of `grids`, and the failures of `grid` (None: of all)."""
    warnings = [*store.warnings(), *where.notes]
    overrides = {name: header["overrides"] for name in grids if "overrides" in (header := store.grid(name))}
    frames = {name: cells(store, name, where) for name in grids}
    failures = count_failures(store, grid if grids else None, where.retrying)
    failures = failures if grids else failures.clear()  # no grid is read yet
    long = [name for name, frame in frames.items() if (frame["label"].str.len_chars() > LONG_LABEL).any()]
    levels = {name: levels_of_cells(store.sql, store.grid(name)) for name in long}
    notes, unread = _notes(store, grids), find_unread(store, grid)
    return Status(frames, failures, store.bad_shards(), where, warnings, overrides, notes, levels, unread)


def cells(store: Store, grid: str, where: TrialLocations, only: Sequence[str] | None = None) -> pl.DataFrame:
    """Return one row per cell of `grid`: label, planned, the number of trials in each state, and their tags.

    The store counts trials that it knows as done; `where` has the others. With `only`, other trials are not counted.
    """
    frame, chosen = store.progress(grid), {"grid": grid, "only": only}
    of_these = "grid = $grid AND ($only IS NULL OR list_contains(CAST($only AS VARCHAR[]), trial))"
    if only is not None:
        counted = store.sql(
            "SELECT g.cell, count(*) AS planned, count(*) FILTER (WHERE t.state = 'done') AS done, count(u.trial) AS "
            f"unreadable FROM grid_trial g JOIN trial t USING (trial) LEFT JOIN v_unreadable u USING (grid, trial) "
            f"WHERE {of_these} GROUP BY g.cell",
            chosen,
        )
        order = frame.columns
        frame = (
            frame.drop("planned", "done", "unreadable").join(counted, on="cell", maintain_order="left").select(order)
        )
    trials = store.sql(
        f"SELECT g.cell, trial FROM grid_trial g JOIN trial t USING (trial) WHERE {of_these} AND t.state <> 'done'",
        chosen,
    )
    tags = store.sql(
        "SELECT cell, array_to_string(list_sort(list_distinct(flatten(list(tags)))), ' ') AS tags FROM v_annotation "
        f"WHERE {of_these} GROUP BY cell",
        chosen,
    )
    columns = {"trial": list(where.trials), "state": [each.state for each in where.trials.values()]}
    states = pl.DataFrame(columns, schema={"trial": pl.String, "state": pl.String})
    by_state = ((pl.col("state") == state).sum().cast(pl.Int64).alias(state) for state in COUNTED)
    counts = trials.join(states, on="trial").group_by("cell").agg(*by_state)
    first = ("cell", "label", "operator", "planned", *COUNTED)
    shown = [*first, *(name for name in frame.columns if name not in first)]
    return (
        frame.rename({"done": "known"})
        .drop(*COUNTED, strict=False)
        .join(counts, on="cell", how="left", maintain_order="left")
        .with_columns(pl.col(*COUNTED).fill_null(0))
        .with_columns(pl.col("done") + pl.col("known"))
        .select(shown)
        .join(tags, on="cell", how="left", maintain_order="left")
        .with_columns(pl.col("tags").fill_null(""))
    )


def _notes(store: Store, grids: Sequence[str]) -> pl.DataFrame:
    return store.sql(
        """
        SELECT coalesce(n.grid, g.grid) AS grid, n.trial, g.label, g.seed, n.written, n.note
        FROM note n LEFT JOIN grid_trial g ON g.trial = n.trial
        WHERE coalesce(n.grid, g.grid) IN (SELECT unnest(CAST($grids AS VARCHAR[])))
        QUALIFY row_number() OVER (PARTITION BY n.trial, n.grid, n.written ORDER BY g.grid) = 1 ORDER BY n.written DESC
        """,
        {"grids": list(grids)},
    )


def write_status(status: Status, most_cells: int = _MOST_CELLS, *, every: bool = False) -> None:
    """Write a table per unfinished grid (or `every`), the running trials, the workers, and failures by kind."""
    for name, frame in status.grids.items():
        tags = ["tags"] if any(frame["tags"]) else []  # its column replaces those without a trial
        always = _ALWAYS[:3] if tags else _ALWAYS
        columns = [name for name in ("label", "planned", *COUNTED) if name in always or frame[name].sum()] + tags
        others = [f", {n} {state}" for state in COUNTED[1:] if state != State.PENDING and (n := frame[state].sum())]
        done = f"{frame['done'].sum()} of {format_count(int(frame['planned'].sum()), 'trial')} done"
        write(f"{name}: {done}{''.join(others)}")
        if name in status.overrides:
            write(f"overrides: {' '.join(status.overrides[name])}")
        if not every and not tags and frame["done"].sum() == frame["planned"].sum():
            continue
        chosen = _choose_cells(frame, most_cells)
        labels = {cell: [label] for cell, label in chosen.select("cell", "label").rows()}
        axes, levels = status.levels.get(name, (columns[:1], labels))
        rows = [(*levels[cell], *row) for cell, *row in chosen.select("cell", *columns[1:]).rows()]
        write_table([*axes, *columns[1:]], rows, labels=len(axes))
        _write_more(len(frame), most_cells, "cell")
    outstanding = sum(each.state not in ENDED for each in status.where.trials.values())
    if outstanding and not status.where.at_work:
        write_prose(
            f"time left unknown, as no worker is at work on {format_count(outstanding, 'trial')}; `ablate plan SPEC` "
            "estimates it, `ablate run SPEC` goes on"
        )
    for unread in status.unread:
        write(unread.words())
    _write_notes(status.notes)
    _write_running(status.where.at_work)
    for line in submission_lines(status.where.submissions):
        write(line)
    _write_workers(status.where)
    for line in (*status.where.endings, *loose_ends(status.where)):
        write(line)
    for line, example in zip(failure_lines(status.failures), status.failures["example"], strict=True):
        write_prose(f"{line} (trial {example[:12]})")


def _write_notes(notes: pl.DataFrame) -> None:
    """Write the latest notes; one on several trials once."""
    grouped = notes.group_by("written", "note", maintain_order=True).agg(pl.len().alias("n"), pl.exclude("n").first())
    for row in grouped.head(_MOST_NOTES).rows(named=True):
        trial = row["trial"]
        subject = f"grid {row['grid']}" if trial is None else f"{trial[:8]} {row['label']} seed {row['seed']}"
        more = f" and {format_count(row['n'] - 1, 'more trial')}" if row["n"] > 1 else ""
        write_prose(f"note, {age(row['written'])} old, on {subject}{more}: {row['note']}")
    _write_more(grouped.height, _MOST_NOTES, "note")


def failure_lines(failures: pl.DataFrame) -> list[str]:
    """Describe each kind of failure in one line."""
    lines = []
    for n, again, reason, message in failures.select("n", "again", "reason", "message").rows():
        if n:
            lines.append(f"failed: {n} x {reason}{f' and {again} queued again' if again else ''}: {message}")
        else:
            lines.append(f"failed and queued again: {again} x {reason}: {message}")
    return lines


def _choose_cells(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """Choose cells to show: active cells first, then unfinished ones, in the order of the grid."""
    idle = ("done", "pending", "stopped")
    busy = pl.sum_horizontal(*(state for state in COUNTED if state not in idle)) > 0
    rank = pl.when(busy).then(0).when(pl.col("done") < pl.col("planned")).then(1).otherwise(2).alias("rank")
    return frame.with_row_index("place").with_columns(rank).sort("rank", "place").head(most).sort("place")


def _write_running(running: Sequence[RunningTrial]) -> None:
    rows = [
        (
            each.trial[:8],
            each.label,
            each.seed,
            each.attempt,
            each.host,
            "-" if each.step is None else f"{each.step}/{each.steps}" if each.steps else str(each.step),
            None if each.steps_per_s is None else float(f"{each.steps_per_s:.3g}"),
            each.loss,
            _format_last_sign(each.quiet_s),
        )
        for each in running[:_MOST_ROWS]
    ]
    if rows:
        write_table(("running", "cell", "seed", "attempt", "node", "step", "steps/s", "loss", "seen"), rows)
    _write_more(len(running), _MOST_ROWS, "running trial")
    stalled = [each for each in running if each.stall is not None]
    for each in stalled[:_MOST_ROWS]:
        write(f"{each.trial[:8]}: {each.stall}")
    _write_more(len(stalled), _MOST_ROWS, "trial without a step")


def _format_last_sign(quiet_s: float) -> str | None:
    return None if quiet_s < _YOUNG_S else f"{format_duration(quiet_s)} ago"


def submission_lines(submissions: Iterable[SubmissionStatus]) -> list[str]:
    """Describe the workers and the used hours of each submission that is at work, or may be."""
    lines = []
    for status in submissions:
        standings = Counter(worker.standing for worker in status.workers)
        counted = ", ".join(f"{standings[name]} {name}" for name in AT_WORK if standings[name])
        if counted:
            lines.append(f"{status.record.submission}: workers: {counted}; {hours_used(status)}")
        if status.held is not None:
            lines.append(status.held)
    return lines


def _write_workers(where: TrialLocations) -> None:
    """Write the workers that wait, run, or ended with a lost trial; count the others."""
    submitted = {status.record.submission: status.record.written for status in where.submissions}
    gave_up = _gave_up(where)
    every = (worker for status in where.submissions for worker in status.workers)
    workers = [worker for worker in every if worker.standing != "ended" and worker not in gave_up]
    jobs = {each.job for each in where.trials.values() if each.state == State.LOST} - {None}
    shown = [worker for worker in workers if worker.standing != "lost" or worker.job in jobs]
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
        for worker in sorted(shown, key=lambda worker: worker.standing == "lost")[:_MOST_ROWS]
    ]
    if rows:
        write_table(("worker", "job", "state", "node", "time left", "trials", "reason", "seen"), rows)
        _write_more(len(shown), _MOST_ROWS, "worker")
    ends = Counter(worker.words for worker in workers if worker.standing == "lost" and worker.job not in jobs)
    if ends:
        write(f"lost: {format_count(ends.total(), 'worker')} without a trial ({_reasons(ends)})")
    if gave_up and any(each.state in UNCLAIMED for each in where.trials.values()):
        reasons = _reasons(Counter(worker.says or worker.words for worker in gave_up))
        output = next((f", see {worker.output}" for worker in gave_up if worker.output), "")
        count = format_count(len(gave_up), "worker")
        write(f"gave up: {count} ({reasons}{output}); `ablate status --failures` says what to do")


def _gave_up(where: TrialLocations) -> list[WorkerStatus]:
    """Return the workers that could not train, or whose output says that they are not queued again."""
    return [
        worker
        for status in where.submissions
        if not status.cancelled.all
        for worker in status.workers
        if worker.output or (worker.standing == "ended" and worker.words in GAVE_UP)
    ]


def _last_seen(worker: WorkerStatus, submitted: float) -> str | None:
    if worker.standing != "unknown":
        return _format_last_sign(time.time() - worker.seen)
    return f"{'submitted ' if worker.seen == submitted else ''}{age(worker.seen)} ago"


def _reasons(words: "Counter[str]") -> str:
    listed = "; ".join(f"{n} x {reason}" for reason, n in words.most_common(_MOST_REASONS))
    return f"{listed}; ..." if len(words) > _MOST_REASONS else listed


def _write_more(count: int, shown: int, noun: str) -> None:
    if count > shown:
        write(f"... and {format_count(count - shown, f'more {noun}')}; --json has all")


def loose_ends(where: TrialLocations) -> list[str]:
    """Describe lost, stopped and unknown trials, and what to do; `where.endings` have told of cancelled ones."""
    lines = []
    gone = {worker.job for worker in _gave_up(where)}
    for state in (State.LOST, *([] if where.endings else [State.STOPPED]), State.UNKNOWN):
        trials = [each for each in where.trials.values() if each.state == state]
        seen = [each.since for each in trials if each.since is not None]
        advice, them = "", "it" if len(trials) == 1 else "them"
        if state != State.UNKNOWN and all(each.logged for each in trials):
            advice = f"; start your program that logged {them} again"
        elif state == State.STOPPED:
            advice = f" at a checkpoint; `ablate run` goes on with {them}"
        elif state == State.LOST:
            advice = f"; `ablate retry --lost` queues {them} again, and `ablate run` goes on with {them}"
            if all(each.job in gone for each in trials):
                advice = f"; their workers gave up: `ablate status --failures` says what to correct before{advice[1:]}"
        if trials:
            last = f", last seen {age(max(seen))} ago" if seen else ""
            lines.append(f"{state}: {format_count(len(trials), 'trial')}{last}{advice}")
    return lines
