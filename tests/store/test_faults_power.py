"""The power goes at any step of a file's life, and takes with it what no fsync has made durable."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from power_loss import Left, recorded
from synthetic import plan_lines

from ablate.runners.attempts.claims import claim
from ablate.runners.attempts.manifest import write_submission
from ablate.store.database.connection import _create
from ablate.store.files.atomic import make_directory, read_json, write_atomic, write_json
from ablate.store.files.attempt_records import read_attempt
from ablate.store.files.attempts import write_end
from ablate.store.files.layout import Layout
from ablate.store.files.plans import read_plan
from ablate.store.files.shards import ShardBuffer, verify_shard
from ablate.store.files.trial_state import trial_state
from ablate.store.ingest.database_snapshot import publish
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.rebuild import _replace

KEY = "ab" * 16
SUBMISSION = "20260102T030405-0a1b2c"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A campaign's directory that is there for good, with nothing in it."""
    return make_directory(tmp_path / "campaign")


def after_each(root: Path, work: Callable[[Callable[[], None]], object], law: Callable[[Left, Path], None]) -> int:
    """How many states the disk may be left in by `work`, which calls what it is given when it counts on its files."""
    with recorded(root) as disk:
        work(disk.acknowledge)
    states = list(disk.states())
    for left in states:
        law(left, left.make(root.parent / "left"))
    assert states[-1].acknowledged == max(left.acknowledged for left in states) > 0
    return len(states)


def test_every_shard_that_is_visible_is_whole_and_those_of_a_flush_that_returned_are_there(root: Path) -> None:
    buffer = ShardBuffer(Layout(root), submission=SUBMISSION, worker=0)

    def work(acknowledge: Callable[[], None]) -> None:
        for sequence in range(2):
            buffer.add("metric", (KEY, 1, sequence, "loss", 0.5, 0.1))
            buffer.add("probe", (KEY, 1, sequence, "number.alpha", None, None, {}, 1.0))
            buffer.flush()
            acknowledge()

    def law(left: Left, place: Path) -> None:
        found = [verify_shard(path) for path in Layout(place).shards()]
        for table in ("metric", "probe"):
            assert sum(shard.rows for shard in found if shard.table == table) >= left.acknowledged

    assert after_each(root, work, law) > 20


def test_a_store_made_of_what_the_power_left_has_all_that_was_acknowledged(root: Path) -> None:
    buffer = ShardBuffer(Layout(root), submission=SUBMISSION, worker=0)

    def work(acknowledge: Callable[[], None]) -> None:
        buffer.extend("metric", [(KEY, 1, step, "loss", 0.5, 0.1) for step in range(5)])
        buffer.flush()
        acknowledge()

    seen: set[tuple[int, int]] = set()

    def law(left: Left, place: Path) -> None:
        if left.steps % 4 == 0 or left.acknowledged:  # an ingest takes long
            found = ingest(place)
            assert (found.rows in (0, 5), found.bad_shards) == (True, 0)
            assert found.rows == 5 or not left.acknowledged
            seen.add((left.acknowledged, found.rows))

    after_each(root, work, law)
    assert {(0, 0), (1, 5)} <= seen


def test_a_record_that_replaces_another_is_the_old_one_or_the_new_one(root: Path) -> None:
    path = root / "trials" / "start.json"
    versions = [{"n": n, "text": "long " * 50 * n} for n in range(3)]

    def work(acknowledge: Callable[[], None]) -> None:
        for version in versions:
            write_json(path, version)
            acknowledge()

    def law(left: Left, place: Path) -> None:
        there = place / "trials" / "start.json"
        found = versions.index(read_json(there)) + 1 if there.exists() else 0
        assert left.acknowledged <= found <= left.acknowledged + 1

    after_each(root, work, law)


def test_an_end_that_is_visible_is_whole_and_an_attempt_that_the_power_took_has_not_begun(root: Path) -> None:
    layout = Layout(root)
    about: dict[str, Any] = {"submission": SUBMISSION, "worker": 0, "host": "h", "sources": None}

    def work(acknowledge: Callable[[], None]) -> None:
        claim(layout, KEY, about, retry=False)
        acknowledge()
        write_end(layout, {"schema": 1, "trial": KEY, "attempt": 1, "status": "ok"})
        acknowledge()

    seen: set[str] = set()

    def law(left: Left, place: Path) -> None:
        there = Layout(place)
        state = trial_state(there, KEY)
        seen.add(state.state)
        texts = [path.read_bytes() if path.exists() else b"" for path in (there.start(KEY, 1), there.end(KEY, 1))]
        begun, ended = (text.endswith(b"\n") for text in texts)
        assert state.state == ("done" if begun and ended else "lost" if begun else "pending")
        assert read_attempt(there, KEY, 1)[1] == [] or any(texts)

    after_each(root, work, law)
    assert {"pending", "lost", "done"} <= seen


def test_a_submission_is_there_with_all_its_lines_or_not_at_all(root: Path) -> None:
    layout, lines = Layout(root), plan_lines(("softmax", "SSA"), range(2), "g", {})

    def work(acknowledge: Callable[[], None]) -> None:
        write_submission(layout, SUBMISSION, lines)
        acknowledge()

    def law(left: Left, place: Path) -> None:
        there = Layout(place)
        assert there.submission_ids() == [SUBMISSION] or not left.acknowledged
        for submission in there.submission_ids():
            plan = read_plan(there, f"submissions/{submission}")
            assert (plan.problems, plan.lines) == ([], lines)
            assert len(there.manifest_index(submission).read_bytes()) == struct.calcsize("<4Q")

    after_each(root, work, law)


def test_readers_find_the_old_snapshot_or_the_new_one(root: Path) -> None:
    layout = Layout(root)
    make_directory(layout.store)
    layout.snapshot.write_bytes(b"the old one")
    layout.live.write_bytes(b"the new one, which is longer")

    def work(acknowledge: Callable[[], None]) -> None:
        publish(layout)
        acknowledge()

    def law(left: Left, place: Path) -> None:
        old, new = b"the old one", b"the new one, which is longer"
        assert Layout(place).snapshot.read_bytes() in ((new,) if left.acknowledged else (old, new))

    after_each(root, work, law)


@pytest.mark.parametrize("how", ["rebuilt", "made anew", "removed before"])
def test_the_log_of_an_old_database_is_never_beside_a_new_one(root: Path, how: str) -> None:
    layout = Layout(root)
    log, fresh = layout.store / "live.duckdb.wal", layout.store / "live.duckdb.tmp.x"
    if how != "removed before":
        write_atomic(layout.live, b"old")
    write_atomic(log, b"of the old one")
    write_atomic(fresh, b"new")

    def work(acknowledge: Callable[[], None]) -> None:
        if how == "rebuilt":
            _replace(layout, fresh)
        else:
            _create(layout.live)
        acknowledge()

    def law(left: Left, place: Path) -> None:
        live = Layout(place).live
        found = live.read_bytes() if live.exists() else b""
        assert found not in (b"", b"old") or not left.acknowledged
        assert found in (b"", b"old") or not (place / "store" / log.name).exists()

    assert after_each(root, work, law) > 5


def test_a_directory_that_was_made_is_there_with_all_above_it(root: Path) -> None:
    def work(acknowledge: Callable[[], None]) -> None:
        write_json(Layout(root).start(KEY, 1), {})
        acknowledge()

    def law(left: Left, place: Path) -> None:
        assert Layout(place).attempts(KEY) == [1] or not left.acknowledged

    after_each(root, work, law)
