"""Questions to SLURM's commands: pretended ones that answer, refuse, hang or are missing."""

import json
import os
import time
from pathlib import Path

import pytest
from pretend_slurm import Fake
from submission_files import SMALL, submit
from synthetic import Campaign, write_campaign

from ablate.runners.backends.slurm.scheduler import _QUEUE, QueueStatus, SlurmScheduler, TaskStatus, account_rows
from ablate.runners.cli.app import execute


def row(job: int, task: object, state: str, **fields: object) -> str:
    usual = {"Reason": "None", "NodeList": "", "StartTime": "N/A", "TimeLimit": "1:00:00", "Name": "x"}
    values = {**usual, "ArrayJobID": job, "ArrayTaskID": task, "State": state, **fields}
    return "|".join(f"{values[name]!s:{width}}" for name, width in _QUEUE.items()) + "|"


def answers(*lines: str) -> str:
    return "cat <<'END'\n" + "\n".join(lines) + "\nEND"


def test_tasks_wait_or_run(fake: Fake) -> None:
    began = int(time.time()) - 600
    said = fake(
        "squeue",
        answers(
            row(7, 0, "RUNNING", NodeList="n3", StartTime=began),
            "CLUSTER: toy",
            row(7, 1, "PENDING", Reason="ReqNodeNotAvail, n[1-2]", StartTime=began + 9999),
            row(7, 2, "COMPLETING", NodeList="n4", StartTime=began, TimeLimit="UNLIMITED"),
            row(8, "N/A", "REQUEUE_HOLD", Reason="JobHeldUser"),
            row(9, 0, "CANCELLED", NodeList="n5"),
        ),
    )
    found = SlurmScheduler().read_queue([7, 8, 9], [])
    running = found.tasks.pop("7_0")
    assert (running.state, running.node) == ("running", "n3")
    assert running.time_left_s == pytest.approx(3000, abs=100)
    assert found.tasks == {
        "7_1": TaskStatus("queued", "ReqNodeNotAvail, n[1-2]"),
        "7_2": TaskStatus("running", "", "n4"),
        "8": TaskStatus("held", "JobHeldUser"),
        "9_0": TaskStatus("ended", "CANCELLED", "n5"),
    }
    assert (found.problem, found.named) == (None, {"x": [7, 8, 9]})
    assert len(said.read_text().splitlines()) == 1


def test_what_nobody_lets_go_does_not_just_wait(fake: Fake) -> None:
    held = {
        "JobHeldUser": "PENDING", "JobHeldAdmin": "PENDING", "JobHoldMaxRequeue": "PENDING",
        "launch_failed_requeued_held": "PENDING", "launch failed requeued held": "PENDING",
        "job_requeued_in_held_state": "PENDING", "None": "SPECIAL_EXIT",
    }  # fmt: skip
    others = {"QOSUsageThreshold": "PENDING", "BeginTime": "PENDING", "None": "REQUEUED", "JobHeldUser": "RUNNING"}
    for states, expected in ((held, True), (others, False)):
        rows = [row(7, task, state, Reason=reason) for task, (reason, state) in enumerate(states.items())]
        fake("squeue", answers(*rows))
        tasks = SlurmScheduler().read_queue([7], []).tasks
        assert [tasks[f"7_{task}"].state == "held" for task in range(len(states))] == [expected] * len(states)
        if expected:
            words = [reason if reason != "None" else state for reason, state in states.items()]
            assert [tasks[f"7_{task}"].words for task in range(len(states))] == words


def test_whoever_does_not_answer_is_named_and_nothing_fails(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SlurmScheduler().read_queue([7], [])[1:3] == (None, "squeue is not installed on this machine")
    calls = [fake(name, "exit 1") for name in ("squeue", "sacct", "scancel")]
    assert SlurmScheduler().read_queue([], [])[::2] == ({}, None)  # nothing is asked about nothing
    assert SlurmScheduler().read_accounts([])[::2] == ({}, None)
    assert SlurmScheduler().cancel([]) is None
    assert [path.read_text() for path in calls] == [""] * 3
    fake("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    found = SlurmScheduler().read_queue([7], [])
    assert found.asked is None
    assert "Unable to contact slurm controller" in str(found.problem)
    assert SlurmScheduler().read_accounts([7]).tasks == {}
    fake("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")  # it is not there any more
    found = SlurmScheduler().read_queue([7], [])
    assert (found.tasks, found.problem, found.asked is None) == ({}, None, False)
    fake("squeue", f'case "$*" in *--name*) exit 1;; esac\n{answers(row(7, 0, "RUNNING"))}')
    assert SlurmScheduler().read_queue([7], ["ablate-x"]) == QueueStatus({}, None, "squeue failed: exit code 1")
    monkeypatch.setattr("ablate.runners.backends.slurm.scheduler.PATIENCE_S", 0.2)
    fake("squeue", "exec sleep 15")
    assert "did not answer within" in str(SlurmScheduler().read_queue([7], []).problem)


def test_accounting_s_rows_with_a_range_that_overlaps_tasks_of_their_own() -> None:
    text = (
        "7_0|CANCELLED by 1000|0:15|n1\n"
        "7_2|RUNNING|0:0|n1\n"
        "7_[2,7-8%2]|PENDING|0:0|None assigned\n"
        "11|FAILED|86:0|n1\n"
        "11.batch|FAILED|86:0|n1\n"
        "a line of something else\n"
    )
    assert account_rows(text) == {
        "7_0": TaskStatus("ended", "CANCELLED, exit 0:15", "n1"),
        "7_2": TaskStatus("ended", "RUNNING, exit 0:0", "n1"),
        "7_7": TaskStatus("ended", "PENDING, exit 0:0"),
        "7_8": TaskStatus("ended", "PENDING, exit 0:0"),
        "11": TaskStatus("ended", "FAILED, exit 86:0", "n1"),
    }


def test_what_a_user_s_environment_changes_is_not_heeded(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("squeue", 'echo "7|1|PENDING|$SQUEUE_USERS|n1|5|1:00|$SLURM_TIME_FORMAT|"')
    monkeypatch.setenv("SQUEUE_USERS", "somebody")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    found = SlurmScheduler().read_queue([7], [])
    assert (found.tasks["7_1"].words, list(found.named), os.environ["SQUEUE_USERS"]) == ("", ["%s"], "somebody")


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    trials = [("SSA", seed) for seed in range(4)]
    made = write_campaign(tmp_path / "c", operators=("softmax", "SSA"), seeds=range(4), pending=set(trials), **SMALL)
    submit(made, trials)
    return made


def test_status_asks_each_command_once(campaign: Campaign, fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    squeue = fake("squeue", answers(row(7, 0, "PENDING", Reason="Resources")))
    sacct = fake("sacct", answers("7_1|OUT_OF_MEMORY|0:125|n3"))
    assert execute(["status", "--json", "--campaign", str(campaign.root)]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert {trial["state"] for trial in data["trials"].values()} == {"queued"}
    assert [(worker["standing"], worker["words"]) for worker in data["workers"]] == [
        ("queued", "Resources"),
        ("lost", "OUT_OF_MEMORY, exit 0:125"),
    ]
    assert [len(path.read_text().splitlines()) for path in (squeue, sacct)] == [1, 1]


def test_what_is_not_in_the_queue_is_not_cancelled(
    campaign: Campaign, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake("squeue", answers(row(7, 0, "PENDING"), row(7, 1, "PENDING")))
    scancel = fake("scancel", "exit 0")
    here = ["--campaign", str(campaign.root)]
    assert execute(["cancel", *here]) == 0
    assert "2 waiting workers left the queue" in capsys.readouterr().out
    assert scancel.read_text() == "7\n"
    for words, code, said in (
        ([], 0, "nothing is queued"),
        (["seed=1"], 0, "nothing of that is queued"),
        (["seed=9"], 3, ""),
    ):
        assert execute(["cancel", *words, *here]) == code
        assert said in capsys.readouterr().out
