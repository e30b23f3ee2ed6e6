"""Workers that all gave up: their reason is in status, failures and logs, also where no record of theirs has it."""

from pathlib import Path

import pytest
from submission_files import FIRST, WAITS, Scripted, submit, write_record
from synthetic import Campaign, write_campaign, write_end, write_start

from ablate.runners.attempts.submission_record import Array
from ablate.runners.attempts.worker_logs import last_words, worker_log
from ablate.runners.backends.slurm.scheduler import TaskStatus
from ablate.runners.backends.slurm.submit.job_arrays import MOST_REFUSALS
from ablate.runners.cli.app import execute
from ablate.runners.monitoring.failure_groups import worker_rejections
from ablate.runners.monitoring.status_text import read_status, write_status
from ablate.runners.monitoring.trial_locations import locate_trials
from ablate.store.store import Store

SSA = [("SSA", seed) for seed in range(3)]
AGAIN = """\
/var/spool/slurmd/job00005/slurm_script: line 114: module: command not found
2026-11-21 18:24:36 ablate: the lines before the worker ended with 1 on n1
2026-11-21 18:24:36 ablate: queued again: node n1 refuses the worker, which is kept away from it
"""
GIVEN_UP = f"""{AGAIN}\
/var/spool/slurmd/job00005/slurm_script: line 114: module: command not found
2026-11-21 18:26:36 ablate: the lines before the worker ended with 1 on n2
2026-11-21 18:26:36 ablate: not queued again: no node of partition debug is left that has not refused it
"""
REASON = "module: command not found; the lines before the worker ended with 1 on n2"


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(3), pending=set(SSA))


def prints(campaign: Campaign, job: str, text: str) -> Path:
    path = worker_log(campaign.layout, FIRST, job)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def status(campaign: Campaign, scheduler: Scripted, capsys: pytest.CaptureFixture[str]) -> str:
    with Store.open(campaign.root) as store:
        found = read_status(store, locate_trials(store, scheduler), ["quickstart"], None)
    capsys.readouterr()
    write_status(found)
    return capsys.readouterr().out


def test_set_up_that_fails_everywhere_is_told(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    submit(campaign, SSA, classes=[(3, [Array(0, 1, 5)])])
    path = prints(campaign, "5_0", GIVEN_UP)
    assert f"gave up: 1 worker (1 x {REASON}, see {path})" in status(campaign, Scripted({}), capsys)
    (found,) = worker_rejections(campaign.layout)
    assert (found.left, found.says, found.hosts) == ("unsaid", REASON, {"n2": 1})
    assert found.output == str(path)
    assert execute(["status", "--failures", "--campaign", str(campaign.root)]) == 0
    assert f"1 x worker was given up: {REASON}" in capsys.readouterr().out


def test_a_worker_given_up_later_says_so(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    submit(campaign, SSA, classes=[(3, [Array(0, 1, 5)])])
    prints(campaign, "5_0", AGAIN)
    assert "gave up" not in status(campaign, Scripted({"5_0": WAITS}), capsys)
    assert worker_rejections(campaign.layout) == []
    cancelled = "2026-11-21 18:26:36 ablate: not queued again: it was cancelled, or SLURM ...\n"
    for text, left, given_up in ((GIVEN_UP + cancelled, None, 0), (GIVEN_UP, "time", 1), (GIVEN_UP, "done", 0)):
        prints(campaign, "5_0", text)
        if left:
            write_record(campaign.layout, 0, job="5_0", left=left)
        told = f"gave up: 1 worker (1 x {REASON}" in status(campaign, Scripted({}), capsys)
        assert told == given_up == len(worker_rejections(campaign.layout))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GIVEN_UP, REASON),
        ("2026-01-01 00:00:00 ablate: a line of set-up ended with 3 on n1: false\n", "a line of set-up ended with 3"),
        (
            "slurmstepd: error: execve(): /gone/python: No such file or directory\n"
            "srun: error: n1: task 0: Exited with exit code 2\n"
            "2026-01-01 00:00:00 ablate: not queued again: the worker died with status 2, and that was death 10\n",
            "slurmstepd: error: execve(): /gone/python: No such file",
        ),
        ("2026-01-01 00:00:00 ablate: queued again: x\n", "queued again: x"),
    ],
)
def test_the_telling_line_is_that_of_the_program_that_failed(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "1_0_0_log.out"
    assert last_words(path) is None
    path.write_text("\n")
    assert last_words(path) is None
    path.write_text("2026-01-01 00:00:00 ablate: queued again: its time is over\n" * 1000 + text)
    found = last_words(path)
    assert found is not None
    assert found.text.startswith(says)


def test_workers_without_time_or_disk_say_so(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    submit(campaign, SSA, classes=[(3, [Array(0, 2, 7)])])
    write_record(campaign.layout, 0, left="late", says="nothing was begun")
    write_record(campaign.layout, 1, left="full", says="the disk is full")
    said = status(campaign, Scripted({}), capsys)
    assert "gave up: 2 workers (1 x nothing was begun; 1 x the disk is full)" in said
    (found,) = worker_rejections(campaign.layout)
    assert (found.left, found.output) == ("late", None)
    path = prints(campaign, "7_0", "something\n")
    assert execute(["status", "--failures", "--campaign", str(campaign.root)]) == 0
    assert f"output {path}" in capsys.readouterr().out.replace("\n", "")
    assert "1 full" not in status(campaign, Scripted({"7_1": WAITS}), capsys)


def test_a_node_that_cannot_write_is_known_by_its_exit_and_its_silence(
    campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(campaign, SSA, classes=[(3, [Array(0, 1, 7)])])
    scheduler = Scripted({}, {"7_0": TaskStatus("ended", "FAILED, exit 0:53", "n1")})
    assert "cannot write" in status(campaign, scheduler, capsys).replace("\n", "")
    prints(campaign, "7_0", "something\n")
    assert "cannot write" not in status(campaign, scheduler, capsys)


def test_a_reason_of_all_nodes_excludes_none(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    submit(campaign, SSA)
    no_cuda = "execution.device is 'cuda' and this machine has no CUDA device; use 'auto' or 'cpu'"
    for restarts in range(MOST_REFUSALS):
        node = f"n{restarts}"
        write_record(campaign.layout, 0, restarts=restarts, left="refused", says=no_cuda, node=node)
    (found,) = worker_rejections(campaign.layout)
    assert found.n == MOST_REFUSALS
    assert "--exclude" not in found.action
    key = str(campaign.line("SSA", 0)["trial"])
    write_start(campaign.layout, key, 1, submission=FIRST, place={"scheduler": "slurm", "job": "7_0", "node": "n2"})
    write_end(campaign.layout, key, 1, status="stopped")
    assert "gave up" in status(campaign, Scripted({}), capsys)
    write_record(campaign.layout, 1, node="n7", ok=1, left="done")
    assert worker_rejections(campaign.layout)[0].action.endswith("or leave it out with --exclude n0,n1,n2")
