"""Rows that no shard has travel with the checkpoint: whenever a worker dies, each row counts once, and none is lost."""

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ablate.runners.attempts.attempt import ROWS, Attempt, Watch
from ablate.runners.attempts.claims import claim
from ablate.runners.processes.training_context import TrainingResult
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.ingest.ingest import ingest

TRIAL = "ab" * 16
SUBMISSION = "20260101T000000-abcdef"
ABOUT = {"submission": SUBMISSION, "path": None, "device": None, "threads": 1, "code": None}


def begin(layout: Layout, buffer: ShardBuffer | None = None) -> Attempt:
    number = len(layout.attempts(TRIAL)) + 1
    mine = claim(layout, TRIAL, {**ABOUT, "worker": number}, retry=False)
    buffer = buffer or ShardBuffer(layout, submission=SUBMISSION, worker=number)
    return Attempt(layout, mine, buffer, 20.0, Watch(lambda: False, lambda *_: None))


def dies(layout: Layout, attempt: Attempt) -> None:
    """Its process is gone, and with it what was in memory."""
    start = layout.start(TRIAL, attempt.number)
    start.write_text(json.dumps({**read_json(start), "pid_started": 1}))


def trains(attempt: Attempt, first: int, last: int) -> None:
    for step in range(first, last + 1):
        attempt.metrics(step, {"loss": value(step), "rate": float("nan")})
    attempt.evaluation(last, "mse", value(last), point={"sigma": float(last)}, items=5, se_items=None)
    attempt.probe(last, "number", value(last), layer=0, head=None, point={})


def value(step: int) -> float:
    return 1 / (step + 0.1)


def counted(layout: Layout, view: str, columns: str) -> list[tuple[Any, ...]]:
    ingest(layout, wait=True)
    with duckdb.connect(str(layout.store / "snapshot.duckdb"), read_only=True) as store:
        return store.execute(f"SELECT {columns} FROM {view} ORDER BY ALL").fetchall()


def done(step: int) -> TrainingResult:
    return TrainingResult(step, stopped=False, parameters=1, operator_parameters=0, train_s=0, evaluate_s=0)


@pytest.mark.parametrize("seed", range(4))
def test_every_row_of_dead_workers_counts_once(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, layout, steps = random.Random(seed), Layout(tmp_path), 40
    attempt = begin(layout)
    at, ends = 0, set()
    while at < steps:
        reached = min(steps, at + draw.randint(1, 4))
        trains(attempt, at + 1, reached)
        ends.add(reached)
        at = reached
        monkeypatch.setattr("ablate.runners.attempts.attempt.FLUSH_S", draw.choice([0.0, 1e9]))
        fate = draw.choice(["saved", "saved", "flushed", "lost"])
        if fate == "flushed":
            attempt.flush()  # as a full buffer does between two checkpoints
        if fate == "saved":
            attempt.save(at, {"at": at, "ends": sorted(ends)})
        if draw.random() < 0.3:
            dies(layout, attempt)
            attempt = begin(layout)
            step, state = attempt.restore() or (0, {"at": 0, "ends": []})
            assert ROWS not in state
            assert step == state["at"]
            at, ends = step, set(state["ends"])
    attempt.finish(done(steps))
    losses = counted(layout, "v_metric WHERE name = 'loss'", "step, value")
    assert losses == [(step, value(step)) for step in range(1, steps + 1)]
    assert counted(layout, "v_metric WHERE name = 'rate' AND isnan(value)", "count(*)") == [(steps,)]
    told = counted(layout, "v_evaluation", "step, value, point['sigma'], items, se_items")
    assert [row for row in told if row[0] in ends] == [(end, value(end), float(end), 5, None) for end in sorted(ends)]
    probed = counted(layout, "v_probe", "step, value, layer, head")
    assert [row for row in probed if row[0] in ends] == [(end, value(end), 0, None) for end in sorted(ends)]


def test_a_checkpoint_writes_no_shard_before_it_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(tmp_path)
    attempt = begin(layout)
    trains(attempt, 1, 3)
    attempt.save(3, {})
    assert layout.shards() == []
    monkeypatch.setattr("ablate.runners.attempts.attempt.FLUSH_S", 0.0)
    monkeypatch.setattr("ablate.runners.attempts.attempt.FLUSH_SHARE", 0.0)
    for _ in range(2):
        attempt.save(3, {})
        assert len(layout.shards()) == 3
    monkeypatch.undo()
    monkeypatch.setattr("ablate.runners.attempts.attempt.MOST_CARRIED", 10)
    trains(attempt, 4, 8)
    attempt.save(8, {})
    assert len(layout.shards()) == 6


def test_what_another_attempt_left_in_memory_is_not_carried(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    buffer = ShardBuffer(layout, submission=SUBMISSION, worker=9)
    attempt = begin(layout, buffer)
    trains(attempt, 1, 5)
    attempt.save(5, {})
    trains(attempt, 6, 8)
    dies(layout, attempt)
    again = begin(layout, buffer)  # the same worker, which lost the trial and got it back
    again.save(5, {})
    dies(layout, again)
    last = begin(layout)
    trains(last, 6, 8)
    last.finish(done(8))  # with the rows that its checkpoint carried
    losses = counted(layout, "v_metric WHERE name = 'loss'", "step, attempt")
    assert losses == [(step, 3) for step in range(1, 9)]
