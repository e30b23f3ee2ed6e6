"""Claims: the next attempt of a trial is begun by one process, whoever else reaches for it.

A claim publishes the attempt's directory together with its `start.json` by one rename, so an attempt that exists has an
owner that can be looked up; of two workers that reach for the same number, one gets it.
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
from typing import Any, Literal, NamedTuple

from grid.errors import NotFoundError, StoreError
from runners.attempts.checkpoint import Checkpoint, checkpointed_step, has_checkpoints, newest_checkpoint
from runners.attempts.endings import record_death
from runners.attempts.failure import lost
from runners.attempts.heartbeat import EVERY_S
from runners.attempts.leases import Leases, earlier_life
from runners.provenance.code import made_by, ran_other_code
from store.files import (
    environment_problem,
    make_directory,
    read_json,
    retried,
    sync_directory,
    temporary_name,
    write_json,
)
from store.layout import FILE_SCHEMA, Layout
from store.status import AttemptState, TrialState, pid_space, process_started, trial_state

MOST_LOST = 5
"""Attempts in a row that vanished without a word and without a checkpoint gained, after which a trial has failed; those
are left out whose task has come back since, as after a pre-emption or the failure of a node."""

_RELIST_S = 0.5
"""Before a directory is listed again that did not show what a rename met: network file systems list late."""


class Taken(NamedTuple):
    """Why a trial cannot be claimed: it has ended, or a live process has it."""

    status: Literal["ok", "failed", "running"]


class Claim(NamedTuple):
    """An attempt that is this process's own."""

    number: int
    checkpoint: Checkpoint | None
    start: dict[str, Any]


def claim(
    layout: Layout,
    trial: str,
    about: Mapping[str, Any],
    *,
    retry: bool,
    again: bool = False,
    leases: Leases | None = None,
) -> Claim | Taken:
    """Begin the next attempt of `trial`, unless it is done, failed (and `retry` is false), or being worked on.

    `about` is what `start.json` says beside the trial, the attempt, the process and the time. Among it are `sources`,
    the code that will run: checkpoints of other code are passed over, and with `again` a trial that other code made is
    not done. Without sources no code is other code. What has failed in the submission of `about` is not tried again by
    it, except with more micro-batches (`accumulate`) after it was out of memory.

    `leases` knows who is alive; without, that of the process. A trial that `MOST_LOST` workers vanished over is
    recorded as failed.

    Raises:
        EnvironmentProblem: the campaign cannot be written, or its file system does not answer.
    """
    leases = leases or _own_leases()
    tried = 0
    while True:
        number = max(layout.attempts(trial), default=0) + 1  # before looking: who comes in between has taken it
        if number == tried:
            time.sleep(_RELIST_S)
        state = trial_state(layout, trial, leases.alive)
        taken = _taken(state, about, retry=retry, again=again)
        if taken is not None:
            return taken
        same_code = by_code(state, about.get("sources"))
        if _lost(layout, trial, state, same_code, about.get("place")):
            step = checkpointed_step(layout, trial, same_code)
            record_death(layout, trial, state.attempts[-1].attempt, step, lost(MOST_LOST))
            return Taken("failed")
        found, remarks = newest_checkpoint(layout, trial, same_code)
        start = _start_record(trial, number, found, about)
        if _publish(layout, start, remarks):
            return Claim(number, found, start)
        tried = number


def by_code(state: TrialState, sources: Mapping[str, str] | None) -> Callable[[int], bool]:
    """Tells whether code with these `sources` alone made the checkpoints of an attempt; unknown code is nobody's."""
    return lambda attempt: sources is None or made_by(state, attempt) == [dict(sources)]


@cache
def _own_leases() -> Leases:
    return Leases()


def _taken(state: TrialState, about: Mapping[str, Any], *, retry: bool, again: bool) -> Taken | None:
    sources = about.get("sources")
    if state.status == "ok" and again and sources is not None and ran_other_code(state, sources):
        return Taken("running") if state.live is not None else None
    if state.status in ("ok", "running"):
        return Taken(state.status)
    if state.status == "failed" and state.ended is not None and not _needs_less_memory_now(state.ended, about):
        here = state.ended.start.get("submission") == about.get("submission")
        return None if retry and not here else Taken("failed")
    return None


def _needs_less_memory_now(failed: AttemptState, about: Mapping[str, Any]) -> bool:
    reason = (failed.end or {}).get("reason")
    return reason == "out_of_memory" and (about.get("accumulate") or 1) > (failed.start.get("accumulate") or 1)


def _lost(layout: Layout, trial: str, state: TrialState, same_code: Callable[[int], bool], place: Any) -> bool:
    """Whether the latest attempts, of the code that will run, all vanished without getting the trial on.

    An attempt in an earlier life of a task that came back, at `place` or for a later attempt, is no reason to give up:
    SLURM ended that life, or the batch script, which counts how often the task dies.
    """
    times, places = 0, [place]
    for found in reversed(state.attempts):
        if found.end is not None or not same_code(found.attempt) or has_checkpoints(layout, trial, found.attempt):
            return False
        theirs = found.start.get("place")
        times += not any(isinstance(later, Mapping) and earlier_life(theirs, later) for later in places)
        if times == MOST_LOST:
            return True
        places.append(theirs)
    return False


def _start_record(trial: str, number: int, found: Checkpoint | None, about: Mapping[str, Any]) -> dict[str, Any]:
    pid = os.getpid()
    return {
        "schema": FILE_SCHEMA,
        "trial": trial,
        "attempt": number,
        "host": socket.gethostname(),
        "pid": pid,
        "pid_started": process_started(pid),
        "pid_space": pid_space(),
        "started": time.time(),
        "resumed_from": {"attempt": found.attempt, "step": found.step} if found else None,
        "versions": _versions(),
        "data": None,
        "heartbeat_s": EVERY_S,
        "place": None,
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
    try:
        return retried(lambda: _published(layout, start, remarks, final_place))
    except OSError as error:
        raise environment_problem("claim", final_place, error) from error


def _published(layout: Layout, start: dict[str, Any], remarks: Sequence[str], final_place: Path) -> bool:
    """One try; another after one that was done, and was not told so, finds that it was."""
    place = final_place.with_name(temporary_name(final_place.name))
    make_directory(place)
    try:
        write_json(place / "start.json", start)
        (place / "heartbeat").touch()
        (place / "log").write_text("".join(f"{remark}\n" for remark in remarks))
        try:
            place.rename(final_place)
        except OSError:
            if not final_place.exists():
                raise
            if not _is_ours(layout, start):
                return False
        sync_directory(final_place.parent)
    finally:
        shutil.rmtree(place, ignore_errors=True)  # it is gone after the rename; a leftover is ignored by readers
    return True


def _is_ours(layout: Layout, start: dict[str, Any]) -> bool:
    """Whether a rename that reported an error was done all the same: NFS may lose the answer and ask twice."""
    try:
        return read_json(layout.start(start["trial"], start["attempt"])) == start
    except (NotFoundError, StoreError):
        return False
