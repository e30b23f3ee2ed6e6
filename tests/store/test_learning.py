"""Learning curves and Pareto sets of campaigns on disk whose truth is planted."""

import math
from pathlib import Path

import polars as pl
import pytest
from synthetic import Campaign, write_campaign

from ablate.grid.errors import NotFoundError, SpecError
from ablate.store.analysis.learning_curves import compare_learning, curve_points
from ablate.store.analysis.pareto import pareto
from ablate.store.files.atomic import read_json, write_json
from ablate.store.store import Store


def planted(root: Path) -> Campaign:
    """SSA: losses half as large, twice the tokens per step; Integral: losses twice as large, the tokens of softmax."""
    shift = {"softmax": 0.0, "SSA": -math.log(2), "Integral": math.log(2)}
    campaign = write_campaign(
        root,
        operators=tuple(shift),
        seeds=range(4),
        effect=lambda axes: shift[axes["operator"]],
        noise=0.001,
        resumed=[("softmax", 1)],
        failed={("SSA", 3): "diverged"},
    )
    for line in campaign.lines:
        for attempt in (1, 2):
            end = campaign.layout.end(line["trial"], attempt)
            if end.exists():
                steps = 30 if (line["label"], line["seed"]) == ("softmax", 1) else 60
                size = 20 if line["label"] == "SSA" else 10
                train_s = steps / 60 * (size / 10 + 0.001 * line["seed"])
                cost = {"steps": steps, "tokens": steps * size, "train_s": train_s}
                write_json(end, {**read_json(end), "cost": cost})
    return campaign


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(planted(tmp_path_factory.mktemp("learning")).root)


def row(found: pl.DataFrame, question: str, label: str) -> dict[str, object]:
    return found.row(by_predicate=(pl.col("question") == question) & (pl.col("label") == label), named=True)


def test_cost_is_steps_or_the_runs_own_tokens(store: Store) -> None:
    last = {"steps": 59, "tokens": 590}
    for by, cost in last.items():
        points = curve_points(store, "quickstart", "loss", by)  # type: ignore[arg-type]
        assert points.filter(label="softmax", seed=0)["cost"].max() == cost
    points = curve_points(store, "quickstart", "loss", "tokens")
    assert points.filter(label="SSA", seed=0)["cost"].max() == 2 * 590
    assert points["label"].unique(maintain_order=True).to_list()[0] == "softmax"


def test_seconds_go_on_where_a_resumed_run_went_on(store: Store) -> None:
    points = curve_points(store, "quickstart", "loss", "seconds").filter(label="softmax")
    whole, resumed = (points.filter(seed=seed)["cost"].to_list() for seed in (0, 1))
    assert whole == pytest.approx([0.01 * step for step in range(60)])
    assert resumed[29:32] == pytest.approx([0.29, 0.29, 0.30])
    assert resumed[-1] == pytest.approx(0.58)
    assert resumed == sorted(resumed)


def test_a_cell_that_reaches_a_level_has_its_cost_where_the_other_does_not(store: Store) -> None:
    points = curve_points(store, "quickstart", "loss", "steps").filter(label="softmax")
    level = float(points.group_by("seed").agg(pl.col("value").min())["value"].max())  # type: ignore[arg-type]
    told = row(compare_learning(store, "quickstart", "loss", "steps", level=level), "cost to", "Integral")
    costs = points.filter(pl.col("value") <= level).group_by("seed").agg(pl.col("cost").min())["cost"]
    assert (told["value"], told["difference"]) == (None, None)
    assert told["baseline_value"] == pytest.approx(math.exp(costs.log().mean()))  # type: ignore[arg-type]


def test_the_planted_ratio_is_found_at_equal_steps_and_another_at_equal_tokens(store: Store) -> None:
    at_steps = row(compare_learning(store, "quickstart", "loss", "steps"), "value at", "Integral")
    assert at_steps["percent"] == pytest.approx(100, abs=2)
    ssa = row(compare_learning(store, "quickstart", "loss", "steps"), "value at", "SSA")
    assert (ssa["pairs"], ssa["p"]) == (3, None)
    assert "failures differ between the groups (1 failed only here)" in str(ssa["note"])
    assert ssa["percent"] == pytest.approx(-50, abs=2)
    tokens = row(compare_learning(store, "quickstart", "loss", "tokens", budget=400), "value at", "SSA")
    expected = (0.1 + math.exp(-2)) / (0.1 + math.exp(-4)) / 2  # after 20 steps of 20 tokens and 40 of 10
    assert tokens["percent"] == pytest.approx(100 * (expected - 1), abs=2)


def test_a_cell_worse_in_both_is_dominated_and_survivors_are_not_compared(store: Store) -> None:
    for against in ("loss", "parameters"):
        found = pareto(store, "quickstart", [against])
        assert dict(found.select("label", "standing").iter_rows()) == {
            "softmax": "inconclusive",
            "SSA": "inconclusive",
            "Integral": "dominated",
        }
        assert found["label"].to_list()[0] == "softmax"
        assert found["dominated_by"].to_list()[-1] == ["softmax"]
    tied = pareto(store, "quickstart", ["train_s"])
    assert set(tied["standing"]) == {"inconclusive"}, "equal seconds on every seed are no proof of equal cost"


def test_what_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(NotFoundError, match=r"no ended run .* has recorded 'los'; they have [\w, ]*loss"):
        curve_points(store, "quickstart", "los", "steps")
    with pytest.raises(SpecError, match=r"'token'; they are by \['steps', 'tokens', 'seconds'\]; did you mean"):
        curve_points(store, "quickstart", "loss", "token")  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match=r"has no 'train'.*did you mean 'train_s'"):
        pareto(store, "quickstart", ["train"])
    with pytest.raises(NotFoundError, match="has 'joules'; they have") as caught:
        pareto(store, "quickstart", ["joules"])
    assert "train_s" in str(caught.value)
    assert str(caught.value).count("'joules'") == 1
    with pytest.raises(SpecError, match=r"'mse'.* are too few objectives"):
        pareto(store, "quickstart", ["mse"])
