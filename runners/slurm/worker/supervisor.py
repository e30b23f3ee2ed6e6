"""The process of a worker task: checks the node, drives warm worker processes over its rows, says why it leaves."""

import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import final

from grid.errors import EnvironmentProblem, NotFoundError, SpecError
from runners.attempts.disk_space import disk_problem
from runners.attempts.worker import NodeUnsuitable, Outcome
from runners.execution import Local
from runners.execution.fork_client import CannotStart, ServerDied
from runners.output import counted
from runners.slurm.cancellations import Cancellations
from runners.slurm.worker.assignment import Arguments, Assignment
from runners.slurm.worker.completed_rows import CompletedRows
from runners.slurm.worker.node_health import NodeHealth, only_node
from runners.slurm.worker.packing import slots
from runners.slurm.worker.row_state import RowStates
from runners.slurm.worker.rows import NodeRows
from runners.slurm.worker.signals import SignalState
from runners.slurm.worker.task_environment import Deadline, here, seconds_left
from runners.slurm.worker.time_budget import TimeBudget
from runners.slurm.worker.worker_record import WorkerRecordFile
from runners.slurm.worker_records import BudgetTracker, Left, read_workers
from store.files.atomic import environment_problem, read_json, set_retry_timeout

DONE, UNEXPECTED, AGAIN, SOME_FAILED, REFUSED, LATE, FULL = 0, 1, 85, 86, 87, 88, 89
"""Exit statuses; the batch script acts on them."""

_LOOK_EVERY_S = 0.2
_MOST_SERVERS = 3
"""Fork servers that may die in a life of the task."""
_MOST_PROBED = 50
_MOST_FORKS = 1000
_PATIENCE_S = 300.0
"""For a file system that is away; no longer once a signal was heard."""


class _OutOfTime(Exception):
    """Workers that do not leave cannot be waited for any longer."""


def supervise(task: Arguments, heard: SignalState) -> int:
    """Work until nothing is left or the time is over; the exit status of the task.

    A place that cannot be worked in is told in a sentence, what nobody foresaw with its traceback; both are in the
    worker's record if there is one.
    """
    diary: WorkerRecordFile | None = None
    try:
        assignment = Assignment(task, here())
        diary = WorkerRecordFile(assignment)
        return _Supervisor(assignment, diary, heard).run()
    except (EnvironmentProblem, NotFoundError, OSError) as error:
        problem = environment_problem("work in", Path(task.root), error) if isinstance(error, OSError) else error
        full = disk_problem(Path(task.root), error)
        if diary is None:
            sys.stderr.write(f"{full or problem}\n")
        else:
            diary.close("full" if full else "error", full or str(problem))
        return FULL if full else UNEXPECTED
    except Exception as error:  # noqa: BLE001  # the batch script sees the exit status, a person the traceback
        traceback.print_exc()
        if diary is not None:
            diary.close("error", f"{type(error).__name__}: {error}")
        return UNEXPECTED


@final
class _Supervisor:
    """The overseer of this node's workers."""

    def __init__(self, assignment: Assignment, diary: WorkerRecordFile, heard: SignalState) -> None:
        self._assignment = assignment
        self._diary = diary
        self._heard = heard
        self._job = assignment.job
        self._layout = assignment.layout
        self._outlook = RowStates(self._job, assignment.place.node)
        self._cancellations = Cancellations(self._layout, self._job.submission)
        left_s = seconds_left(assignment.limit_s)
        self._pace = TimeBudget(Deadline(left_s), assignment.limit_s, assignment.slurm.signal_s)
        budget = assignment.record.budget
        self._purse = budget and BudgetTracker(
            self._layout, self._job.submission, float(budget["hours"]), budget["unit"]
        )
        submission, wanted = self._job.submission, assignment.wanted
        name = f"{assignment.task.resource_class}-{assignment.worker}"
        self._seen = CompletedRows(self._layout, submission, name, wanted.rows)
        self._rows = NodeRows(self._outlook, assignment.share, self._willing, self._seen)
        alone = partial(only_node, assignment.resources.partition)
        self._doubts = NodeHealth(diary.record, lambda: read_workers(self._layout, submission), alone)
        self._doubt: str | None = None
        self._idle = True
        self._ready = False
        self._in_time = False
        self._began: dict[int, tuple[int, float]] = {}
        self._forks = 0
        self._packing = assignment.packing(self._outlook.line(wanted.rows[0])["spec"], self.note)
        self._auto = assignment.per_gpu is None
        self._machine = self._local(slots(assignment.groups, assignment.per_gpu or 1))

    def run(self) -> int:
        """Work, and say why it is over."""
        set_retry_timeout(_PATIENCE_S, self.note, lambda: self._heard.first is not None)
        self._diary.keep()
        late = None
        try:
            refused = self._differences() or self._work()
        except _OutOfTime as error:
            refused, late = None, str(error)
        self._seen.publish()
        if refused is not None:
            full = disk_problem(self._layout.root)
            return self._leave("full", full, FULL) if full else self._leave("refused", refused, REFUSED)
        left = self._why()
        if left == "time" and self._idle and not self._in_time and not self._pace.enough():
            return self._leave("late", self._too_late(), LATE)
        self._diary.close(left, late)
        if left in ("time", "signal"):
            return AGAIN
        return SOME_FAILED if self._diary.record.failed and left != "cancelled" else DONE

    def _leave(self, left: Left, says: str, status: int) -> int:
        sys.stderr.write(f"{says}\n")
        self._diary.close(left, says)
        return status

    def _too_late(self) -> str:
        """A life that could begin nothing is no reason for another, which would be the same."""
        task = self._assignment
        return (
            f"{max(0.0, self._pace.left_s):.0f} s of {task.limit_s:.0f} s were left when work could begin, of which "
            f"{task.slurm.signal_s:.0f} s are to save in, so nothing was begun; ask for more --time, or see whether "
            f"the clock of {task.place.node} is right"
        )

    def _local(self, devices: list[str | None]) -> Local:
        if self._auto:
            known = self._outlook.memory_bytes(self._assignment.share.own[:_MOST_PROBED], gpu=devices[0] is not None)
            devices = devices + self._packing.grows(known)
        self._diary.has_slots(len(devices))
        return Local(len(devices), devices=devices)

    def _differences(self) -> str | None:
        """Why this node's environment must not train these trials; what else differs is told."""
        from runners.provenance.environment import differences, record, torch_without_cuda

        if self._assignment.resources.gpus and torch_without_cuda():
            self.note("torch is a build for the CPU, so nothing is trained on the GPUs that were asked for")
        recorded = self._assignment.record.environment
        if recorded is None:
            return None
        found = differences(recorded, record())
        for remark in found.remarks:
            self.note(remark)
        return "; ".join(found.forbidding) or None

    def _work(self) -> str | None:
        """Train rows while there are any to begin; a sentence where this node cannot train any."""
        servers = 0
        while self._something_to_begin():
            self._ready = True
            try:
                self._machine.run(self._job, self._rows, self)
            except (SpecError, CannotStart, NodeUnsuitable) as error:
                return str(error)
            except ServerDied as error:
                servers += 1
                if servers >= _MOST_SERVERS:
                    raise
                self.note(str(error))
                self._rows.reclaim()
            finally:
                self._ready = False
        return self._doubt if self._rows.unfinished else None

    def _something_to_begin(self) -> bool:
        """Whether there is a row to begin; waits while that is not known. Nothing heavy is started for nothing."""
        while not self.stop_requested():
            row = self._rows.take()
            if row is not None:
                self._rows.give_back(row)
                return True
            if self._rows.left() == 0:
                return False
            self._in_time = self._in_time or self._willing()
            time.sleep(_LOOK_EVERY_S)
        return False

    def _willing(self) -> bool:
        """Whether another row may be begun; a machine that is loaded asks, and so does who waits for rows of others."""
        willing = not (self._stopping or (self._purse and self._purse.empty())) and self._pace.enough()
        self._in_time = self._in_time or (willing and self._ready)
        return willing

    @property
    def _stopping(self) -> bool:
        return self._heard.first is not None or self._cancellations.found.all or self._doubt is not None

    def _why(self) -> Left:
        if self._cancellations.found.all:
            return "cancelled"
        if not self._rows.unfinished:
            return "done"
        if self._heard.first is not None:
            return "time" if self._heard.first.name == "SIGUSR2" else "signal"
        return "budget" if self._purse and self._purse.empty() else "time"

    def _name(self, row: int) -> str:
        line = self._outlook.line(row)
        return f"{line['trial'][:8]}  {line['label']}  seed {line['seed']}"

    # What the machine tells, and asks:

    def stop_requested(self) -> bool:
        """Whether the time is over or all was called off; asked several times a second."""
        if self._heard.overdue(self._assignment.slurm.signal_s):
            raise _OutOfTime(
                f"{counted(len(self._rows.out), 'trial')} did not save in time; "
                "the next worker goes on from what was saved before"
            )
        self._diary.keep()
        self._seen.keep()
        if self._cancellations.changed():
            off = self._cancellations.found.trials
            self._rows.drop(off)
            self._machine.recall({row for row in self._rows.out if self._outlook.key(row) in off})
        return self._stopping

    def worker_number(self) -> int:
        """A number of its own among all processes that ever write for the submission."""
        if self._forks >= _MOST_FORKS:
            raise EnvironmentProblem(f"{_MOST_FORKS} worker processes died or left on this node; look into its log")
        task = self._assignment.task.resource_class * 100_000 + self._assignment.worker
        self._forks += 1
        return task * 1_000_000 + self._assignment.place.restarts * 1_000 + self._forks - 1

    def started(self, row: int, worker: int, attempt: int, step: int) -> None:
        """A worker process claimed a row."""
        del worker
        self._idle = False
        self._began[row] = attempt, time.monotonic()
        self._diary.tell(f"{self._name(row)}  attempt {attempt}  begins" + (f" at step {step}" if step else ""))

    def stepped(self, row: int, step: int, steps: int, loss: float) -> None:
        """Its heartbeat says so too."""

    def ended(self, outcome: Outcome) -> None:
        """A row came back."""
        self._rows.came_back(outcome)
        self._diary.count(outcome)
        self._doubt = self._doubt or self._doubts.came_back(outcome)
        _, began = self._began.pop(outcome.row, (0, time.monotonic()))
        seconds = time.monotonic() - began
        attempt = "" if outcome.attempt is None else f"  attempt {outcome.attempt}"
        after = f" after {seconds:.1f} s" if outcome.attempt is not None else ""
        why = f": {outcome.failure.reason}: {outcome.failure.message}" if outcome.failure else ""
        self._diary.tell(f"{self._name(outcome.row)}{attempt}  {outcome.status}{after}{why}")
        if outcome.status == "ok" and outcome.attempt is not None:
            self._pace.took(seconds)
            self._pack(outcome.row, outcome.attempt)

    def note(self, text: str) -> None:
        """Something a person should know."""
        self._diary.tell(text)

    def _pack(self, row: int, attempt: int) -> None:
        if not self._auto:
            return
        more = self._packing.grows(read_json(self._layout.end(self._outlook.key(row), attempt)).get("memory_bytes"))
        if more:
            self._machine.grow(more)
            self._diary.has_slots(self._machine.workers)
            self.note(f"{counted(self._machine.workers, 'trial')} side by side from now on")
