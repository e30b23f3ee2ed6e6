"""Whether trials can begin: what their tasks and evaluations read is opened once, before any of them is trained.

A spec is refused when it is built for what can be known by then. That a tokenizer finds too few pairs in a text, that a
teacher knows another one, or that a sentence is too long, is known when the files are open.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, final

from grid import Planned, Spec
from grid.errors import SpecError
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
