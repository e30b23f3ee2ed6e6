"""Runs without a scheduler on other hosts: seen by their records and heartbeats, since nobody sees their processes."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from submission_files import FIRST, SECOND, Scripted, submit
from synthetic import Campaign, write_campaign, write_start

from runners.attempts.submission_record import write_submission_record
from runners.execution.local_runs import runs_at_work
from runners.monitoring.cancel import Cancelling
from runners.monitoring.trial_states import TrialLocations, locate_trials
from store.store import Store

SSA = [("SSA", seed) for seed in range(3)]
ELSEWHERE = {"machine": "local", "host": "elsewhere", "pid": 7, "pid_started": 7}


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return write_campaign(tmp_path, operators=("SSA",), seeds=range(3), pending=set(SSA))


def look(campaign: Campaign) -> TrialLocations:
    with Store.open(campaign.root) as store:
        return locate_trials(store, Scripted())


def states(campaign: Campaign) -> list[str]:
    found = look(campaign).trials
    return [found[str(campaign.line(*trial)["trial"])].state for trial in SSA]


def test_a_run_that_began_just_now_on_another_host_has_its_trials_queued(campaign: Campaign) -> None:
    submit(campaign, SSA[:2], written=time.time() - 5, **ELSEWHERE)
    assert states(campaign) == ["queued", "queued", "pending"]
    assert look(campaign).notes == ()
    cancelling = Cancelling(campaign.layout, [], runs_at_work(campaign.layout), lambda _: None)
    cancelling.everything()
    assert f"run {FIRST} is on elsewhere" in cancelling.problems[0]


def test_of_a_run_that_was_quiet_for_long_it_is_said_that_nobody_knows(campaign: Campaign) -> None:
    record = submit(campaign, SSA[:2], written=time.time() - 7200, **ELSEWHERE)
    assert states(campaign) == ["pending"] * 3
    (note,) = look(campaign).notes
    assert f"whether run {FIRST} on elsewhere is still at work is unknown: its last sign of life is 2 h" in note
    write_submission_record(campaign.layout, replace(record, ended=time.time() - 7000))
    assert look(campaign).notes == ()


def test_a_heartbeat_of_its_own_is_a_sign_of_a_run(campaign: Campaign) -> None:
    """An attempt with rare heartbeats counts as gone, and its run may be at the next trial."""
    submit(campaign, SSA[:2], written=time.time() - 7200, **ELSEWHERE)
    submit(campaign, SSA[2:], submission=SECOND, written=time.time() - 7200, **ELSEWHERE)
    key = str(campaign.line("SSA", 0)["trial"])
    about = {"host": "elsewhere", "pid": 7, "pid_started": 7, "submission": FIRST, "heartbeat_s": 5.0}
    write_start(campaign.layout, key, 1, started=time.time() - 7000, **about)
    heartbeat = campaign.layout.heartbeat(key, 1)
    heartbeat.write_text('{"step": 30, "steps": 60, "loss": 0.5}\n')
    os.utime(heartbeat, (time.time() - 100,) * 2)
    assert states(campaign) == ["queued", "queued", "pending"]
    (note,) = look(campaign).notes
    assert SECOND in note
