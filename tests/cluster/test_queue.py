"""The scheduler is asked and ordered as it really answers and obeys."""

import time
from pathlib import Path

import pytest
from cluster.cluster import Cluster, wait_for

from grid.errors import EnvironmentProblem
from runners.slurm.queue import (
    TaskId,
    accounted,
    cancel,
    queued,
    queued_by_name,
    release,
    requeue,
)

GONE = 999_999
FOREVER = "while true; do sleep 0.1; done"


def found(job: int) -> dict[str, tuple[str, str]]:
    answer = queued([job])
    assert answer.problem is None
    return {str(task.id): (task.state, task.node) for task in answer.rows}


def running(job: int) -> list[str]:
    return sorted(name for name, (state, _) in found(job).items() if state == "RUNNING")


def test_tasks_that_wait_and_run_are_found_by_job_and_by_name(cluster: Cluster) -> None:
    options = ("--array=0-5%3", "--time=10", "--job-name=ablate-one", "-w", "n1", "-o", "/dev/null")
    job = cluster.submit(FOREVER, *options)
    wait_for(lambda: len(running(job)) == 2, "as many tasks as a node has CPUs to run")
    wait_for(lambda: max(queued([job]).rows).reason, "the scheduler to say why the last one waits")
    answer = queued([job, GONE])
    assert answer.problem is None
    assert {task.id for task in answer.rows} == {TaskId(job, number) for number in range(6)}
    assert {task.name for task in answer.rows} == {"ablate-one"}
    first = min(answer.rows)
    assert (first.state, first.node, first.reason, first.time_limit_s, first.restarts) == ("RUNNING", "n1", "", 600, 0)
    assert first.started == pytest.approx(time.time(), abs=60)
    assert max(answer.rows).state == "PENDING"
    assert set(queued_by_name("ablate-one").rows) == set(queued([job]).rows)
    assert queued_by_name("ablate-two") == ((), None)


def test_jobs_that_are_not_there_any_more_are_no_problem(cluster: Cluster) -> None:
    assert queued([GONE]) == ((), None)
    assert accounted([GONE]) == ((), None)
    assert not requeue(TaskId(GONE))
    assert not requeue(TaskId(GONE, 3))
    assert not release(TaskId(GONE))
    cancel([TaskId(GONE), TaskId(GONE, 3)])


def test_cancelling_ends_what_is_named_and_nothing_else(cluster: Cluster) -> None:
    job = cluster.submit(FOREVER, "--array=0-9%1", "-o", "/dev/null")
    other = cluster.submit(FOREVER, "-o", "/dev/null")
    wait_for(lambda: running(job) and running(other), "both to run")
    cancel([TaskId(job, 0), *(TaskId(job, number) for number in range(3, 10)), TaskId(GONE)])
    wait_for(lambda: set(found(job)) == {f"{job}_1", f"{job}_2"}, "two tasks to be left")
    assert running(other) == [str(other)]
    cancel([TaskId(job)])
    wait_for(lambda: not found(job), "none to be left")
    assert running(other) == [str(other)]


def test_a_held_job_starts_when_it_is_released(cluster: Cluster) -> None:
    job = cluster.submit(FOREVER, "--hold", "--array=0-1", "-o", "/dev/null")
    assert {task.reason for task in queued([job]).rows} == {"JobHeldUser"}
    assert release(TaskId(job))
    wait_for(lambda: len(running(job)) == 2, "both tasks to run")


def test_a_requeued_task_runs_again_and_says_how_often(cluster: Cluster) -> None:
    job = cluster.submit(FOREVER, "--array=0-0", "--requeue", "-o", "/dev/null")
    wait_for(lambda: running(job), "the task to run")
    assert requeue(TaskId(job, 0))
    wait_for(lambda: [task.restarts for task in queued([job]).rows if task.state == "RUNNING"] == [1], "a second run")
    assert requeue(TaskId(job, 0))
    wait_for(lambda: found(job)[f"{job}_0"][0] == "PENDING", "it to wait")
    assert requeue(TaskId(job, 0))  # it waits already: nothing is wrong


def test_accounting_tells_how_each_task_ended(cluster: Cluster) -> None:
    script = "case $SLURM_ARRAY_TASK_ID in 0) ;; 1) exit 86;; 2) kill -KILL $$;; *) " + FOREVER + ";; esac"
    job = cluster.submit(script, "--array=0-7", "-o", "/dev/null")
    wait_for(lambda: len(running(job)) == 4 and len(found(job)) == 5, "three to end and four to run")
    cancel([TaskId(job, 3)])
    wait_for(lambda: f"{job}_3" not in found(job), "a fourth to end")
    ended = {"COMPLETED", "FAILED", "CANCELLED"}

    def told() -> dict[int | None, tuple[str, int, int]]:
        answer = accounted([job, GONE])
        assert answer.problem is None
        return {row.id.task: (row.state, row.exit_code, row.signal) for row in answer.rows}

    wait_for(lambda: sum(state in ended for state, *_ in told().values()) == 4, "accounting to be told")
    assert told()[0] == ("COMPLETED", 0, 0)
    assert told()[1] == ("FAILED", 86, 0)
    assert told()[2][0] == "FAILED"
    assert told()[2][1:] in {(137, 0), (0, 9)}
    assert told()[3][0] == "CANCELLED"
    assert {state for task, (state, *_) in told().items() if task not in range(4)} <= {"RUNNING", "PENDING"}
    first = next(row for row in accounted([job]).rows if row.id.task == 0)
    assert first.node in cluster.nodes
    assert first.started is not None
    assert first.ended is not None
    assert first.started <= first.ended <= time.time() + 1


def test_a_controller_that_is_away_is_a_problem_and_not_an_empty_queue(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(cluster.environment["SLURM_CONF"]).read_text(encoding="utf-8")
    port = next(line for line in text.splitlines() if line.startswith("SlurmctldPort="))
    quick = text.replace(port, "SlurmctldPort=9").replace("MessageTimeout=5", "MessageTimeout=1")
    (tmp_path / "slurm.conf").write_text(quick, encoding="utf-8")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    answer = queued([1])
    assert answer.rows == ()
    assert answer.problem is not None
    assert answer.problem.startswith("squeue failed: slurm_load_jobs error: Unable to contact slurm controller")
    with pytest.raises(EnvironmentProblem, match="scontrol requeue 1 was not carried out"):
        requeue(TaskId(1))
