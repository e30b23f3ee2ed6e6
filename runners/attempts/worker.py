"""Workers: a warm process that trains trials of a submission, one after another.

Errors of training become records with a reason. Only a campaign that is not writable ends the worker.
"""

import contextlib
import gc
import os
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, final

from ablate.grid import Experiment
from ablate.grid.errors import EnvironmentProblem, NotFoundError, SpecError, StoreError
from ablate.grid.names import some
from ablate.runners.attempts.attempt import (
    Attempt,
    CampaignUnwritable,
    LeaseLost,
    Watch,
    is_of_one_trial,
    require_there,
)
from ablate.runners.attempts.callbacks import Callbacks, LoggedRun
from ablate.runners.attempts.claims import Claim, Taken, claim
from ablate.runners.attempts.experiments import experiment_class, train_experiment
from ablate.runners.attempts.leases import Leases
from ablate.runners.attempts.manifest import Manifest
from ablate.runners.attempts.micro_batches import micro_batches, split, written_micro_batches
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.checkpoint import discard_checkpoints, discard_forgotten, set_aside
from ablate.runners.child_lifetime import adopt_orphans, children, end_children
from ablate.runners.output import format_count
from ablate.runners.processes.failure import Failure, breaks_process, failure_of, unrecorded_failure
from ablate.runners.processes.memory import release_cached_memory, reset_peak_memory
from ablate.runners.processes.process_state import ProcessState
from ablate.runners.processes.training_context import NodeLost, TrainingResult, UnfitCheckpoint
from ablate.runners.provenance.code import Codes
from ablate.runners.provenance.specfile import import_spec_file
from ablate.store.files.atomic import read_json, retry_io
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.files.trial_state import trial_state
from ablate.store.state import State

_WAITS_S: Final = (5.0, 10.0, 15.0, 15.0, 15.0)
"""Waits for a file on a cluster, 60 s in all."""
_LOOK_EVERY_S: Final = 0.2


class CodeChanged(SpecError):
    """The code or the spec file changed since the run began; nothing was computed."""


class NodeUnsuitable(EnvironmentProblem):
    """This machine lacks something that a trial needs; the trial has not failed."""


class _FileMissing(EnvironmentProblem):
    """A file that a trial reads is not there, or not as it was; it may appear late."""


class Outcome(NamedTuple):
    """Outcome of one row: done, failed or stopped; or running, if another worker has it."""

    row: int
    state: State
    attempt: int | None = None
    failure: Failure | None = None
    spent: bool = False
    """True if the process that trained it can train nothing more."""
    changes: tuple[str, ...] = ()  # names of what it changed in the process
    notes: tuple[str, ...] = ()  # which checkpoints were not used, and why


class Listener(Protocol):
    """Callbacks of the process that runs a worker; a subclass ignores those that it does not define."""

    def stop_requested(self) -> bool:
        """Return True to stop at the next step boundary."""
        return False

    def row_started(self, row: int, attempt: int, step: int) -> None:
        """Report that the row was claimed and starts at `step`."""
        del row, attempt, step

    def row_stepped(self, row: int, step: int, steps: int | None, loss: float) -> None:
        """Report progress; called every step."""
        del row, step, steps, loss

    def row_works(self, row: int, next_s: float) -> None:
        """Report a sign of progress; the next one may take `next_s` seconds, if `Execution.stall` is shorter."""
        del row, next_s


@final
class Worker:
    """Trains rows of a submission's manifest; `number` is unique within the submission.

    Raises SpecError if a spec file cannot be loaded.
    """

    def __init__(self, job: RunRequest, number: int, listener: Listener, *, own_process: bool) -> None:
        self._job, self._number = job, number
        self._listener, self._own_process = listener, own_process
        self._layout = Layout(job.root)
        self._manifest = Manifest(self._layout, job.submission)
        self._buffer = ShardBuffer(self._layout, submission=job.submission, worker=number)
        self._leases = Leases(job.place)
        self._waits_s = [*_WAITS_S] if job.place else []
        if own_process:  # else this process has loaded them already, and classes must not be made twice
            for file in job.files:
                import_spec_file(file)
        self._codes = Codes(job.files)
        _ = [*map(import_module, job.preload)]  # settings of these modules are no change by a trial
        self._state = ProcessState()
        self._changes: list[str] | None = None
        self._notes: list[str] = []
        if own_process:
            adopt_orphans()
        self._children = children()

    def run(self, row: int) -> Outcome:
        """Train the trial of `row`, unless it is done or another process has it.

        If `RunRequest.oom` is "halve", a trial out of memory is retried with more micro-batches while its batch splits.
        The outcome is that of the last attempt. If CUDA has broken this process, the trial is "stopped" and another
        process continues it.

        A trial whose paths cannot be used has "failed", without a record; the next run tries again.

        Raises:
            CampaignUnwritable: a record could not be written, and the fault is not of this trial's paths alone.
            NodeUnsuitable: this machine lacks what the trial needs; the attempt was released.
        """
        self._notes.clear()
        try:
            return self._run(row)._replace(notes=tuple(self._notes))
        except CampaignUnwritable as error:
            if not is_of_one_trial(error, self._layout):
                raise
            return Outcome(row, State.FAILED, None, unrecorded_failure(error), notes=tuple(self._notes))

    def _run(self, row: int) -> Outcome:
        outcome = self._try_until_files_appear(row)
        while self._job.oom == "halve" and outcome.failure is not None and outcome.failure.reason == "out_of_memory":
            if outcome.spent:
                return self._leave_to_another(outcome)
            release_cached_memory()
            following = self._try(row)
            if following.state == State.FAILED and not following.failure:  # its batch cannot be split further
                break
            outcome = following
        return outcome

    def _try_until_files_appear(self, row: int) -> Outcome:
        """Try a row; a worker on a cluster waits once, for a minute, since a network file system shows files late."""
        while True:
            try:
                return self._try(row)
            except UnfitCheckpoint:
                continue  # from the checkpoint before
            except NodeUnsuitable as error:
                if not isinstance(error.__cause__, _FileMissing):
                    raise
            until = time.monotonic() + self._waits_s.pop(0)
            while time.monotonic() < until and not self._listener.stop_requested():
                time.sleep(_LOOK_EVERY_S)

    def _leave_to_another(self, outcome: Outcome) -> Outcome:
        line = self._manifest.line(outcome.row)
        ended = trial_state(self._layout, line["trial"], self._leases.alive).ended
        tried = None if ended is None else ended.start.get("accumulate")
        if written_micro_batches(self._cut(line)) in (None, tried):  # its batch cannot be split further
            return outcome
        return outcome._replace(state=State.STOPPED, failure=None)

    def _try(self, row: int) -> Outcome:
        require_there(self._layout.manifest(self._job.submission))
        try:
            line = self._manifest.line(row)
            spec = self._cut(line)
            trial = self._trial(line, spec)
            retry, again, fields = self._job.retry, self._job.again, self._start_fields(spec, trial)
            mine = claim(self._layout, line["trial"], fields, retry=retry, again=again, leases=self._leases)
        except EnvironmentProblem as error:
            raise CampaignUnwritable(str(error)) from error
        if isinstance(mine, Taken):
            moved = mine.state == State.FAILED and self._cut(line) != spec  # another process tried this split
            if mine.state == State.DONE:
                discard_forgotten(self._layout, line["trial"], trial_state(self._layout, line["trial"]))
            return self._try(row) if moved else Outcome(row, mine.state)
        self._notes += mine.remarks
        return self._attempt(row, line, mine, trial)

    def _cut(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return the spec of a line, with the micro-batches that earlier attempts require."""
        spec: dict[str, Any] = line["spec"]
        written = written_micro_batches(spec)
        if self._job.oom != "halve" or written is None:
            return spec
        count = micro_batches(trial_state(self._layout, line["trial"], self._leases.alive), written)
        smaller = split(spec, count)
        if count > written and isinstance(self._trial(line, smaller), Exception):
            return split(spec, count // 2)
        return smaller

    def _start_fields(self, spec: Mapping[str, Any], trial: Experiment | Exception) -> dict[str, Any]:
        execution = spec.get("execution") or {}
        return {
            "submission": self._job.submission,
            "worker": self._number,
            "path": execution.get("path"),
            "device": execution.get("device"),
            "threads": execution.get("threads"),
            "accumulate": written_micro_batches(spec),
            "deterministic": execution.get("deterministic"),
            "heartbeat_s": self._job.heartbeat_s,
            "checkpoint_s": _checkpoint_s(spec),
            "place": None if self._job.place is None else dict(self._job.place),
            "sources": self._sources(trial),
        }

    def _sources(self, trial: Experiment | Exception) -> dict[str, str] | None:
        if not isinstance(trial, Exception):
            with contextlib.suppress(SpecError):  # a file is gone, as training says
                return self._codes.sources(trial)
        return None

    def _attempt(self, row: int, line: dict[str, Any], mine: Claim, trial: Experiment | Exception) -> Outcome:
        listener, run = self._listener, None
        if self._job.callbacks and not isinstance(trial, Exception):
            run = LoggedRun(line["trial"], line["grid"], line["label"], line["seed"], mine.number, trial)
        watch = Watch(
            listener.stop_requested,
            lambda step, steps, loss: listener.row_stepped(row, step, steps, loss),
            Callbacks(self._job.files, run),
            lambda next_s: listener.row_works(row, next_s),
            self._compare,
        )
        attempt = Attempt(self._layout, mine, self._buffer, _checkpoint_s(line["spec"]), watch)
        listener.row_started(row, attempt.number, attempt.step)
        checkpoint = mine.checkpoint and mine.checkpoint._replace(state={})
        del mine  # frees the checkpoint once training has loaded it
        reset_peak_memory()
        self._changes = None
        with attempt, self._log_output(attempt):
            try:
                with self._state.isolate(line["seed"]):
                    outcome = self._outcome(row, line, attempt, trial)
            except UnfitCheckpoint as error:
                attempt.abandon(str(error))
                if checkpoint is None:
                    raise CampaignUnwritable(str(error)) from error
                set_aside(self._layout, line["trial"], checkpoint)
                self._notes.append(f"the checkpoint of step {checkpoint.step} was set aside: {error}")
                raise
            except LeaseLost as error:
                with contextlib.suppress(CampaignUnwritable, LeaseLost):  # the new owner detects it
                    attempt.abandon(str(error))
                outcome = Outcome(row, State.RUNNING, attempt.number)
            finally:
                if changes := self._compare():
                    self._state.restore()
        over = self._own_process and bool(changes) and outcome.state != State.STOPPED  # a stopped one leaves
        return outcome._replace(changes=tuple(changes), spent=outcome.spent or over)

    def _compare(self) -> list[str]:
        """Return what the attempt changed of the process; compared once, when it ends."""
        if self._changes is None:
            left = end_children(but=self._children) if self._own_process else []
            count = format_count(len(left), "process", "processes")
            told = [f"{count} left running and ended ({some(left, 3)})"] if left else []
            self._changes = [*self._state.changes(), *told]
        return self._changes

    def _outcome(self, row: int, line: dict[str, Any], attempt: Attempt, trial: Experiment | Exception) -> Outcome:
        try:
            finished = self._train_trial(line["grid"], trial, attempt)
        except CampaignUnwritable:
            # In a process that lives on, the attempt would look alive for ever.
            with contextlib.suppress(CampaignUnwritable, LeaseLost):
                attempt.abandon("the campaign directory could not be written")
            raise
        except (LeaseLost, NodeLost, UnfitCheckpoint):
            raise
        except CodeChanged as error:
            attempt.abandon(str(error))
            return Outcome(row, State.STOPPED, attempt.number)
        except EnvironmentProblem as error:
            attempt.abandon(str(error))
            raise NodeUnsuitable(str(error)) from error
        except (Exception, SystemExit) as error:  # noqa: BLE001  # recorded with its reason: no trial stops the grid
            return self._record_failure(row, attempt, failure_of(error))._replace(spent=breaks_process(error))
        except BaseException:
            with contextlib.suppress(LeaseLost):
                attempt.abandon("interrupted")
            raise
        attempt.finish(finished)
        if finished.stopped:
            return Outcome(row, State.STOPPED, attempt.number)
        discard_checkpoints(self._layout, line["trial"], attempt.number)
        return Outcome(row, State.DONE, attempt.number)

    def _train_trial(self, grid: str, trial: Experiment | Exception, attempt: Attempt) -> TrainingResult:
        if isinstance(trial, Exception):
            raise trial
        try:
            files = self._layout.files(trial.key)
            return train_experiment(trial, attempt, files, lambda: self._measure(grid))
        except (CampaignUnwritable, NodeLost):
            raise
        except (SpecError, EnvironmentProblem, FileNotFoundError) as error:
            # the spec was sound when it was submitted, so files differ here
            missing = not isinstance(error, EnvironmentProblem) or isinstance(error.__cause__, FileNotFoundError)
            if missing and self._waits_s and not self._listener.stop_requested():
                raise _FileMissing(str(error)) from error
            raise

    def _measure(self, grid: str) -> str | None:
        """Return the name of what a grid compares; None: nothing, or its plan cannot be read."""
        with contextlib.suppress(NotFoundError, StoreError):
            name: str | None = (read_json(self._layout.grid_header(grid)).get("measure") or {}).get("name")
            return name
        return None

    def _record_failure(self, row: int, attempt: Attempt, failure: Failure) -> Outcome:
        attempt.fail(failure)
        with contextlib.suppress(OSError), attempt.log.open("a", encoding="utf-8") as log:  # the record has it, too
            log.write((failure.traceback or failure.message).removesuffix("\n") + "\n")
        gc.collect()  # a traceback holds the tensors of a failed trial
        return Outcome(row, State.FAILED, attempt.number, failure)

    def _trial(self, line: Mapping[str, Any], spec: Mapping[str, Any]) -> Experiment | Exception:
        """Build the trial of a line, with `spec`, or return the error for its attempt to record."""
        key = line["trial"]
        try:
            trial = experiment_class(line.get("experiment")).model_validate(spec)
        except Exception as error:  # noqa: BLE001  # raised again inside the attempt
            return error
        if trial.key != key:
            return CodeChanged(
                f"the manifest calls this trial {key} and its spec has the key {trial.key} here: the code or "
                "the spec file was edited after the run began; run the same command again"
            )
        return trial

    @contextlib.contextmanager
    def _log_output(self, attempt: Attempt) -> Iterator[None]:
        """Send output of the process to the attempt's log, if the worker owns the process."""
        if not self._own_process:
            yield
            return
        kept = os.dup(1), os.dup(2)
        log = _open_log(attempt.log)
        try:
            _redirect(log, log)
            yield
        finally:
            _redirect(*kept)
            for descriptor in (log, *kept):
                os.close(descriptor)
            with contextlib.suppress(OSError):  # an empty log only costs space
                if not attempt.log.stat().st_size:
                    attempt.log.unlink()


def _open_log(path: Path) -> int:
    """Open a log for appending; where that fails, what is printed is lost."""
    try:
        return retry_io(lambda: os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666))
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _redirect(stdout: int, stderr: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a trial may have closed it
            stream.flush()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)


def _checkpoint_s(spec: Mapping[str, Any]) -> float:
    return float((spec.get("execution") or {}).get("checkpoint_s", 20.0))
