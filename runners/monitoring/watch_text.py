"""The live view as a person sees it: a display that redraws itself on a terminal, a line per change elsewhere."""

from collections import Counter
from collections.abc import Iterable, Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from runners.monitoring.status_text import crew_lines
from runners.monitoring.trial_states import STATES, AtWork
from runners.monitoring.watch import WatchView
from runners.output import duration, format_count
from runners.slurm.submissions import AT_WORK, SubmissionStatus

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
            yield f"{line} · {duration(view.left_s)} left" if view.at_work else line
        before = line


def _format_counts(view: WatchView) -> str:
    counts = ", ".join(f"{n} {state}" for state, n in view.states.items() if n)
    workers = Counter(worker.standing for crew in view.crews for worker in crew.workers)
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
        Text(f"{duration(view.left_s)} left", style="cyan"),
    )
    counts = Text("  ").join(
        Text(f"{view.states[state]} {state}", style=_COLOURS.get(state, "dim"))
        for state in STATES
        if view.states[state]
    )
    parts: list[RenderableType] = [head, counts, _cells(view), _running(view.at_work), *_workers(view.crews)]
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
            Text(f"quiet for {duration(each.quiet_s)}" if each.quiet_s >= 60 else "", style="yellow"),
        )
    hidden = len(found) - _MOST_RUNNING
    return Group(rows, Text(f"and {hidden} more running", style="dim")) if hidden > 0 else rows


def _workers(crews: tuple[SubmissionStatus, ...]) -> Iterator[RenderableType]:
    reasons = Counter(
        worker.words for crew in crews for worker in crew.workers if worker.standing == "pending" and worker.words
    )
    yield from (Text(line) for line in crew_lines(crews))
    if reasons:
        yield Text("waiting: " + ", ".join(f"{n} {reason}" for reason, n in reasons.most_common()), style="dim")
