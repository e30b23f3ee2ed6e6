"""What grids ask for and what of it a campaign already has: each trial once, with its state read from files."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

from grid import Grid
from grid.errors import SpecError
from runners.manifest import read_lines, trial_lines, write_grid
from store.layout import Layout
from store.status import Status, trial_state


class Surveyed(NamedTuple):
    """A trial of the grids, where it is first met."""

    key: str
    grid: str
    cell: str
    label: str
    operator: str
    seed: int
    line: int
    """Its line in `grids/<grid>.trials.jsonl`, counted from 0."""
    status: Status


@final
@dataclass(frozen=True)
class Survey:
    """The trials of some grids, in execution order, without those that an earlier grid has already named."""

    layout: Layout
    trials: tuple[Surveyed, ...]
    retry: bool

    @cached_property
    def to_do(self) -> tuple[Surveyed, ...]:
        """Trials that are not ok; failed ones only with `retry`. Those another run works on are among them."""
        unwanted = ("ok",) if self.retry else ("ok", "failed")
        return tuple(found for found in self.trials if found.status not in unwanted)

    def count(self, status: Status) -> int:
        """How many trials have this status."""
        return self._counts[status]

    @cached_property
    def _counts(self) -> Counter[Status]:
        return Counter(found.status for found in self.trials)

    def lines(self, wanted: Sequence[Surveyed]) -> Iterator[dict[str, Any]]:
        """The trial lines of `wanted`, read back from the published grids; their order is that of `wanted`."""
        for name, numbers in _runs(wanted):
            yield from read_lines(self.layout.grid_trials(name), numbers)


def survey(layout: Layout, grids: Sequence[Grid], *, retry: bool = False) -> Survey:
    """Look without touching anything.

    Raises:
        SpecError: a grid is invalid, or two have the same name.
    """
    _require_names(grids)
    known = set(layout.trial_keys())
    found = _Collector(layout, known)
    for grid in grids:
        for _ in found.through(trial_lines(grid)):
            pass
    return Survey(layout, tuple(found.trials), retry)


def publish(layout: Layout, grids: Sequence[Grid], *, retry: bool) -> Survey:
    """Write the grids into the campaign and survey them on the way.

    Raises:
        SpecError: a grid is invalid, or two have the same name.
        EnvironmentProblem: the campaign cannot be written.
    """
    _require_names(grids)
    found = _Collector(layout, set(layout.trial_keys()))
    for grid in grids:
        write_grid(layout, grid, found.through(trial_lines(grid)))
    return Survey(layout, tuple(found.trials), retry)


def _require_names(grids: Sequence[Grid]) -> None:
    if not grids:
        raise SpecError("a run needs at least one grid; got none")
    twice = [name for name, count in Counter(grid.name for grid in grids).items() if count > 1]
    if twice:
        raise SpecError(f"grids of one run have different names; {twice[0]!r} is given twice: rename one")


@final
class _Collector:
    """Notes the trials in a stream of lines that it passes on unchanged."""

    def __init__(self, layout: Layout, known: set[str]) -> None:
        self.trials: list[Surveyed] = []
        self._layout = layout
        self._known = known
        self._seen: set[str] = set()

    def through(self, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(lines):
            key = line["trial"]
            if key not in self._seen:
                self._seen.add(key)
                self.trials.append(self._surveyed(number, line))
            yield line

    def _surveyed(self, number: int, line: dict[str, Any]) -> Surveyed:
        key = line["trial"]
        status: Status = trial_state(self._layout, key).status if key in self._known else "pending"
        return Surveyed(key, line["grid"], line["cell"], line["label"], line["operator"], line["seed"], number, status)


def _runs(wanted: Sequence[Surveyed]) -> Iterator[tuple[str, list[int]]]:
    """`wanted` cut into stretches from one grid."""
    stretch: list[int] = []
    for position, found in enumerate(wanted):
        stretch.append(found.line)
        if position + 1 == len(wanted) or wanted[position + 1].grid != found.grid:
            yield found.grid, stretch
            stretch = []
