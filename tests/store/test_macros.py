"""Macros answer what their definitions in plain Python do, through the snapshot that readers open."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pytest
from synthetic import Campaign, plan_header, plan_lines, publish_grid, write_campaign, write_end, write_start

from grid.errors import SpecError
from store.analysis.verdicts import measure_of, runs
from store.files.layout import Layout
from store.files.shards import ShardBuffer
from store.statistics import select_then_report
from store.store import Store

OpenStore = Callable[..., Store]


def test_final_is_the_rows_of_v_final_of_that_name(reading: Store) -> None:
    for name in ("mse", "loss"):
        expected = reading.sql("FROM v_final WHERE name = $name ORDER BY ALL", {"name": name}).rows()
        assert expected
        assert reading.sql(f"FROM final('{name}') ORDER BY ALL").rows() == expected


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


@pytest.fixture
def tuned(tmp_path: Path, opened: OpenStore) -> Store:
    """A grid of two operators and three rates, of which one has an effect for each operator; for SSA it lost a seed."""
    best = {"softmax": 0.1, "SSA": 0.3}
    write_campaign(
        tmp_path,
        operators=("softmax", "SSA"),
        factors={"rate": (0.01, 0.1, 0.3)},
        seeds=range(3),
        effect=lambda axes: -1.0 if axes["rate"] == best[axes["operator"]] else 0.0,
        failed={("SSA · 0.3", 2): "diverged"},
        steps=4,
        sigma_f=(5,),
        sigma_x=(1,),
    )
    return opened(tmp_path)


@pytest.mark.parametrize("axis", ["rate", "operator.rate"])
def test_the_best_level_of_an_axis_is_found_beside_each_of_the_others(tuned: Store, axis: str) -> None:
    found = tuned.sql(f"FROM best_over('{axis}', 'mse') ORDER BY label").rows(named=True)
    assert [(row["rest"], row["n"], row["levels"], row["least_n"]) for row in found] == [
        ('{"operator":"SSA"}', 3, 3, 2),
        ('{"operator":"softmax"}', 3, 3, 3),
    ]
    assert (found[0]["level"] != "0.3", found[1]["level"]) == (True, "0.1")
    for row in found:
        values = tuned.sql("SELECT value FROM final('mse') WHERE cell = $c", {"c": row["cell"]})["value"].to_list()
        assert row["mean"] == pytest.approx(mean(values))
        assert row["remark"] == "chosen on these seeds: the mean is too good"


def test_the_best_level_is_that_of_a_selection_on_all_seeds(tmp_path: Path, opened: OpenStore) -> None:
    """The mean is of logarithms on the log scale; stopped and failed trials leave no lucky seed in the lead."""
    values = {0.1: (1.0, 100.0, 10.0), 0.2: (20.0, 20.0, 21.0), 0.3: (0.1, None, None), 0.4: (0.2, math.nan, 0.1)}
    layout, lines = Layout(tmp_path), plan_lines(("SSA",), range(3), "g", {"rate": list(values)})
    publish_grid(layout, plan_header(lines, "g", {"rate": list(values)}, ("SSA",)), lines)
    buffer = ShardBuffer(layout, submission="20260102T030405-0a1b2c", worker=0)
    for line in lines:
        value = values[line["axes"]["rate"]][line["seed"]]
        write_start(layout, line["trial"], 1)
        if value is not None:
            buffer.add("evaluation", (line["trial"], 1, 4, "mse", {"sigma_f": 5.0, "sigma_x": 1.0}, value, 10, 0.1))
        ended = {"step": 4} if value is not None else {"step": 2, "status": "stopped", "reason": "halving"}
        write_end(layout, line["trial"], 1, **ended)
    buffer.flush()
    store = opened(tmp_path)
    row = store.sql("FROM best_over('rate', 'mse')").row(0, named=True)
    assert (row["level"], row["levels"]) == ("0.1", 4)
    judged = runs(store, "g", measure_of(store, "g", None)).with_columns(pl.col("label").alias("rate"), one=1)
    how = {"over": ["rate"], "within": ["one"], "scale": "log", "better": "lower", "split": "same"}
    assert list(select_then_report(judged, **how).choices) == [row["cell"]]


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
    found = opened(tmp_path).sql("SELECT label, status, step, head FROM last_probe('entropy') ORDER BY ALL").rows()
    assert found == [(of, "running", step, head) for of, step in (("SSA", 30), ("softmax", 20)) for head in (0, 1)]


def test_curves_and_probes_carry_the_words_of_the_grid(shared: Campaign, reading: Store) -> None:
    curve: list[tuple[Any, ...]] = reading.sql(
        "SELECT step, value FROM curve('loss') WHERE label = 'SSA · 8' AND seed = 0 ORDER BY step"
    ).rows()
    trial = shared.line("SSA · 8", 0)["trial"]
    query = "SELECT step, value FROM v_metric WHERE name = 'loss' AND trial = $t ORDER BY step"
    assert len(curve) == 12
    assert curve == reading.sql(query, {"t": trial}).rows()
    probes = reading.sql("SELECT step, layer, head FROM last_probe('number.strength') WHERE trial = $t", {"t": trial})
    assert sorted(probes.rows()) == [(12, layer, head) for layer in range(2) for head in range(2)]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("final('msee')", "'msee'; there are ['grad_norm', 'learning_rate', 'loss', 'mse']; did you mean 'mse'?"),
        ("paired('mse', 'softmax 8')", "no cell has the label 'softmax 8'; there are ['SSA · 16', 'SSA · 8', 'softmax"),
        (
            "best_over('widht', 'mse')",
            "no axis 'widht'; there are ['operator', 'operator.width', 'width']; did you mean 'width'?",
        ),
        ("best_over('width', 'mse', prefer := 'low')", "not 'low'; there are ['higher', 'lower']"),
        ("curve('los')", "there are ['grad_norm', 'learning_rate', 'loss']; did you mean 'loss'?"),
    ],
)
def test_a_name_that_nothing_has_is_an_error_that_says_which_there_are(asked: str, said: str, reading: Store) -> None:
    with pytest.raises(SpecError, match=re.escape(said)):
        reading.sql(f"SELECT * FROM {asked}")
