"""The file of a worker: all its lives in one, whichever of them was killed, and as much as was used."""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from row_fakes import SUBMISSION

from ablate.runners.attempts.worker_records import (
    BudgetTracker,
    Left,
    WorkerRecord,
    read_records,
    read_workers,
    used_hours,
    worker_path,
    write_worker,
)
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout

LIFE = WorkerRecord(SUBMISSION, 0, 3, 0, "7_3", "n0", "n0", 5, 1.0, 2.0, 3600.0, gpus=2, slots=4, cpus=9)
LEFTS: tuple[Left | None, ...] = (None, "time", "signal", "error", "refused")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path)
    found.submission(SUBMISSION).mkdir(parents=True)
    found.submission_record(SUBMISSION).write_text("{}")
    return found


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


def test_the_lives_of_a_worker_are_one_file_and_nothing_of_them_is_lost(layout: Layout) -> None:
    each = list(lives(0, 40))
    for life in each:
        write_worker(layout, replace(life, seconds=life.seconds / 2, left=None))  # it begins
        write_worker(layout, life)
    assert [path.name for path in (layout.submission(SUBMISSION) / "workers").iterdir()] == ["0-3.json"]
    assert read_workers(layout, SUBMISSION) == each


def test_what_a_life_that_was_killed_has_used_counts_and_it_leaves_the_next_alone(layout: Layout) -> None:
    second = replace(LIFE, restarts=1, node="n1", seconds=0.0)
    write_worker(layout, replace(LIFE, seconds=1800.0))
    write_worker(layout, second)
    assert used_hours(read_workers(layout, SUBMISSION), "gpuh") == 1.0
    assert BudgetTracker(layout, SUBMISSION, 1.0, "gpuh").empty()
    assert not BudgetTracker(layout, SUBMISSION, 1.1, "gpuh").empty()
    write_worker(layout, replace(LIFE, seconds=9999.0, left="done"))  # it outlives its node
    assert read_workers(layout, SUBMISSION) == [replace(LIFE, seconds=1800.0), second]


@pytest.mark.parametrize("damage", ["{", {"seconds": "much"}, {"seconds": None}, {"left": "bored"}])
def test_a_file_that_cannot_be_read_is_told(layout: Layout, damage: str | dict[str, Any]) -> None:
    for worker in (3, 4):
        write_worker(layout, replace(LIFE, worker=worker))
    (life,) = read_json(worker_path(layout, LIFE))["lives"]
    text = damage if isinstance(damage, str) else json.dumps({"schema": 1, "lives": [{**life, **damage}]})
    worker_path(layout, LIFE).write_text(text)
    found, note = read_records(layout, SUBMISSION)
    assert found == [replace(LIFE, worker=4)]
    assert "1 of 2 records of workers" in str(note)


def test_files_of_single_lives_are_read_too(layout: Layout) -> None:
    folder = layout.submission(SUBMISSION) / "workers"
    folder.mkdir()
    for restarts in range(2):
        data = {"schema": 1, **asdict(replace(LIFE, restarts=restarts))}
        data["class"] = data.pop("resource_class")
        (folder / f"0-3-{restarts}.json").write_text(json.dumps(data))
    assert read_workers(layout, SUBMISSION) == [LIFE, replace(LIFE, restarts=1)]
