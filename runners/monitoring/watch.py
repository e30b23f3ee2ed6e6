"""A live view of a campaign, as of `ablate status --watch`: its status, repeated, with the time left."""

import io
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.grid.durations import format_duration
from ablate.grid.errors import EnvironmentProblem
from ablate.runners.backends.backend import AT_WORK, Submissions
from ablate.runners.monitoring.status_text import Status, failure_lines, read_status, write_status
from ablate.runners.monitoring.trial_locations import TrialLocations, locate_trials
from ablate.runners.planning.duration import schedule_s
from ablate.runners.result_stream import results_to
from ablate.store.state import COUNTED, ENDED, State
from ablate.store.store import Store

ASK_EVERY_S = 60.0
"""Seconds between questions to the scheduler, so that many views are a small load for it."""

_REST = 4.0
"""Least pause between two looks, in durations of a look."""

_MOST_CELLS = 12


class WatchView(NamedTuple):
    """The campaign at one moment."""

    status: Status
    states: Mapping[State, int]
    left_s: float | None
    """Estimated from finished trials and the pace of running ones; None if there are none."""
    notes: tuple[str, ...]

    @property
    def ended(self) -> bool:
        """True if every trial has ended."""
        return sum(self.states.values()) == sum(self.states[state] for state in ENDED)

    @property
    def left_words(self) -> str:
        """The time left, or why it is unknown."""
        if self.left_s is not None or self.ended:
            return f"{format_duration(self.left_s or 0.0)} left"
        why = "no trial has finished" if self.status.where.at_work else "no worker is at work"
        return f"time left unknown, as {why}"

    @property
    def over(self) -> bool:
        """True if every trial has ended and no worker waits or runs that might train one again."""
        return self.ended and not any(
            worker.standing in ("queued", "running")
            for each in self.status.where.submissions
            for worker in each.workers
        )

    def data(self) -> dict[str, Any]:
        """Convert to plain data."""
        shared = self.status.data()
        cells = [(name, row) for name, rows in shared["grids"].items() for row in rows]
        return {
            "when": shared["when"],
            "states": dict(self.states),
            "cells": [
                {
                    "grid": name,
                    "label": row["label"],
                    **{state: row[state] for state in COUNTED},
                }
                for name, row in cells
            ],
            **{name: shared[name] for name in ("running", "workers", "submissions")},
            "failures": self.status.failures.select("n", "again", "reason", "message").rows(named=True),
            "left_s": self.left_s,
            "notes": list(self.notes),
            "endings": shared["endings"],
        }


def views(root: Path, backend: Submissions, every_s: float, *, endless: bool = False) -> Iterator[WatchView]:
    """Yield views, `every_s` apart or more, until every trial has ended and every worker left; `endless`: go on then.

    If the store cannot be read at a later moment (the disk is full), the next view has a note about it.

    Raises EnvironmentProblem if the store cannot be read at first.
    """
    missed: str | None = None
    view: WatchView | None = None
    while True:
        began = time.monotonic()
        try:
            view = read_view(root, backend)
        except EnvironmentProblem as problem:
            if view is None:
                raise
            missed = str(problem)
        else:
            yield view._replace(notes=(*view.notes, *([missed] if missed else [])))
            missed = None
            if view.over and not endless:
                return
        time.sleep(max(every_s, _REST * (time.monotonic() - began)))


def read_view(root: Path, backend: Submissions) -> WatchView:
    """Read the campaign now."""
    with Store.open(root, thorough=False) as store:
        where = locate_trials(store, backend, max_age_s=ASK_EVERY_S)
        status = read_status(store, where, store.grids(), None)
        rows = store.sql("SELECT grid, cell, trial FROM grid_trial").rows()
        seconds = store.sql("SELECT trial, wall_s FROM trial WHERE state = 'done' AND wall_s IS NOT NULL").rows()
    total = Counter(each.state for each in where.trials.values())
    cells = {key: (grid, cell) for grid, cell, key in rows}
    return WatchView(
        status, {state: total[state] for state in COUNTED}, _left_s(where, dict(seconds), cells), tuple(status.warnings)
    )


def _left_s(where: TrialLocations, wall_s: Mapping[str, float], cells: Mapping[str, object]) -> float | None:
    """Estimate when the running and queued trials end, on as many slots as are at work now; None if unknown.

    A queued trial takes as long as the mean of its cell's finished trials, else of all.
    """
    finished: dict[object, list[float]] = {}
    for key, seconds in wall_s.items():
        finished.setdefault(cells.get(key), []).append(seconds)
    ahead: list[tuple[str, float | None]] = [(key, None) for key in where.of(State.QUEUED)]
    for each in where.at_work:
        rest = None
        if each.step is not None and each.steps is not None and each.steps_per_s:
            rest = max(0.0, each.steps - each.step) / each.steps_per_s
        ahead.append((each.trial, rest))
    if not where.at_work or (not wall_s and any(rest is None for _, rest in ahead)):
        return None
    rests = []
    for key, rest in ahead:
        usual = finished.get(cells.get(key), [*wall_s.values()])
        rests.append(sum(usual) / len(usual) if rest is None else rest)
    return schedule_s(rests, len(where.at_work))


def show(views: Iterable[WatchView], console: Console) -> None:
    """Show one view after another until there are no more."""
    if not console.is_terminal:
        for line in changes(views):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for view in views:
            live.update(render(view, console.width), refresh=True)


def changes(views: Iterable[WatchView]) -> Iterator[str]:
    """Yield a line for every view that differs from the one before in more than progress."""
    before: tuple[str, list[str]] | None = None
    for view in views:
        where = view.status.where
        stalled = {each.trial[:8]: each.stall for each in where.at_work if each.stall is not None}
        counts = ", ".join(f"{n} {state}" for state, n in view.states.items() if n)
        workers = Counter(worker.standing for each in where.submissions for worker in each.workers)
        standing = ", ".join(f"{workers[name]} {name}" for name in AT_WORK if workers[name])
        failures = "; ".join(failure_lines(view.status.failures))
        parts = [counts or "no trials", standing and f"workers: {standing}", failures, *where.endings, *view.notes]
        line = " · ".join(part for part in parts if part)
        still = [f"{name}: {says}" for name, says in stalled.items()]
        if (line, [*stalled]) != before:
            yield " · ".join([line, *([] if view.ended else [view.left_words]), *still])
        before = line, [*stalled]


def render(view: WatchView, width: int) -> RenderableType:
    """Draw a bar for the campaign above the text of `ablate status` on a terminal of `width`."""
    total, ended = sum(view.states.values()), sum(view.states[state] for state in ENDED)
    head = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(1, total), completed=ended, width=32)
    counts = ", ".join(f"{n} {state}" for state, n in view.states.items() if n)
    head.add_row("trials", bar, f"{ended}/{total}", view.left_words, counts)
    text = io.StringIO()
    with results_to(text, width):
        write_status(view.status, most_cells=_MOST_CELLS)
    notes = Text("\n".join(view.notes), style="yellow")
    return Group(head, notes, Text(text.getvalue())) if view.notes else Group(head, Text(text.getvalue()))
