"""Claims: exactly one process begins the next attempt of a trial.

A claim renames a directory with its `start.json` into place. So every attempt has an owner, and if two workers claim
the same number, one of them fails.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from ablate.runners.attempts.leases import Leases, earlier_life
from ablate.runners.checkpoint import Checkpoint, newest_checkpoint
from ablate.runners.processes.failure import Failure, fruitless_failure, lost_failure
from ablate.runners.provenance.code import made_by, ran_other_code
from ablate.store.files.attempts import BEAT_EVERY_S, begin, end_record, start_record, write_end
from ablate.store.files.layout import Layout
from ablate.store.files.removals import next_attempt
from ablate.store.files.trial_state import AttemptState, TrialState, attempt_state, last_beat_ns, trial_state
from ablate.store.state import State

MOST_LOST = 5
"""A trial has failed after this many attempts without an end record since its newest checkpoint.

Attempts whose SLURM task was requeued do not count, as after a pre-emption or a node failure.
"""

MOST_FRUITLESS = 3
"""A trial has failed after this many long attempts since its newest checkpoint, also of one SLURM task.

An attempt is long if it lasted twice the checkpoint interval and `LONG_BEATS` heartbeats. A shorter one counts as a
fraction, so a time limit that is too short is noticed, too.
"""

LONG_BEATS = 8

_RELIST_S = 0.5
"""Pause before listing a directory again; listings of network file systems may be stale."""


class Taken(NamedTuple):
    """The trial cannot be claimed: it has ended or is running."""

    state: State


class Claim(NamedTuple):
    """An attempt that this process owns."""

    number: int
    checkpoint: Checkpoint | None
    start: dict[str, Any]
    remarks: Sequence[str] = ()
    """Which checkpoints are not used, and why."""


def claim(
    layout: Layout,
    trial: str,
    fields: Mapping[str, Any],
    *,
    retry: bool,
    again: bool = False,
    leases: Leases | None = None,
) -> Claim | Taken:
    """Begin the next attempt of `trial`, unless it is done, failed (and `retry` is false), or being worked on.

    `fields` holds further fields of `start.json`. Its `sources` are the code that will run: checkpoints of other code
    are ignored, and with `again` a trial finished by other code is trained again. Without `sources`, code is not
    compared. A trial that failed in this submission is not retried, except with more micro-batches (`accumulate`)
    after it ran out of memory.

    `leases` tells which attempts are alive; the default is shared by the process. A trial is recorded as failed after
    `MOST_LOST` lost workers, or once its latest attempts add up to `MOST_FRUITLESS` long ones without a new checkpoint.

    Raises EnvironmentProblem if the campaign cannot be written, or its file system does not respond.
    """
    leases = leases or _own_leases()
    tried = 0
    while True:
        number = next_attempt(layout, trial)  # before reading the state: a concurrent claim then wins
        if number == tried:
            time.sleep(_RELIST_S)
        state = trial_state(layout, trial, leases.alive)
        taken = find_taken(state, fields, retry=retry, again=again)
        if taken is not None:
            return taken
        same_code = by_code(state, fields.get("sources"))
        checkpoint, remarks = newest_checkpoint(layout, trial, same_code)
        resumed = {"attempt": checkpoint.attempt, "step": checkpoint.step} if checkpoint else None
        start = {**start_record(trial, number), "resumed_from": resumed, **fields}
        if begin(layout, start, remarks):
            failure = _find_hopeless(layout, state, same_code, start)
            if failure is None:
                return Claim(number, checkpoint, start, remarks)
            record_death(layout, trial, number, checkpoint.step if checkpoint else 0, failure)
            return Taken(State.FAILED)
        tried = number


def by_code(state: TrialState, sources: Mapping[str, str] | None) -> Callable[[int], bool]:
    """Return a predicate: only code with these `sources` made the checkpoints of an attempt."""
    return lambda attempt: sources is None or made_by(state, attempt, sources)


@cache
def _own_leases() -> Leases:
    return Leases()


def find_taken(state: TrialState, fields: Mapping[str, Any], *, retry: bool, again: bool) -> Taken | None:
    """Return why a trial in `state` cannot be claimed, with the arguments of `claim`; None if it can."""
    sources = fields.get("sources")
    if state.state == State.DONE and again and sources is not None and ran_other_code(state, sources):
        return Taken(State.RUNNING) if state.live is not None else None
    if state.state in (State.DONE, State.RUNNING):
        return Taken(state.state)
    if state.state == State.FAILED and state.ended is not None and not _needs_less_memory_now(state.ended, fields):
        here = state.ended.start.get("submission") == fields.get("submission")
        return None if retry and not here else Taken(State.FAILED)
    return None


def _needs_less_memory_now(failed: AttemptState, fields: Mapping[str, Any]) -> bool:
    reason = (failed.end or {}).get("reason")
    return reason == "out_of_memory" and (fields.get("accumulate") or 1) > (failed.start.get("accumulate") or 1)


def _find_hopeless(
    layout: Layout, state: TrialState, same_code: Callable[[int], bool], start: Mapping[str, Any]
) -> Failure | None:
    """Return a failure if the earlier attempts that began where `start` begins were lost or fruitless too often.

    An earlier life of the same SLURM task is not lost: that of `start`, and those of later attempts. `worker.sh` counts
    these.
    """
    lives, died, long, places = 0, 0, 0.0, [start.get("place")]
    for attempt in reversed(state.attempts):
        theirs = attempt.start
        failed = attempt.end is not None and attempt.end["status"] == "failed"
        if failed or not same_code(attempt.attempt) or theirs.get("resumed_from") != start["resumed_from"]:
            break
        place = theirs.get("place")
        died += attempt.end is None and not any(earlier_life(place, later) for later in places)
        places.append(place)
        beats_s = LONG_BEATS * float(theirs.get("heartbeat_s", BEAT_EVERY_S))
        long += min(
            1.0, _lasted_s(layout, start["trial"], attempt) / max(2 * float(theirs.get("checkpoint_s", 0)), beats_s)
        )
        lives += 1
    if died >= MOST_LOST:
        return lost_failure(MOST_LOST)
    return fruitless_failure(lives, (start["resumed_from"] or {}).get("step", 0)) if long >= MOST_FRUITLESS else None


def _lasted_s(layout: Layout, trial: str, attempt: AttemptState) -> float:
    if attempt.end is not None:
        return float(attempt.end.get("wall_s") or 0.0)
    beat = last_beat_ns(layout, trial, attempt.attempt)
    return 0.0 if beat is None else beat / 1e9 - float(attempt.start["started"])


def record_death(layout: Layout, trial: str, number: int, step: int, failure: Failure) -> None:
    """Write the `end.json` that the owner of the attempt, which is dead, can no longer write."""
    state = attempt_state(layout, trial, number)
    wall_s = time.time() - float(state.start["started"]) if state else 0.0
    write_end(layout, {**end_record(trial, number, step, wall_s), **failure._asdict()})
