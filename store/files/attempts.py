"""Attempts on disk: begun by one rename together with their `start.json`, alive by a heartbeat, ended by `end.json`.

docs/wire-format.md has the files. Workers and logged runs both use these functions; each has its own checks before.
"""

import json
import math
import os
import shutil
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, final

from ablate.grid.errors import NotFoundError, StoreError
from ablate.store.files.atomic import (
    disk_errors,
    make_directory,
    read_json,
    retry_io,
    temporary_name,
    unshare,
    write_json,
)
from ablate.store.files.change_tracker import touch_trial
from ablate.store.files.error_texts import MOST_MESSAGE, MOST_TRACEBACK, limit_text
from ablate.store.files.layout import FILE_SCHEMA, Layout
from ablate.store.files.records import End, Start
from ablate.store.files.trial_state import pid_space, process_started

BEAT_EVERY_S = 5.0  # seconds between signs of life where nothing else is asked for

_HEARTBEAT_WIDTH = 160
_STEPS_TIMED = 101  # the median of so many steps is how long a step takes


def start_record(trial: str, number: int) -> dict[str, Any]:
    """The `start.json` of an attempt that this process begins now; of its code, path and device nothing is known."""
    pid = os.getpid()
    record: dict[str, Any] = {"schema": FILE_SCHEMA, **dict.fromkeys(Start.model_fields)}
    record |= {"trial": trial, "attempt": number, "host": socket.gethostname(), "pid": pid}
    record |= {"pid_started": process_started(pid), "pid_space": pid_space(), "started": time.time()}
    return record | {"versions": _versions(), "heartbeat_s": BEAT_EVERY_S}


@cache
def _versions() -> dict[str, str | None]:
    packages = ("torch", "triton", "ablate")
    versions: dict[str, str | None] = {"python": sys.version.split()[0], **dict.fromkeys(packages)}
    for package in packages:
        with suppress(PackageNotFoundError):  # a source tree on the path that was never installed
            versions[package] = version(package)
    return versions


def begin(layout: Layout, start: Mapping[str, Any], remarks: Sequence[str] = ()) -> bool:
    """Publish the attempt with its `start.json`, and `remarks` in its log; False if another process was first."""
    final_place = layout.attempt(start["trial"], start["attempt"])
    touch_trial(layout, start["trial"])
    with disk_errors("claim", final_place):
        return retry_io(lambda: _publish(layout, start, remarks, final_place))


def _publish(layout: Layout, start: Mapping[str, Any], remarks: Sequence[str], final_place: Path) -> bool:
    """Try once. NFS may lose the answer to a rename and ask twice, so an attempt that is ours was published."""
    place = final_place.with_name(temporary_name(final_place.name))
    make_directory(place, durable=False)
    try:
        write_json(place / "start.json", start, durable="nothing")  # the process dies with the machine
        (place / "heartbeat").touch()
        if remarks:
            with suppress(OSError):  # no attempt waits for its log
                (place / "log").write_text("".join(f"{remark}\n" for remark in remarks), "utf-8", "backslashreplace")
        try:
            place.rename(final_place)
        except OSError:
            if not final_place.exists():
                raise
            with suppress(NotFoundError, StoreError):
                return read_json(layout.start(start["trial"], start["attempt"])) == start
            return False
    finally:
        shutil.rmtree(place, ignore_errors=True)  # it is gone after the rename; a leftover is ignored by readers
    return True


def write_end(layout: Layout, record: Mapping[str, Any]) -> None:
    """Write `record` as the `end.json` of the attempt that it names, and delete its heartbeat."""
    touch_trial(layout, record["trial"])
    limits = {"message": MOST_MESSAGE, "traceback": MOST_TRACEBACK}
    texts = {name: limit_text(record[name], most) for name, most in limits.items() if record.get(name) is not None}
    write_json(layout.end(record["trial"], record["attempt"]), {**record, **texts}, durable="file")
    with suppress(OSError):  # it only costs room
        layout.heartbeat(record["trial"], record["attempt"]).unlink(missing_ok=True)


def end_record(trial: str, number: int, step: int, wall_s: float) -> dict[str, Any]:
    """An `end.json` of an attempt that failed, and of which nothing else is known."""
    record: dict[str, Any] = {
        "schema": FILE_SCHEMA,
        **dict.fromkeys(name for name in End.model_fields if name != "cost"),
    }
    record |= {"trial": trial, "attempt": number, "status": "failed"}
    return record | {"step": step, "wall_s": wall_s, "ended": time.time()}


@final
class Heartbeat:
    """Writes one line of fixed width to `path`, which exists, every `every_s` seconds from `start` to `stop`.

    Its own thread writes, so a slow training step does not delay it. A write replaces the whole line at once.
    """

    def __init__(self, path: Path, every_s: float = BEAT_EVERY_S) -> None:
        self._path = path
        self._every_s = every_s
        self._progress: tuple[int, int | None, float] | None = None
        self._took: deque[float] = deque(maxlen=_STEPS_TIMED)
        self._stepped = self._worked = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def tell(self, step: int, steps: int | None, loss: float) -> None:
        """Content of the next heartbeat: a step was made."""
        now = time.monotonic()
        if self._progress is not None and step > self._progress[0]:
            self._took.append((now - self._stepped) / (step - self._progress[0]))
        self._progress, self._stepped = (step, steps, loss), now
        self.works()

    def works(self) -> None:
        """Content of the next heartbeat: the attempt made progress of any kind."""
        self._worked = time.monotonic()

    def beat(self) -> None:
        """Write a line now."""
        progress: dict[str, Any] = {"idle_s": round(time.monotonic() - self._worked, 1)}
        if self._progress is not None:
            step, steps, loss = self._progress
            progress |= {"step": step, "steps": steps, "loss": loss if math.isfinite(loss) else None}
        if took := sorted(self._took.copy()):
            progress["step_s"] = float(f"{took[len(took) // 2]:.3g}")
        # a stale handle or a server that is away may pass. If it lasts, others take the trial over, which the
        # attempt finds out when it saves. NFS sends what was written when the file is closed.
        with suppress(OSError):
            unshare(self._path)
            with self._path.open("rb+", buffering=0) as file:
                file.write(f"{json.dumps(progress):<{_HEARTBEAT_WIDTH}}\n".encode("ascii"))

    def _live(self) -> None:
        while not self._stop.wait(self._every_s):
            self.beat()
