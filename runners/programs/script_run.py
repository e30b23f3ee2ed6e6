"""The run of the process at work: that of an experiment's `train`, or, in a program, lines of JSON for its trial."""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, SupportsFloat, SupportsIndex, final

from ablate.grid.errors import SpecError
from ablate.grid.run import REASONS, RunRecorder
from ablate.grid.values import require_text
from ablate.store.files.checked_values import CheckedValues, check_costs

if TYPE_CHECKING:
    import numpy as np

METRICS = "ABLATE_METRICS"
"""Environment variable with the file for lines of JSON."""
at_work: ContextVar[RunRecorder | None] = ContextVar("at_work", default=None)
"""The run of the `train` that this thread is in."""


def current_run() -> RunRecorder:
    """Return the run of this trial, inside `Experiment.train` and in a program of a `Command`.

    Raises SpecError anywhere else.
    """
    run = at_work.get()
    if run is not None:
        return run
    if not os.environ.get(METRICS):
        raise SpecError(
            "there is no run here: current_run() works inside Experiment.train and in a program that a Command runs; "
            "by hand, Campaign(...).start(...) gives one"
        )
    return _script_run(os.environ[METRICS], os.environ.get("RANK", "0"))


@cache
def _script_run(file: str, rank: str) -> "ScriptRun":
    return ScriptRun(Path(os.devnull if rank.isdecimal() and int(rank) else file))


@final
class ScriptRun(RunRecorder):
    """Writes values of a program to the file that its trial reads; of the ranks of a program, only rank 0 writes."""

    def __init__(self, file: Path) -> None:
        self._file, self._step = file, 0
        self._checked = CheckedValues()

    @property
    def directory(self) -> Path:
        """The directory of the trial, where a program keeps its files."""
        return Path(os.environ.get("ABLATE_DIRECTORY", self._file.parent))

    @property
    def seed(self) -> int:
        """The seed of the trial."""
        return int(os.environ.get("ABLATE_SEED", "0"))

    def artefact(self, name: str, arrays: Mapping[str, "np.ndarray"]) -> None:
        import numpy as np

        file = self._file.with_name(f"{require_text(name, 'the name of an artefact')}.npz")
        if self._file != Path(os.devnull):
            np.savez(file, **dict(arrays))  # type: ignore[arg-type]
        self._write(self._step, artefact=name, file=str(file))

    def cost(self, **costs: SupportsFloat) -> None:
        self._write(self._step, cost=check_costs(costs))

    def fail(self, error: BaseException | str, reason: str | None = None) -> NoReturn:
        if reason is not None and reason not in REASONS:
            raise SpecError(f"{reason!r} is no reason of a failure; give one of {', '.join(REASONS)}")
        self._write(self._step, fail=str(error), reason=reason)
        raise SystemExit(f"{error}")

    def _step_at_work(self) -> int:
        return self._step

    def _log(self, step: SupportsIndex, metrics: Mapping[str, SupportsFloat]) -> None:
        self._step, values = self._checked.metrics(step, metrics)
        self._write(self._step, log=values)

    def _evaluate(self, step: SupportsIndex, name: str, value: SupportsFloat | None, *rest: Any) -> None:
        checked = self._checked.evaluation(step, name, value, *rest)
        assert checked is not None
        at, name, point, number, count, error = checked.row
        items = {row[3]: row[4] for row in checked.items} or count
        self._write(at, evaluate=name, value=number, point=dict(point), items=items, se_items=error)

    def _knock_out(self, paths: Collection[str], name: str, *rest: Any) -> Iterable[tuple[Any, ...]]:
        return self._checked.knockout(paths, name, *rest)

    def _probe(self, step: SupportsIndex, name: str, value: SupportsFloat, *rest: Any) -> None:
        row = self._checked.probe(step, name, value, *rest)
        assert row is not None
        at, name, layer, head, point, number = row
        self._write(at, probe=name, layer=layer, head=head, point=dict(point), value=number)

    def _write(self, step: int, **record: Any) -> None:
        line = json.dumps({"step": step, **record}) + "\n"
        with self._file.open("ab", buffering=0) as file:  # one write, so that lines of several processes stay whole
            file.write(line.encode())
