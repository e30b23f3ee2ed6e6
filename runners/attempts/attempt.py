"""One attempt of a trial: its start and end records, logged rows and checkpoints."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError
from ablate.runners.attempts.callbacks import Callbacks
from ablate.runners.attempts.claims import Claim, by_code
from ablate.runners.attempts.system_load import SystemLoad
from ablate.runners.checkpoint import KEEP, forget_older, newest_kept, save_checkpoint
from ablate.runners.processes.failure import Failure
from ablate.runners.processes.memory import peak_memory_bytes
from ablate.runners.processes.training_context import TrainingContext, TrainingResult, UnfitCheckpoint
from ablate.store.files.artefacts import write_artefact
from ablate.store.files.atomic import (
    OF_THE_DISK,
    Durable,
    environment_problem,
    read_json,
    retry_io,
    temporary_name,
    write_json,
)
from ablate.store.files.attempts import Heartbeat, end_record, write_end
from ablate.store.files.code_versions import of_paths
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer, Written, add_written
from ablate.store.files.trial_state import trial_state

if TYPE_CHECKING:
    import numpy as np

MOST_ROWS = 200_000
"""Rows kept in memory before a shard is written without waiting for the next checkpoint."""

MOST_CARRIED = 50_000
"""Most rows stored in a checkpoint; with more, a shard is written first."""

FLUSH_S, FLUSH_SHARE = 30.0, 0.2
"""A shard is due after `FLUSH_S` seconds or `FLUSH_SHARE` of the attempt's age, whichever is longer.

This makes about thirty shards of each table in ten hours. Dashboards lag by a fifth of the age at most.
"""

COMPILE_S = 3600.0
"""Time for the first compiled step, if `Execution.stall` is shorter; it took 42 s for 125M parameters on an H200."""

ROWS = "rows"
"""Key of the rows in a checkpoint state that no shard has."""

WROTE = "wrote"
"""Key of what shards hold of the rows up to a checkpoint."""


class CampaignUnwritable(EnvironmentProblem):
    """The campaign directory is not writable; the run stops and keeps what is on disk."""


def is_there(place: Path) -> bool:
    """Return True if `place` exists. Raises CampaignUnwritable if the file system does not answer."""
    try:
        return retry_io(place.exists)
    except OSError as error:
        raise CampaignUnwritable(str(environment_problem("look for", place, error))) from error


def require_there(place: Path) -> None:
    """Raise CampaignUnwritable if `place` is gone: writing would recreate a removed campaign in part."""
    if not is_there(place):
        raise CampaignUnwritable(
            f"{place} is gone: the campaign was moved or removed meanwhile; run the same command where it is now"
        )


@contextmanager
def _unwritable() -> Iterator[None]:
    """Raise every fault of the file system in the body as `CampaignUnwritable`."""
    try:
        yield
    except (OSError, EnvironmentProblem, NotFoundError) as error:
        raise CampaignUnwritable(str(error)) from error


class Watch(NamedTuple):
    """Callbacks of the process that runs the worker."""

    stop_requested: Callable[[], bool]
    stepped: Callable[[int, int | None, float], None]
    callbacks: Callbacks = Callbacks(())
    works: Callable[[float], None] = lambda _: None
    """Called at every sign of progress, with the seconds that the next one may take at least."""
    changes: Callable[[], list[str]] = list
    """Names what the attempt changed of its process."""


class LeaseLost(Exception):
    """Another process took over the trial, since this one sent no heartbeat; or somebody deleted the attempt."""

    def __init__(self) -> None:
        super().__init__("another worker took this trial over")


def is_of_one_trial(error: BaseException, layout: Layout) -> bool:
    """Return True if a fault concerns the paths of a trial alone: its campaign can be written.

    A disk that is full or away concerns all trials, although a few bytes may fit.
    """
    causes: list[BaseException] = []
    while error not in causes:
        causes.append(error)
        error = error.__cause__ or error
    met = next((each for each in causes if isinstance(each, OSError)), None)
    if met is None or met.errno in OF_THE_DISK or not str(met.filename).startswith(f"{layout.trials}{os.sep}"):
        return False
    probe = layout.trials / temporary_name("probe")
    try:
        probe.write_bytes(bytes(4096))
        probe.unlink()
    except OSError:
        return False
    return True


@final
class Attempt(TrainingContext):
    """One attempt of one trial: the `TrainingContext` of a worker.

    Use it as a context manager around training, which keeps the heartbeat running. Methods that write raise
    `CampaignUnwritable`; those that save or end the trial raise `LeaseLost` if another process has it now.
    """

    def __init__(self, layout: Layout, mine: Claim, buffer: ShardBuffer, checkpoint_s: float, watch: Watch) -> None:
        self._layout, self._buffer = layout, buffer
        self._trial: str = mine.start["trial"]
        self.number, self._start, self._checkpoint = mine.number, mine.start, mine.checkpoint
        self._checkpoint_s, self._watch = checkpoint_s, watch
        self._began = self._saved = self._flushed = time.monotonic()
        self.step = mine.checkpoint.step if mine.checkpoint else 0
        self._saves, self._load = 0, SystemLoad()
        self._files: list[str] = []
        """Artefacts and weights that this attempt wrote, relative to its directory."""
        self._cost: dict[str, float] = {}
        self._inherited: Written | None = {}
        """Rows in shards of the attempts that this one resumes; None if an earlier release did not say."""
        self._unfit: Exception | None = None
        if mine.checkpoint is not None:
            try:
                self._take_over_rows(mine.checkpoint.state)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                self._unfit = error
        self._heartbeat = Heartbeat(layout.heartbeat(self._trial, self.number), float(mine.start["heartbeat_s"]))

    def __enter__(self) -> "Attempt":
        self._heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeat.stop()

    @property
    def log(self) -> Path:
        return self._layout.log(self._trial, self.number)

    def begins(self, device: str, path: str | None, data: Mapping[str, Any] | None) -> None:
        """Add the chosen device, path and data to `start.json`, and on GPUs the software that computes there."""
        self._works()
        record = {**self._start, "device": device, "path": path, "data": None if data is None else dict(data)}
        if path is not None:
            record["sources"] = of_paths(record.get("sources"), path.split("+"))
        if device == "cuda" and "torch" in sys.modules:
            record["versions"] = {**record["versions"], **gpu_software(device)}
        with _unwritable():
            write_json(self._layout.start(self._trial, self.number), record, "nothing")

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        wall_s = time.monotonic() - self._began
        for name, value in {**values, **self._load.sample()}.items():
            self._buffer.add("metric", (self._trial, self.number, step, name, value, wall_s))
        self._watch.callbacks.on_step(step, values)
        if len(self._buffer) > MOST_ROWS:
            self.flush()

    def evaluation(
        self, step: int, name: str, value: float, *, point: Mapping[str, float], items: int, se_items: float | None
    ) -> None:
        self._works()
        row = (self._trial, self.number, step, name, point, value, items, se_items)
        self._buffer.add("evaluation", row)
        self._watch.callbacks.on_evaluation(step, name, value, point)

    def items(
        self, step: int, name: str, *, point: Mapping[str, float], items: Sequence[str], values: Sequence[float]
    ) -> None:
        place = (self._trial, self.number, step, name, point)
        self._buffer.extend("item", [(*place, item, value) for item, value in zip(items, values, strict=True)])

    def probe(
        self, step: int, name: str, value: float, *, layer: int | None, head: int | None, point: Mapping[str, float]
    ) -> None:
        self._works()
        self._buffer.add("probe", (self._trial, self.number, step, name, layer, head, point, value))

    def artefact(self, step: int, name: str, arrays: Mapping[str, "np.ndarray"]) -> None:
        with _unwritable():
            self._files.append(write_artefact(self._layout, self._trial, self.number, step, name, arrays))

    def keep(self, step: int, state: Mapping[str, Any], name: str = "") -> None:
        """Write the trained weights, or a state under a name; both stay after checkpoints are deleted."""
        self._require_ownership()
        directory = self._layout.weights(self._trial, self.number) / name
        with _unwritable():
            kept = save_checkpoint(directory, self._trial, step, state, most=1)
        place = directory.relative_to(self._layout.attempt(self._trial, self.number)).as_posix()
        self._files = [each for each in self._files if each.rpartition("/")[0] != place] + [f"{place}/{kept.name}"]

    def load_kept(self, name: str) -> dict[str, Any] | None:
        return newest_kept(self._layout, self._trial, name)

    def took(self, cost: Mapping[str, float]) -> None:
        self._cost = dict(cost)

    def progress(self, step: int, steps: int | None, loss: float) -> None:
        self.step = step
        self._heartbeat.tell(step, steps, loss)
        self._watch.stepped(step, steps, loss)

    def compiles(self) -> None:
        self._works(COMPILE_S)

    def stop_requested(self) -> bool:
        self._works()
        return self._watch.stop_requested()

    def stop_pending(self) -> bool:
        return self._watch.stop_requested()

    def _works(self, next_s: float = 0.0) -> None:
        self._heartbeat.works()
        self._watch.works(next_s)

    def checkpoint_due(self) -> bool:
        return time.monotonic() - self._saved >= self._checkpoint_s

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Write a checkpoint and delete the checkpoints of earlier attempts that it replaces.

        Rows logged so far go into the checkpoint, or into a shard before it. A shard per checkpoint would make millions
        of files.
        """
        self._require_ownership()
        now = time.monotonic()
        if now - self._flushed >= max(FLUSH_S, FLUSH_SHARE * (now - self._began)) or len(self._buffer) > MOST_CARRIED:
            self.flush()
        rows = self._buffer.pending(self._trial, self.number)
        state = {**state, WROTE: json.dumps(self._list_written()), **({ROWS: json.dumps(rows)} if rows else {})}
        directory = self._layout.checkpoint(self._trial, self.number)
        with _unwritable():
            save_checkpoint(directory, self._trial, step, state)
        self._works()
        self._saves += 1
        if self._saves <= KEEP:  # later nothing older is left
            self._forget_older()
        self.step = step
        self._saved = time.monotonic()

    def _forget_older(self) -> None:
        with _unwritable():
            same_code = by_code(trial_state(self._layout, self._trial), self._start.get("sources"))
            forget_older(self._layout, self._trial, self.number, self._start["resumed_from"], same_code)

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        checkpoint, self._checkpoint = self._checkpoint, None  # drop the reference: it may be as large as the model
        if self._unfit is not None:
            raise UnfitCheckpoint(f"its rows cannot be read ({self._unfit})") from self._unfit
        return (checkpoint.step, checkpoint.state) if checkpoint else None

    def _take_over_rows(self, state: dict[str, Any]) -> None:
        """Adopt the rows in the checkpoint for this attempt.

        An earlier attempt may have written some to a shard too; the later attempt counts.
        """
        self._inherited = json.loads(state.pop(WROTE, "null"))
        for table, rows in json.loads(state.pop(ROWS, "{}")).items():
            self._buffer.extend(table, [(self._trial, self.number, *row[2:]) for row in rows])

    def _list_written(self) -> Written | None:
        """Return what shards hold of this attempt and of those that it resumes."""
        own = self._buffer.list_written(self._trial, self.number)
        return None if self._inherited is None else add_written(self._inherited, own)

    def flush(self, durable: Durable = "file and name") -> None:
        with _unwritable():
            self._buffer.flush(durable)
        self._flushed = time.monotonic()

    def finish(self, finished: TrainingResult) -> None:
        """Record the end of training: `ok`, or `stopped` if a stop was requested."""
        self._require_ownership()
        self.flush("file")  # a name that a crash loses is missing from what `end.json` promises
        self.step = finished.step
        self._end(
            status="stopped" if finished.stopped else "ok",
            train_s=finished.train_s,
            evaluate_s=finished.evaluate_s,
            probe_s=finished.probe_s,
            parameters=finished.parameters,
            operator_parameters=finished.operator_parameters,
            **{"cost": {}, **_cost(finished.cost)},
        )

    def fail(self, failure: Failure) -> None:
        """Write the buffered rows, then record the failure."""
        self._require_ownership()
        self.flush("file")
        self._end(status="failed", **failure._asdict(), **_cost(self._cost))
        self._forget_older()

    def abandon(self, message: str) -> None:
        """Record that this process releases the unfinished trial."""
        self._end(status="stopped", message=message, **_cost(self._cost))

    def _require_ownership(self) -> None:
        """Raise `LeaseLost` if a later attempt exists; only the latest one may end a trial.

        A later attempt begins when the lease has expired without a heartbeat. It continues from the last checkpoint.
        """
        with _unwritable():
            latest = max(self._layout.attempts(self._trial), default=0)
        if latest > self.number:
            raise LeaseLost
        self._require_own_record()

    def _require_own_record(self) -> None:
        """Raise `LeaseLost` if this attempt was deleted, also if another one has its number."""
        path = self._layout.start(self._trial, self.number)
        if not is_there(path):
            require_there(self._layout.manifest(self._start["submission"]))
            self._buffer.discard(self._trial, self.number)
            raise LeaseLost
        try:
            with _unwritable():
                start = read_json(path)
        except StoreError:  # damaged: the owner is unknown
            return
        if any(start.get(name) != self._start[name] for name in ("host", "pid", "started")):
            self._buffer.discard(self._trial, self.number)
            raise LeaseLost

    def _end(self, **outcome: Any) -> None:
        record = end_record(self._trial, self.number, self.step, time.monotonic() - self._began)
        record["memory_bytes"] = peak_memory_bytes()
        record |= {"wrote": self._list_written(), "files": self._files, "changes": self._watch.changes()}
        self._require_own_record()
        with _unwritable():
            write_end(self._layout, {**record, **outcome})
        self._buffer.forget(self._trial, self.number)


def _cost(cost: Mapping[str, float]) -> dict[str, Any]:
    """Return the fields of a known cost; measuring the device may raise the memory peak later than training."""
    memory = {"memory_bytes": int(cost["peak_memory_bytes"])} if "peak_memory_bytes" in cost else {}
    return {"cost": dict(cost), **memory} if cost else {}


def gpu_software(device: str) -> dict[str, str | None]:
    """Return the software that decides the speed of attention on a GPU: CUDA, cuDNN, and kernels in their order."""
    import torch
    from torch.nn.attention import _cur_sdpa_kernel_backends

    probe = torch.empty(1, 1, 16, 16, device=device)
    torch._fused_sdp_choice(probe, probe, probe)  # PyTorch sets its order with the first choice
    kernels = [each.name for each in _cur_sdpa_kernel_backends(with_priority=True)]
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return {
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
        "sdpa": ", ".join(name.removesuffix("_ATTENTION").lower() for name in kernels),
    }
