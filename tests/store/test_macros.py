"""Macros answer what their definitions in plain Python do, through the snapshot that readers open."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import pytest
from synthetic import Campaign, plan_header, plan_lines, publish_grid, write_campaign, write_end, write_start

from ablate.grid.errors import SpecError
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.store import Store

OpenStore = Callable[..., Store]


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


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("final('msee')", "'msee'; there are ['grad_norm', 'learning_rate', 'loss', 'mse']; did you mean 'mse'?"),
        ("paired('mse', 'softmax 8')", "no cell has the label 'softmax 8'; there are ['SSA · 16', 'SSA · 8', 'softmax"),
        ("best_over('widht', 'mse')", "'widht'; there are ['operator', 'operator.width', 'width']; did you mean"),
        ("best_over('width', 'mse', prefer := 'low')", "not 'low'; there are ['higher', 'lower']"),
        ("curve('los')", "there are ['grad_norm', 'learning_rate', 'loss']; did you mean 'loss'?"),
    ],
)
def test_a_name_that_nothing_has_is_an_error_that_says_which_there_are(asked: str, said: str, reading: Store) -> None:
    with pytest.raises(SpecError, match=re.escape(said)):
        reading.sql(f"SELECT * FROM {asked}")
