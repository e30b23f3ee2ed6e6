"""Files of rows that are done: they are true, they spare looks, and nothing depends on them."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from row_fakes import DONE, FREE, SUBMISSION, Clock, Seen, drained, rows_of

from runners.attempts.worker import Outcome
from runners.slurm.worker.row_state import CompletedRows as Known
from runners.slurm.worker.rows import RowShare
from runners.training.failure import failure_of
from store.files.atomic import read_json
from store.files.layout import Layout

FAR = float("inf")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path)
    found.submission(SUBMISSION).mkdir(parents=True)
    found.submission_record(SUBMISSION).write_text("{}")
    return found


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
    assert reader.read(FAR)
    assert rows_in(reader) == set().union(*parts)
    assert reader.complete == (len(rows_in(reader)) == 25)
    reader.publish()
    again = new_known(layout, "0-9")
    again.read(FAR)
    assert rows_in(again) == rows_in(reader)
    shutil.rmtree(layout.root)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        '{"schema": 1, "rows": [5, 30], "done": 3}',
        '{"schema": 1, "rows": [5, 30], "done": "!"}',
        '{"schema": 1, "rows": [5, 30], "done": "AAAA"}',
        '{"schema": 1, "rows": [5, 31], "done": "eJz7////fwAHAAQA"}',
    ],
)
def test_a_file_that_is_damaged_or_of_other_rows_says_nothing(layout: Layout, text: str) -> None:
    one = new_known(layout, "0-1")
    one.add(7)
    one.publish()
    folder = layout.submission(SUBMISSION) / "seen"
    (folder / "0-2.json").write_text(text)
    shutil.copy(folder / "0-1.json", folder / "1-1.json")  # a file of another class
    data = read_json(folder / "0-1.json")
    (folder / "0-3.json").write_text(json.dumps({**data, "schema": 99}))
    reader = new_known(layout)
    assert reader.read(FAR)
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
    assert reader.read(FAR)
    one.add(8)
    one.publish()
    assert reader.read(FAR)
    assert rows_in(reader) == {7}
    clock.now += 61
    assert reader.read(FAR)
    assert rows_in(reader) == {7, 8}
    before = file.stat().st_mtime_ns, file.stat().st_ino
    one.publish()
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == before


def test_reading_goes_on_where_its_time_was_up(layout: Layout) -> None:
    for worker in range(4):
        one = new_known(layout, f"0-{worker}")
        one.add(5 + worker)
        one.publish()
    reader = new_known(layout, "0-9")
    turns = 1
    while not reader.read(0.0):
        turns += 1
    assert turns == 5
    assert rows_in(reader) == {5, 6, 7, 8}


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


def test_many_lists_are_read_less_often(layout: Layout) -> None:
    clock = Clock()
    one = new_known(layout, "0-1", clock=clock)
    one.add(7)
    one.publish()
    folder = layout.submission(SUBMISSION) / "seen"
    for worker in range(2, 901):
        (folder / f"0-{worker}.json").write_text("{}")
    reader = new_known(layout, "0-1000", clock=clock)
    assert reader.read(FAR)
    one.add(8)
    one.publish()
    clock.now += 80
    assert reader.read(FAR)
    assert rows_in(reader) == {7}
    clock.now += 11  # 0.1 s for each of 900
    assert reader.read(FAR)
    assert rows_in(reader) == {7, 8}
