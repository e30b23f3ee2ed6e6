"""An attempt as its worker sees it: recorded at start and end, durable in between."""

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

from grid.errors import EnvironmentProblem, NotFoundError, StoreError
from runners.attempts.claims import Claim, by_code
from runners.checkpoint import KEEP, forget_older, save_checkpoint
from runners.training.failure import Failure
from runners.training.memory import peak_memory_bytes
from runners.training.training_context import TrainingResult
from store.files.atomic import environment_problem, read_json, retried, write_atomic, write_json
from store.files.attempts import end_record, write_end
from store.files.heartbeat import Heartbeat
from store.files.layout import Layout
from store.files.shards import ShardBuffer
from store.files.trial_status import trial_state

if TYPE_CHECKING:
    import numpy as np

MOST_ROWS = 200_000
"""Rows kept in memory before they go to a shard without waiting for the next checkpoint."""

MOST_CARRIED = 50_000
"""Rows that a checkpoint carries at most; with more, a shard is written first."""

FLUSH_S, FLUSH_SHARE = 30.0, 0.2
"""A shard is written at the first checkpoint after so long, or after this share of the attempt's age if that is longer:
some thirty shards of each table in ten hours, and what a dashboard shows is late by a fifth at most."""

ROWS = "rows"
"""Where the state of a checkpoint holds the rows that no shard has."""


class CampaignUnwritable(EnvironmentProblem):
    """The campaign directory takes no more records; the run cannot go on, and what has landed is kept."""


def require_there(place: Path) -> None:
    """Refuse to write into a campaign without `place`, which the work has begun with: it would come back in pieces.

    Raises:
        CampaignUnwritable: it is gone, or its file system does not answer.
    """
    try:
        there = retried(place.exists)
    except OSError as error:
        raise CampaignUnwritable(str(environment_problem("look for", place, error))) from error
    if not there:
        raise CampaignUnwritable(
            f"{place} is gone: the campaign was moved or removed meanwhile; run the same command where it is now"
        )


class Watch(NamedTuple):
    """What a worker hears from, and tells to, whoever runs it."""

    stop_requested: Callable[[], bool]
    stepped: Callable[[int, int, float], None]


class LeaseLost(Exception):
    """Another process took the trial over, since this one gave no sign of life; what it goes on with is not needed."""

    def __init__(self) -> None:
        super().__init__("another worker took this trial over")


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
        self._began = self._saved = self._flushed = time.monotonic()
        self.step = mine.checkpoint.step if mine.checkpoint else 0
        self._saves = 0
        self._cost: dict[str, float] = {}
        if mine.checkpoint is not None:
            self._take_over_rows(mine.checkpoint.state)
        path = layout.heartbeat(self._trial, self.number)
        self._heartbeat = Heartbeat(path, float(mine.start["heartbeat_s"]))

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
        self._writes(lambda: write_json(self._layout.start(self._trial, self.number), record))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the metrics of one step; the next checkpoint or a shard makes them durable."""
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

    def items(
        self, step: int, name: str, *, point: Mapping[str, float], items: Sequence[str], values: Sequence[float]
    ) -> None:
        """Keep the values of single items of an evaluation."""
        place = (self._trial, self.number, step, name, dict(point))
        self._buffer.extend("item", [(*place, item, float(value)) for item, value in zip(items, values, strict=True)])

    def probe(
        self, step: int, name: str, value: float, *, layer: int | None, head: int | None, point: Mapping[str, float]
    ) -> None:
        """Keep one value of a probe."""
        self._buffer.add("probe", (self._trial, self.number, step, name, layer, head, dict(point), float(value)))

    def artefact(self, step: int, name: str, arrays: Mapping[str, "np.ndarray"]) -> None:
        """Write arrays that a viewer shows.

        Raises:
            CampaignUnwritable: the disk is full or not writable.
        """
        import numpy as np  # here: most attempts leave none

        sink = io.BytesIO()
        np.savez_compressed(sink, allow_pickle=False, **dict(arrays))
        self._writes(lambda: write_atomic(self._layout.artefact(self._trial, self.number, step, name), sink.getvalue()))

    def keep(self, step: int, state: Mapping[str, Any]) -> None:
        """Write the trained weights where they outlast the checkpoints.

        Raises:
            TakenOver: another process has the trial now.
            CampaignUnwritable: the disk is full or not writable.
        """
        self._require_ownership()
        directory = self._layout.weights(self._trial, self.number)
        self._writes(lambda: save_checkpoint(directory, self._trial, step, state))

    def took(self, cost: Mapping[str, float]) -> None:
        """Keep what the attempt took, for the record of how it failed or was given back."""
        self._cost = dict(cost)

    def progress(self, step: int, steps: int, loss: float) -> None:
        """Pass on how far training is."""
        self.step = step
        self._heartbeat.tell(step, steps, loss)
        self._watch.stepped(step, steps, loss)

    def stop_requested(self) -> bool:
        """Whether whoever runs the worker asked it to stop."""
        return self._watch.stop_requested()

    def checkpoint_due(self) -> bool:
        """Whether the trial's checkpoint interval has passed."""
        return time.monotonic() - self._saved >= self._checkpoint_s

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Publish the checkpoint; those of earlier attempts that it replaces go.

        Rows logged so far go into it, or into a shard before it: a shard per checkpoint would be millions of files in a
        campaign.

        Raises:
            TakenOver: another process has the trial now.
            CampaignUnwritable: the disk is full or not writable.
        """
        self._require_ownership()
        if self._flush_due():
            self.flush()
        rows = self._buffer.pending(self._trial, self.number)
        state = {**state, ROWS: json.dumps(rows)} if rows else state
        directory = self._layout.checkpoint(self._trial, self.number)
        self._writes(lambda: save_checkpoint(directory, self._trial, step, state))
        self._saves += 1
        if self._saves <= KEEP:  # afterwards there is nothing older
            self._forget_older()
        self.step = step
        self._saved = time.monotonic()

    def _flush_due(self) -> bool:
        now = time.monotonic()
        wait_s = max(FLUSH_S, FLUSH_SHARE * (now - self._began))
        return now - self._flushed >= wait_s or len(self._buffer) > MOST_CARRIED

    def _forget_older(self) -> None:
        resumed = self._start["resumed_from"]
        try:
            forget_older(self._layout, self._trial, self.number, resumed, lambda attempt: self._same_code(attempt))
        except (OSError, EnvironmentProblem) as error:
            raise CampaignUnwritable(str(error)) from error

    @cached_property
    def _same_code(self) -> Callable[[int], bool]:
        return by_code(trial_state(self._layout, self._trial), self._start.get("sources"))

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """The checkpoint found when the attempt was claimed."""
        found, self._found = self._found, None  # held no longer than needed: it may be as large as the model
        return (found.step, found.state) if found else None

    def _take_over_rows(self, state: dict[str, Any]) -> None:
        """Rows that the checkpoint carries become rows of this attempt.

        The attempt that logged them may have put some into a shard later; of two attempts the later one counts.
        """
        for table, rows in json.loads(state.pop(ROWS, "{}")).items():
            self._buffer.extend(table, [(self._trial, self.number, *row[2:]) for row in rows])

    def flush(self) -> None:
        """Make every row logged so far durable.

        Raises:
            CampaignUnwritable: the disk is full or not writable; the rows are kept.
        """
        self._writes(self._buffer.flush)
        self._flushed = time.monotonic()

    def finish(self, finished: TrainingResult) -> None:
        """Record that training returned: `ok`, or `stopped` where it was asked to stop.

        Raises:
            TakenOver: another process has the trial now, and will end it.
            CampaignUnwritable: the disk is full or not writable.
        """
        self._require_ownership()
        self.flush()
        self.step = finished.step
        self._end(
            status="stopped" if finished.stopped else "ok",
            train_s=finished.train_s,
            evaluate_s=finished.evaluate_s,
            probe_s=finished.probe_s,
            parameters=finished.parameters,
            operator_parameters=finished.operator_parameters,
            cost=dict(finished.cost),
            **_memory(finished.cost),
        )

    def fail(self, failure: Failure) -> None:
        """Record that training failed, after making what it logged durable.

        Raises:
            TakenOver: another process has the trial now, and will end it.
            CampaignUnwritable: the disk is full or not writable.
        """
        self._require_ownership()
        self.flush()
        self._end(status="failed", **failure._asdict(), **self._cost_entries())
        self._forget_older()

    def abandon(self, message: str) -> None:
        """Record that this process gives the trial back unfinished."""
        self._end(status="stopped", message=message, **self._cost_entries())

    def _cost_entries(self) -> dict[str, Any]:
        return {"cost": self._cost, **_memory(self._cost)} if self._cost else {}

    def _require_ownership(self) -> None:
        """Only the latest attempt of a trial may end it, so that it ends once.

        Who took it over waited for a lease without a sign of life from here, and goes on from the last checkpoint; the
        work since then is done twice, and counted once.
        """
        try:
            latest = max(self._layout.attempts(self._trial), default=0)
        except EnvironmentProblem as error:
            raise CampaignUnwritable(str(error)) from error
        if latest > self.number:
            raise LeaseLost
        self._require_own_record()

    def _require_own_record(self) -> None:
        """Where somebody removed the attempt, another may have begun under its number, and that one's it is."""
        path = self._layout.start(self._trial, self.number)
        require_there(path)
        try:
            found = read_json(path)
        except StoreError:  # nobody can read whose it is
            return
        except (EnvironmentProblem, NotFoundError) as error:
            raise CampaignUnwritable(str(error)) from error
        if any(found.get(name) != self._start[name] for name in ("host", "pid", "started")):
            raise LeaseLost

    def _end(self, **outcome: Any) -> None:
        record = end_record(self._trial, self.number, self.step, time.monotonic() - self._began)
        record["memory_bytes"] = peak_memory_bytes()
        self._require_own_record()
        self._writes(lambda: write_end(self._layout, {**record, **outcome}))

    @staticmethod
    def _writes(write: Callable[[], object]) -> None:
        try:
            write()
        except EnvironmentProblem as error:
            raise CampaignUnwritable(str(error)) from error


def _memory(cost: Mapping[str, float]) -> dict[str, int]:
    """The peak of training, where it was noted before the device was measured."""
    return {"memory_bytes": int(cost["peak_memory_bytes"])} if "peak_memory_bytes" in cost else {}
