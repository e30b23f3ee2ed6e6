"""Preflight checks: opens what tasks and evaluations read, before any trial is trained; checks measures of grids.

Some faults are known only when the files are open: too few pairs for a tokenizer, or a sentence that is too long.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from ablate.grid import Grid, LearningCriterion, Measure, Planned, Spec
from ablate.grid.errors import SpecError
from ablate.grid.suggestions import suggest_name
from ablate.runners.output import slow_notice
from ablate.store.analysis.metrics import direction
from ablate.store.analysis.row_labels import SHARE, row_label
from ablate.store.files.layout import Layout
from ablate.store.files.trial_status import trial_state
from ablate.store.state import State

if TYPE_CHECKING:
    from ablate.runners.evaluations.evaluation import Evaluation
    from ablate.runners.tasks.task import Task

_Read = tuple["Task", tuple["Evaluation", ...]]


@final
class Preflight:
    """Inputs of the trials that the campaign has not tried; with `retry`, also of those that failed."""

    def __init__(self, layout: Layout, *, retry: bool = False) -> None:
        self._layout, self._retry = layout, retry
        self._tried = frozenset(layout.trial_keys())
        self._cells: dict[_Read, tuple[str, str]] = {}

    def add_cell(self, grid: str, planned: Planned) -> None:
        """Note what a cell reads."""
        task: Any = getattr(planned.trial, "task", None)
        tried = planned.key in self._tried
        again = tried and self._retry and trial_state(self._layout, planned.key).state == State.FAILED
        if isinstance(task, Spec) and (again or not tried):
            read: Any = task, getattr(planned.trial, "evaluations", ())
            self._cells.setdefault(read, (grid, planned.label))

    def refusals(self) -> Iterator[tuple[str, str, str]]:
        """Open all inputs; yield grid, label of the first cell, and reason of those that fail.

        Tasks and evaluations of a user's own also keep the laws of `task_laws`. Errors that are not the fault of the
        spec are left to the trial, which records them.
        """
        if not self._cells:
            return
        from ablate.runners.evaluations.evaluation import open_evaluations  # whoever has such a trial has loaded it
        from ablate.runners.planning.task_laws import require_evaluation_laws, require_task_laws
        from ablate.runners.planning.tried_task import is_own, own_tasks

        with slow_notice("opening what the trials read"):
            for (task, evaluations), (grid, label) in self._cells.items():
                try:
                    for own in own_tasks(task):
                        require_task_laws(own)
                    task.open()
                    open_evaluations(task, evaluations)
                    for evaluation in filter(is_own, evaluations):
                        require_evaluation_laws(evaluation, task)
                except SpecError as error:
                    yield grid, label, str(error).strip()
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
            f"trials begin with what their tasks and evaluations read; those of {label!r} in grid {grid!r} would fail, "
            f"and nothing was trained: {why}{others}"
        )


METRICS = ("loss", "grad_norm", "learning_rate")
"""Metrics that training records for every task."""

Point = Mapping[str, float]
_MOST_SHOWN = 12


def check_measure(grid: Grid, judged: Iterable[Sequence[object]]) -> None:
    """Refuse `grid` if none of its trials records its measure at its point; `judged` is what measures each of them.

    With a baseline there are verdicts, so then also if several points agree with it. Refuse a measure with the wrong
    direction, too: all its verdicts would be reversed. The same holds for what says that a run learned, and its limit
    is a value that it can have.

    Raises SpecError, which says what is recorded and what is nearest.
    """
    declared = [_collect_points(judges) for judges in judged]
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
    declared: Sequence[dict[str, list[Point]] | None],
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


def _collect_points(judges: Iterable[object]) -> dict[str, list[Point]] | None:
    """Return the points of all of `judges` by name; None if one does not declare its points."""
    names: dict[str, list[Point]] = {}
    for judge in judges:
        measures: Callable[[], Mapping[str, Sequence[Point]] | None] | None = getattr(judge, "measures", None)
        declared = measures() if measures else None
        if declared is None:
            return None
        for name, points in declared.items():
            names.setdefault(name, []).extend(points)
    return {**{name: [{}] for name in METRICS}, **names}


def _format_point(point: Point) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in point.items()) or "no point"
