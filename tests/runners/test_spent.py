"""A budget is understood, and one that is used up: workers end what they have begun, and the rest is left."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from submission_files import FIRST, RUNS, Scripted, submit, write_record
from synthetic import Campaign, write_campaign, write_start

from grid.errors import SpecError
from runners.monitoring.trial_states import locate_trials
from runners.planning.duration import Budget, budget_hours
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


@pytest.mark.parametrize(
    ("text", "hours", "unit"),
    [
        ("200gpuh", 200.0, "GPU-h"),
        ("40 cpuh", 40.0, "CPU-h"),
        ("12CPU-h", 12.0, "CPU-h"),
        (" 0.5 GPUh ", 0.5, "GPU-h"),
        (".25gpu-h", 0.25, "GPU-h"),
    ],
)
def test_a_budget_is_hours_of_a_unit(text: str, hours: float, unit: str) -> None:
    assert budget_hours(text) == Budget(hours, unit)  # type: ignore[arg-type]
    assert budget_hours(str(budget_hours(text))) == budget_hours(text)


@pytest.mark.parametrize(
    "text", ["", "200", "gpuh", "90m", "200h", "-1gpuh", "0gpuh", "1e3gpuh", "nan gpuh", "1 2cpuh"]
)
def test_what_is_none_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(SpecError, match=r"such as 200gpuh or 40cpuh; got") as refused:
        budget_hours(text)
    assert repr(text) in str(refused.value)
