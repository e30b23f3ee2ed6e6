"""The file of a worker: all its lives in one, whichever of them was killed, and as much as was used."""

import json
import math
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from row_fakes import DONE, FREE, SUBMISSION, Clock, Seen, drained, rows_of

from ablate.runners.attempts.worker import Outcome
from ablate.runners.slurm.worker.completed_rows import CompletedRows as Known
from ablate.runners.slurm.worker.rows import RowShare
from ablate.runners.slurm.worker_records import (
    BudgetTracker,
    Left,
    WorkerRecord,
    read_records,
    read_workers,
    used_hours,
    worker_path,
    write_worker,
)
from ablate.runners.training.failure import failure_of
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


def test_a_file_that_cannot_be_read_is_told(layout: Layout) -> None:
    for worker in (3, 4):
        write_worker(layout, replace(LIFE, worker=worker))
    worker_path(layout, LIFE).write_text("{")
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


def new_known(layout: Layout, name: str = "0-0", rows: tuple[int, int] = (5, 30), clock: Clock | None = None) -> Known:
    return Known(layout, SUBMISSION, name, rows, clock or Clock())


def rows_in(found: Known, rows: tuple[int, int] = (5, 30)) -> set[int]:
    return {row for row in range(*rows) if row in found}


@given(st.lists(st.sets(st.integers(5, 29)), min_size=1, max_size=4))
def test_a_reader_knows_all_that_is_published(tmp_path_factory: pytest.TempPathFactory, parts: list[set[int]]) -> None:
    layout = Layout(tmp_path_factory.mktemp("campaign"))
    layout.submission(SUBMISSION).mkdir(parents=True)
    layout.submission_record(SUBMISSION).write_text("{}")
    for worker, part in enumerate(parts):
        one = new_known(layout, f"0-{worker}")
        for row in part:
            one.add(row)
        one.publish()
    reader = new_known(layout, "0-9")
    assert reader.read(math.inf)
    assert rows_in(reader) == set().union(*parts)
    assert reader.complete == (len(rows_in(reader)) == 25)
    reader.publish()
    again = new_known(layout, "0-9")
    assert again.read(math.inf)
    assert rows_in(again) == rows_in(reader)
    shutil.rmtree(layout.root)


def test_a_file_that_is_damaged_or_of_other_rows_says_nothing(layout: Layout) -> None:
    one, folder = new_known(layout, "0-1"), layout.submission(SUBMISSION) / "seen"
    one.add(7)
    one.publish()
    shutil.copy(folder / "0-1.json", folder / "1-1.json")  # a file of another class
    others: list[dict[str, Any]] = [{"done": 3}, {"done": "!"}, {"rows": [5, 31], "done": "ff"}, {"schema": 99}]
    texts = [json.dumps({**read_json(folder / "0-1.json"), **fields}) for fields in others]
    for number, text in enumerate(["", "{", "{}", *texts]):
        (folder / f"0-{2 + number}.json").write_text(text)
    reader = new_known(layout)
    assert reader.read(math.inf)
    assert rows_in(reader) == {7}


def test_files_are_written_and_read_now_and_then(layout: Layout) -> None:
    clock = Clock()
    one, reader = new_known(layout, "0-1", clock=clock), new_known(layout, "0-2", clock=clock)
    file = layout.submission(SUBMISSION) / "seen" / "0-1.json"
    one.add(7)
    one.keep()
    assert not file.exists()
    clock.now += 61
    one.keep()
    assert reader.read(math.inf)
    one.add(8)
    one.publish()
    assert reader.read(math.inf)
    assert rows_in(reader) == {7}
    clock.now += 61
    assert reader.read(math.inf)
    assert rows_in(reader) == {7, 8}
    before = file.stat().st_mtime_ns, file.stat().st_ino
    one.publish()
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == before


def test_a_campaign_that_was_moved_away_does_not_begin_to_exist_again(layout: Layout) -> None:
    one = new_known(layout)
    one.add(7)
    shutil.rmtree(layout.root)
    one.publish()
    assert not layout.root.exists()


def test_rows_that_others_have_seen_done_are_not_looked_at(layout: Layout) -> None:
    share = RowShare((0, 10_000), 3, 1000)
    looks = Seen(dict.fromkeys(range(10_000), DONE))
    first = rows_of(looks, share, known=new_known(layout, "0-3", share.rows))
    assert drained(first) == []
    assert len(looks.asked) == 10_000
    told = new_known(layout, "0-3", share.rows)
    told.recall()
    assert rows_in(told, share.rows) == set(share.own)  # published when its own rows were through
    for row in range(10_000):
        told.add(row)
    told.publish()
    looks.asked.clear()
    looks.listed.clear()
    fourth = RowShare((0, 10_000), 4, 1000)
    second = rows_of(looks, fourth, known=new_known(layout, "0-4", share.rows))
    assert drained(second) == []
    assert (second.rows_left(), second.unfinished, looks.asked, looks.listed) == (0, False, fourth.own, [])


def test_what_is_not_final_is_not_told(layout: Layout) -> None:
    memory = failure_of(MemoryError())
    looks = Seen({0: DONE, 1: DONE, 2: FREE, 3: FREE, 4: FREE, 5: FREE})
    found = new_known(layout, rows=(0, 6))
    rows = rows_of(looks, RowShare((0, 6), 0, 1), known=found)
    taken = []
    while (row := rows.take()) is not None:
        taken.append(row)
    assert taken == [2, 3, 4, 5]
    rows.came_back(Outcome(2, "ok", 1))
    rows.came_back(Outcome(3, "failed", 1, failure_of(ValueError())))
    rows.came_back(Outcome(4, "failed", 1, memory))
    rows.came_back(Outcome(5, "stopped", 1))
    assert rows_in(found, (0, 6)) == {0, 1, 2, 3, 4}
