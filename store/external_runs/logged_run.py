"""One run of a training loop of your own, as it is logged: an attempt, claimed while no live process has it."""

import atexit
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, SupportsFloat, SupportsIndex, final

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.grid.run import RunRecorder, require_reason
from ablate.grid.values import MOST_LABEL, require_text, require_whole, show
from ablate.store.external_runs.logged_plans import publish
from ablate.store.files.artefacts import write_artefact
from ablate.store.files.atomic import write_atomic
from ablate.store.files.attempts import Heartbeat, begin, end_record, start_record, write_end
from ablate.store.files.checked_values import CheckedValues, check_costs
from ablate.store.files.error_texts import message_of, traceback_of
from ablate.store.files.layout import Layout
from ablate.store.files.removals import next_attempt
from ablate.store.files.shards import ShardBuffer
from ablate.store.files.trial_state import trial_state

if TYPE_CHECKING:
    import numpy as np

FLUSH_S: Final = 30.0
"""Seconds after which the next value takes all to disk, or a fifth of the run's age if that is more."""

MOST_ROWS: Final = 200_000  # values that are kept in memory at most


class Source(NamedTuple):
    """The file that a run is read from, and the seconds of the value at hand."""

    name: str
    clock: Callable[[], float]


def start_run(layout: Layout, line: Mapping[str, Any], steps: SupportsIndex | None, code: str | None) -> "CampaignRun":
    """Publish the run of `line` in its grid and begin an attempt of it; see `Campaign.start`."""
    steps = None if steps is None else require_whole(steps, "steps of a run", least=1)
    code = None if code is None else require_text(code, "the code of a run, which names its version,", MOST_LABEL)
    _require_free(layout, line)  # so that what is refused leaves nothing behind
    return begin_run(layout, line, publish(layout, line), steps=steps, code=code)


def begin_run(
    layout: Layout,
    line: Mapping[str, Any],
    submission: str,
    *,
    steps: int | None = None,
    code: str | None = None,
    source: Source | None = None,
) -> "CampaignRun":
    """Begin an attempt of a run that is published."""
    while True:
        start = start_record(line["trial"], next_attempt(layout, line["trial"]))
        _require_free(layout, line)
        unused = dict.fromkeys({"torch", "triton"} - sys.modules.keys())
        versions = {**start["versions"], **unused, "script": _script() if source is None else source.name}
        start |= {"submission": submission, "worker": 0, "code": code, "versions": versions}
        if begin(layout, start):
            return CampaignRun(layout, start, line, steps, None if source is None else source.clock)


def _require_free(layout: Layout, line: Mapping[str, Any]) -> None:
    live = trial_state(layout, line["trial"]).live
    if live is not None:
        owner = f"process {live.start.get('pid')} on {live.start.get('host')}"
        raise SpecError(
            f"{line['label']!r} with seed {line['seed']} of grid {line['grid']!r} is being logged by {owner}; wait for "
            "its end, or choose another seed or label"
        )


def _script() -> str | None:
    """The file that this process runs, and a hash of its text; None in a notebook or at a prompt."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if path is None or not Path(path).is_file():
        return None
    return f"{Path(path).name} {blake2b(Path(path).read_bytes(), digest_size=6).hexdigest()}"


@final
class CampaignRun(RunRecorder):
    """A run that is being logged: `log`, `evaluate` and `probe`, then `finish` or `fail`.

    As a context manager it finishes at the end of the block, and an exception is recorded as a failed attempt. Values
    go to disk every half minute and at the end. A process that is killed leaves what had gone to disk.
    """

    def __init__(
        self,
        layout: Layout,
        start: Mapping[str, Any],
        line: Mapping[str, Any],
        steps: int | None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._layout = layout
        self._start = start
        self._line = line
        self._steps = steps
        self._buffer = ShardBuffer(layout, submission=start["submission"], worker=0)
        self._checked = CheckedValues()
        self._files: list[str] = []
        self._cost: dict[str, float] = {}
        self._began = self._flushed = time.monotonic()
        self._seconds = clock or (lambda: time.monotonic() - self._began)
        self._pid = os.getpid()
        self._step = 0
        self._status: str | None = None
        self._alive = Heartbeat(layout.heartbeat(start["trial"], start["attempt"]), float(start["heartbeat_s"]))
        self._alive.start()
        atexit.register(self._at_exit)

    def __repr__(self) -> str:
        state = self._status or f"at step {self._step}"
        line = self._line
        place = f"grid {line['grid']!r}, attempt {self.attempt}"
        return f"CampaignRun({line['label']!r}, seed {line['seed']}, {place}: {state})"

    @property
    def trial(self) -> str:
        """The key: that of config, label and seed."""
        return str(self._line["trial"])

    @property
    def attempt(self) -> int:
        """Counted from 1; more where the same run was logged before."""
        return int(self._start["attempt"])

    @property
    def ended(self) -> bool:
        """Whether it was finished, or has failed."""
        return self._status is not None

    @property
    def directory(self) -> Path:
        """A directory for files of the run, which all its attempts share; it stays in the campaign."""
        place = self._layout.files(self.trial)
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _step_at_work(self) -> int:
        return self._step

    def _log(self, step: SupportsIndex, metrics: Mapping[str, SupportsFloat]) -> None:
        self._require_open()
        wall_s = self._seconds()
        number, values = self._checked.metrics(step, metrics)
        self._buffer.extend("metric", [(*self._who, number, name, value, wall_s) for name, value in values.items()])
        self._note_step(number, values.get("loss"))

    def _evaluate(self, step: SupportsIndex, name: str, value: SupportsFloat | None, *rest: Any) -> None:
        self._require_open()
        checked = self._checked.evaluation(step, name, value, *rest)
        if checked is not None:
            self._buffer.add("evaluation", (*self._who, *checked.row))
            self._buffer.extend("item", [(*self._who, *row) for row in checked.items])
            self._note_step(checked.row[0], None)

    def _knock_out(self, paths: Collection[str], name: str, *rest: Any) -> Iterable[tuple[Any, ...]]:
        config = self._line["spec"]["config"]
        for path in paths:
            if path.partition(".")[0] not in config:
                raise SpecError(f"the knock-out {show(path)} is not in the config of the run; leave out what is")
        return self._checked.knockout(paths, name, *rest)

    def _probe(self, step: SupportsIndex, name: str, value: SupportsFloat, *rest: Any) -> None:
        self._require_open()
        row = self._checked.probe(step, name, value, *rest)
        if row is not None:
            self._buffer.add("probe", (*self._who, *row))
            self._note_step(row[0], None)

    def artefact(self, name: str, arrays: Mapping[str, "np.ndarray"]) -> None:
        """Keep arrays of the latest step in one file. Raises SpecError: the run has ended, the name is unfit."""
        self._require_open()
        self._files.append(write_artefact(self._layout, self.trial, self.attempt, self._step, name, arrays))

    def cost(self, **costs: SupportsFloat) -> None:
        """Record what the run took, by name with unit. Raises SpecError: the run has ended, a value is no number."""
        self._require_open()
        self._cost |= check_costs(costs)

    def flush(self) -> None:
        """Make everything logged so far durable; if that fails, the values are kept for the next time."""
        self._buffer.flush()
        self._flushed = time.monotonic()

    def finish(self) -> None:
        """The run is done, and its result counts. Raises SpecError: it has ended before."""
        self._end({"status": "ok"})

    def fail(self, error: BaseException | str, reason: str | None = None) -> None:
        """The run failed; `reason` is "error", "diverged", "out_of_memory" or "killed", by default told by `error`.

        The text of the error is what `ablate logs` shows. Raises SpecError: the run has ended before, or there is no
        such reason.
        """
        require_reason(reason)
        if isinstance(error, str):
            self._end({"status": "failed", "reason": reason or "error", "message": error})
            return
        text = message_of(error)
        short = isinstance(error, MemoryError) or "out of memory" in text.lower()
        reason = reason or ("out_of_memory" if short else "error")
        trace = traceback_of(error)
        self._end({"status": "failed", "reason": reason, "message": text, "traceback": trace})

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._status is not None:
            return
        if error is None:
            self.finish()
        else:
            self._stop(error, f"it was stopped by {type(error).__name__}")

    def _end(self, outcome: Mapping[str, Any]) -> None:
        self._require_open()
        self.flush()
        layout, place = self._layout, (self.trial, self.attempt)
        if not layout.start(*place).exists():
            raise EnvironmentProblem(f"{layout.start(*place)} is gone: the campaign was moved or removed meanwhile")
        record = end_record(*place, self._step, self._seconds())
        said = outcome.get("traceback") or outcome.get("message")
        if said:
            with suppress(EnvironmentProblem):  # the record has it, too
                write_atomic(layout.log(*place), f"{said.rstrip()}\n".encode("utf-8", "replace"))
        write_end(
            layout,
            {**record, **outcome, "wrote": self._buffer.list_written(*place), "files": self._files, "cost": self._cost},
        )
        self._status = str(outcome["status"])
        self._alive.stop()
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """The process ends before the run was finished; a child that was forked has no say in it."""
        if self._status is None and os.getpid() == self._pid:
            error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
            self._stop(error, "the process ended before the run was finished")

    def _stop(self, error: BaseException | None, message: str) -> None:
        if isinstance(error, Exception):
            self.fail(error)
        else:
            self._end({"status": "stopped", "message": message})

    def _require_open(self) -> None:
        if self._status is not None:
            raise SpecError(f"{self!r} has ended; start another")
        if os.getpid() != self._pid:
            raise SpecError(
                f"{self!r} was started by process {self._pid}, and one process logs a run; start another here"
            )

    @property
    def _who(self) -> tuple[str, int]:
        return self.trial, self.attempt

    def _note_step(self, step: int, loss: float | None) -> None:
        self._step = max(self._step, step)
        if self._steps is not None:
            self._alive.tell(self._step, self._steps, math.nan if loss is None else loss)
        else:
            self._alive.works()
        now = time.monotonic()
        due = now - self._flushed >= max(FLUSH_S, 0.2 * (now - self._began)) or len(self._buffer) > MOST_ROWS
        if due:
            try:
                self.flush()
            except EnvironmentProblem as error:  # training goes on; the values are kept, and `finish` will tell
                self._flushed = now
                warnings.warn(f"{error}; the values are kept for another try", RuntimeWarning, stacklevel=3)
