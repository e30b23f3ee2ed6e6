"""States of rows: done, free or held, from the trial's files; and the rows that workers know to be done.

Each worker writes one small file with the rows that it knows to be done, its own and those it read from others. So
workers examine few trials of others. A row that is missing in these files costs one look at the trial.
"""

import base64
import binascii
import random
import socket
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

from grid.errors import EnvironmentProblem, NotFoundError, StoreError
from runners.attempts.attempt import require_there
from runners.attempts.claims import record_death
from runners.attempts.leases import Leases, earlier_life
from runners.attempts.manifest import Manifest
from runners.attempts.micro_batches import wants_smaller
from runners.attempts.worker import Job
from runners.checkpoint import checkpointed_step, discard_forgotten
from runners.training.failure import out_of_memory
from store.files.atomic import environment_problem, is_temporary, read_json, retry_io, write_json
from store.files.layout import FILE_SCHEMA, Layout
from store.files.trial_status import AttemptState, TrialState, last_beat_ns, local_process, trial_state

_EVERY_S = 60.0
_READ_S_PER_FILE = 0.1
"""The more files there are, the less often they are read."""


class RowLook(NamedTuple):
    """The state of a row at one look."""

    state: Literal["done", "free", "held"]
    sure: bool = False
    """True for a held row whose owner is known to be alive."""
    lost_here: bool = False
    """True for a free row whose last owner was lost on this node."""


@final
class RowStates:
    """Reads the trials of a submission for a worker task on `node`.

    Raises:
        StoreError: the manifest is damaged.
    """

    def __init__(self, job: Job, node: str, leases: Leases | None = None) -> None:
        self._job = job
        self._node = node
        self._layout = Layout(job.root)
        self._manifest = Manifest(self._layout, job.submission)
        self._leases = leases or Leases(job.place)
        self._keys: dict[int, str] = {}
        self._first_beats: dict[tuple[str, int], int | None] = {}

    def line(self, row: int) -> dict[str, Any]:
        """Return the row's line of the manifest."""
        return self._manifest.line(row)

    def key(self, row: int) -> str:
        """Return the key of the row's trial."""
        if row not in self._keys:
            self._keys[row] = self._manifest.trial(row)
        return self._keys[row]

    def begun(self, row: int) -> bool:
        """Return True if the trial's directory exists; the cheapest look.

        Raises:
            EnvironmentProblem: the file system does not answer.
        """
        path = self._layout.trial(self.key(row))
        try:
            return retry_io(path.exists)
        except OSError as error:
            raise environment_problem("look for", path, error) from error

    def look(self, row: int) -> RowLook:
        """Return the current state of a row.

        Raises:
            EnvironmentProblem: the file system does not answer.
        """
        key = self.key(row)
        state = trial_state(self._layout, key, self._leases.alive)
        if self._is_done(state) and not self._wants_smaller(row, state):
            if state.status == "ok":
                discard_forgotten(self._layout, key, state)
            return RowLook("done")
        if state.live is not None:
            return RowLook("held", sure=self._is_alive(key, state.live))
        return RowLook("free", lost_here=bool(state.attempts) and self._was_lost_here(state.attempts[-1]))

    def memory_bytes(self, rows: Iterable[int], *, gpu: bool) -> int | None:
        """Return the most memory that a finished trial of `rows` needed on a GPU or the host; None: unknown."""
        states = (trial_state(self._layout, self.key(row), self._leases.alive) for row in rows if self.begun(row))
        needed = [
            int(attempt.end.get("memory_bytes") or 0)
            for state in states
            for attempt in state.attempts
            if attempt.end
            and attempt.end["status"] == "ok"
            and str(attempt.start.get("device")).startswith("cuda") == gpu
        ]
        return max(needed, default=None)

    def record_out_of_memory(self, rows: Iterable[int], place: Mapping[str, Any]) -> list[str]:
        """Record that attempts of earlier lives of the task at `place` ran out of memory; return their trials."""
        found = []
        for row in filter(self.begun, rows):
            last = trial_state(self._layout, self.key(row), self._leases.alive).attempts[-1:]
            if last and last[0].end is None and earlier_life(last[0].start.get("place"), place):
                step = checkpointed_step(self._layout, self.key(row))
                record_death(self._layout, self.key(row), last[0].attempt, step, out_of_memory(1))
                found.append(self.key(row))
        return found

    def _is_done(self, state: TrialState) -> bool:
        """Return True if its result stands; with retry or again, only a result of this submission does."""
        repeat = self._job.again if state.status == "ok" else self._job.retry
        if state.status not in ("ok", "failed") or not repeat:
            return state.status in ("ok", "failed")
        ends = [attempt for attempt in state.attempts if attempt.end and attempt.end["status"] == state.status]
        return ends[-1].start.get("submission") == self._job.submission

    def _wants_smaller(self, row: int, state: TrialState) -> bool:
        """Return True if the trial ran out of memory and has to be tried with smaller micro-batches."""
        return self._job.oom == "halve" and state.status == "failed" and wants_smaller(state, self.line(row)["spec"])

    def _is_alive(self, key: str, live: AttemptState) -> bool:
        if local_process(live.start) is not None:
            return True
        beat = last_beat_ns(self._layout, key, live.attempt)
        return self._first_beats.setdefault((key, live.attempt), beat) != beat

    def _was_lost_here(self, last: AttemptState) -> bool:
        place = last.start.get("place")
        node = place.get("node") if isinstance(place, Mapping) else None
        return last.end is None and (node or last.start.get("host")) == (self._node if node else socket.gethostname())


@final
class CompletedRows:
    """The rows of a class that the worker `name`, `<class>-<worker>`, knows to be done, in all its lives."""

    def __init__(
        self,
        layout: Layout,
        submission: str,
        name: str,
        rows: tuple[int, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._submission = layout.submission_record(submission)
        self._path = self._submission.with_name("seen") / f"{name}.json"
        self._first, self._end = rows
        self._bits = 0
        """Bit i is set if row `first + i` is done."""
        self._clock = clock
        self._to_read: Iterator[Path] = iter(())
        self._read_next = -float("inf")
        self._new = False
        self._due = clock() + _EVERY_S

    def __contains__(self, row: int) -> bool:
        return bool(self._bits >> (row - self._first) & 1)

    def add(self, row: int) -> None:
        """Mark a row as done."""
        if row not in self:
            self._bits |= 1 << (row - self._first)
            self._new = True

    @property
    def complete(self) -> bool:
        """True if all rows are known to be done."""
        return self._bits.bit_count() == self._end - self._first

    def recall(self) -> None:
        """Read the file of this worker's earlier lives."""
        self._merge(self._path)

    def read(self, until: float) -> bool:
        """Read the other workers' files until that time; return True if all files that are due were read."""
        if self._clock() >= self._read_next:
            files = self._files()
            self._read_next = self._clock() + max(_EVERY_S, _READ_S_PER_FILE * len(files))
            self._to_read = iter(files)
        for path in self._to_read:
            self._merge(path)
            if self.complete:
                self._to_read = iter(())
            elif self._clock() >= until:
                return False
        return True

    def keep(self) -> None:
        """Publish every minute."""
        if self._clock() >= self._due:
            self.publish()

    def publish(self) -> None:
        """Write the known rows, if there are new ones; a failure does no harm."""
        self._due = self._clock() + _EVERY_S
        if not self._new:
            return
        data = self._bits.to_bytes((self._end - self._first + 7) // 8, "little")
        known = base64.b64encode(zlib.compress(data)).decode("ascii")
        try:
            require_there(self._submission)
            write_json(self._path, {"schema": FILE_SCHEMA, "rows": [self._first, self._end], "done": known})
        except EnvironmentProblem:  # the worker's record is written at the same times and reports the problem
            return
        self._new = False

    def _files(self) -> list[Path]:
        """List the files of the class's other workers, in random order."""
        try:
            listed = list(self._path.parent.iterdir())
        except OSError:
            return []
        prefix = self._path.name.partition("-")[0] + "-"
        others = (path for path in listed if path.name.startswith(prefix) and path != self._path)
        files = sorted(path for path in others if not is_temporary(path))
        random.Random(self._path.name).shuffle(files)
        return files

    def _merge(self, path: Path) -> None:
        try:
            data = read_json(path)
            if data["schema"] != FILE_SCHEMA or data["rows"] != [self._first, self._end]:
                return
            bits = zlib.decompress(base64.b64decode(data["done"], validate=True))
        except (EnvironmentProblem, NotFoundError, StoreError, KeyError, TypeError, binascii.Error, zlib.error):
            return
        if len(bits) == (self._end - self._first + 7) // 8:
            before, self._bits = self._bits, self._bits | int.from_bytes(bits, "little")
            self._new = self._new or before != self._bits
