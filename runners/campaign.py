"""An attempt as its worker sees it: claimed once, recorded at start and end, durable in between.

The claim publishes the attempt's directory together with its `start.json` by one rename, so an attempt that exists
has an owner whose process can be looked up; of two workers that reach for the same number, one gets it.
"""

import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

from grid.errors import EnvironmentProblem
from runners.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from runners.code import made_by, ran_other_code
from runners.failure import Failure
from runners.heartbeat import Heartbeat
from runners.memory import peak_memory_bytes
from runners.surroundings import Finished
from store.files import environment_problem, make_directory, sync_directory, temporary_name, write_json
from store.layout import FILE_SCHEMA, Layout
from store.shards import ShardBuffer
from store.status import TrialState, process_started, trial_state

MOST_ROWS = 200_000
"""Rows kept in memory before they go to a shard without waiting for the next checkpoint."""


class CampaignUnwritable(EnvironmentProblem):
    """The campaign directory takes no more records; the run cannot go on, and what has landed is kept."""


class Watch(NamedTuple):
    """What a worker hears from, and tells to, whoever runs it."""

    stop_requested: Callable[[], bool]
    stepped: Callable[[int, int, float], None]


class Taken(NamedTuple):
    """Why a trial cannot be claimed: it has ended, or a live process has it."""

    status: Literal["ok", "failed", "running"]


class Claim(NamedTuple):
    """An attempt that is this process's own."""

    number: int
    checkpoint: Checkpoint | None
    start: dict[str, Any]


def claim(layout: Layout, trial: str, about: Mapping[str, Any], *, retry: bool, again: bool = False) -> Claim | Taken:
    """Begin the next attempt of `trial`, unless it is done, failed (and `retry` is false), or being worked on.

    `about` is what `start.json` says beside the trial, the attempt, the process and the time. Among it are `sources`,
    the code that will run: checkpoints of other code are passed over, and with `again` a trial that other code made is
    not done. Without sources no code is other code.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
    """
    while True:
        number = max(layout.attempts(trial), default=0) + 1  # before looking: who comes in between has taken it
        state = trial_state(layout, trial)
        sources = about.get("sources")
        if state.status == "ok" and again and sources is not None and ran_other_code(state, sources):
            if state.live is not None:
                return Taken("running")
        elif state.status in ("ok", "running") or (state.status == "failed" and not retry):
            return Taken(state.status)
        found, remarks = _newest_checkpoint(layout, trial, state, sources)
        start = _start_record(trial, number, found, about)
        if _publish(layout, start, remarks):
            return Claim(number, found, start)


def _newest_checkpoint(
    layout: Layout, trial: str, state: TrialState, sources: Mapping[str, str] | None
) -> tuple[Checkpoint | None, list[str]]:
    """The furthest sound checkpoint that the same code made, and what to tell of those passed over."""
    remarks: list[str] = []
    usable: list[tuple[str, int, Path]] = []
    for attempt in layout.attempts(trial):
        paths = list(layout.checkpoint(trial, attempt).glob("step-*.pt"))
        if sources is None or made_by(state, attempt) == [dict(sources)]:
            usable.extend((path.name, attempt, path) for path in paths)
        elif paths:
            remarks.append(f"other code made the checkpoints of attempt {attempt}; they are not used")
    for _, attempt, path in sorted(usable, reverse=True):  # names begin with the step, zeros first
        try:
            step, checkpointed = load_checkpoint(path, trial)
        except CheckpointError as error:
            remarks.append(str(error))
            continue
        return Checkpoint(attempt, step, checkpointed), remarks
    return None, [*remarks, "training starts from the beginning"] if remarks else []


def _start_record(trial: str, number: int, found: Checkpoint | None, about: Mapping[str, Any]) -> dict[str, Any]:
    pid = os.getpid()
    return {
        "schema": FILE_SCHEMA,
        "trial": trial,
        "attempt": number,
        "host": socket.gethostname(),
        "pid": pid,
        "pid_started": process_started(pid),
        "started": time.time(),
        "resumed_from": {"attempt": found.attempt, "step": found.step} if found else None,
        "versions": _versions(),
        "data": None,
        **about,
    }


@cache
def _versions() -> dict[str, str | None]:
    return {"python": sys.version.split()[0], "torch": _version("torch"), "ablate": _version("ablate")}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # a source tree on the path that was never installed
        return None


def _publish(layout: Layout, start: dict[str, Any], remarks: Sequence[str]) -> bool:
    """Make the attempt's directory, with its first records, appear under its number; False if another was first."""
    final_place = layout.attempt(start["trial"], start["attempt"])
    place = final_place.with_name(temporary_name(final_place.name))
    make_directory(place)
    try:
        write_json(place / "start.json", start)
        (place / "heartbeat").touch()
        (place / "log").write_text("".join(f"{remark}\n" for remark in remarks))
        try:
            place.rename(final_place)
        except OSError:
            if final_place.exists():
                return False
            raise
        sync_directory(final_place.parent)
    except OSError as error:
        raise environment_problem("claim", final_place, error) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)  # it is gone after the rename; a leftover is ignored by readers
    return True


@final
class Attempt:
    """One attempt of one trial: the `Surroundings` that a worker hands to training.

    Use as a context manager around training: it keeps the heartbeat going.
    """

    def __init__(self, layout: Layout, mine: Claim, buffer: ShardBuffer, checkpoint_s: float, watch: Watch) -> None:
        self._layout = layout
        self._trial: str = mine.start["trial"]
        self.number = mine.number
        self._start = mine.start
        self._found = mine.checkpoint
        self._buffer = buffer
        self._checkpoint_s = checkpoint_s
        self._watch = watch
        self._began = self._saved = time.monotonic()
        self.step = mine.checkpoint.step if mine.checkpoint else 0
        self._heartbeat = Heartbeat(layout.heartbeat(self._trial, self.number))

    def __enter__(self) -> "Attempt":
        self._heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeat.stop()

    @property
    def log(self) -> Path:
        """The attempt's log, for people."""
        return self._layout.log(self._trial, self.number)

    def begins(self, device: str, path: str, data: Mapping[str, Any] | None) -> None:
        """Write into `start.json` what was only configured when the attempt was claimed.

        Raises:
            CampaignUnwritable: the disk is full or not writable.
        """
        record = {**self._start, "device": device, "path": path, "data": None if data is None else dict(data)}
        try:
            write_json(self._layout.start(self._trial, self.number), record)
        except EnvironmentProblem as error:
            raise CampaignUnwritable(str(error)) from error

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the metrics of one step; they are durable at the next checkpoint or at the end."""
        wall_s = time.monotonic() - self._began
        for name, value in values.items():
            self._buffer.add("metric", (self._trial, self.number, step, name, float(value), wall_s))
        if len(self._buffer) > MOST_ROWS:
            self.flush()

    def evaluation(
        self, step: int, name: str, value: float, *, point: Mapping[str, float], items: int, se_items: float | None
    ) -> None:
        """Keep one value of an evaluation."""
        row = (self._trial, self.number, step, name, dict(point), float(value), items, se_items)
        self._buffer.add("evaluation", row)

    def probe(
        self, step: int, name: str, value: float, *, layer: int | None, head: int | None, point: Mapping[str, float]
    ) -> None:
        """Keep one value of a probe."""
        self._buffer.add("probe", (self._trial, self.number, step, name, layer, head, dict(point), float(value)))

    def progress(self, step: int, steps: int, loss: float) -> None:
        """Pass on how far training is."""
        self.step = step
        self._watch.stepped(step, steps, loss)

    def stop_requested(self) -> bool:
        """Whether whoever runs the worker asked it to stop."""
        return self._watch.stop_requested()

    def checkpoint_due(self) -> bool:
        """Whether the trial's checkpoint interval has passed."""
        return time.monotonic() - self._saved >= self._checkpoint_s

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Publish the rows logged so far, then the checkpoint.

        Raises:
            CampaignUnwritable: the disk is full or not writable.
        """
        self.flush()
        try:
            save_checkpoint(self._layout.checkpoint(self._trial, self.number), self._trial, step, state)
        except EnvironmentProblem as error:
            raise CampaignUnwritable(str(error)) from error
        self.step = step
        self._saved = time.monotonic()

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """The checkpoint found when the attempt was claimed."""
        found, self._found = self._found, None  # held no longer than needed: it may be as large as the model
        return (found.step, found.state) if found else None

    def flush(self) -> None:
        """Make every row logged so far durable.

        Raises:
            CampaignUnwritable: the disk is full or not writable; the rows are kept.
        """
        try:
            self._buffer.flush()
        except EnvironmentProblem as error:
            raise CampaignUnwritable(str(error)) from error

    def finish(self, finished: Finished) -> None:
        """Record that training returned: `ok`, or `stopped` where it was asked to stop."""
        self.flush()
        self.step = finished.step
        self._end(
            status="stopped" if finished.stopped else "ok",
            train_s=finished.train_s,
            evaluate_s=finished.evaluate_s,
            parameters=finished.parameters,
            operator_parameters=finished.operator_parameters,
        )

    def fail(self, failure: Failure) -> None:
        """Record that training failed, after making what it logged durable."""
        self.flush()
        self._end(status="failed", **failure._asdict())

    def abandon(self, message: str) -> None:
        """Record that this process gives the trial back unfinished."""
        self._end(status="stopped", message=message)

    def _end(self, **outcome: Any) -> None:
        record = end_record(self._trial, self.number, self.step, time.monotonic() - self._began)
        record["memory_bytes"] = peak_memory_bytes()
        try:
            write_json(self._layout.end(self._trial, self.number), {**record, **outcome})
        except EnvironmentProblem as error:
            raise CampaignUnwritable(str(error)) from error


def end_record(trial: str, number: int, step: int, wall_s: float) -> dict[str, Any]:
    """An `end.json` of an attempt of which nothing else is known."""
    return {
        "schema": FILE_SCHEMA,
        "trial": trial,
        "attempt": number,
        "status": "failed",
        "reason": None,
        "message": None,
        "traceback": None,
        "fingerprint": None,
        "step": step,
        "wall_s": wall_s,
        "train_s": None,
        "evaluate_s": None,
        "ended": time.time(),
        "parameters": None,
        "operator_parameters": None,
        "memory_bytes": None,
    }


def record_death(layout: Layout, trial: str, number: int, step: int, failure: Failure) -> None:
    """Write the `end.json` that the owner of the attempt, which is dead, can no longer write."""
    state = next((found for found in trial_state(layout, trial).attempts if found.attempt == number), None)
    wall_s = time.time() - float(state.start["started"]) if state else 0.0
    write_json(layout.end(trial, number), {**end_record(trial, number, step, wall_s), **failure._asdict()})
