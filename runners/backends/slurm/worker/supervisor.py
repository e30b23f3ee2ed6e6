"""The process of a worker task: checks the node, runs worker processes over its rows, records why it leaves."""

import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import final

from ablate.grid.errors import EnvironmentProblem, NotFoundError, SpecError
from ablate.runners.attempts.disk_space import disk_problem
from ablate.runners.attempts.worker import NodeUnsuitable, Outcome
from ablate.runners.attempts.worker_logs import logs
from ablate.runners.attempts.worker_records import BudgetTracker, Cancellations, Left, read_workers
from ablate.runners.backends.slurm.worker.assignment import Arguments, Assignment
from ablate.runners.backends.slurm.worker.done_rows import DoneRows
from ablate.runners.backends.slurm.worker.exit_codes import ExitCode
from ablate.runners.backends.slurm.worker.node_health import NodeHealth, only_node
from ablate.runners.backends.slurm.worker.record_file import WorkerRecordFile
from ablate.runners.backends.slurm.worker.row_state import RowStates
from ablate.runners.backends.slurm.worker.rows import NodeRows, RowShare
from ablate.runners.backends.slurm.worker.signals import SignalState
from ablate.runners.backends.slurm.worker.task_environment import TimeBudget, here, seconds_left
from ablate.runners.execution import Local, Overseer
from ablate.runners.execution.fork_client import CannotStart, ServerDied
from ablate.runners.execution.machine import notes_of
from ablate.runners.output import format_count
from ablate.store.files.atomic import environment_problem, set_retry_timeout
from ablate.store.state import State

_LOOK_EVERY_S = 0.2
_MOST_SERVERS = 3
_MOST_FORKS = 1000
_PATIENCE_S = 300.0
"""Time to wait for a file system that does not answer, until a signal comes."""

_MOST_DELAY_S = 60.0
"""Longest wait for a file of the submission, since a network file system may show it late."""


class _OutOfTime(Exception):
    """Workers did not save before the end."""


def supervise(task: Arguments, signals: SignalState) -> ExitCode:
    """Work until nothing is left or the time is over; return the exit code.

    Errors are in the worker's record if there is one; unexpected errors print their traceback.
    """
    record_file: WorkerRecordFile | None = None
    try:
        assignment = _wait_for_assignment(task, signals)
        record_file = WorkerRecordFile(assignment)
        return _Supervisor(assignment, record_file, signals).run()
    except (EnvironmentProblem, NotFoundError, OSError) as error:
        problem = environment_problem("work in", Path(task.root), error) if isinstance(error, OSError) else error
        full = disk_problem(Path(task.root), error)
        if record_file is None:
            sys.stderr.write(f"{full or problem}\n")
        else:
            record_file.close("full" if full else "error", full or str(problem))
        return ExitCode.FULL if full else ExitCode.UNEXPECTED
    except Exception as error:  # noqa: BLE001  # worker.sh needs the exit code, a person the traceback
        traceback.print_exc()
        if record_file is not None:
            record_file.close("error", f"{type(error).__name__}: {error}")
        return ExitCode.UNEXPECTED


def _wait_for_assignment(task: Arguments, signals: SignalState) -> Assignment:
    until = time.monotonic() + _MOST_DELAY_S
    while True:
        try:
            return Assignment(task, here())
        except NotFoundError as error:
            if time.monotonic() > until or signals.first is not None:
                raise
            sys.stderr.write(f"{error}; waiting up to {_MOST_DELAY_S:.0f} s, since it may appear late\n")
            time.sleep(_MOST_DELAY_S / 20)


@final
class _Supervisor(Overseer):
    """Supervises the worker processes of this task; the overseer of its machine."""

    def __init__(self, assignment: Assignment, record_file: WorkerRecordFile, signals: SignalState) -> None:
        self._assignment, self._record_file, self._signals = assignment, record_file, signals
        self._job = assignment.job
        self._layout = assignment.layout
        self._states = RowStates(self._job, assignment.place.node)
        submission, wanted = self._job.submission, assignment.wanted
        self._cancellations = Cancellations(self._layout, submission)
        left_s = seconds_left(assignment.limit_s)
        self._time = TimeBudget(left_s, assignment.limit_s, assignment.slurm.signal_s)
        budget = assignment.record.budget
        self._budget = budget and BudgetTracker(self._layout, submission, float(budget["hours"]), budget["unit"])
        share = RowShare(wanted.rows, assignment.worker, wanted.workers)
        self._rows = NodeRows(self._states, share, self._may_begin, DoneRows(self._layout, submission))
        is_only_node = partial(only_node, assignment.resources.partition)
        self._health = NodeHealth(record_file.record, lambda: read_workers(self._layout, submission), is_only_node)
        self._node_problem: str | None = None
        self._has_begun = False
        """True once a row was begun in this life."""
        self._workers_run = False
        self._had_time = False
        """True once there was time to begin a row, with its workers started."""
        self._began: dict[int, float] = {}
        self._forks = 0
        self._replaced = 0
        """Processes that left because a trial had changed them."""
        self._machine = Local(devices=assignment.devices)

    def run(self) -> ExitCode:
        set_retry_timeout(_PATIENCE_S, self.note, lambda: self._signals.first is not None)
        self._record_file.keep()
        self._record_memory_deaths()
        unsaved = None
        try:
            refused = self._check_environment() or self._work()
        except _OutOfTime as error:
            refused, unsaved = None, str(error)
        if refused is not None and (full := disk_problem(self._layout.root)):
            return self._leave("full", full, ExitCode.FULL)
        if refused is not None:
            return self._leave("refused", refused, ExitCode.REFUSED)
        left = self._reason()
        had_time = self._has_begun or self._had_time or self._time.is_enough()  # else the next life has no more
        if left == "time" and not had_time:
            task, left_s = self._assignment, max(0.0, self._time.left_s)
            says = (
                f"{left_s:.0f} s of {task.limit_s:.0f} s were left when work could begin, of which "
                f"{task.slurm.signal_s:.0f} s are to save in, so nothing was begun; ask for more --time, or see "
                f"whether the clock of {task.place.node} is right"
            )
            return self._leave("late", says, ExitCode.LATE)
        self._record_file.close(left, unsaved)
        if left in ("time", "signal"):
            return ExitCode.AGAIN
        return ExitCode.SOME_FAILED if self._record_file.record.failed and left != "cancelled" else ExitCode.DONE

    def _record_memory_deaths(self) -> None:
        """If SLURM killed the last life for lack of memory, record this for its trials; `job.oom` then decides."""
        file = logs(self._layout, self._job.submission) / f"{self._assignment.place.job}.memory"
        if not file.exists():
            return
        place = self._assignment.place.record
        for trial in self._states.record_out_of_memory(range(*self._assignment.wanted.rows), place):
            self.note(f"{trial[:8]}  ran out of memory: SLURM killed the worker, since the job's memory was used up")
            file.with_suffix(".deaths").unlink(missing_ok=True)  # a death with a known reason
        file.unlink()

    def _leave(self, left: Left, says: str, status: ExitCode) -> ExitCode:
        sys.stderr.write(f"{says}\n")
        self._record_file.close(left, says)
        return status

    def _check_environment(self) -> str | None:
        """Return why this node's environment must not train these trials; note other differences."""
        from ablate.runners.provenance.environment import differences, record, torch_without_cuda

        if self._assignment.resources.gpus and torch_without_cuda():
            self.note("torch is a build for the CPU, so nothing is trained on the GPUs that were asked for")
        recorded = self._assignment.record.environment
        if recorded is None:
            return None
        different = differences(recorded, record())
        for remark in different.remarks:
            self.note(remark)
        return "; ".join(different.forbidding) or None

    def _work(self) -> str | None:
        """Train rows while there are any; return why this node cannot train them."""
        servers = 0
        while self._wait_for_row():
            self._workers_run = True
            try:
                self._machine.run(self._job, self._rows, self)
            except (SpecError, NotFoundError, CannotStart, NodeUnsuitable) as error:
                return str(error)
            except ServerDied as error:
                servers += 1
                if servers >= _MOST_SERVERS:
                    raise
                self.note(str(error))
                self._rows.reclaim()
            finally:
                self._workers_run = False
        return self._node_problem if self._rows.unfinished else None

    def _wait_for_row(self) -> bool:
        """Wait until a row may begin; return False if none is left. So no worker process starts for nothing."""
        while not self.stop_requested():
            row = self._rows.take()
            if row is not None:
                self._rows.give_back(row)
                return True
            if self._rows.rows_left() == 0:
                return False
            self._had_time = self._had_time or self._may_begin()
            time.sleep(_LOOK_EVERY_S)
        return False

    def _may_begin(self) -> bool:
        over_budget = self._budget and self._budget.empty()
        may_begin = not (self._stopping or over_budget) and self._time.is_enough()
        self._had_time = self._had_time or (may_begin and self._workers_run)
        return may_begin

    @property
    def _stopping(self) -> bool:
        return self._signals.first is not None or self._cancellations.current.all or self._node_problem is not None

    def _reason(self) -> Left:
        if self._cancellations.current.all:
            return "cancelled"
        if not self._rows.unfinished:
            return "done"
        if self._signals.first is not None:
            return "time" if self._signals.first.name == "SIGUSR2" else "signal"
        return "budget" if self._budget and self._budget.empty() else "time"

    def _name(self, row: int) -> str:
        line = self._states.line(row)
        return f"{line['trial'][:8]}  {line['label']}  seed {line['seed']}"

    # The methods of an overseer:

    def stop_requested(self) -> bool:
        """Return True if the task has to stop; called several times a second."""
        if self._signals.is_overdue(self._assignment.slurm.signal_s):
            raise _OutOfTime(
                f"{format_count(len(self._rows.out), 'trial')} did not save in time; "
                "the next worker goes on from what was saved before"
            )
        self._record_file.keep()
        if self._cancellations.read_again():
            trials = self._cancellations.current.trials
            self._rows.drop(trials)
            self._machine.recall({row for row in self._rows.out if self._states.key(row) in trials})
        return self._stopping

    def worker_number(self) -> int:
        if self._forks - self._replaced >= _MOST_FORKS:
            raise EnvironmentProblem(f"{_MOST_FORKS} worker processes died or left on this node; look into its log")
        task = self._assignment.task.resource_class * 100_000 + self._assignment.worker
        thousands, fork = divmod(self._forks, 1_000)
        self._forks += 1
        return thousands * 10**15 + task * 1_000_000 + self._assignment.place.restarts * 1_000 + fork

    def row_started(self, row: int, attempt: int, step: int) -> None:
        self._has_begun = True
        self._began[row] = time.monotonic()
        self.note(f"{self._name(row)}  attempt {attempt}  begins" + (f" at step {step}" if step else ""))

    def row_ended(self, outcome: Outcome) -> None:
        self._rows.came_back(outcome)
        self._record_file.count(outcome)
        self._node_problem = self._node_problem or self._health.came_back(outcome)
        now = time.monotonic()
        seconds = now - self._began.pop(outcome.row, now)
        attempt = "" if outcome.attempt is None else f"  attempt {outcome.attempt}"
        after = f" after {seconds:.1f} s" if outcome.attempt is not None else ""
        why = f": {outcome.failure.reason}: {outcome.failure.message}" if outcome.failure else ""
        self.note(f"{self._name(outcome.row)}{attempt}  {outcome.state}{after}{why}")
        for note in notes_of(outcome):
            self.note(f"{self._name(outcome.row)}  {note}")
        self._replaced += bool(outcome.changes)
        if outcome.state == State.DONE and outcome.attempt is not None:
            self._time.add(seconds)

    def note(self, text: str) -> None:
        self._record_file.log(text)
