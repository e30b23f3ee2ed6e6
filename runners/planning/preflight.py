"""Whether trials can begin: what their tasks and evaluations read is opened once, before any of them is trained.

A spec is refused when it is built for what can be known by then. That a tokenizer finds too few pairs in a text, that a
teacher knows another one, or that a sentence is too long, is known when the files are open.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, final

from grid import Grid, Planned, Spec
from grid.errors import SpecError
from grid.suggestions import suggest_name
from runners.slow_notice import slow_notice
from store.files.layout import Layout
from store.files.trial_status import trial_state

if TYPE_CHECKING:
    from runners.evaluations.evaluation import Evaluation
    from runners.tasks.task import Task

_Read = tuple["Task", tuple["Evaluation", ...]]


class PreflightFailure(NamedTuple):
    """A reason why trials would fail before their first step."""

    grid: str
    label: str
    """Label of the first cell concerned."""
    why: str


@final
class Preflight:
    """Inputs of the trials that the campaign has not tried; with `retry`, also of those that failed."""

    def __init__(self, layout: Layout, *, retry: bool = False) -> None:
        self._layout, self._retry = layout, retry
        self._tried = frozenset(layout.trial_keys())
        self._cells: dict[_Read, tuple[str, str]] = {}

    def look(self, grid: str, planned: Planned) -> None:
        """Note what a cell reads."""
        read = _read(planned.trial)
        if read is not None and self._begins(planned.key):
            self._cells.setdefault(read, (grid, planned.label))

    def _begins(self, trial: str) -> bool:
        tried = trial in self._tried
        return not tried or (self._retry and trial_state(self._layout, trial).status == "failed")

    def refusals(self) -> Iterator[PreflightFailure]:
        """Open all inputs. Skip errors that are not the fault of the spec; the trial records them."""
        if not self._cells:
            return
        from runners.evaluations.evaluation import open_evaluations  # whoever has such a trial has loaded it

        with slow_notice("opening what the trials read"):
            for (task, evaluations), (grid, label) in self._cells.items():
                try:
                    task.open()
                    open_evaluations(task, evaluations)
                except SpecError as error:
                    yield PreflightFailure(grid, label, str(error).strip())
                except Exception:  # noqa: BLE001  (a record of the trial's, with its traceback)
                    continue

    def require(self) -> None:
        """Raise SpecError if trials would fail before their first step."""
        found = list(self.refusals())
        if not found:
            return
        grid, label, why = found[0]
        others = f"; `ablate plan` tells this and {len(found) - 1} more" if len(found) > 1 else ""
        raise SpecError(
            f"trials begin with what their tasks and evaluations read; those of {label!r} in grid {grid!r} would fail, "
            f"and nothing was trained: {why}{others}"
        )


def _read(trial: Spec) -> _Read | None:
    task = getattr(trial, "task", None)
    return (task, getattr(trial, "evaluations", ())) if isinstance(task, Spec) else None  # type: ignore[return-value]


METRICS = ("loss", "grad_norm", "learning_rate")
"""Metrics that training records for every task."""

Point = Mapping[str, float]
_MOST_SHOWN = 12


def check_measure(grid: Grid, judged: Iterable[Sequence[object]]) -> None:
    """Refuse `grid` if none of its trials records its measure at its point; `judged` is what measures each of them.

    With a baseline there are verdicts, so then also if several points agree with it.

    Raises:
        SpecError: the text says what is recorded, and the nearest.
    """
    measure = grid.measure
    found = [_collect_points(judges) for judges in judged]
    declared = [{**dict.fromkeys(METRICS, ({},)), **each} for each in found if each is not None]
    if measure is None or not declared or len(declared) < len(found):
        return
    named = [each[measure.name] for each in declared if measure.name in each]
    if not named:
        known = list(dict.fromkeys(name for each in declared for name in each))
        raise SpecError(
            f"grid {grid.name!r} is compared by {measure.name!r}, which none of its trials records; they record "
            f"{', '.join(known)}{suggest_name(measure.name, known)}"
        )
    agreeing = [[point for point in points if _agrees(point, measure.point)] for points in named]
    if not any(agreeing):
        raise SpecError(f"grid {grid.name!r} is compared by {measure.name!r} {_off(measure.point, named[0])}")
    several = next((points for points in agreeing if len(points) > 1), None)
    if several is not None and grid.baseline is not None:
        raise SpecError(
            f"grid {grid.name!r} is compared by {measure.name!r} at one point; {_format_point(measure.point)} leaves "
            f"{len(several)}, such as {_format_point(several[0])} and {_format_point(several[1])}: say at which"
        )


def _collect_points(judges: Iterable[object]) -> dict[str, list[Point]] | None:
    """By name the points of all of `judges`; None where one does not say."""
    names: dict[str, list[Point]] = {}
    for judge in judges:
        measures: Callable[[], Mapping[str, Sequence[Point]] | None] | None = getattr(judge, "measures", None)
        said = measures() if measures else None
        if said is None:
            return None
        for name, points in said.items():
            names[name] = [*names.get(name, []), *points]
    return names


def _agrees(point: Point, wanted: Point) -> bool:
    return all(name in point and point[name] == value for name, value in wanted.items())


def _off(wanted: Point, points: Sequence[Point]) -> str:
    """Describe why none of `points` agrees with the point `wanted`."""
    axes = list(dict.fromkeys(name for point in points for name in point))
    if not axes:
        return f"at {_format_point(wanted)}, and that has no points: leave point out"
    strange = [name for name in wanted if name not in axes]
    if strange:
        hint = suggest_name(strange[0], axes)
        return f"at {_format_point(wanted)}, and the points of its evaluation grid have {', '.join(axes)}{hint}"
    nearest = min(points, key=lambda point: sum(_far(point.get(name), value) for name, value in wanted.items()))
    known = "; ".join(_axes(axes, points))
    return f"at {_format_point(wanted)}, off the evaluation grid ({known}); nearest is {_format_point(nearest)}"


def _far(found: float | None, wanted: float) -> float:
    return float("inf") if found is None else abs(found - wanted)


def _axes(axes: Sequence[str], points: Sequence[Point]) -> Iterator[str]:
    for name in axes:
        values = sorted({point[name] for point in points if name in point})
        shown = [f"{value:g}" for value in values]
        if len(shown) > _MOST_SHOWN:
            shown = [*shown[:2], "...", shown[-1]]
        yield f"{name} {', '.join(shown)}"


def _format_point(point: Point) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in point.items()) or "no point"
