"""States from a worker's own end record if the queue does not answer, and the trials of held workers."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from submission_files import RUNS, Scripted, submit, write_record
from synthetic import Campaign, write_campaign

from runners.planning.survey import Surveyed
from runners.slurm.scheduler import TaskStatus
from runners.slurm.submissions import Standing, read_submission_status
from runners.slurm.submit.already_queued import queued_elsewhere
from runners.slurm.worker_records import Left

SSA = [("SSA", seed) for seed in range(4)]
BY_USER = TaskStatus("held", "JobHeldUser")


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return write_campaign(tmp_path, operators=("SSA",), seeds=range(4), pending=set(SSA))


@pytest.mark.parametrize(
    ("left", "tasks", "standing"),
    [
        ("time", None, "unknown"),  # it is queued again, or was
        ("signal", None, "unknown"),
        ("error", None, "unknown"),
        ("done", None, "ended"),
        ("late", None, "ended"),
        ("cancelled", None, "ended"),
        ("time", {}, "ended"),
        ("time", {"7_0": RUNS}, "running"),
        (None, {}, "gone"),
        (None, None, "running"),  # its record is fresh
    ],
)
def test_a_worker_that_left_has_ended_once_the_queue_says_so_or_nobody_queues_it_again(
    campaign: Campaign, left: Left | None, tasks: Mapping[str, TaskStatus] | None, standing: Standing
) -> None:
    submit(campaign, SSA)
    write_record(campaign.layout, 0, left=left)
    assert read_submission_status(campaign.layout, Scripted(tasks))[0][0].workers[0].standing == standing


@pytest.mark.parametrize("released", [False, True])
def test_trials_of_workers_that_a_shell_has_not_let_go_yet_are_theirs(campaign: Campaign, released: bool) -> None:
    submit(campaign, SSA, released=released)
    keys = {str(campaign.line("SSA", seed)["trial"]) for seed in range(4)}
    wanted = [Surveyed(key, "g", "c", "SSA", "SSA", "o", 0, 0, "pending") for key in keys]
    found = queued_elsewhere(campaign.layout, wanted, Scripted({"7_0": BY_USER, "7_1": BY_USER}))
    assert found.trials == (set() if released else keys)
