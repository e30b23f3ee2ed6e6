"""Which rows count: those of the attempts that the result of a trial came from, to where the next one went on from."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from synthetic import plan_header, plan_lines, publish_grid, write_end, write_start

from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.store import Store

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
