"""The trials of some grids, each once, with its state in a campaign; `Worklist.wants` decides which must run.

A worker asks again before it begins one (`ablate.runners.attempts.claims.find_taken`), a task on SLURM before it takes
a row (`row_state.py`, `_is_done`).
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from ablate.grid import Experiment, Grid, Planned
from ablate.grid.errors import EnvironmentProblem, SpecError, StoreError
from ablate.grid.experiment import group_by_method, require_train
from ablate.grid.own_methods import ask
from ablate.runners.attempts.manifest import read_lines, trial_lines, trial_of
from ablate.runners.output import format_count, slow_notice
from ablate.runners.planning.preflight import check_measure
from ablate.runners.provenance.code import Codes, ran_other_code
from ablate.runners.provenance.specfile import place_of
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.state import State

_Points = Mapping[str, Sequence[Mapping[str, float]]] | None
_POINTS: Final = 'points by name, such as {"val_loss": [{}]} for a value without coordinates, or None'


class GridCells(NamedTuple):
    """Every cell of some grids."""

    codes: Codes
    sources: Mapping[tuple[str, str], Mapping[str, str]]
    """The hash of every source that its trials run, by grid and cell."""
    knockouts: Mapping[tuple[str, str], Mapping[str, Any]] = {}
    """The knock-outs of its trials, by grid and cell; none without a measure."""


@slow_notice("planning: looking at every cell")
def collect_cells(
    grids: Sequence[Grid], visit: Callable[[str, Planned], None] | None = None, files: Sequence[Path] = ()
) -> GridCells:
    """Collect every cell of `grids`, and write nothing; `visit` gets the grid's name and the cell's first trial.

    `files` are the spec files that define the grids, loaded before.

    Raises SpecError if a grid is invalid, two have the same name, the measure of one is nothing its trials record, or
    a class has no `train`.
    """
    if not grids:
        raise SpecError("the run has no grid; give at least one")
    twice = [name for name, count in Counter(grid.name for grid in grids).items() if count > 1]
    if twice:
        raise SpecError(f"two grids of the run are called {twice[0]!r}; rename one")
    codes = Codes(files=files)
    sources: dict[tuple[str, str], Mapping[str, str]] = {}
    knockouts: dict[tuple[str, str], Mapping[str, Any]] = {}
    for grid in grids:
        cells: dict[str, Experiment] = {}
        for part in grid.parts:
            require_train(type(part.base))
        for planned in grid.cells():
            sources[grid.name, planned.cell] = codes.sources(planned.trial)
            if visit is not None:
                visit(grid.name, planned)
            cells[planned.cell] = planned.trial
        try:
            check_measure(grid, [ask(cell.measures, _Points, _POINTS) for cell in cells.values()])
        except SpecError as error:
            raise SpecError(f"{place_of(grid.name, files[0])}: {error}" if files else str(error)) from error
        knockouts |= {(grid.name, cell): asked.data() for cell, asked in plan_knockouts(grid, cells).items()}
    return GridCells(codes, sources, knockouts)


def plan_knockouts(grid: Grid, cells: Mapping[str, Experiment]) -> dict[str, Any]:
    """Return what the cells of `grid` are measured without at the end; nothing without a measure."""
    asked: dict[str, Any] = {}
    counts = grid.enumeration
    for plan, of in group_by_method(cells, "knockouts") if grid.measure is not None else ():
        asked |= plan(grid.measure, of, lambda cell: counts.baselines.get(cell, counts.baseline))
    return asked


class GridTrial(NamedTuple):
    """A trial of the grids, at its first occurrence."""

    key: str
    grid: str
    cell: str
    label: str
    operator: str
    seed: int
    line: int
    """Its line in `grids/<grid>.trials.jsonl`, counted from 0."""
    state: State
    other_code: bool = False
    """Finished with other code than now, or failed by an error in such."""


@final
@dataclass(frozen=True)
class Worklist:
    """The trials of some grids, in execution order, without those that an earlier grid has already named."""

    layout: Layout
    trials: tuple[GridTrial, ...]
    cells: GridCells
    retry: bool
    again: bool

    @cached_property
    def to_do(self) -> tuple[GridTrial, ...]:
        """Trials that are not done; failed ones only if their code has changed or with `retry`; with `again` those that
        ran other code.

        Trials that another run works on are among them.
        """
        return tuple(trial for trial in self.trials if self.wants(trial))

    def wants(self, trial: GridTrial) -> bool:
        """Return True if a trial is to be trained."""
        if trial.state == State.DONE:
            return self.again and trial.other_code
        return self.retry or trial.state != State.FAILED or trial.other_code

    def narrow_to(self, only: Collection[str] | None, seeds: Collection[int] | None = None) -> "Worklist":
        """Keep only the trials of these keys and seeds; None: all."""
        kept = (
            each for each in self.trials if (only is None or each.key in only) and (seeds is None or each.seed in seeds)
        )
        return replace(self, trials=tuple(kept))

    def without_results(self, keys: Collection[str]) -> "Worklist":
        """Take the trials of these keys as not begun."""
        begun = {
            each.key: each._replace(state=State.PENDING, other_code=False) for each in self.trials if each.key in keys
        }
        return replace(self, trials=tuple(begun.get(each.key, each) for each in self.trials))

    @property
    def other_code(self) -> int:
        """Number of finished trials that ran other code."""
        return sum(trial.other_code and trial.state == State.DONE for trial in self.trials)

    def lines(self, wanted: Sequence[GridTrial]) -> Iterator[bytes]:
        """Yield the trial lines of `wanted`, in this order, from the published grids."""
        for grid, stretch in groupby(wanted, key=lambda each: each.grid):
            trials, path = list(stretch), self.layout.grid_trials(grid)
            for each, line in zip(trials, read_lines(path, [each.line for each in trials]), strict=True):
                key = trial_of(line, f"{path}, line {each.line + 1}")
                if key != each.key:
                    raise StoreError(
                        f"line {each.line + 1} of grid {grid!r} is trial {key} and not {each.key}: another run planned "
                        "it anew while this one began; run the same command again"
                    )
                yield line


def list_trials(
    layout: Layout,
    grids: Sequence[Grid],
    cells: GridCells,
    *,
    retry: bool = False,
    again: bool = False,
    take: Callable[[Grid, Iterable[Mapping[str, Any]]], None] | None = None,
) -> Worklist:
    """Look at the trials of `grids`, whose `cells` were collected, without touching anything.

    `take` receives every grid with its lines, as `write_grid` takes them, and reads them all.
    """
    trials: dict[str, GridTrial] = {}
    started = set(layout.trial_keys())
    cell_counts = Counter(grid for grid, _ in cells.sources)
    count = format_count(sum(cell_counts[grid.name] * len(list(grid.seeds)) for grid in grids), "trial")
    with slow_notice(f"planning {count}"):
        for grid in grids:
            lines = _collect(layout, cells, trial_lines(grid), trials, started)
            deque(lines, maxlen=0) if take is None else take(grid, lines)
    return Worklist(layout, tuple(trials.values()), cells, retry, again)


def _collect(
    layout: Layout,
    cells: GridCells,
    lines: Iterable[dict[str, Any]],
    trials: dict[str, GridTrial],
    started: Collection[str],
) -> Iterator[Mapping[str, Any]]:
    """Pass on the lines of a grid, and add each trial that is new to `trials`."""
    for number, line in enumerate(lines):
        key, grid, cell = line["trial"], line["grid"], line["cell"]
        if (asked := cells.knockouts.get((grid, cell))) and line["spec"]["execution"]["knockout"] is None:
            line["spec"]["execution"]["knockout"] = asked
        if key not in trials:
            state, other = State.PENDING, False
            if key in started:
                with suppress(EnvironmentProblem):  # the worker that claims it says why it cannot be read
                    status = trial_state(layout, key)
                    state, other = status.state, ran_other_code(status, cells.sources[grid, cell])
            label, operator, seed = line["label"], line["operator"], line["seed"]
            trials[key] = GridTrial(key, grid, cell, label, operator, seed, number, state, other)
        yield line
