"""A live view of a campaign from its files: what is done, who is at work, what failed, how long it will take."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from grid.durations import format_duration
from grid.errors import EnvironmentProblem
from runners.monitoring.failure_groups import kind_line, kinds
from runners.monitoring.status_text import submission_lines
from runners.monitoring.trial_locations import STATES, AtWork, State, TrialLocations, locate_trials
from runners.output import format_count
from runners.planning.duration import schedule_s
from runners.slurm.scheduler import QueueStatus, Scheduler
from runners.slurm.submissions import AT_WORK, SubmissionStatus
from store.store import Store

ASK_EVERY_S = 60.0
"""Seconds between questions to the scheduler: so many views of so many people stay a small load for it."""

_REST = 4.0
"""Rests at least so many times as long as it looks."""


@final
class RateLimitedScheduler(Scheduler):
    """Another scheduler, asked at most once a minute; in between, and where it does not answer, its last answer.

    New jobs are queried at once: a submission was queued in between.
    """

    def __init__(self, scheduler: Scheduler, every_s: float = ASK_EVERY_S) -> None:
        self._scheduler = scheduler
        self._every_s = every_s
        self._next: dict[str, float] = {}
        self._last: dict[str, QueueStatus] = {}
        self._known: dict[str, frozenset[int | str]] = {}

    def read_queue(self, jobs: Collection[int], names: Collection[str]) -> QueueStatus:
        """The queue as it was at most a minute ago."""
        return self._query_seldom("queue", (*jobs, *names), lambda: self._scheduler.read_queue(jobs, names))

    def read_accounts(self, jobs: Collection[int]) -> QueueStatus:
        """The accounts as they were at most a minute ago."""
        return self._query_seldom("accounts", jobs, lambda: self._scheduler.read_accounts(jobs))

    def _query_seldom(self, what: str, of: Collection[int | str], ask: Any) -> QueueStatus:
        now = time.monotonic()
        if now >= self._next.get(what, now) or not self._known[what].issuperset(of):
            answer: QueueStatus = ask()
            self._next[what] = time.monotonic() + self._every_s
            before = self._last.get(what)
            if answer.asked is None and before is not None and before.asked and self._known[what].issuperset(of):
                answer = before._replace(problem=answer.problem)
            self._known[what] = frozenset(of)
            self._last[what] = answer
        return self._last[what]


class FailureKind(NamedTuple):
    """A kind of failure, as the view shows it."""

    n: int
    """Trials that are failed now."""
    again: int
    """Trials that failed so and are queued again."""
    reason: str
    message: str

    def line(self) -> str:
        """It in one line."""
        return kind_line(self.n, self.again, self.reason, self.message)


class WatchView(NamedTuple):
    """The campaign at one moment."""

    when: float
    states: Mapping[State, int]
    cells: tuple[tuple[str, str, Mapping[State, int]], ...]
    """Grid, label, and how many of its trials are in each state."""
    at_work: tuple[AtWork, ...]
    submissions: tuple[SubmissionStatus, ...]
    failures: tuple[FailureKind, ...]
    left_s: float | None
    """Estimated from finished trials and the pace of those at work; None while there is nothing to go by."""
    notes: tuple[str, ...]
    endings: tuple[str, ...] = ()
    """As of `TrialLocations`."""

    @property
    def over(self) -> bool:
        """Whether every trial has ended and no worker waits or runs that might train one again."""
        ended = sum(self.states.values()) == self.states["done"] + self.states["failed"]
        return ended and not any(
            worker.standing in ("pending", "running") for status in self.submissions for worker in status.workers
        )

    def data(self) -> dict[str, Any]:
        """As plain data."""
        from runners.monitoring.status_text import submission_data

        return {
            "when": self.when,
            "states": dict(self.states),
            "cells": [{"grid": grid, "label": label, **counts} for grid, label, counts in self.cells],
            "running": [each._asdict() for each in self.at_work],
            "workers": [worker._asdict() for status in self.submissions for worker in status.workers],
            "submissions": [submission_data(status) for status in self.submissions],
            "failures": [each._asdict() for each in self.failures],
            "left_s": self.left_s,
            "notes": list(self.notes),
            "endings": list(self.endings),
        }


def views(root: Path, scheduler: Scheduler, every_s: float) -> Iterator[WatchView]:
    """One view after another, `every_s` apart, until every trial has ended and every worker left.

    Nothing but the store is written.

    Where looking itself takes long, as in a campaign of many thousand trials, looks are further apart.

    A moment at which the store cannot be read (the disk is full, its file is being replaced) is passed over with a
    note on the next view.

    Raises:
        EnvironmentProblem: it cannot be read at the first look.
    """
    seldom = RateLimitedScheduler(scheduler)
    missed: str | None = None
    seen = False
    while True:
        began = time.monotonic()
        try:
            found = look(root, seldom)
        except EnvironmentProblem as problem:
            if not seen:
                raise
            missed = str(problem)
        else:
            seen = True
            yield found._replace(notes=(*found.notes, *([missed] if missed else [])))
            missed = None
            if found.over:
                return
        time.sleep(max(every_s, _REST * (time.monotonic() - began)))


def look(root: Path, scheduler: Scheduler) -> WatchView:
    """The campaign now."""
    with Store.open(root, thorough=False) as store:
        where = locate_trials(store, scheduler)
        rows = store.sql("SELECT grid, label, trial FROM grid_trial ORDER BY grid, position").rows()
        failed = kinds(store, None, where.again).select("n", "again", "reason", "message").rows()
        seconds = store.sql("SELECT trial, wall_s FROM trial WHERE status = 'ok' AND wall_s IS NOT NULL").rows()
    counts: dict[tuple[str, str], Counter[State]] = {}
    for grid, label, key in rows:
        counts.setdefault((grid, label), Counter())[where.trials[key].state] += 1
    total: Counter[State] = Counter(found.state for found in where.trials.values())
    return WatchView(
        when=where.when,
        states={state: total[state] for state in STATES},
        cells=tuple((*place, {state: found[state] for state in STATES}) for place, found in counts.items()),
        at_work=where.at_work,
        submissions=where.submissions,
        failures=tuple(FailureKind(*row) for row in failed),
        left_s=seconds_left(where, {str(key): float(wall_s) for key, wall_s in seconds}, _cells_of(rows)),
        notes=where.notes,
        endings=where.endings,
    )


def _cells_of(rows: list[tuple[Any, ...]]) -> dict[str, tuple[str, str]]:
    return {str(key): (str(grid), str(label)) for grid, label, key in rows}


def seconds_left(
    where: TrialLocations, wall_s: Mapping[str, float], cells: Mapping[str, tuple[str, str]]
) -> float | None:
    """How long the trials that run or are queued will take on as many slots as are at work now.

    A trial takes as long as the mean of its cell's finished ones, else of all. None where nothing runs or has finished.
    """
    per_cell: dict[tuple[str, str], list[float]] = {}
    for key, seconds in wall_s.items():
        per_cell.setdefault(cells[key], []).append(seconds)
    if not where.at_work:
        return None
    usual = _mean(list(wall_s.values()))
    ahead = [_rest(found) for found in where.at_work] + [None for _ in where.of("queued")]
    keys = [*(found.trial for found in where.at_work), *where.of("queued")]
    ahead = [
        _mean(per_cell.get(cells[key])) or usual if rest is None else rest
        for key, rest in zip(keys, ahead, strict=True)
    ]
    known = [seconds for seconds in ahead if seconds is not None]
    return schedule_s(known, len(where.at_work)) if len(known) == len(ahead) else None


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _rest(found: AtWork) -> float | None:
    """Seconds a running trial still needs at its pace."""
    if found.step is None or found.steps is None or not found.steps_per_s:
        return None
    return max(0.0, found.steps - found.step) / found.steps_per_s


_COLOURS = {
    "done": "green",
    "failed": "red",
    "running": "cyan",
    "queued": "blue",
    "lost": "yellow",
    "unknown": "magenta",
}
_MOST_CELLS = 12
_MOST_RUNNING = 12
_MOST_KINDS = 4


def show(views: Iterable[WatchView], console: Console) -> None:
    """Show one view after another until there are no more."""
    if not console.is_terminal:
        for line in changes(views):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for view in views:
            live.update(render(view), refresh=True)


def changes(views: Iterable[WatchView]) -> Iterator[str]:
    """A line for every view that differs from the one before in more than how far trials are."""
    before: str | None = None
    for view in views:
        line = _format_counts(view)
        if line != before:
            yield f"{line} · {format_duration(view.left_s)} left" if view.at_work else line
        before = line


def _format_counts(view: WatchView) -> str:
    counts = ", ".join(f"{n} {state}" for state, n in view.states.items() if n)
    workers = Counter(worker.standing for status in view.submissions for worker in status.workers)
    standing = ", ".join(f"{workers[name]} {name}" for name in AT_WORK if workers[name])
    failures = "; ".join(kind.line() for kind in view.failures)
    parts = [counts or "no trials", standing and f"workers: {standing}", failures, *view.endings, *view.notes]
    return " · ".join(part for part in parts if part)


def render(view: WatchView) -> RenderableType:
    """The display: a bar for the campaign, its cells, who is at work, the workers, what failed."""
    total = sum(view.states.values())
    ended = view.states["done"] + view.states["failed"]
    head = Table.grid(padding=(0, 1))
    head.add_row(
        Text("trials", style="bold"),
        ProgressBar(total=max(1, total), completed=ended, width=32),
        Text(f"{ended}/{total}"),
        Text(f"{format_duration(view.left_s)} left", style="cyan"),
    )
    counts = Text("  ").join(
        Text(f"{view.states[state]} {state}", style=_COLOURS.get(state, "dim"))
        for state in STATES
        if view.states[state]
    )
    parts: list[RenderableType] = [head, counts, _cells(view), _running(view.at_work), *_workers(view.submissions)]
    parts += [Text(kind.line(), style="red" if kind.n else "dim") for kind in view.failures[:_MOST_KINDS]]
    return Group(*parts, *(Text(note, style="yellow") for note in (*view.endings, *view.notes)))


def _cells(view: WatchView) -> RenderableType:
    """The cells that are not done, those with something going on first."""
    open_ones = [cell for cell in view.cells if cell[2]["done"] < sum(cell[2].values())]
    open_ones.sort(key=lambda cell: (not cell[2]["running"], not cell[2]["failed"]))
    rows = Table.grid(padding=(0, 1))
    for _, label, counts in open_ones[:_MOST_CELLS]:
        total = sum(counts.values())
        others = ", ".join(f"{counts[state]} {state}" for state in STATES[1:] if counts[state])
        bar = ProgressBar(total=total, completed=counts["done"], width=20)
        rows.add_row(
            Text(label, overflow="ellipsis", no_wrap=True), bar, Text(f"{counts['done']}/{total}"), Text(others)
        )
    hidden = len(open_ones) - _MOST_CELLS
    return Group(rows, Text(f"and {format_count(hidden, 'more cell')}", style="dim")) if hidden > 0 else rows


def _running(found: tuple[AtWork, ...]) -> RenderableType:
    rows = Table.grid(padding=(0, 1))
    for each in found[:_MOST_RUNNING]:
        rows.add_row(
            Text(each.trial[:8], style="dim"),
            Text(each.label, overflow="ellipsis", no_wrap=True),
            Text(f"seed {each.seed}", style="dim"),
            Text(f"on {each.host}{f':{each.devices}' if each.devices else ''}"),
            ProgressBar(total=each.steps or 1, completed=each.step or 0, width=20),
            Text("starting" if each.step is None else f"step {each.step}/{each.steps}"),
            Text(f"{each.steps_per_s:.3g} steps/s" if each.steps_per_s else ""),
            Text(f"quiet for {format_duration(each.quiet_s)}" if each.quiet_s >= 60 else "", style="yellow"),
        )
    hidden = len(found) - _MOST_RUNNING
    return Group(rows, Text(f"and {hidden} more running", style="dim")) if hidden > 0 else rows


def _workers(submissions: tuple[SubmissionStatus, ...]) -> Iterator[RenderableType]:
    reasons = Counter(
        worker.words
        for status in submissions
        for worker in status.workers
        if worker.standing == "pending" and worker.words
    )
    yield from (Text(line) for line in submission_lines(submissions))
    if reasons:
        yield Text("waiting: " + ", ".join(f"{n} {reason}" for reason, n in reasons.most_common()), style="dim")
