"""Which rows count: those of the attempts that the result of a trial came from, to where the next one went on from."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from synthetic import plan_header, plan_lines, publish_grid, write_end, write_start

from store.campaign import Campaign
from store.files.layout import Layout
from store.files.shards import ShardBuffer
from store.store import Store

OpenStore = Callable[..., Store]
TABLES = ("metric", "evaluation", "item", "probe")


def planned(root: Path) -> tuple[Layout, str]:
    """A campaign whose grid `g` has one trial, not begun; its key. It is compared by mse at no point."""
    layout = Layout(root)
    lines = plan_lines(("softmax",), [0], "g", {})
    header = plan_header(lines, "g", {}, ("softmax",))
    publish_grid(layout, {**header, "measure": {**header["measure"], "point": {}}}, lines)
    return layout, lines[0]["trial"]


def attempted(
    layout: Layout,
    key: str,
    attempt: int,
    steps: Sequence[int],
    *,
    status: str | None = "ok",
    resumed: tuple[int, int] | None = None,
    value: float | None = None,
    **end: Any,
) -> list[Path]:
    """An attempt that recorded `value`, by default its number, in every table at `steps`; the shards."""
    origin = None if resumed is None else {"attempt": resumed[0], "step": resumed[1]}
    write_start(layout, key, attempt, resumed_from=origin)
    buffer = ShardBuffer(layout, submission=f"20260102T030405-0a1b{attempt:02x}", worker=0)
    number = float(attempt) if value is None else value
    for step in steps:
        buffer.add("metric", (key, attempt, step, "loss", number, 0.5))
        buffer.add("evaluation", (key, attempt, step, "mse", {}, number, 10, 0.1))
        buffer.add("item", (key, attempt, step, "mse", {}, "first", number))
        for head in range(2):
            buffer.add("probe", (key, attempt, step, "number.strength", 0, head, {}, number))
    if status is not None:
        write_end(layout, key, attempt, status=status, step=max(steps), **end)
    return buffer.flush()


def values(store: Store, table: str) -> list[tuple[int, float]]:
    return store.sql(f"SELECT DISTINCT step, value FROM v_{table} ORDER BY ALL").rows()


@pytest.mark.parametrize("status", ["ok", None])
def test_of_an_attempt_that_was_not_gone_on_from_no_row_counts(
    tmp_path: Path, opened: OpenStore, status: str | None
) -> None:
    layout, key = planned(tmp_path)
    attempted(layout, key, 1, [10, 20, 30, 37], status="failed", value=math.nan)
    attempted(layout, key, 2, [10, 20], status=status)
    store = opened(tmp_path)
    assert {table: values(store, table) for table in TABLES} == {table: [(10, 2.0), (20, 2.0)] for table in TABLES}


def test_of_an_attempt_that_was_gone_on_from_the_rows_to_its_checkpoint_count(
    tmp_path: Path, opened: OpenStore
) -> None:
    layout, key = planned(tmp_path)
    attempted(layout, key, 1, [5, 15], status="failed")
    attempted(layout, key, 2, [10, 20, 30, 37], status="failed", reason="diverged")
    attempted(layout, key, 3, [30, 40, 50], status=None, resumed=(2, 20))
    attempted(layout, key, 4, [40, 60], resumed=(3, 40))
    store = opened(tmp_path)
    expected = [(10, 2.0), (20, 2.0), (30, 3.0), (40, 4.0), (60, 4.0)]
    assert {table: values(store, table) for table in TABLES} == dict.fromkeys(TABLES, expected)
    heads = store.sql("SELECT count(DISTINCT head) AS n FROM v_probe GROUP BY step")["n"].to_list()
    assert heads == [2] * 5
    assert store.sql("FROM v_superfluous").rows() == [(key, 1)]


def test_a_logged_run_that_was_interrupted_and_begun_again_is_its_last_attempt(
    tmp_path: Path, opened: OpenStore
) -> None:
    def run(last: int, value: float, *, finishes: bool) -> None:
        logged = Campaign(tmp_path).start("own", label="b", seed=0, config={"width": 1})
        for step in range(0, last + 1, 10):
            logged.log(step, loss=value)
        logged.evaluate(last, "acc", value)
        logged.finish() if finishes else logged.fail(KeyboardInterrupt())

    run(100, 0.1, finishes=False)
    run(50, 0.9, finishes=True)
    store = opened(tmp_path)
    assert store.sql("SELECT name, step, value FROM v_final ORDER BY ALL").rows() == [
        ("acc", 50, 0.9),
        ("loss", 50, 0.9),
    ]
    assert store.sql("SELECT max(step) AS step FROM curve('loss')")["step"].item() == 50


@pytest.mark.parametrize("gone", [False, True])
def test_an_attempt_without_a_readable_record_does_not_replace_the_result(
    tmp_path: Path, opened: OpenStore, gone: bool
) -> None:
    layout, key = planned(tmp_path)
    attempted(layout, key, 1, [10])
    attempted(layout, key, 2, [10, 20], status="failed", value=99.0)
    opened(tmp_path)
    if gone:
        for path in layout.attempt(key, 2).iterdir():
            path.unlink()
        layout.attempt(key, 2).rmdir()
    else:
        layout.start(key, 2).write_bytes(b"{")
    store = opened(tmp_path)
    for table in TABLES:
        assert values(store, table) == [(10, 1.0)]
    assert set(store.sql("SELECT value FROM v_final")["value"]) == {1.0}
    assert store.sql("FROM v_superfluous").rows() == [(key, 2)]


def test_an_attempt_of_the_result_whose_record_cannot_be_read_is_a_missing_cost(
    tmp_path: Path, opened: OpenStore
) -> None:
    def cost() -> tuple[Any, ...]:
        asked = "SELECT attempts, missing_attempts, steps, tokens, train_s, joules FROM v_cost"
        return opened(tmp_path).sql(asked).row(0)

    layout, key = planned(tmp_path)
    took = {"steps": 30, "tokens": 300, "train_s": 5.0, "evaluate_s": 0.0, "probe_s": 0.0, "joules": 7.0}
    attempted(layout, key, 1, [10, 30], status="stopped", cost=took)
    attempted(layout, key, 2, [40, 60], resumed=(1, 30), cost=took)
    assert cost() == (2, 0, 60, 600, 10.0, 14.0)
    layout.start(key, 1).write_bytes(b"{")
    assert cost() == (2, 1, None, None, None, None)
    assert values(opened(tmp_path), "metric") == [(10, 1.0), (30, 1.0), (40, 2.0), (60, 2.0)]


def damage(paths: Sequence[Path]) -> None:
    for path in paths:
        path.write_bytes(path.read_bytes()[:-1])


def lost(store: Store) -> tuple[int, int]:
    """How many trials are told to have no readable result, and how many have one."""
    told = store.sql("FROM v_unreadable").height
    assert store.sql("SELECT sum(unreadable) AS n FROM v_progress")["n"].item() == told
    return told, store.sql("FROM v_final WHERE name = 'mse'").height


def test_the_number_of_other_code_is_not_served_for_a_damaged_one(tmp_path: Path, opened: OpenStore) -> None:
    layout, key = planned(tmp_path)
    attempted(layout, key, 1, [10])
    shards = attempted(layout, key, 2, [10])
    assert lost(opened(tmp_path)) == (0, 1)
    damage(shards)
    assert lost(opened(tmp_path)) == (1, 0)
