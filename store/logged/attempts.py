"""An attempt of a logged run: claimed with its `start.json`, alive while its process is, ended by its `end.json`.

The files are those of docs/design.md.
"""

import os
import shutil
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, final

from grid.errors import EnvironmentProblem, SpecError
from store.files import (
    environment_problem,
    make_directory,
    sync_directory,
    temporary_name,
    write_atomic,
    write_json,
)
from store.layout import FILE_SCHEMA, Layout
from store.status import TrialState, pid_space, process_started, trial_state

BEAT_S: Final = 5.0
"""Seconds between signs of life."""

REASONS: Final = ("diverged", "out_of_memory", "error", "killed")
"""Why an attempt can have failed."""

_WIDTH: Final = 96


def claim(layout: Layout, trial: str, submission: str, named: str) -> dict[str, Any]:
    """Begin the next attempt of `trial`: its `start.json`, which was published with its directory by one rename.

    Raises:
        SpecError: a live process is at it; `named` is how the run is called there.
        EnvironmentProblem: the campaign cannot be written.
    """
    while True:
        number = max(layout.attempts(trial), default=0) + 1
        require_free(trial_state(layout, trial), named)
        start = _start_record(trial, number, submission)
        if _published(layout, start):
            return start


def require_free(state: TrialState, named: str) -> None:
    """Refuse a trial that a live process logs.

    Raises:
        SpecError: it is one; says which process.
    """
    if state.live is not None:
        start = state.live.start
        raise SpecError(
            f"one process logs a run; {named} is being logged by process {start.get('pid')} on {start.get('host')}, "
            "wait for its end, or choose another seed or label"
        )


def _start_record(trial: str, number: int, submission: str) -> dict[str, Any]:
    pid = os.getpid()
    torch = sys.modules.get("torch")
    return {
        "schema": FILE_SCHEMA,
        "trial": trial,
        "attempt": number,
        "submission": submission,
        "worker": 0,
        "host": socket.gethostname(),
        "pid": pid,
        "pid_started": process_started(pid),
        "pid_space": pid_space(),
        "started": time.time(),
        "resumed_from": None,
        "path": None,
        "device": None,
        "threads": None,
        "code": None,
        "sources": None,
        "versions": {
            "python": sys.version.split()[0],
            "torch": None if torch is None else str(torch.__version__),
            "ablate": _own_version(),
        },
        "data": None,
        "heartbeat_s": BEAT_S,
        "place": None,
    }


def _own_version() -> str | None:
    try:
        return version("ablate")
    except PackageNotFoundError:
        return None


def _published(layout: Layout, start: Mapping[str, Any]) -> bool:
    """Make the attempt's directory appear under its number; False where another process was first."""
    final_place = layout.attempt(start["trial"], start["attempt"])
    place = final_place.with_name(temporary_name(final_place.name))
    make_directory(place)
    try:
        write_json(place / "start.json", start)
        (place / "heartbeat").touch()
        (place / "log").touch()
        try:
            place.rename(final_place)
        except OSError as error:
            if final_place.exists():
                return False
            raise environment_problem("claim", final_place, error) from error
        sync_directory(final_place.parent)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return True


def end(layout: Layout, start: Mapping[str, Any], step: int, outcome: Mapping[str, Any]) -> None:
    """Write the attempt's `end.json`; `outcome` is its status, and why where it is not ok.

    Raises:
        EnvironmentProblem: the campaign is gone, or cannot be written.
    """
    trial, attempt = start["trial"], start["attempt"]
    if not layout.start(trial, attempt).exists():
        raise EnvironmentProblem(f"{layout.start(trial, attempt)} is gone: the campaign was moved or removed meanwhile")
    now = time.time()
    nothing = ("reason", "message", "traceback", "fingerprint", "train_s", "evaluate_s", "probe_s")
    record = {
        "schema": FILE_SCHEMA,
        "trial": trial,
        "attempt": attempt,
        **dict.fromkeys((*nothing, "parameters", "operator_parameters", "memory_bytes")),
        "step": step,
        "wall_s": max(0.0, now - start["started"]),
        "ended": now,
    }
    said = outcome.get("traceback") or outcome.get("message")
    if said:
        write_atomic(layout.log(trial, attempt), f"{said.rstrip()}\n".encode("utf-8", "replace"))
    write_json(layout.end(trial, attempt), {**record, **outcome})


def failure(error: BaseException | str, reason: str | None) -> dict[str, Any]:
    """What `end.json` says of a run that failed with `error`.

    Raises:
        SpecError: the reason is none of `REASONS`.
    """
    if reason is not None and reason not in REASONS:
        raise SpecError(f"a run fails for one of the reasons {', '.join(REASONS)}; got {reason!r}")
    if isinstance(error, str):
        return {"status": "failed", "reason": reason or "error", "message": error}
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    short = isinstance(error, MemoryError) or "out of memory" in text.lower()
    return {
        "status": "failed",
        "reason": reason or ("out_of_memory" if short else "error"),
        "message": text,
        "traceback": "".join(traceback.format_exception(error)),
    }


@final
class SignOfLife:
    """Rewrites the attempt's `heartbeat` every few seconds, in a thread that ends with `stop` or the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="heartbeat", daemon=True)
        self._thread.start()

    def tell(self, text: str) -> None:
        """What the next sign says: JSON of at most 96 characters."""
        self._text = text

    def stop(self) -> None:
        """Give no more signs."""
        self._over.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._over.wait(BEAT_S):
            try:
                descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.pwrite(descriptor, f"{self._text:<{_WIDTH}}\n".encode("ascii"), 0)
                finally:
                    os.close(descriptor)
            except OSError:  # a file system that is away may come back; what is gone is told by the next record
                continue
