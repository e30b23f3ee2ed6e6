"""A plan says which differences its seeds can tell apart, by the rules that will judge them."""

import json
import math
import random
import statistics
from pathlib import Path
from typing import Any

import pytest
from toy_campaign import run_quietly
from toy_training import ToyTrial

from grid import Grid, Measure, over
from runners.commands.plan import plan_campaign
from runners.commands.plan_text import plan_data, plan_lines
from runners.planning.forecast_text import resolution_line
from runners.planning.resolution import Resolution, _differences, _spread, resolutions
from store.ingest import ingest
from store.layout import Layout
from store.statistics.family import judge
from store.statistics.paired import summarise
from store.store import Store


def judged_grid(cells: int = 5, seeds: int = 4, **changes: Any) -> Grid:
    measure = Measure(name="mse", point={"sigma": 1.0}, **changes)
    rates = [0.5 + 0.4 * at / cells for at in range(cells)]
    return Grid(
        name="judged",
        base=ToyTrial(),
        axes=[over("operator.rate", rates, name="rate")],
        seeds=range(seeds),
        baseline={"rate": rates[0]},
        measure=measure,
    )


def resolution(root: Path, grid: Grid) -> Resolution:
    (found,) = resolutions(Layout(root), [grid])
    return found


@pytest.mark.parametrize(
    ("comparisons", "seeds", "in_sd"), [(1, 3, 3.3), (1, 5, 1.7), (1, 8, 1.2), (1, 10, 1.0), (191, 5, 6.7)]
)
def test_it_is_what_the_documentation_of_the_verdicts_says(
    tmp_path: Path, comparisons: int, seeds: int, in_sd: float
) -> None:
    found = resolution(tmp_path, judged_grid(comparisons + 1, seeds))
    assert found.comparisons == comparisons
    assert found.in_sd == pytest.approx(in_sd, abs=0.05)


def test_verdicts_find_such_a_difference_four_times_in_five(tmp_path: Path) -> None:
    """Through `judge`: one true effect among comparisons without any, the hardest case of Holm."""
    import numpy as np

    found = resolution(tmp_path, judged_grid(5, 6))
    assert found.in_sd is not None
    source, campaigns = np.random.default_rng(0), 4000
    differences = source.normal(size=(campaigns, found.comparisons, found.seeds))
    differences[:, 0] += found.in_sd
    words = judge(summarise(differences), rope=0.0, alpha=0.05, better="lower").words[:, 0]
    share = np.isin(words, ["better", "worse", "tiny but real"]).mean()
    assert share >= 0.8 - 4 * math.sqrt(0.16 / campaigns)
    assert share < 0.85  # the steps after the hardest are a little easier


def test_without_finished_trials_it_speaks_of_standard_deviations_and_gives_an_example(tmp_path: Path) -> None:
    plan = plan_campaign(tmp_path, [judged_grid()])
    (found,) = plan.resolutions
    assert (found.sd, found.pairs, found.remark) == (None, 0, "")
    assert found.in_sd == pytest.approx(3.45, abs=0.01)
    assert [seeds for seeds, _ in found.by_seeds] == [3, 5, 8, 12]
    sizes = [size for _, size in found.by_seeds]
    assert sizes == sorted(sizes, reverse=True)
    (line,) = [line for line in plan_lines(plan) if "seeds of" in line]
    assert line.startswith(
        "  4 seeds of mse at sigma=1 tell differences above 3.4 SD apart (power 80 %, 4 comparisons, "
    )
    assert "were it 10 %, above 41 %" in line
    assert line.endswith("3 seeds 6.5 SD, 5 seeds 2.5 SD, 8 seeds 1.5 SD, 12 seeds 1.1 SD")
    assert plan_data(plan)["resolutions"][0]["detectable"] is None


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_finished_pairs_give_the_spread_and_a_plan_writes_nothing_for_it(tmp_path: Path, scale: str) -> None:
    grid = judged_grid(seeds=6, scale=scale)
    run_quietly(tmp_path, judged_grid(seeds=4, scale=scale))
    ingest(tmp_path, threads=1)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    plan = plan_campaign(tmp_path, [grid])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    with Store.open(tmp_path, refresh=False) as store:
        rows = store.final("judged", "mse", {"sigma": 1.0}).select("label", "seed", "value").rows()
    values = {(label, seed): math.log(value) if scale == "log" else value for label, seed, value in rows}
    labels = sorted({label for label, _ in values})
    base = next(label for label in labels if json.loads(label.partition("=")[2] or label) == 0.5)
    each = [[values[label, seed] - values[base, seed] for seed in range(4)] for label in labels if label != base]
    pooled = math.sqrt(statistics.mean(statistics.variance(found) for found in each))
    (found,) = plan.resolutions
    assert found.pairs == 16
    assert found.sd == pytest.approx(pooled)
    data = plan_data(plan)["resolutions"][0]
    assert data["detectable"] == pytest.approx(pooled * data["in_sd"])
    (line,) = [line for line in plan_lines(plan) if "seeds of" in line]
    assert "from 16 pairs" in line
    assert ("%" in line.partition(" apart")[0]) == (scale == "log")


def test_too_few_pairs_say_nothing_of_the_spread(tmp_path: Path) -> None:
    run_quietly(tmp_path, judged_grid(seeds=2))
    ingest(tmp_path, threads=1)
    found = resolution(tmp_path, judged_grid(seeds=6))
    assert (found.pairs, found.sd) == (8, None)


def test_a_grid_that_is_new_to_the_campaign_has_no_pairs(tmp_path: Path) -> None:
    run_quietly(tmp_path, judged_grid(seeds=3))
    ingest(tmp_path, threads=1)
    grid = judged_grid(seeds=3)
    other = Grid(
        name="other", base=grid.base, axes=grid.axes, seeds=grid.seeds, baseline={"rate": 0.5}, measure=grid.measure
    )
    assert resolution(tmp_path, other).pairs == 0


def test_two_seeds_tell_nothing_and_what_cannot_be_compared_has_no_line(tmp_path: Path) -> None:
    plan = plan_campaign(tmp_path, [judged_grid(seeds=2)])
    assert plan.resolutions[0].in_sd is None
    (line,) = [line for line in plan_lines(plan) if "seeds of" in line]
    assert line.startswith("  2 seeds of mse at sigma=1 tell nothing apart, a verdict needs 3; 3 seeds 6.5 SD")
    alone = Grid(name="alone", base=ToyTrial(), axes=[over("steps", [1, 2])], seeds=[0])
    assert plan_campaign(tmp_path, [alone]).resolutions == ()


def test_a_store_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    run_quietly(tmp_path, judged_grid(seeds=3))
    ingest(tmp_path, threads=1)
    Layout(tmp_path).snapshot.write_bytes(random.Random(0).randbytes(4096))
    found = resolution(tmp_path, judged_grid(seeds=3))
    assert found.sd is None
    assert found.remark
    assert any(found.remark in line for line in plan_lines(plan_campaign(tmp_path, [judged_grid(seeds=3)])))


def test_pairs_that_are_all_equal_have_no_spread_and_a_plan_says_so(tmp_path: Path) -> None:
    """Seeds that change nothing are a defect to find, not a lack of pairs."""
    base = math.log(3.0)
    values = {
        cell: {seed: math.exp(base * (1 + seed) + 0.1 * at) for seed in range(4)} for at, cell in enumerate("abc")
    }
    rows = [(cell, seed, value) for cell, found in values.items() for seed, value in found.items()]
    assert _spread(_differences(rows, "a", "log")) == (8, 0.0)
    assert _spread([[0.5] * 4, [0.25] * 4]) == (8, 0.0)
    assert _spread([[0.5] * 2, [0.25] * 2]) == (4, None)
    plan = plan_campaign(tmp_path, [judged_grid()])
    line = resolution_line(plan.resolutions[0]._replace(sd=0.0, pairs=8))
    assert "SD of a pair 0: the 8 pairs" in line
    assert "unknown" not in line
