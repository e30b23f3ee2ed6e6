"""Live progress of a run on stderr: a display on a terminal, a line now and then elsewhere."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple, final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.grid.durations import format_duration
from ablate.runners.attempts.worker import Outcome
from ablate.runners.output import LINE_EVERY_S, format_count
from ablate.store.state import ENDED, State

_SAME_EVERY_S = 60.0


class Running(NamedTuple):
    """A running trial."""

    label: str
    seed: int
    began_at: int
    step: int
    steps: int | None
    """None if nobody knows how many."""
    loss: float | None

    @property
    def fraction(self) -> float:
        left = 0 if self.steps is None else self.steps - self.began_at
        return min(1.0, (self.step - self.began_at) / left) if left > 0 else 0.0


class GridMember(NamedTuple):
    """Name of a trial in the display."""

    cell: tuple[str, str]
    seed: int


@final
@dataclass
class Tally:
    """Counts of a run; `members` are its rows; `planned` counts trials per cell."""

    planned: Counter[tuple[str, str]]
    members: list[GridMember]
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    running: dict[int, Running] = field(default_factory=dict)
    ended: int = 0
    began: float | None = None

    def begin(self, row: int, step: int) -> None:
        if self.began is None:
            self.began = time.monotonic()
        member = self.members[row]
        self.running[row] = Running(member.cell[1], member.seed, step, step, 0, None)

    def advance(self, row: int, step: int, steps: int | None, loss: float) -> None:
        if row in self.running:
            self.running[row] = self.running[row]._replace(step=step, steps=steps, loss=loss)

    def came_back(self, outcome: Outcome) -> None:
        self.running.pop(outcome.row, None)
        if outcome.state == State.DONE:
            self.done[self.members[outcome.row].cell] += 1
        elif outcome.state == State.FAILED:
            self.failed[self.members[outcome.row].cell] += 1
        if outcome.state in ENDED:
            self.ended += 1

    @property
    def cells_done(self) -> int:
        return sum(self.done[cell] == count for cell, count in self.planned.items())

    @property
    def cells_failed(self) -> int:
        return sum(count > 0 for count in self.failed.values())

    @property
    def cells_running(self) -> int:
        return len({self.members[row].cell for row in self.running})

    def seconds_left(self) -> float | None:
        """Estimate the time left from the work so far; None before any is done."""
        done = self.ended + sum(trial.fraction for trial in self.running.values())
        if self.began is None or done <= 0:
            return None
        return max(0.0, (time.monotonic() - self.began) * (len(self.members) - done) / done)


@final
class ProgressDisplay:
    """Shows a tally while entered; `shown=False` prints notes only."""

    def __init__(self, tally: Tally, *, console: Console | None = None, shown: bool = True) -> None:
        self._tally = tally
        self._console = console or Console(stderr=True)
        self._shown = shown
        self._next_line = time.monotonic() + LINE_EVERY_S
        self._last = ("", 0.0)
        """The latest line and its time."""
        self._live: Live | None = None

    def __enter__(self) -> "ProgressDisplay":
        if self._shown and self._console.is_terminal:
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._shown:
            self.note(progress_line(self._tally))

    def tick(self) -> None:
        """Print a line if there is no live display and the last line is old enough."""
        if self._shown and self._live is None and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY_S
            line = progress_line(self._tally)
            if line == self._last[0] and time.monotonic() < self._last[1] + _SAME_EVERY_S:
                return
            self._last = line, time.monotonic()
            self.note(line)

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        return render(self._tally)


def progress_line(tally: Tally) -> str:
    """Format the state as one line."""
    failed = f", {tally.cells_failed} with failures" if tally.cells_failed else ""
    parts = [
        f"{tally.ended}/{format_count(len(tally.members), 'trial')}",
        f"cells: {tally.cells_done}/{len(tally.planned)} done{failed}, {tally.cells_running} running",
        f"{format_duration(tally.seconds_left())} left",
    ]
    at_work = "; ".join(
        f"{each.label} seed {each.seed} {f'step {each.step}' if each.steps is None else f'{each.fraction:.0%}'}"
        + ("" if each.loss is None else f" loss {each.loss:.4g}")
        for each in list(tally.running.values())
    )
    return " · ".join([*parts, at_work] if at_work else parts)


def format_step(step: int, steps: int | None) -> str:
    """'step 3/12', or 'step 3' if nobody knows how many there are."""
    return f"step {step}" if steps is None else f"step {step}/{steps}"


def render(tally: Tally) -> RenderableType:
    """Draw one bar for the run and one per running trial."""
    total = max(1, len(tally.members))
    head = Table.grid(padding=(0, 1))
    head.add_row(
        Text("trials", style="bold"),
        ProgressBar(total=total, completed=tally.ended, width=32),
        Text(f"{tally.ended}/{len(tally.members)}"),
        Text(f"{format_duration(tally.seconds_left())} left", style="cyan"),
    )
    failures = f"{tally.cells_failed} with failures", "red" if tally.cells_failed else "dim"
    done, running = (f"{tally.cells_done} done", "green"), (f"{tally.cells_running} running", "cyan")
    cells = Text.assemble(("cells  ", "bold"), done, " · ", running, " · ", failures, f" · of {len(tally.planned)}")
    rows = Table.grid(padding=(0, 1))
    for trial in list(tally.running.values()):
        rows.add_row(
            Text(trial.label, overflow="ellipsis", no_wrap=True),
            Text(f"seed {trial.seed}", style="dim"),
            ProgressBar(total=1.0, completed=trial.fraction, width=20),
            Text("starting" if trial.steps == 0 else format_step(trial.step, trial.steps), style="dim"),
            Text("" if trial.loss is None else f"loss {trial.loss:.4g}"),
        )
    return Group(head, cells, rows)
