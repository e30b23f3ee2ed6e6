"""The cost of a trial is the sum over the attempts of its result; unmeasured costs are null."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import plan_header, plan_lines, publish_grid, write_end, write_start

from store.files.layout import Layout
from store.store import Store

OpenStore = Callable[..., Store]

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


@pytest.fixture
def key(tmp_path: Path) -> str:
    """A planned trial."""
    lines = plan_lines(["softmax"], range(1), "g", {})
    publish_grid(Layout(tmp_path), plan_header(lines, "g", {}, ["softmax"]), lines)
    return str(lines[0]["trial"])


def attempt(
    root: Path, key: str, number: int, cost: dict[str, float] | None, *, resumed: int | None = None, **end: Any
) -> None:
    resumed_from = None if resumed is None else {"attempt": resumed, "step": 1}
    write_start(Layout(root), key, number, resumed_from=resumed_from)
    write_end(Layout(root), key, number, **({} if cost is None else {"cost": cost}), **end)


def found(store: Store) -> dict[str, Any]:
    rows = store.sql("FROM v_cost")
    assert rows.height == 1
    return rows.row(0, named=True)


def test_one_attempt_is_its_own_cost(tmp_path: Path, key: str, opened: OpenStore) -> None:
    attempt(tmp_path, key, 1, COST, memory_bytes=77)
    row = found(opened(tmp_path))
    assert (row["grid"], row["trial"], row["label"], row["seed"], row["attempts"]) == ("g", key, "softmax", 0, 1)
    assert (row["steps"], row["tokens"], row["train_s"], row["memory_bytes"], row["joules"]) == (10, 1000, 2, 77, 50)
    assert row["tokens_per_s"] == 500
    assert row["flops_per_s"] == 4e9
    assert row["flop_utilisation"] == pytest.approx(0.4)
    assert row["joules_per_token"] == pytest.approx(0.05)
    assert row["probe_share"] == pytest.approx(0.1 / 2.6)


def test_attempts_that_went_on_from_each_other_add_up(tmp_path: Path, key: str, opened: OpenStore) -> None:
    """The second failed before a checkpoint of its own; nobody went on from it."""
    slower = {**COST, "steps": 30, "tokens": 3000, "flops": 24e9, "train_s": 14.0, "compile_s": 6.0}
    slower |= {"compile_tokens": 100, "compile_flops": 8e8}
    attempt(tmp_path, key, 1, COST, status="stopped", memory_bytes=99)
    attempt(tmp_path, key, 2, {**COST, "steps": 7}, resumed=1, status="stopped", memory_bytes=1000)
    attempt(tmp_path, key, 3, slower, resumed=1, memory_bytes=77)
    row = found(opened(tmp_path))
    assert (row["attempts"], row["steps"], row["tokens"], row["train_s"]) == (2, 40, 4000, 16)
    assert row["tokens_per_s"] == pytest.approx(3900 / 10)  # the six seconds and the step that compiled apart
    assert row["flops_per_s"] == pytest.approx(31.2e9 / 10)
    assert row["flop_utilisation"] == pytest.approx(0.312)
    assert (row["joules"], row["memory_bytes"], row["compile_s"]) == (100, 99, 6)


@pytest.mark.parametrize("name", ["joules", "flops"])
def test_what_one_attempt_could_not_measure_is_null(tmp_path: Path, key: str, opened: OpenStore, name: str) -> None:
    attempt(tmp_path, key, 1, {each: value for each, value in COST.items() if each != name}, status="stopped")
    attempt(tmp_path, key, 2, COST, resumed=1)
    row = found(opened(tmp_path))
    gone = {"joules": ("joules", "joules_per_token"), "flops": ("flops_per_s",)}[name]
    assert {each for each in row if row[each] is None} == set(gone)
    assert row["flop_utilisation"] == pytest.approx(0.4)  # attempts that have both
    assert row["steps"] == 20


SUMS = ("steps", "tokens", "train_s", "joules", "compile_s")


def test_a_sum_over_an_attempt_that_left_no_record_is_null(tmp_path: Path, key: str, opened: OpenStore) -> None:
    """A process that was killed leaves none. The rates of the others are known."""
    attempt(tmp_path, key, 1, None, status="failed")
    attempt(tmp_path, key, 2, COST, resumed=1)
    row = found(opened(tmp_path))
    assert (row["attempts"], row["missing_attempts"]) == (2, 1)
    assert {name for name in row if row[name] is None} == set(SUMS)
    assert (row["tokens_per_s"], row["joules_per_token"]) == (500, pytest.approx(0.05))


def test_a_step_that_compiled_is_in_no_rate(tmp_path: Path, key: str, opened: OpenStore) -> None:
    """One of two equal steps took nearly all the time."""
    cost = {**COST, "train_s": 9.0, "compile_s": 8.0, "compile_tokens": 500, "compile_flops": 4e9}
    attempt(tmp_path, key, 1, cost)
    row = found(opened(tmp_path))
    assert (row["tokens_per_s"], row["flops_per_s"], row["flop_utilisation"]) == (500, 4e9, pytest.approx(0.4))
    assert (row["tokens"], row["train_s"], row["compile_s"]) == (1000, 9, 8)
