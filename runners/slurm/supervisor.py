"""The process of a worker task: checks the node, drives warm worker processes over its rows, says why it leaves."""

import sys
import time
import traceback
from typing import final

from grid.errors import EnvironmentProblem, SpecError
from runners.machines import Local
from runners.machines.forks import CannotStart, ServerDied
from runners.slurm.assignment import Arguments, Assignment
from runners.slurm.cancelled import Cancellations
from runners.slurm.diary import Diary
from runners.slurm.outlook import Outlook
from runners.slurm.pace import Pace
from runners.slurm.packing import slots
from runners.slurm.place import Deadline, here, seconds_left
from runners.slurm.rows import NodeRows
from runners.slurm.signals import Heard
from runners.slurm.workers import Left, Purse
from runners.worker import Outcome
from store.files import read_json

DONE, UNEXPECTED, AGAIN, SOME_FAILED, REFUSED = 0, 1, 85, 86, 87
"""Exit statuses; the batch script acts on them."""

_LOOK_EVERY_S = 0.2
_MOST_SERVERS = 3
"""Fork servers that may die in a life of the task."""
_MOST_PROBED = 50
_MOST_FORKS = 1000


def supervise(task: Arguments, heard: Heard) -> int:
    """Work until nothing is left or the time is over; the exit status of the task.

    A place that cannot be worked in is told in a sentence, what nobody foresaw with its traceback; both are in the
    worker's record if there is one.
    """
    diary: Diary | None = None
    try:
        assignment = Assignment(task, here())
        diary = Diary(assignment)
        return _Supervisor(assignment, diary, heard).run()
    except EnvironmentProblem as error:
        if diary is None:
            sys.stderr.write(f"{error}\n")
        else:
            diary.close("error", str(error))
        return UNEXPECTED
    except Exception as error:  # noqa: BLE001  # the batch script sees the exit status, a person the traceback
        traceback.print_exc()
        if diary is not None:
            diary.close("error", f"{type(error).__name__}: {error}")
        return UNEXPECTED


@final
class _Supervisor:
    """The overseer of this node's workers."""

    def __init__(self, assignment: Assignment, diary: Diary, heard: Heard) -> None:
        self._assignment = assignment
        self._diary = diary
        self._heard = heard
        self._job = assignment.job
        self._layout = assignment.layout
        self._outlook = Outlook(self._job, assignment.place.node)
        self._cancellations = Cancellations(self._layout, self._job.submission)
        left_s = seconds_left(assignment.limit_s)
        self._pace = Pace(Deadline(left_s), assignment.limit_s, assignment.slurm.signal_s)
        budget = assignment.record.budget
        self._purse = budget and Purse(self._layout, self._job.submission, float(budget["hours"]), budget["unit"])
        self._rows = NodeRows(self._outlook, assignment.share, self._willing)
        self._began: dict[int, tuple[int, float]] = {}
        self._forks = 0
        self._packing = assignment.packing(self._outlook.line(assignment.wanted.rows[0])["spec"], self.note)
        self._auto = assignment.per_gpu is None
        self._machine = self._local(slots(assignment.groups, assignment.per_gpu or 1))

    def run(self) -> int:
        """Work, and say why it is over."""
        self._diary.keep()
        refused = self._differences()
        if refused is None:
            refused = self._work()
        if refused is not None:
            sys.stderr.write(f"{refused}\n")
            self._diary.close("refused", refused)
            return REFUSED
        left = self._why()
        self._diary.close(left)
        if left in ("time", "signal"):
            return AGAIN
        return SOME_FAILED if self._diary.record.failed and left != "cancelled" else DONE

    def _local(self, devices: list[str | None]) -> Local:
        if self._auto:
            known = self._outlook.memory_bytes(self._assignment.share.own[:_MOST_PROBED], gpu=devices[0] is not None)
            devices = devices + self._packing.grows(known)
        self._diary.has_slots(len(devices))
        return Local(len(devices), devices=devices)

    def _differences(self) -> str | None:
        """Why this node's environment must not train these trials; what else differs is told."""
        recorded = self._assignment.record.environment
        if recorded is None:
            return None
        from runners.environment import differences, record

        found = differences(recorded, record())
        for remark in found.remarks:
            self.note(remark)
        return "; ".join(found.forbidding) or None

    def _work(self) -> str | None:
        """Train rows while there are any to begin; a sentence where this node cannot train any."""
        servers = 0
        while self._something_to_begin():
            try:
                self._machine.run(self._job, self._rows, self)
            except (SpecError, CannotStart) as error:
                return str(error)
            except ServerDied as error:
                servers += 1
                if servers >= _MOST_SERVERS:
                    raise
                self.note(str(error))
                self._rows.reclaim()
        return None

    def _something_to_begin(self) -> bool:
        """Whether there is a row to begin; waits while that is not known. Nothing heavy is started for nothing."""
        while not self.stop_requested():
            row = self._rows.take()
            if row is not None:
                self._rows.give_back(row)
                return True
            if self._rows.left() == 0:
                return False
            time.sleep(_LOOK_EVERY_S)
        return False

    def _willing(self) -> bool:
        """Whether another row may be begun."""
        return not (self._stopping or (self._purse and self._purse.empty())) and self._pace.enough()

    @property
    def _stopping(self) -> bool:
        return self._heard.first is not None or self._cancellations.found.all

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
        self._diary.keep()
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
        self._began[row] = attempt, time.monotonic()
        self._diary.tell(f"{self._name(row)}  attempt {attempt}  begins" + (f" at step {step}" if step else ""))

    def stepped(self, row: int, step: int, steps: int, loss: float) -> None:
        """Its heartbeat says so too."""

    def ended(self, outcome: Outcome) -> None:
        """A row came back."""
        self._rows.came_back(outcome)
        self._diary.count(outcome)
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
            self.note(f"{self._machine.workers} trials side by side from now on")
