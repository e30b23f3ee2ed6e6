"""The file of a worker: all its lives in one, whichever of them was killed, and as much as was used."""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from slurm_node import send
from toy_campaign import toy_grid

from runners.attempts.worker import Outcome
from runners.slurm.worker.assignment import Arguments, Assignment
from runners.slurm.worker.task_environment import here
from runners.slurm.worker.worker_record import WorkerRecordFile
from runners.slurm.worker_records import (
    MOST_FINGERPRINTS,
    BudgetTracker,
    Left,
    WorkerRecord,
    read_records,
    read_workers,
    used_hours,
    worker_path,
    write_worker,
)
from runners.training.failure import Failure
from store.files.layout import Layout

SUBMISSION = "20260101T000000-000000"
LIFE = WorkerRecord(SUBMISSION, 0, 3, 0, "7_3", "n0", "n0", 5, 1.0, 2.0, 3600.0, gpus=2, slots=4, cpus=9)
LEFTS: tuple[Left | None, ...] = (None, "time", "signal", "error", "refused")


def lives(seed: int, count: int) -> Iterator[WorkerRecord]:
    """Records of one worker on three nodes; some lives were killed, and the last one runs."""
    chance = random.Random(seed)
    for restarts in range(count):
        node = f"n{chance.randrange(3)}"
        left = None if restarts == count - 1 else chance.choice(LEFTS)
        met = tuple(sorted({f"{chance.randrange(9)}" for _ in range(2)}))
        counts = {name: chance.randrange(4) for name in ("ok", "failed", "stopped")}
        about = {"node": node, "host": node, "left": left, "failures": met, "started": float(restarts)}
        yield replace(LIFE, restarts=restarts, seconds=float(chance.randrange(999)), **about, **counts)


@pytest.mark.parametrize("seed", range(5))
def test_the_lives_of_a_worker_are_one_file_and_nothing_of_them_is_lost(tmp_path: Path, seed: int) -> None:
    layout = Layout(tmp_path)
    each = list(lives(seed, 40))
    for life in each:
        write_worker(layout, replace(life, seconds=life.seconds / 2, left=None))  # it begins
        write_worker(layout, life)
    found = read_workers(layout, SUBMISSION)
    assert [path.name for path in (layout.submission(SUBMISSION) / "workers").iterdir()] == ["0-3.json"]
    assert found[-1] == each[-1]
    assert [life.restarts for life in found] == sorted(life.restarts for life in found)
    for unit in ("gpuh", "cpuh"):
        assert used_hours(found, unit) == pytest.approx(used_hours(each, unit))
    for node in ("n0", "n1", "n2"):
        here, there = ([life for life in some if life.node == node] for some in (found, each))
        for count in ("ok", "failed", "stopped"):
            assert sum(getattr(life, count) for life in here) == sum(getattr(life, count) for life in there)
        assert {met for life in here for met in life.failures} == {met for life in there for met in life.failures}
    for told in ("refused", "error"):
        assert [life for life in found if life.left == told] == [life for life in each if life.left == told]
    passed = [life for life in found[:-1] if life.left in (None, "time", "signal")]
    assert len(passed) <= 9  # by node and how it ended, not by life


def test_what_a_life_that_was_killed_has_used_counts_and_it_leaves_the_next_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    second = replace(LIFE, restarts=1, node="n1", seconds=0.0)
    write_worker(layout, replace(LIFE, seconds=1800.0))
    write_worker(layout, second)
    assert used_hours(read_workers(layout, SUBMISSION), "gpuh") == 1.0
    assert BudgetTracker(layout, SUBMISSION, 1.0, "gpuh").empty()
    assert not BudgetTracker(layout, SUBMISSION, 1.1, "gpuh").empty()
    write_worker(layout, replace(LIFE, seconds=9999.0, left="done"))  # it outlives its node
    assert read_workers(layout, SUBMISSION) == [replace(LIFE, seconds=1800.0), second]


def test_beside_a_damaged_file_a_life_has_one_of_its_own(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    write_worker(layout, LIFE)
    worker_path(layout, LIFE).write_text("{")
    for seconds in (1.0, 60.0):
        write_worker(layout, replace(LIFE, restarts=1, seconds=seconds))
    found, note = read_records(layout, SUBMISSION)
    assert found == [replace(LIFE, restarts=1, seconds=60.0)]
    assert "1 of 2 records of workers" in str(note)
    assert worker_path(layout, LIFE).read_text() == "{"


def test_files_of_single_lives_are_read_too(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    folder = layout.submission(SUBMISSION) / "workers"
    folder.mkdir(parents=True)
    for restarts in range(2):
        data = {"schema": 1, **asdict(replace(LIFE, restarts=restarts))}
        data["class"] = data.pop("resource_class")
        (folder / f"0-3-{restarts}.json").write_text(json.dumps(data))
    assert read_workers(layout, SUBMISSION) == [LIFE, replace(LIFE, restarts=1)]


def test_a_worker_remembers_as_many_kinds_of_failure_as_it_says(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for restarts in range(3):
        met = tuple(f"{restarts}-{number}" for number in range(50))
        write_worker(layout, replace(LIFE, restarts=restarts, failures=met))
    before, last = read_workers(layout, SUBMISSION)
    assert len(before.failures) == MOST_FINGERPRINTS
    assert len(last.failures) == 50
    sent = send(tmp_path / "campaign", toy_grid())
    environ = {"SLURM_ARRAY_JOB_ID": "100", "SLURM_ARRAY_TASK_ID": "0"}
    diary = WorkerRecordFile(Assignment(Arguments(str(sent.root), sent.submission, 0, 0), here(environ)))
    for number in [*range(70), 0]:
        diary.count(Outcome(number, "failed", failure=Failure("error", "m", None, f"{number}")))
    assert diary.record.failures == tuple(str(number) for number in range(MOST_FINGERPRINTS))
    assert diary.record.failed == 71
