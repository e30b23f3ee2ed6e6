"""The `end.json` of an attempt whose owner is dead."""

import time

from runners.training.failure import Failure
from store.files.attempts import end_record, write_end
from store.files.layout import Layout
from store.files.trial_status import trial_state


def record_death(layout: Layout, trial: str, number: int, step: int, failure: Failure) -> None:
    """Write the `end.json` that the owner of the attempt, which is dead, can no longer write."""
    state = next((found for found in trial_state(layout, trial).attempts if found.attempt == number), None)
    wall_s = time.time() - float(state.start["started"]) if state else 0.0
    write_end(layout, {**end_record(trial, number, step, wall_s), **failure._asdict()})
