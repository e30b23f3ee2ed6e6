"""Run of a campaign on this machine: trains missing trials once and ingests results meanwhile.

    run_campaign > PreparedRun.publish > Machine.run > WorkerPool > worker_loop.work > Worker.run: a claim, an Attempt
    > train_experiment > Experiment.train > rows of the Attempt to a ShardBuffer > Attempt.finish; meanwhile
    BackgroundIngest > ingest (RecordIngest, ShardIngest) > publish, and `views.sql` says which rows count

On SLURM, whoever reads ingests (`Store.open`).
"""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, final

from ablate.grid import Grid
from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.claims import find_taken
from ablate.runners.attempts.leases import Leases
from ablate.runners.attempts.manifest import submission_id, write_submission
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import record_run, write_submission_record
from ablate.runners.attempts.worker import Outcome
from ablate.runners.execution import Inline, Machine, Queue
from ablate.runners.execution.background_ingest import BackgroundIngest
from ablate.runners.execution.machine import notes_of
from ablate.runners.execution.progress import GridMember, ProgressDisplay, Tally
from ablate.runners.lossy_output import lossy_output
from ablate.runners.output import format_count
from ablate.runners.planning.preflight import Preflight
from ablate.runners.planning.prepared_run import PreparedRun
from ablate.runners.planning.worklist import GridTrial, Worklist
from ablate.runners.processes.failure import Failure, place_of, unrecorded_failure
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.state import ENDED, State

_LOOK_EVERY_S = 0.5
"""Seconds between looks at a trial that another run trains."""


@final
@dataclass(frozen=True)
class RunResult:
    """Counts of the trials by outcome; each trial counts once."""

    done: int
    """Finished by this run or by a concurrent one."""
    failed: int
    stopped: int
    """Not finished, because the run was interrupted; run again to continue."""
    skipped: int
    skipped_failed: int
    skipped_other_code: int
    interrupted: bool
    """True if a signal stopped the run early."""
    submission: str | None
    """Id of the submission; None if there was nothing to do."""
    problems: tuple[str, ...] = ()


def run_campaign(
    root: Path | str, grids: Iterable[Grid], machine: Machine | None = None, request: RunRequest | None = None
) -> RunResult:
    """Train every trial of `grids` that the campaign at `root` does not have yet, on `machine` (default: Inline).

    Grids and manifest are written before any work begins. A trial that several grids share is trained once. If
    another run trains a trial, this run waits for it. Ctrl-C and SIGTERM stop at the next step boundary.

    Raises:
        SpecError: a grid is invalid, two have the same name, a grid's measure is nothing its trials record, or trials
            that have not been tried, or are tried again, would fail on what they read. Also if the campaign's plan of a
            grid has finished trials that the grid does not have, unless `request.replace`.
        EnvironmentProblem: the campaign cannot be written, or workers cannot be started.
    """
    request = replace(request or RunRequest(), root=Path(root))
    opening = Preflight(Layout(request.root), retry=request.retry)
    chosen = request.only is not None  # from what has been tried
    prepared = PreparedRun(request, grids, opening.add_cell, (lambda: None) if chosen else opening.require)
    worklist = prepared.publish().narrow_to(request.only, request.seeds)
    return _ActiveRun(prepared.layout, worklist, machine or Inline(), prepared.request).result()


TOLD_FAILURES: Final = 3
"""Number of failures of one kind that a run tells."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOPPING = "stopping at the next step; running trials save their state. Press Ctrl-C again to end at once"


@final
class Interrupts:
    """Sets `requested` and calls `notify` on the first signal; raises KeyboardInterrupt on the second.

    Does nothing outside the main thread. A signal that the process ignores stays ignored.
    """

    def __init__(self, notify: Callable[[], None]) -> None:
        self.requested = False
        self._notify = notify
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for name in _SIGNALS:
                if signal.getsignal(name) is not signal.SIG_IGN:
                    self._before[name] = signal.signal(name, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._notify()


@final
class _ActiveRun:
    """One submission; the overseer of its machine."""

    def __init__(self, layout: Layout, worklist: Worklist, machine: Machine, request: RunRequest) -> None:
        self._layout, self._worklist = layout, worklist
        self._machine, self._request = machine, request
        self._to_do = worklist.to_do
        self._tally = begin_tally(worklist, worklist.to_do)
        self._progress = ProgressDisplay(self._tally, shown=request.progress and bool(self._to_do))
        self._interrupts = Interrupts(lambda: self.note(_STOPPING))
        self._leases = Leases()
        self._outcomes: dict[int, Outcome] = {}
        self._held: list[int] = []
        self._failures: Counter[str] = Counter()
        self._workers = 0

    def result(self) -> RunResult:
        submission = None
        if self._to_do:
            submission = submission_id()
            write_submission(self._layout, submission, self._worklist.lines(self._to_do))
        every_s, problems = self._request.land_every_s, tuple[str, ...]()
        with ExitStack() as stack:
            stack.enter_context(lossy_output())
            stack.enter_context(self._interrupts)
            stack.enter_context(suppress(KeyboardInterrupt))
            ingesting = None
            if every_s is not None:
                ingesting = stack.enter_context(BackgroundIngest(self._layout.root, every_s, self.note))
            if submission is not None:
                with self._progress:
                    self._work(submission)
            if ingesting is not None:
                ingesting.once(wait=True)
                problems = tuple(ingesting.problems)
        return self._count(submission, problems)

    def _work(self, submission: str) -> None:
        job = replace(self._request, submission=submission)
        record = record_run(self._layout, job, self._machine.name)
        rows: Sequence[int] = range(len(self._to_do))
        try:
            while rows and not self.stop_requested():
                self._machine.run(job, Queue(rows), self)
                rows = self._wait_for_others()
        finally:
            with suppress(EnvironmentProblem):  # the end of this process shows it too
                write_submission_record(self._layout, replace(record, ended=time.time()))

    def _wait_for_others(self) -> list[int]:
        """Wait for rows of other runs; return those that they gave up."""
        if self._held and not self.stop_requested():
            self.note(f"waiting for {format_count(len(self._held), 'trial')} that another run is working on")
        while self._held and not self.stop_requested():
            free = list(self._given_up())
            if free:
                return free
            time.sleep(_LOOK_EVERY_S)
        return []

    def _given_up(self) -> Iterator[int]:
        held, self._held = self._held, []
        for row in held:
            trial = self._to_do[row]
            try:
                state = trial_state(self._layout, trial.key, self._leases.alive)
            except EnvironmentProblem as error:
                self.row_ended(Outcome(row, State.FAILED, None, unrecorded_failure(error)))
                continue
            fields = {"sources": self._worklist.cells.sources[trial.grid, trial.cell]}
            taken = find_taken(state, fields, retry=False, again=trial.other_code)
            if taken is None:
                yield row
            elif taken.state == State.RUNNING:
                self._held.append(row)
            else:
                self.row_ended(Outcome(row, taken.state))

    def _count(self, submission: str | None, problems: tuple[str, ...]) -> RunResult:
        states = [outcome.state for outcome in self._outcomes.values()]
        done, failed = states.count(State.DONE), states.count(State.FAILED)
        stopped = len(self._to_do) - done - failed
        return RunResult(
            done=done,
            failed=failed,
            stopped=stopped,
            **count_skipped(self._worklist),
            interrupted=self._interrupts.requested and stopped > 0,
            submission=submission,
            problems=problems,
        )

    # Callbacks of the machine:

    def stop_requested(self) -> bool:
        self._progress.tick()
        return self._interrupts.requested

    def worker_number(self) -> int:
        self._workers += 1
        return self._workers - 1

    def row_started(self, row: int, attempt: int, step: int) -> None:
        del attempt
        self._tally.begin(row, step)

    def row_stepped(self, row: int, step: int, steps: int | None, loss: float) -> None:
        self._tally.advance(row, step, steps, loss)

    def row_works(self, row: int, next_s: float) -> None:
        del row, next_s

    def row_ended(self, outcome: Outcome) -> None:
        self._tally.came_back(outcome)
        if outcome.state == State.RUNNING:
            self._held.append(outcome.row)
            return
        self._outcomes[outcome.row] = outcome
        trial, failure = self._to_do[outcome.row], outcome.failure
        name = f"{trial.label}, seed {trial.seed} ({trial.key[:8]})"
        if failure is not None:
            self._note_failure(name, failure)
        for note in notes_of(outcome):
            self.note(f"{name}: {note}")

    def _note_failure(self, name: str, failure: Failure) -> None:
        """Tell a failure; of one kind only the first few."""
        self._failures[failure.fingerprint] += 1
        told = self._failures[failure.fingerprint]
        if told <= TOLD_FAILURES:
            at = place_of(failure)
            more = (
                "" if told < TOLD_FAILURES else "; more of this kind are counted, `ablate status --failures` has them"
            )
            self.note(f"{name} failed: {failure.reason}: {failure.message}{f' ({at})' if at else ''}{more}")

    def note(self, text: str) -> None:
        self._progress.note(text)


def begin_tally(worklist: Worklist, wanted: Sequence[GridTrial]) -> Tally:
    """Create the tally of a run of `wanted`; other trials that have ended are counted."""
    members = [GridMember((trial.grid, trial.label), trial.seed) for trial in wanted]
    begun = Tally(Counter((trial.grid, trial.label) for trial in worklist.trials), members)
    keys = {trial.key for trial in wanted}
    for trial in worklist.trials:
        if trial.key not in keys and trial.state in ENDED:
            (begun.done if trial.state == State.DONE else begun.failed)[trial.grid, trial.label] += 1
    return begun


def count_skipped(worklist: Worklist) -> dict[str, Any]:
    """Count the trials that a run leaves alone, by the fields of `RunResult`."""
    left = [trial for trial in worklist.trials if not worklist.wants(trial)]
    return {
        "skipped": sum(trial.state == State.DONE for trial in left),
        "skipped_failed": sum(trial.state == State.FAILED for trial in left),
        "skipped_other_code": sum(trial.other_code for trial in left),
    }
