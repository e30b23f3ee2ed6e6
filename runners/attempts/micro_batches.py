"""Chooses the number of micro-batches: doubled after out of memory, for the same global batch."""

import math
from collections.abc import Mapping
from typing import Any

from ablate.store.files.trial_state import TrialState
from ablate.store.state import State


def written_micro_batches(spec: Mapping[str, Any]) -> int | None:
    """Return the number of micro-batches in the spec; None if such trials have none."""
    execution = spec.get("execution") or {}
    count, most = execution.get("accumulate"), execution.get("micro_batch")
    if isinstance(count, int) and isinstance(most, int):
        return math.ceil(int(spec["task"]["batch"]) / (int(execution["gpus"]) * most))
    return count if isinstance(count, int) else None


def micro_batches(state: TrialState, written: int) -> int:
    """Return the largest number tried so far, doubled if it ran out of memory."""
    tried = [(each.start.get("accumulate") or 0, (each.end or {}).get("reason")) for each in state.attempts]
    most: int = max([written, *(count for count, _ in tried)])
    return 2 * most if (most, "out_of_memory") in tried else most


def wants_smaller(state: TrialState, spec: Mapping[str, Any]) -> bool:
    """Return True if the trial ran out of memory and its next attempt would use more micro-batches.

    The trial itself checks whether its batch can be split that far.
    """
    written, last = written_micro_batches(spec), state.ended
    if state.state != State.FAILED or written is None or last is None:
        return False
    tried = last.start.get("accumulate")
    return bool(tried and (last.end or {}).get("reason") == "out_of_memory" and micro_batches(state, written) > tried)


def split(spec: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return the spec with `count` micro-batches; the trial may reject it."""
    execution = {**spec["execution"], "accumulate": count}
    if "micro_batch" in execution:
        execution["micro_batch"] = None  # the count replaces it
    return {**spec, "execution": execution}
