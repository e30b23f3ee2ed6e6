"""Counts worker deaths and fails a trial after several deaths without progress."""

import socket
from typing import final

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.claims import Taken, by_code, claim, record_death
from ablate.runners.attempts.manifest import Manifest
from ablate.runners.attempts.micro_batches import written_micro_batches
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import Outcome
from ablate.runners.checkpoint import checkpointed_step
from ablate.runners.processes.failure import Failure, killed_failure, out_of_memory, stalled_failure
from ablate.runners.processes.memory import oom_kills
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import pid_space, trial_state
from ablate.store.state import ENDED, State

MOST_DEATHS = 3
"""A trial has failed when its process died so often under this pool without a newer checkpoint.

`claims.MOST_LOST` limits workers that were lost unseen.
"""


@final
class CrashCounter:
    """Counts worker deaths, at start and per trial."""

    def __init__(self, job: RunRequest) -> None:
        self._job = job
        self._layout = Layout(job.root)
        self._manifest = Manifest(self._layout, job.submission)
        self._at_start = 0
        self._at_work: dict[int, tuple[int, int]] = {}
        self._oom_kills = oom_kills()

    def at_start(self, how: str) -> None:
        """Count a worker that died before it was ready. Raises EnvironmentProblem after `MOST_DEATHS` in a row."""
        self._at_start += 1
        if self._at_start >= MOST_DEATHS:
            raise EnvironmentProblem(f"workers die as they start ({how}); `ablate check --machine` looks for causes")

    def worker_ready(self) -> None:
        """Reset the count of deaths at start."""
        self._at_start = 0

    def at_work(self, row: int, pid: int, how: str) -> Outcome | None:
        """Count the death of worker `pid` on `row`; return an outcome if the trial failed, None to try again.

        With `oom="halve"`, a worker killed for lack of memory makes the next attempt use more micro-batches.
        """
        line = self._manifest.line(row)
        trial = line["trial"]
        for_memory = how == "SIGKILL" and self._killed_for_memory()
        if for_memory and self._job.oom == "halve" and written_micro_batches(line["spec"]) is not None:
            number = self._left_behind(trial, pid)
            if number is not None:
                self._at_work.pop(row, None)
                record_death(self._layout, trial, number, self._step(trial), out_of_memory(1))
                return None
        step = self._step(trial)
        furthest, times = self._at_work.get(row, (step, 0))
        times = times + 1 if step <= furthest else 1
        self._at_work[row] = (step, times)
        if times < MOST_DEATHS:
            return None
        return self._fail(trial, row, pid, step, out_of_memory(times) if for_memory else killed_failure(times, how))

    def record_stall(self, row: int, pid: int, limit_s: float) -> Outcome:
        """Record that the trial of worker `pid` was ended since it stood still; return the outcome."""
        trial = self._manifest.line(row)["trial"]
        return self._fail(trial, row, pid, self._step(trial), stalled_failure(limit_s))

    def _fail(self, trial: str, row: int, pid: int, step: int, failure: Failure) -> Outcome:
        """Record `failure` in the attempt that worker `pid` left behind, or in a new one if it left none."""
        number = self._left_behind(trial, pid)
        if number is None and trial_state(self._layout, trial).state not in (State.DONE, State.RUNNING):
            fields = {"submission": self._job.submission, **dict.fromkeys(("worker", "path", "device", "threads"))}
            mine = claim(self._layout, trial, fields, retry=True)  # an attempt to record it in
            number = None if isinstance(mine, Taken) else mine.number
        if number is None:  # another process has it, or it has a result
            kept = ENDED if self._job.again else (State.FAILED,)  # the new attempt failed, the old result stays
            return Outcome(row, State.FAILED if trial_state(self._layout, trial).state in kept else State.RUNNING)
        record_death(self._layout, trial, number, step, failure)
        return Outcome(row, State.FAILED, number, failure)

    def _killed_for_memory(self) -> bool:
        """Return True if the system killed a process for lack of memory since the last call."""
        before, self._oom_kills = self._oom_kills, oom_kills()
        return before is not None and self._oom_kills is not None and self._oom_kills > before

    def out_of_memory(self) -> None:
        """Ignore kills so far: the worker survived, so they were ranks of a trial that ran out of memory."""
        self._oom_kills = oom_kills()

    def _step(self, trial: str) -> int:
        """Return the furthest checkpointed step of the code that runs now."""
        state = trial_state(self._layout, trial)
        sources = state.attempts[-1].start.get("sources") if state.attempts else None
        return checkpointed_step(self._layout, trial, by_code(state, sources))

    def _left_behind(self, trial: str, pid: int) -> int | None:
        """Find the attempt of the dead worker that has no end record."""
        state = trial_state(self._layout, trial)
        if state.state in (State.DONE, State.RUNNING):
            return None
        ours = {"pid": pid, "host": socket.gethostname(), "pid_space": pid_space()}
        for each in reversed(state.attempts):
            if each.end is None and all(each.start.get(name, said) == said for name, said in ours.items()):
                return each.attempt
        return None
