"""How an attempt ended, as `end.json`: written by its owner, or for an owner that is dead."""

import time
from typing import Any

from runners.attempts.failure import Failure
from store.files import write_json
from store.layout import FILE_SCHEMA, Layout
from store.status import trial_state


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
        "probe_s": None,
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
