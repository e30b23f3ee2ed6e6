"""Attempts on disk: begun by one rename together with their `start.json`, ended by their `end.json`.

docs/wire-format.md has the files. Workers and logged runs both use these functions; each has its own checks before.
"""

import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from grid.errors import NotFoundError, StoreError
from store.files.atomic import (
    environment_problem,
    make_directory,
    read_json,
    retry_io,
    temporary_name,
    write_json,
)
from store.files.change_tracker import touch_trial
from store.files.heartbeat import EVERY_S
from store.files.layout import FILE_SCHEMA, Layout
from store.files.trial_status import pid_space, process_started


def start_record(trial: str, number: int) -> dict[str, Any]:
    """The `start.json` of an attempt that this process begins now; of its code, path and device nothing is known."""
    pid = os.getpid()
    return {
        "schema": FILE_SCHEMA,
        "trial": trial,
        "attempt": number,
        "submission": None,
        "worker": None,
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
        "versions": _versions(),
        "data": None,
        "heartbeat_s": EVERY_S,
        "place": None,
    }


@cache
def _versions() -> dict[str, str | None]:
    return {"python": sys.version.split()[0], "torch": _version("torch"), "ablate": _version("ablate")}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # a source tree on the path that was never installed
        return None


def begin(layout: Layout, start: Mapping[str, Any], remarks: Sequence[str] = ()) -> bool:
    """Make the attempt's directory appear under its number, with `start.json` and `remarks` in its log.

    False if another process was first.

    Raises:
        EnvironmentProblem: the campaign cannot be written, or its file system does not answer.
    """
    final_place = layout.attempt(start["trial"], start["attempt"])
    touch_trial(layout, start["trial"])
    try:
        return retry_io(lambda: _published(layout, start, remarks, final_place))
    except OSError as error:
        raise environment_problem("claim", final_place, error) from error


def _published(layout: Layout, start: Mapping[str, Any], remarks: Sequence[str], final_place: Path) -> bool:
    """One try; another after one that was done, and was not told so, finds that it was."""
    place = final_place.with_name(temporary_name(final_place.name))
    make_directory(place, durable=False)
    try:
        write_json(place / "start.json", start, durable="nothing")  # the process dies with the machine
        (place / "heartbeat").touch()
        if remarks:
            (place / "log").write_text("".join(f"{remark}\n" for remark in remarks))
        try:
            place.rename(final_place)
        except OSError:
            if not final_place.exists():
                raise
            if not _is_ours(layout, start):
                return False
    finally:
        shutil.rmtree(place, ignore_errors=True)  # it is gone after the rename; a leftover is ignored by readers
    return True


def _is_ours(layout: Layout, start: Mapping[str, Any]) -> bool:
    """Whether a rename that reported an error was done all the same: NFS may lose the answer and ask twice."""
    try:
        return read_json(layout.start(start["trial"], start["attempt"])) == start
    except (NotFoundError, StoreError):
        return False


def write_end(layout: Layout, record: Mapping[str, Any]) -> None:
    """Write `record` as the `end.json` of the attempt that it names, and delete its heartbeat.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
    """
    touch_trial(layout, record["trial"])
    write_json(layout.end(record["trial"], record["attempt"]), record, durable="file")
    with suppress(OSError):  # it only costs room
        layout.heartbeat(record["trial"], record["attempt"]).unlink(missing_ok=True)


def end_record(trial: str, number: int, step: int, wall_s: float) -> dict[str, Any]:
    """An `end.json` of an attempt that failed, and of which nothing else is known."""
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
        "probe_s": None,
        "ended": time.time(),
        "parameters": None,
        "operator_parameters": None,
        "memory_bytes": None,
        "wrote": None,
        "files": None,
    }
