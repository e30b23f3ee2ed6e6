"""Comparing trials, and tables, of one campaign and of several."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import Campaign, write_campaign

from ablate.runners.cli.compare import _ABSENT, _follows
from ablate.store.campaign import Campaign as Logged

Ablate = Callable[..., Any]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Campaign, Campaign]:
    """Two campaigns of the same trials, with other values."""
    roots = (tmp_path_factory.mktemp("first") / "c", tmp_path_factory.mktemp("second") / "c")
    plan: dict[str, Any] = {"operators": ("softmax", "SSA", "Integral"), "seeds": range(3), "sigma_f": (1, 5)}
    first, second = (write_campaign(root, noise=noise, **plan) for root, noise in zip(roots, (0.05, 0.2), strict=True))
    return first, second


def key(campaign: Campaign, label: str, seed: int) -> str:
    return str(campaign.line(label, seed)["trial"])


def test_three_trials_have_a_column_each(both: tuple[Campaign, Campaign], ablate: Ablate) -> None:
    campaign, _ = both
    keys = [key(campaign, label, seed) for label, seed in (("softmax", 0), ("SSA", 0), ("SSA", 1))]
    found = json.loads(ablate("compare", *keys, "--json", "--campaign", campaign.root).out)["data"]
    assert dict(found["spec"]) == {
        "operator.kind": ['"softmax"', '"ssa"', '"ssa"'],
        "operator.operator": ['"softmax"', '"SSA"', '"SSA"'],
        "seed": ["0", "0", "1"],
    }
    pairs = [
        json.loads(ablate("compare", keys[0], other, "--json", "--campaign", campaign.root).out)["data"]["results"]
        for other in keys[1:]
    ]
    for row, first, second in zip(found["results"], *pairs, strict=True):
        assert [row[each[:8]] for each in keys] == [first["first"], first["second"], second["second"]]
        assert (row["name"], row["point"]) == (first["name"], first["point"])
    shown = ablate("compare", *keys, "--campaign", campaign.root).out
    assert all(each[:8] in shown for each in keys)


def test_twelve_trials_fit_a_screen(tmp_path: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = write_campaign(tmp_path / "c", operators=("softmax", "SSA"), seeds=range(6), sigma_f=(1, 2, 5, 10))
    monkeypatch.setenv("COLUMNS", "100")
    shown = ablate("compare", "operator=SSA", "operator=softmax", "--campaign", campaign.root).out
    lines = shown.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100
    points = {line.split(",")[0] for line in lines if line.startswith("mse at ")}
    assert points == {f"mse at sigma_f={value}" for value in (1, 2, 5, 10)}
    found = json.loads(ablate("compare", "operator=SSA", "operator=softmax", "--json", "--campaign", campaign.root).out)
    values = [value for row in found["data"]["results"] for value in row.values() if isinstance(value, float)]
    assert len(values) == 12 * len(found["data"]["results"])
    assert all(f"{value:.6g}" in shown.split() for value in values)


@pytest.mark.parametrize("seeds", [1, 2, 6])
def test_many_results_fit_a_screen_with_the_grids_own_first(
    seeds: int, tmp_path: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan: dict[str, Any] = {"operators": ("softmax", "SSA"), "seeds": range(seeds), "sigma_f": range(1, 31)}
    root = write_campaign(tmp_path, **plan, sigma_x=range(1, 5)).root
    monkeypatch.setenv("COLUMNS", "100")
    lines = ablate("compare", "operator=SSA", "operator=softmax", "--campaign", root).out.splitlines()
    assert len(lines) <= 60
    rows = [line.split() for line in lines if line.startswith("mse at ")]
    assert " ".join(rows[0][:4]) == "mse at sigma_f=5, sigma_x=1"
    if seeds == 1:
        differences = [abs(float(row[-1])) for row in rows[1:]]
        assert differences == sorted(differences, reverse=True)


def test_a_measure_that_is_a_training_metric_is_first(tmp_path: Path, ablate: Ablate) -> None:
    campaign = Logged(tmp_path).grid("own", baseline="a", measure={"name": "loss", "better": "lower"})
    for at, label in enumerate("ab"):
        with campaign.start("own", label=label, seed=0, config={"axis": label}) as run:
            run.log(1, loss=2.0 + at / 4)
            run.evaluate(1, "mse", float(at), items=1)
    lines = ablate("compare", "a", "b", "--campaign", tmp_path).out.splitlines()
    assert [line.split() for line in lines[-2:]] == [["loss", "2", "2.25", "0.25"], ["mse", "0", "1", "1"]]


def test_a_query_means_its_trials(both: tuple[Campaign, Campaign], ablate: Ablate) -> None:
    campaign, other = both
    keys = [key(campaign, "SSA", 0), key(campaign, "SSA", 1), key(campaign, "SSA", 2)]
    asked = ablate("compare", "operator=SSA", "--json", "--campaign", campaign.root).out
    assert asked == ablate("compare", *keys, "--json", "--campaign", campaign.root).out
    words = ("label=softmax", "label=SSA", "label=Integral", "--campaign", campaign.root, "--campaign", other.root)
    assert "18 trials do not fit a table" in ablate("compare", *words, code=2).err
    assert "means 1" in ablate("compare", "operator=SSA", "seed=1", "--campaign", campaign.root, code=2).err


def test_trials_of_a_query_are_in_the_order_of_the_plan(tmp_path: Path, ablate: Ablate) -> None:
    campaign = Logged(tmp_path).grid("rates", baseline="a 0.1", measure={"name": "mse", "better": "lower"})
    for label, rate in (("a", 0.1), ("a", 0.2), ("a", 0.3), ("b", 0.3), ("b", 0.1), ("b", 0.2)):
        axes = {"operator": label, "lr": rate}
        with campaign.start("rates", label=f"{label} {rate}", seed=0, config=axes, axes=axes) as run:
            run.evaluate(1, "mse", rate, items=1)
    lines = ablate("compare", "operator=b", "seed=0", "--campaign", tmp_path).out.splitlines()
    assert [line.split()[1] for line in lines[1:4]] == ["0.1", "0.2", "0.3"]


def test_what_follows_from_a_kind_and_what_is_equal_is_left_out() -> None:
    spec = [
        ("score.kind", ["ssa", "ssa", "exponential"]),
        ("score.n", ["1.5", "1.5", _ABSENT]),
        ("score.b", ["1.5", "2.0", _ABSENT]),
        ("gate", [_ABSENT, _ABSENT, "null"]),
        ("gate.kind", ["share", "share", _ABSENT]),
    ]
    left = [path for path, values in spec if _follows(path, values, spec)]
    assert left == ["score.n"]
    logged = [("wd", [_ABSENT, "0.1"])]
    assert not _follows(*logged[0], logged)


def test_a_trial_of_two_campaigns_is_compared_with_itself(both: tuple[Campaign, Campaign], ablate: Ablate) -> None:
    first, second = both
    one = key(first, "SSA", 0)
    words = ("--campaign", first.root, "--campaign", second.root)
    found = json.loads(ablate("compare", one, *words, "--json").out)["data"]
    assert found["spec"] == []
    assert all(row["first"] != row["second"] for row in found["results"])
    ablate("compare", one, "--campaign", first.root, code=2)
    assert "f" * 12 in ablate("compare", one, "f" * 12, *words, code=3).err


def test_the_tables_of_two_campaigns_are_those_of_each(both: tuple[Campaign, Campaign], ablate: Ablate) -> None:
    roots = [campaign.root for campaign in both]
    alone = [json.loads(ablate("table", "--json", "--campaign", root).out)["data"] for root in roots]
    words = [word for root in roots for word in ("--campaign", root)]
    together = json.loads(ablate("table", "--json", *words).out)["data"]
    assert together == [{"campaign": str(root), **row} for root, rows in zip(roots, alone, strict=True) for row in rows]
    texts = [ablate("table", "--campaign", root).out for root in roots]
    assert ablate("table", *words).out == "".join(
        f"campaign {root}\n{text}" for root, text in zip(roots, texts, strict=True)
    )
    assert "one campaign" in ablate("table", "--why", "SSA", *words, code=2).err


def test_a_trial_that_is_not_done_shows_its_state(tmp_path: Path, ablate: Callable) -> None:
    made = write_campaign(tmp_path, seeds=(0,), failed={("SSA", 0): "diverged"}, pending=[("Integral", 0)])
    pair = ablate("compare", "softmax", "SSA", "--campaign", tmp_path).out
    assert [line.endswith("failed: diverged") for line in pair.splitlines()[:2]] == [False, True]
    several = ablate("compare", *(line["label"] for line in made.lines[:3]), "--campaign", tmp_path).out.splitlines()
    states = {line.split()[1] for line in several[1:4]}
    assert "state" in several[0]
    assert {"failed:", "pending"} <= states
