"""A run by successive halving: every cell up to the first rung, the best of them up to the next, and so on.

Nothing is kept beside what the trials record. A trial that pauses at a rung has a checkpoint, and its `end.json` says
so; which cells go on is computed from what was measured there. So a run that was cut off goes on where it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, final

from grid import Grid, Measure
from grid.errors import SpecError, StoreError
from runners.attempts.manifest import trial_lines
from runners.machines import Inline, Machine
from runners.output import counted, say
from runners.planning.halving import Halving, Values, promoted, rungs
from runners.runs.landing import land
from runners.runs.run import RunOptions, RunResult, run_campaign
from store.layout import Layout
from store.rungs import values_at
from store.status import Status, paused_at, trial_state
from store.store import Store


class _Member(NamedTuple):
    """A trial of the grid."""

    key: str
    cell: str
    label: str


def run_by_halving(
    root: Path | str, grid: Grid, halving: Halving, machine: Machine | None = None, options: RunOptions | None = None
) -> RunResult:
    """Train `grid` in the campaign at `root`, at every rung only the cells that are promoted there.

    A trial's spec, key and result are those of a run without pauses. Trials of cells that were not promoted keep their
    checkpoints, and a run without halving trains them to the end.

    Raises:
        SpecError: the grid cannot be halved, finished trials are to be trained again, or as `run_campaign`.
        StoreError: what a trial measured at a rung cannot be read.
        EnvironmentProblem: as `run_campaign`.
    """
    return _Halved(Layout(Path(root).resolve()), grid, halving, machine or Inline(), options or RunOptions()).result()


@final
class _Halved:
    def __init__(self, layout: Layout, grid: Grid, halving: Halving, machine: Machine, options: RunOptions) -> None:
        if options.again or options.only is not None:
            raise SpecError("--halving trains a whole grid once; leave out --again and a selection of trials")
        if grid.measure is None:
            raise SpecError(f"--halving ranks cells by the grid's measure, and grid {grid.name!r} has none")
        self._measure: Measure = grid.measure
        self._rungs = rungs(grid, halving)[:-1]  # the last is the end
        self._layout, self._grid, self._halving = layout, grid, halving
        self._machine, self._options = machine, options
        self._members = [_Member(line["trial"], line["cell"], line["label"]) for line in trial_lines(grid)]
        self._labels = {member.cell: member.label for member in self._members}
        self._baseline: str | None = grid.header()["baseline"]
        self._before = self._states()

    def result(self) -> RunResult:
        """Run from rung to rung, then to the end."""
        cells, retry = list(self._labels), self._options.retry
        for number, rung in enumerate(self._rungs, 1):
            found = self._train(cells, pause_at=rung.step + 1, retry=retry)
            if found is not None and found.stopped:
                return self._counted(found, cells)
            retry = False
            before = cells
            cells = promoted(self._measured(cells, rung.step), self._measure, self._halving, self._baseline)
            say(f"ablate: rung {number} of {len(self._rungs)}, step {rung.step}: {self._told(before, cells)}")
        return self._counted(self._train(cells, pause_at=None, retry=retry), cells)

    def _train(self, cells: Sequence[str], *, pause_at: int | None, retry: bool) -> RunResult | None:
        """Train `cells` up to the step, or to the end; None where all of it has been done."""
        wanted = frozenset(member.key for member in self._members if member.cell in set(cells))
        if pause_at is not None and all(self._past(key, pause_at, retry=retry) for key in wanted):
            return None
        whole = len(wanted) == len({member.key for member in self._members})
        only = None if whole else wanted  # a whole run looks first whether its trials can begin
        options = replace(self._options, only=only, pause_at=pause_at, retry=retry)
        return run_campaign(self._layout.root, [self._grid], self._machine, options)

    def _past(self, key: str, step: int, *, retry: bool) -> bool:
        state = trial_state(self._layout, key)
        if state.status in ("ok", "failed"):
            return not (state.status == "failed" and retry)
        paused = paused_at(state)
        return paused is not None and paused >= step

    def _measured(self, cells: Sequence[str], step: int) -> Mapping[str, Values]:
        """By cell what its trials measured at `step`, by seed.

        Raises:
            StoreError: a trial that has come so far has no value there.
        """
        land(self._layout.root, wait=True)
        with Store.open(self._layout.root, refresh=False) as store:
            known = values_at(store, self._grid.name, self._measure.name, self._measure.point, step)
        found: dict[str, list[float | None]] = {cell: [] for cell in cells}
        for member in self._members:
            if member.cell not in found:
                continue
            value = known.get(member.key)
            if value is None and trial_state(self._layout, member.key).status != "failed":
                raise StoreError(
                    f"trial {member.key} ({member.label}) has no readable {self._measure.name!r} at step {step}, so "
                    "cells cannot be ranked there; see `ablate status`, or run without --halving"
                )
            found[member.cell].append(value)
        return found

    def _told(self, before: Sequence[str], after: Sequence[str]) -> str:
        names = [self._labels[cell] + (" (baseline)" if cell == self._baseline else "") for cell in after]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        return f"{len(after)} of {counted(len(before), 'cell')} go on: {shown}"

    def _states(self) -> dict[str, Status]:
        return {member.key: trial_state(self._layout, member.key).status for member in self._members}

    def _counted(self, last: RunResult | None, cells: Sequence[str]) -> RunResult:
        """What became of every trial of the grid over all rungs."""
        after, went_on = self._states(), set(cells)
        cells_of = {member.key: member.cell for member in self._members}
        left = [key for key, status in after.items() if status not in ("ok", "failed")]
        ok = [key for key, status in after.items() if status == "ok"]
        failed = [key for key, status in after.items() if status == "failed"]
        old = [key for key in failed if self._before[key] == "failed" and not self._options.retry]
        return RunResult(
            ok=sum(self._before[key] != "ok" for key in ok),
            failed=len(failed) - len(old),
            stopped=sum(cells_of[key] in went_on for key in left),
            skipped=sum(self._before[key] == "ok" for key in ok),
            skipped_failed=len(old),
            skipped_other_code=last.skipped_other_code if last is not None else 0,
            interrupted=last is not None and last.interrupted,
            submission=last.submission if last is not None else None,
            problems=last.problems if last is not None else (),
            truncated=sum(cells_of[key] not in went_on for key in left),
        )
