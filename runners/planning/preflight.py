"""Preflight checks: opens what tasks and evaluations read, before any trial is trained; checks measures of grids.

Some faults are known only when the files are open: too few pairs for a tokenizer, or a sentence that is too long.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import final

from ablate.grid import Experiment, Grid, LearningCriterion, Measure, Planned
from ablate.grid.errors import SpecError
from ablate.grid.own_methods import ask
from ablate.grid.suggestions import suggest_name
from ablate.runners.output import slow_notice
from ablate.store.analysis.metrics import direction
from ablate.store.analysis.row_labels import SHARE, row_label
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.state import State


@final
class Preflight:
    """Inputs of the trials that the campaign has not tried; with `retry`, also of those that failed."""

    def __init__(self, layout: Layout, *, retry: bool = False) -> None:
        self._layout, self._retry = layout, retry
        self._tried = frozenset(layout.trial_keys())
        self._cells: list[tuple[str, Planned]] = []

    def add_cell(self, grid: str, planned: Planned) -> None:
        """Note a cell whose inputs are to be opened."""
        tried = planned.key in self._tried
        again = tried and self._retry and trial_state(self._layout, planned.key).state == State.FAILED
        if (again or not tried) and isinstance(planned.trial, Experiment):
            self._cells.append((grid, planned))

    def refusals(self) -> Iterator[tuple[str, str, str]]:
        """Open all inputs; yield grid, label and reason of the first cell with each reason.

        Errors that are not the fault of the spec are left to the trial, which records them.
        """
        reasons: set[str] = set()
        with slow_notice("opening what the trials read"):
            for grid, planned in self._cells:
                try:
                    ask(planned.trial.check_inputs, None, "nothing, and raises SpecError for what it lacks")
                except SpecError as error:
                    reason = str(error).strip()
                    if reason not in reasons:
                        yield grid, planned.label, reason
                    reasons.add(reason)
                except Exception:  # noqa: BLE001  (a record of the trial's, with its traceback)
                    continue

    def require(self) -> None:
        """Raise SpecError if trials would fail before their first step."""
        refusals = list(self.refusals())
        if not refusals:
            return
        grid, label, why = refusals[0]
        others = f"; `ablate plan` tells this and {len(refusals) - 1} more" if len(refusals) > 1 else ""
        raise SpecError(
            f"the trials of {label!r} in grid {grid!r} cannot start, and nothing was trained: {why}{others}"
        )


Point = Mapping[str, float]
Points = Mapping[str, Sequence[Point]]
"""The points of values by name."""
_MOST_SHOWN = 12


def check_measure(grid: Grid, declared: Sequence[Points | None]) -> None:
    """Refuse `grid` if none of its trials records its measure at its point; `declared` is what they record.

    With a baseline there are verdicts, so then also if several points agree with it. Refuse a measure with the wrong
    direction, too: all its verdicts would be reversed. The same holds for what says that a run learned, and its limit
    is a value that it can have.

    Raises SpecError, which says what is recorded and what is nearest.
    """
    if not declared or None in declared:
        return
    if grid.measure is not None:
        _check(grid, grid.measure, f"grid {grid.name!r} is compared by", "measure", declared)
    if grid.learned is not None:
        _check(grid, grid.learned, f"grid {grid.name!r} tells runs that learned by", "learned", declared)
        _check_limit(grid, grid.learned)


def _check_limit(grid: Grid, learned: LearningCriterion) -> None:
    _, unit, least = row_label({"rows": grid.enumeration.rows}, learned.name)
    low, high = -math.inf if least is None else least, 1.0 if unit == SHARE else math.inf
    if not low <= learned.limit <= high:
        said = f"at least {low:g}" if high == math.inf else f"from {max(low, 0.0):g} to {high:g}"
        raise SpecError(
            f"the limit {learned.limit:g} of learned in grid {grid.name!r} is no value of {learned.name!r}, which is "
            f"{said}: set a limit that runs can reach"
        )


def _check(
    grid: Grid,
    measure: Measure | LearningCriterion,
    said: str,
    field: str,
    declared: Sequence[Points | None],
) -> None:
    named = [each[measure.name] for each in declared if each is not None and measure.name in each]
    if not named:
        known = list(dict.fromkeys(name for each in declared for name in each or ()))
        raise SpecError(
            f"{said} {measure.name!r}, which none of its trials records; they record {', '.join(known)}"
            f"{suggest_name(measure.name, known)}"
        )
    better = direction(measure.name)
    if better not in (None, measure.better):
        raise SpecError(
            f'{said} {measure.name!r}, where {better} is better; its {field} has better="{measure.better}": set '
            f'better="{better}"'
        )
    agreeing = [[point for point in points if measure.point.items() <= point.items()] for points in named]
    wanted = f"{said} {measure.name!r} at {_format_point(measure.point)}"
    if not any(agreeing):
        strange = [name for name in measure.point if name not in named[0][0]]
        hint = suggest_name(strange[0], [*named[0][0]]) if strange else ""
        points = [_format_point(point) for point in named[0]]
        shown = "; ".join(points[:_MOST_SHOWN]) + ("; ..." if len(points) > _MOST_SHOWN else "")
        raise SpecError(f"{wanted}, which is not on its evaluation grid: {shown}{hint}")
    several = next((points for points in agreeing if len(points) > 1), None)
    if several is not None and grid.baseline is not None:
        raise SpecError(
            f"{wanted}, which leaves {len(several)} points, such as {_format_point(several[0])} and "
            f"{_format_point(several[1])}: say at which"
        )


def _format_point(point: Point) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in point.items()) or "no point"
