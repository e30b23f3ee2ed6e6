"""A budget that is used up: workers end what they have begun, and what is left is nobody's."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from submission_files import FIRST, RUNS, Scripted, submit, write_record
from synthetic import Campaign, write_campaign, write_start

from runners.monitoring.trial_states import locate_trials
from runners.planning.survey import Surveyed
from runners.slurm.scheduler import TaskStatus
from runners.slurm.submissions import read_submission_status
from runners.slurm.submit.already_queued import queued_elsewhere
from store.store import Store

SSA = [("SSA", seed) for seed in range(4)]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """Four trials; one worker is at the first of them and has used two hours, another has left."""
    made = write_campaign(tmp_path, operators=("SSA",), seeds=range(4), pending=set(SSA))
    submit(made, SSA, budget={"hours": 3.0, "unit": "gpuh"})
    write_record(made.layout, 0, seconds=7200.0)
    write_record(made.layout, 1, seconds=3600.0, left="budget")
    place = {"scheduler": "slurm", "job": "7_0", "restarts": 0, "node": "n0", "devices": "0"}
    about = {"host": "n0", "pid": 4, "pid_started": 4, "submission": FIRST, "place": place, "started": time.time()}
    write_start(made.layout, key(made, 0), 1, **about)
    made.layout.heartbeat(key(made, 0), 1).write_text('{"step": 30, "steps": 60, "loss": 0.5}\n')
    return made


def key(campaign: Campaign, seed: int) -> str:
    return str(campaign.line("SSA", seed)["trial"])


def elsewhere(campaign: Campaign, tasks: Mapping[str, TaskStatus] | None) -> set[str]:
    wanted = [
        Surveyed(key(campaign, seed), "g", "c", "SSA", "SSA", "o", seed, seed, "running" if seed == 0 else "pending")
        for seed in range(4)
    ]
    return queued_elsewhere(campaign.layout, wanted, Scripted(tasks)).trials


def test_the_next_run_queues_what_a_spent_budget_left(campaign: Campaign) -> None:
    for tasks in ({"7_0": RUNS}, None):  # nobody need be asked for what nobody will begin
        assert elsewhere(campaign, tasks) == {key(campaign, 0)}
    write_record(campaign.layout, 0, seconds=7199.0)
    assert len(elsewhere(campaign, {"7_0": RUNS})) == 4


def test_status_calls_nothing_queued_that_a_spent_budget_left(campaign: Campaign) -> None:
    def states() -> list[str]:
        with Store.open(campaign.root) as store:
            found = locate_trials(store, Scripted({"7_0": RUNS}))
        return [found.trials[key(campaign, seed)].state for seed in range(4)]

    assert states() == ["running", "pending", "pending", "pending"]
    write_record(campaign.layout, 0, seconds=7199.0)
    assert states() == ["running", "queued", "queued", "queued"]
    assert not read_submission_status(campaign.layout, Scripted({"7_0": RUNS}))[0][0].spent
