"""The scheduler is asked and ordered as it really answers and obeys."""

from pathlib import Path

import pytest
from cluster.cluster import Cluster, wait_for

from ablate.runners.backends.slurm.scheduler import SlurmScheduler, TaskStatus

GONE = 999_999
FOREVER = "while true; do sleep 0.1; done"


def found(job: int) -> dict[str, TaskStatus]:
    answer = SlurmScheduler().read_queue([job], ())
    assert answer.problem is None
    return dict(answer.tasks)


def running(job: int) -> list[str]:
    return sorted(name for name, news in found(job).items() if news.state == "running")


def test_tasks_that_wait_and_run_are_found_by_job_and_by_name(cluster: Cluster) -> None:
    options = ("--array=0-5%3", "--time=10", "--job-name=ablate-one", "-w", "n1", "-o", "/dev/null")
    job = cluster.submit(FOREVER, *options)
    wait_for(lambda: len(running(job)) == 2, "as many tasks as a node has CPUs to run")
    wait_for(lambda: found(job)[f"{job}_5"].words, "the scheduler to say why the last one waits")
    answer = SlurmScheduler().read_queue([job, GONE], ())
    assert answer.problem is None
    assert set(answer.tasks) == {f"{job}_{number}" for number in range(6)}
    assert answer.named == {"ablate-one": [job]}
    first = answer.tasks[f"{job}_0"]
    assert (first.state, first.node, first.words) == ("running", "n1", "")
    assert first.time_left_s == pytest.approx(600, abs=60)
    assert answer.tasks[f"{job}_5"].state == "queued"
    by_name = SlurmScheduler().read_queue([], ["ablate-one"])
    assert (set(by_name.tasks), by_name.named) == (set(answer.tasks), answer.named)
    assert SlurmScheduler().read_queue([], ["ablate-two"]).tasks == {}


def test_jobs_that_are_not_there_any_more_are_no_problem(cluster: Cluster) -> None:
    for answer in (SlurmScheduler().read_queue([GONE], ()), SlurmScheduler().read_accounts([GONE])):
        assert (answer.tasks, answer.problem) == ({}, None)
    assert SlurmScheduler().cancel([GONE]) is None


def test_cancelling_ends_what_is_named_and_nothing_else(cluster: Cluster) -> None:
    job = cluster.submit(FOREVER, "--array=0-9%1", "-o", "/dev/null")
    other = cluster.submit(FOREVER, "-o", "/dev/null")
    wait_for(lambda: running(job) and running(other), "both to run")
    assert SlurmScheduler().cancel([job, GONE]) is None
    wait_for(lambda: not found(job), "none to be left")
    assert running(other) == [str(other)]


def test_accounting_tells_how_each_task_ended(cluster: Cluster) -> None:
    script = "case $SLURM_ARRAY_TASK_ID in 0) ;; 1) exit 86;; 2) kill -KILL $$;; *) " + FOREVER + ";; esac"
    job = cluster.submit(script, "--array=0-7", "-o", "/dev/null")
    wait_for(lambda: len(running(job)) == 4 and len(found(job)) == 5, "three to end and four to run")
    cluster.run("scancel", f"{job}_3")
    wait_for(lambda: f"{job}_3" not in found(job), "a fourth to end")
    ends = ("COMPLETED", "FAILED", "CANCELLED")

    def told() -> dict[int, str]:
        answer = SlurmScheduler().read_accounts([job, GONE])
        assert answer.problem is None
        return {int(name.partition("_")[2]): news.words for name, news in answer.tasks.items() if "_" in name}

    wait_for(lambda: sum(words.startswith(ends) for words in told().values()) == 4, "accounting to be told")
    assert (told()[0], told()[1]) == ("COMPLETED, exit 0:0", "FAILED, exit 86:0")
    assert told()[2] in {"FAILED, exit 137:0", "FAILED, exit 0:9"}
    assert told()[3].startswith("CANCELLED")
    assert all(words.startswith(("RUNNING", "PENDING")) for task, words in told().items() if task not in range(4))
    assert SlurmScheduler().read_accounts([job]).tasks[f"{job}_0"].node in cluster.nodes


def test_a_controller_that_is_away_is_a_problem_and_not_an_empty_queue(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(cluster.environment["SLURM_CONF"]).read_text(encoding="utf-8")
    port = next(line for line in text.splitlines() if line.startswith("SlurmctldPort="))
    quick = text.replace(port, "SlurmctldPort=9").replace("MessageTimeout=5", "MessageTimeout=1")
    (tmp_path / "slurm.conf").write_text(quick, encoding="utf-8")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    answer = SlurmScheduler().read_queue([1], ())
    assert answer.asked is None
    assert str(answer.problem).startswith("squeue failed: slurm_load_jobs error: Unable to contact slurm controller")
