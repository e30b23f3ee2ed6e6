"""The cost of a trial: sums over the attempts of its result, up to where the next went on; the unmeasured is null."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from synthetic import plan_header, plan_lines, publish_grid, write_end, write_start

from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.store import Store

COST = {
    "steps": 10,
    "tokens": 1000,
    "flops": 8e9,
    "train_s": 2.0,
    "evaluate_s": 0.5,
    "probe_s": 0.1,
    "joules": 50.0,
    "peak_flops_per_s": 1e10,
}
Write = Callable[..., None]


def attempt(
    root: Path, key: str, number: int, cost: dict[str, float] | None, *, resumed: int | None = None, **end: Any
) -> None:
    resumed_from = None if resumed is None else {"attempt": resumed, "step": 1}
    write_start(Layout(root), key, number, resumed_from=resumed_from)
    write_end(Layout(root), key, number, **({} if cost is None else {"cost": cost}), **end)


def one(write: Write) -> None:
    write(1, COST, memory_bytes=77)


def went_on(write: Write) -> None:
    """The second failed before a checkpoint of its own; nobody went on from it."""
    slower = {**COST, "steps": 30, "tokens": 3000, "flops": 24e9, "train_s": 14.0, "compile_s": 6.0}
    slower |= {"compile_tokens": 100, "compile_flops": 8e8, "refit_s": 1.5}
    write(1, COST, status="stopped", memory_bytes=99)
    write(2, {**COST, "steps": 7}, resumed=1, status="stopped", memory_bytes=1000)
    write(3, slower, resumed=1, memory_bytes=77)


def unmeasured(name: str) -> Callable[[Write], None]:
    def attempts(write: Write) -> None:
        write(1, {each: value for each, value in COST.items() if each != name}, status="stopped")
        write(2, COST, resumed=1)

    return attempts


def killed(write: Write) -> None:
    """A process that was killed leaves no record. The rates of the others are known."""
    write(1, None, status="failed")
    write(2, COST, resumed=1)


def compiled(write: Write) -> None:
    """One of two equal steps took nearly all the time."""
    write(1, {**COST, "train_s": 9.0, "compile_s": 8.0, "compile_tokens": 500, "compile_flops": 4e9})


CASES = {
    "one": one,
    "went on": went_on,
    "joules": unmeasured("joules"),
    "flops": unmeasured("flops"),
    "killed": killed,
    "compiled": compiled,
}


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The row of a trial of each case, by its label."""
    root = tmp_path_factory.mktemp("cost")
    lines = plan_lines(list(CASES), [0], "g", {})
    publish_grid(Layout(root), plan_header(lines, "g", {}, list(CASES)), lines)
    for line in lines:
        CASES[line["label"]](partial(attempt, root, line["trial"]))
    with Store.open(root) as store:
        rows = store.sql("FROM v_cost").rows(named=True)
    assert len(rows) == len(CASES)
    return {row["label"]: row for row in rows}


def test_one_attempt_is_its_own_cost(costs: dict[str, dict[str, Any]]) -> None:
    row = costs["one"]
    assert (row["grid"], row["seed"], row["attempts"]) == ("g", 0, 1)
    assert (row["steps"], row["tokens"], row["train_s"], row["memory_bytes"], row["joules"]) == (10, 1000, 2, 77, 50)
    assert row["tokens_per_s"] == 500
    assert row["flops_per_s"] == 4e9
    assert row["flop_utilisation"] == pytest.approx(0.4)
    assert row["joules_per_token"] == pytest.approx(0.05)
    assert row["probe_share"] == pytest.approx(0.1 / 2.6)


def test_attempts_that_went_on_from_each_other_add_up(costs: dict[str, dict[str, Any]]) -> None:
    row = costs["went on"]
    assert (row["attempts"], row["steps"], row["tokens"], row["train_s"]) == (2, 40, 4000, 16)
    assert row["tokens_per_s"] == pytest.approx(3900 / 10)  # the six seconds and the step that compiled apart
    assert row["flops_per_s"] == pytest.approx(31.2e9 / 10)
    assert row["flop_utilisation"] == pytest.approx(0.312)
    assert (row["joules"], row["memory_bytes"], row["compile_s"], row["refit_s"]) == (100, 99, 6, 1.5)


@pytest.mark.parametrize(("name", "gone"), [("joules", {"joules", "joules_per_token"}), ("flops", {"flops_per_s"})])
def test_what_one_attempt_could_not_measure_is_null(
    costs: dict[str, dict[str, Any]], name: str, gone: set[str]
) -> None:
    row = costs[name]
    assert {each for each in row if row[each] is None} == gone
    assert row["flop_utilisation"] == pytest.approx(0.4)  # attempts that have both
    assert row["steps"] == 20


def test_a_sum_over_an_attempt_that_left_no_record_is_null(costs: dict[str, dict[str, Any]]) -> None:
    row = costs["killed"]
    assert (row["attempts"], row["missing_attempts"]) == (2, 1)
    assert {each for each in row if row[each] is None} == {
        "steps",
        "tokens",
        "train_s",
        "joules",
        "compile_s",
        "refit_s",
    }
    assert (row["tokens_per_s"], row["joules_per_token"]) == (500, pytest.approx(0.05))


def test_a_step_that_compiled_is_in_no_rate(costs: dict[str, dict[str, Any]]) -> None:
    row = costs["compiled"]
    assert (row["tokens_per_s"], row["flops_per_s"], row["flop_utilisation"]) == (500, 4e9, pytest.approx(0.4))
    assert (row["tokens"], row["train_s"], row["compile_s"]) == (1000, 9, 8)


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
