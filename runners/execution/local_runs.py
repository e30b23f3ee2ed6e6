"""Runs without a scheduler that are on, by their records; they may not have begun a trial yet."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from runners.attempts.manifest import Manifest
from runners.attempts.submission_record import SILENT_S, Submission, submission_records
from store.files.layout import Layout
from store.files.trial_status import TrialState, heartbeat_age, local_process, trial_state

_MOST_LOOK_S = 2.0
"""Most seconds for which `runs_at_work` reads trials."""


def runs_here(layout: Layout) -> list[Submission]:
    """List the runs whose process is on this host, oldest first; records that cannot be read are left out."""
    found = submission_records(layout)
    return [record for record in found if isinstance(record, Submission) and record.process is not None]


class RemoteRun(NamedTuple):
    """A run on another host that has not said that it is over."""

    record: Submission
    sign: float
    """The last of it: its record, or a heartbeat; in seconds since the epoch."""


def runs_elsewhere(layout: Layout, states: Mapping[str, TrialState]) -> list[RemoteRun]:
    """Such runs, oldest first; `states` are those of the trials that have begun and not ended, by key."""
    open_attempts = [(key, found) for key, state in states.items() for found in state.attempts if found.end is None]
    runs = []
    for record in submission_records(layout):
        if not isinstance(record, Submission) or record.machine == "slurm" or record.ended is not None:
            continue
        if local_process(vars(record)) is None:
            ours = ((key, found) for key, found in open_attempts if found.start["submission"] == record.submission)
            ages = (heartbeat_age(layout, key, found.attempt) for key, found in ours)
            beats = (time.time() - quiet_s for quiet_s in ages if quiet_s is not None)
            runs.append(RemoteRun(record, max((record.written, *beats))))
    return runs


def runs_at_work(layout: Layout) -> list[Submission]:
    """Runs without a scheduler that are on, or may be: by their process on this host; on others, by record or trials.

    After `_MOST_LOOK_S`, a run on another host counts as on. There may be very many trials to look at.
    """
    until = time.monotonic() + _MOST_LOOK_S
    here, remote = runs_here(layout), runs_elsewhere(layout, {})
    return [*here, *(each.record for each in remote if _may_work(layout, each, until))]


def _may_work(layout: Layout, run: RemoteRun, until: float) -> bool:
    if time.time() - run.sign < SILENT_S:
        return True
    manifest = Manifest(layout, run.record.submission)
    for row in range(len(manifest)):
        live = trial_state(layout, manifest.trial(row)).live
        if time.monotonic() > until or (live and live.start["submission"] == run.record.submission):
            return True
    return False
