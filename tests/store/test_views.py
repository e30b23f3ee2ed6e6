"""Views and macros answer what their definitions in plain Python do."""

import math
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats
from synthetic import Campaign, plan_header, plan_lines, publish_grid, write_end, write_start

from ablate.grid.errors import SpecError
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.store import Store

OpenStore = Callable[..., Store]


def store_of(root: Path, values: dict[str, Sequence[float | None]]) -> None:
    """A campaign in which the operator's trial of seed i ended with values[operator][i]; None never began."""
    layout = Layout(root)
    seeds = range(max(map(len, values.values())))
    lines = plan_lines(list(values), seeds, "g", {})
    publish_grid(layout, plan_header(lines, "g", {}, list(values)), lines)
    buffer = ShardBuffer(layout, submission="20260102T030405-0a1b2c", worker=0)
    for line in lines:
        value = values[line["operator"]][line["seed"]]
        if value is not None:
            write_start(layout, line["trial"], 1)
            buffer.add("evaluation", (line["trial"], 1, 3, "mse", {"s": 2.0}, value, 10, 0.1))
            write_end(layout, line["trial"], 1, step=3)
    buffer.flush()


def row(store: Store, query: str) -> dict[str, Any]:
    return store.sql(query).row(0, named=True)


@pytest.mark.parametrize("n", [2, 31])
def test_a_cell_has_the_t_interval_of_its_seeds(tmp_path: Path, opened: OpenStore, n: int) -> None:
    values = [1.0 + math.sin(i) / 3 for i in range(n)]
    store_of(tmp_path, {"softmax": values})
    found = row(opened(tmp_path), "FROM v_cell_stats")
    low, high = stats.t.interval(0.95, n - 1, statistics.mean(values), stats.sem(values))
    assert (found["n"], found["name"], found["source"]) == (n, "mse", "evaluation")
    assert (found["mean"], found["sd"]) == pytest.approx((statistics.mean(values), statistics.stdev(values)))
    assert (found["low"], found["high"]) == pytest.approx((low, high), rel=1e-6)
    assert found["geometric_mean"] == pytest.approx(statistics.geometric_mean(values))
    logs = [math.log(value) for value in values]
    ends = stats.t.interval(0.95, n - 1, statistics.mean(logs), stats.sem(logs))
    assert (found["geometric_low"], found["geometric_high"]) == pytest.approx(tuple(map(math.exp, ends)), rel=1e-6)


@pytest.mark.parametrize("n", [32, 45, 130, 400])
def test_between_two_tabulated_quantiles_the_interval_is_a_little_too_wide(reading: Store, n: int) -> None:
    query = "SELECT q FROM t_quantile WHERE df <= $n - 1 ORDER BY df DESC LIMIT 1"
    found = reading.sql(query, {"n": n})["q"].item()
    exact = stats.t.ppf(0.975, n - 1)
    assert exact <= found < 1.02 * exact


def test_every_tabulated_quantile_is_students(reading: Store) -> None:
    for df, q in reading.sql("FROM t_quantile").iter_rows():
        assert q == pytest.approx(stats.t.ppf(0.975, df), abs=1e-5)


ODD: list[tuple[list[float], dict[str, float | None]]] = [
    ([2.0], {"n": 1, "mean": 2.0, "sd": None, "low": None, "high": None, "geometric_mean": 2.0}),
    ([2.0, 2.0], {"n": 2, "mean": 2.0, "sd": 0.0, "low": 2.0, "high": 2.0}),
    ([0.0, 0.0], {"mean": 0.0, "sd": 0.0, "geometric_mean": None, "geometric_low": None}),
    ([-1.0, 1.0], {"mean": 0.0, "geometric_mean": None}),
    ([1.0, math.inf], {"n": 2, "mean": math.inf, "sd": None, "low": None, "geometric_high": None}),
    ([1.0, math.nan], {"n": 2, "sd": None, "high": None, "geometric_mean": None}),
    ([1e200, 3e200], {"mean": 2e200, "sd": math.sqrt(2) * 1e200}),
    ([1e-200, 3e-200], {"sd": math.sqrt(2) * 1e-200}),
    ([1.7e308] * 3, {"mean": 1.7e308, "sd": 0.0, "low": 1.7e308, "high": 1.7e308}),
]


def test_cells_of_odd_values_have_defined_statistics(tmp_path: Path, opened: OpenStore) -> None:
    filled = {f"operator {at}": [*values, *[None] * (3 - len(values))] for at, (values, _) in enumerate(ODD)}
    store_of(tmp_path, filled)
    rows = {found["label"]: found for found in opened(tmp_path).sql("FROM v_cell_stats").iter_rows(named=True)}
    for label, (_, expected) in zip(filled, ODD, strict=True):
        assert {name: rows[label][name] for name in expected} == pytest.approx(expected), label


def test_pairs_share_a_seed_and_leave_the_baseline_out(tmp_path: Path, opened: OpenStore) -> None:
    store_of(tmp_path, {"softmax": [1.0, 2.0, None, 4.0, -1.0], "SSA": [2.0, 1.0, 5.0, None, 3.0]})
    found = opened(tmp_path).sql(
        "SELECT label, seed, value, baseline_value, difference, log_ratio FROM v_pair ORDER BY seed"
    )
    assert found.rows() == [
        ("SSA", 0, 2.0, 1.0, 1.0, pytest.approx(math.log(2))),
        ("SSA", 1, 1.0, 2.0, -1.0, pytest.approx(-math.log(2))),
        ("SSA", 4, 3.0, -1.0, 4.0, None),
    ]


@pytest.mark.parametrize("asked", ["v_pair", "paired('mse')"])
def test_pairs_of_many_cells_join_no_cell_with_all_others(tmp_path: Path, opened: OpenStore, asked: str) -> None:
    cells, seeds = 40, 4
    store_of(tmp_path, {f"operator {at}": [1.0 + at] * seeds for at in range(cells)})
    pairs = f"SELECT * FROM {asked} WHERE grid = 'g' AND name = 'mse' AND source = 'evaluation'"
    store = opened(tmp_path)
    assert store.sql(pairs).height == (cells - 1) * seeds
    plan = store._connection.execute(f"EXPLAIN (ANALYZE, FORMAT json) {pairs}").fetchall()[0][1]
    most = max(int(rows) for rows in re.findall(r'"intermediate_rows": (\d+)', plan))
    assert most <= 2 * cells * seeds, "rows of one step of the plan"


def test_failures_of_one_kind_are_one_row(tmp_path: Path, opened: OpenStore) -> None:
    store_of(tmp_path, {"softmax": [1.0] * 6})
    layout = Layout(tmp_path)
    messages = [
        ("diverged", "the loss was nan at step 30"),
        ("diverged", "the loss was 1.5e9 at step 7"),
        ("error", "ValueError: bad shape (3, 4)"),
        ("error", "ValueError: bad shape (64, 4)"),
        ("error", "KeyError: 'alpha'"),
        ("out_of_memory", "the loss was nan at step 30"),
    ]
    for key, (reason, message) in zip(layout.trial_keys(), messages, strict=True):
        write_end(layout, key, 1, status="failed", reason=reason, message=message)
    found = opened(tmp_path).sql("SELECT reason, n FROM v_failure ORDER BY ALL").rows()
    assert found == [("diverged", 2), ("error", 1), ("error", 2), ("out_of_memory", 1)]


def test_pairs_are_those_of_the_baseline_unless_another_cell_is_named(shared: Campaign, reading: Store) -> None:
    expected = reading.sql("FROM v_pair WHERE name = 'mse' ORDER BY ALL").rows()
    assert expected
    assert reading.sql("FROM paired('mse') ORDER BY ALL").rows() == expected
    assert reading.sql("FROM paired('mse', 'softmax · 8') ORDER BY ALL").rows() == expected
    values = {
        (row["label"], row["seed"], row["point"][0]["value"]): row["value"]
        for row in reading.sql("SELECT label, seed, map_entries(point) AS point, value FROM final('mse')").rows(
            named=True
        )
    }
    found = reading.sql(
        "SELECT label, seed, map_entries(point) AS point, difference, log_ratio FROM paired('mse', 'SSA · 16')"
    ).rows(named=True)
    assert len(found) == 2 * (2 + 2 + 1)  # points x seeds that softmax 8, softmax 16 and SSA 8 share with it
    for row in found:
        point = row["point"][0]["value"]
        own, other = values[row["label"], row["seed"], point], values["SSA · 16", row["seed"], point]
        assert row["label"] != "SSA · 16"
        assert (row["difference"], row["log_ratio"]) == pytest.approx((own - other, math.log(own / other)))


def test_an_evaluation_is_not_paired_with_a_metric_of_its_name(tmp_path: Path, opened: OpenStore) -> None:
    layout = Layout(tmp_path)
    lines = plan_lines(("softmax", "SSA"), [0], "g", {})
    publish_grid(layout, plan_header(lines, "g", {}, ("softmax", "SSA")), lines)
    buffer = ShardBuffer(layout, submission="20260102T030405-0a1b2c", worker=0)
    for at, line in enumerate(lines):
        write_start(layout, line["trial"], 1)
        buffer.add("metric", (line["trial"], 1, 3, "acc", 1.0 + at, 0.5))
        buffer.add("evaluation", (line["trial"], 1, 3, "acc", {}, 10.0 + 2 * at, 10, 0.1))
        write_end(layout, line["trial"], 1, step=3)
    buffer.flush()
    store = opened(tmp_path)
    for asked in ("v_pair", "paired('acc')", "paired('acc', 'softmax')"):
        found = store.sql(f"SELECT label, source, difference FROM {asked} ORDER BY ALL").rows()
        assert found == [("SSA", "evaluation", 2.0), ("SSA", "metric", 1.0)]


def test_each_trial_has_the_probes_of_its_own_last_step(tmp_path: Path, opened: OpenStore) -> None:
    layout = Layout(tmp_path)
    lines = plan_lines(("softmax", "SSA"), [0], "g", {})
    publish_grid(layout, plan_header(lines, "g", {}, ("softmax", "SSA")), lines)
    buffer = ShardBuffer(layout, submission="20260102T030405-0a1b2c", worker=0)
    for last, line in zip((20, 30), lines, strict=True):
        write_start(layout, line["trial"], 1)
        buffer.extend(
            "probe", [(line["trial"], 1, step, "entropy", 0, head, {}, 0.5) for step in (10, last) for head in (0, 1)]
        )
    buffer.flush()
    found = opened(tmp_path).sql("SELECT label, state, step, head FROM last_probe('entropy') ORDER BY ALL").rows()
    assert found == [(of, "running", step, head) for of, step in (("SSA", 30), ("softmax", 20)) for head in (0, 1)]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("final('msee')", "'msee'; there are ['grad_norm', 'learning_rate', 'loss', 'mse']; did you mean 'mse'?"),
        ("paired('mse', 'softmax 8')", "no cell has the label 'softmax 8'; there are ['SSA · 16', 'SSA · 8', 'softmax"),
        ("curve('los')", "there are ['grad_norm', 'learning_rate', 'loss']; did you mean 'loss'?"),
    ],
)
def test_a_name_that_nothing_has_is_an_error_that_says_which_there_are(asked: str, said: str, reading: Store) -> None:
    with pytest.raises(SpecError, match=re.escape(said)):
        reading.sql(f"SELECT * FROM {asked}")
