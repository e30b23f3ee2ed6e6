"""Verdicts of campaigns on disk whose truth is planted (tests/synthetic.py)."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from synthetic import Campaign, publish_grid, write_campaign

from ablate.grid.errors import NotFoundError, SpecError
from ablate.store.analysis.explain_verdict import why
from ablate.store.analysis.verdicts import failure_rates, matched_axes, verdicts
from ablate.store.files.atomic import read_json, write_json
from ablate.store.store import Store


def by_label(found: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["label"]: row for row in found.iter_rows(named=True)}


def judged(campaign: Campaign, **how: Any) -> dict[str, dict[str, Any]]:
    with Store.open(campaign.root) as store:
        return by_label(verdicts(store, "quickstart", **how))


def planted(axes: Mapping[str, Any]) -> float:
    return {"softmax": 0.0, "SSA": -0.5, "Integral": 0.4, "Principled": 0.0}[axes["operator"]]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Campaign, Store]]:
    """A campaign without gaps, for tests that only read."""
    campaign = write_campaign(tmp_path_factory.mktemp("plain"), effect=planted, noise=0.01, seeds=range(6))
    with Store.open(campaign.root) as store:
        yield campaign, store


def words(plain: tuple[Campaign, Store], **how: Any) -> dict[str, dict[str, Any]]:
    return by_label(verdicts(plain[1], "quickstart", **how))


def test_planted_effects_get_their_words_and_are_in_their_intervals(plain: tuple[Campaign, Store]) -> None:
    found = words(plain)
    assert {label: row["verdict"] for label, row in found.items()} == {
        "SSA": "better",
        "Integral": "worse",
        "Principled": "equivalent",
    }
    for row in found.values():
        assert row["low"] - 0.02 < plain[0].effects[row["cell"]] < row["high"] + 0.02
        assert (row["family"], row["planned"], row["done"], row["failed"]) == (3, 6, 6, 0)
    assert found["SSA"]["pairing"] > 0.9


def test_cells_are_compared_with_the_baseline_of_their_other_levels(tmp_path: Path) -> None:
    def effect(axes: Mapping[str, Any]) -> float:
        return planted(axes) + 3.0 * axes["lr"]  # far larger than what operators do

    campaign = write_campaign(tmp_path, factors={"lr": [1, 2]}, effect=effect, noise=0.01, seeds=range(6))
    axes = {line["cell"]: line["axes"] for line in campaign.lines}
    bases = {found["lr"]: cell for cell, found in axes.items() if found["operator"] == "softmax"}
    baselines = {cell: bases[found["lr"]] for cell, found in axes.items() if found["operator"] != "softmax"}
    header = {**campaign.header, "baselines": baselines, "matched": ["lr"]}
    write_json(campaign.layout.grid_header("quickstart"), header)
    words = {"SSA": "better", "Integral": "worse", "Principled": "equivalent"}
    with Store.open(tmp_path) as store:
        found = verdicts(store, "quickstart")
        pairs = store.sql("SELECT DISTINCT cell, log_ratio > -0.6 AND log_ratio < 0.5 FROM paired('mse')").rows()
        rates = failure_rates(store, "quickstart")
        assert why(store, "quickstart", "SSA · 2")["baseline"] == bases[2]
        with pytest.raises(SpecError, match=r"'softmax · 2' is a baseline"):
            why(store, "quickstart", "softmax · 2")
        one = verdicts(store, "quickstart", baseline="softmax · 1")
    assert {row["cell"]: row["baseline"] for row in found.rows(named=True)} == baselines
    assert all(row["verdict"] == words[row["operator"]] for row in found.rows(named=True))
    assert set(found["family"]) == {6}
    assert sorted(pairs) == sorted((cell, True) for cell in baselines)
    assert rates.filter(rates["p"].is_not_null())["cell"].sort().to_list() == sorted(baselines)
    assert by_label(one)["Principled · 2"]["verdict"] == "worse"  # unmatched


def test_failed_running_and_pending_runs_are_counted_and_judged_as_outcomes(tmp_path: Path) -> None:
    campaign = write_campaign(
        tmp_path,
        effect=planted,
        noise=0.01,
        failed={("SSA", 1): "diverged"},
        running=[("Integral", 3)],
        pending=[("Integral", 4)],
    )
    found = judged(campaign)
    assert (found["SSA"]["verdict"], found["SSA"]["done"], found["SSA"]["failed"]) == ("no verdict", 4, 1)
    assert "1 failed only here" in found["SSA"]["reason"]
    assert found["Integral"]["reason"].startswith("preliminary: 3 of 5 seeds; ")
    assert (found["Integral"]["running"], found["Integral"]["pending"]) == (1, 1)
    with Store.open(tmp_path) as store:
        rates = by_label(failure_rates(store, "quickstart"))
    assert (rates["SSA"]["failed"], rates["SSA"]["ended"], rates["Integral"]["ended"]) == (1, 5, 3)
    assert rates["softmax"]["p"] is None


def test_another_point_or_rule_of_the_measure_is_taken(plain: tuple[Campaign, Store]) -> None:
    usual, other = words(plain)["SSA"], words(plain, measure={"point": {"sigma_x": 2, "sigma_f": 10}})["SSA"]
    assert other["value"] / usual["value"] == pytest.approx(100 * 5 / (25 * 2))
    assert other["difference"] == pytest.approx(usual["difference"])
    assert words(plain, measure={"better": "higher"})["SSA"]["verdict"] == "worse"
    wide = words(plain, measure={"rope": 1.5})["SSA"]
    assert (wide["verdict"], wide["p_holm"] < 0.05) == ("equivalent", True)
    assert words(plain, measure={"name": "loss", "point": {}})["SSA"]["verdict"] == "better"


def rewrite(campaign: Campaign, who: tuple[str, int], record: str, attempt: int = 1, **fields: Any) -> None:
    """Replace fields of the start.json or end.json of one attempt."""
    path = getattr(campaign.layout, record)(campaign.line(*who)["trial"], attempt)
    write_json(path, {**read_json(path), **fields})


def test_a_run_resumed_by_other_code_is_mixed_and_one_begun_again_is_not(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, effect=planted, noise=0.01, resumed=[("SSA", 2), ("Integral", 2)])
    rewrite(campaign, ("SSA", 2), "start", code="f00d" * 10)
    rewrite(campaign, ("Integral", 2), "start", code="f00d" * 10)
    rewrite(campaign, ("Integral", 2), "start", attempt=2, resumed_from=None)
    found = judged(campaign)
    assert "2 versions of the code" in found["SSA"]["reason"]
    assert found["Integral"]["verdict"] == "worse"


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"baseline": "sofmax"}, NotFoundError, "grid 'quickstart' has no cell 'sofmax'; .*did you mean 'softmax'"),
        ({"measure": {"nam": "loss"}}, SpecError, "'nam' is no field of a measure; .*did you mean 'name'"),
        ({"measure": {"name": "mes"}}, NotFoundError, "no finished run .* has 'mes'; .*did you mean 'mse'"),
        ({"measure": {"point": {"sigma_x": 7}}}, NotFoundError, r"has 'mse' at {'sigma_x': 7}; they have 20 points"),
        ({"measure": {"point": {"sigma_x": math.nan}}}, SpecError, "nan for 'sigma_x'"),
        ({"measure": {"point": {"sigma_x": 1}}}, SpecError, "'mse' has 10 points that agree with"),
        ({"measure": {"scale": "ln"}}, SpecError, "scale='ln'"),
    ],
)
def test_what_is_not_there_or_has_no_meaning_is_named(
    plain: tuple[Campaign, Store], how: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        words(plain, **how)


def test_a_grid_without_a_baseline_or_a_measure_asks_for_them(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(3))
    header = campaign.layout.grid_header("quickstart")
    write_json(header, {**read_json(header), "baseline": None, "measure": None})
    with pytest.raises(SpecError, match=r"has no measure; write measure=.* its runs have .*'loss'"):
        judged(campaign)
    with pytest.raises(SpecError, match=r"has no baseline; write baseline=.* it has 'softmax', 'SSA'"):
        judged(campaign, measure={"name": "loss"})
    assert judged(campaign, measure={"name": "loss"}, baseline="softmax")["SSA"]["pairs"] == 3


def test_lost_lines_of_a_plan_are_missed_out_loud(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(10), noise=0.01)
    assert (judged(campaign)["SSA"]["pairs"], judged(campaign)["SSA"]["planned"]) == (10, 10)
    plan = campaign.layout.grid_trials("quickstart")
    plan.write_bytes(b"".join(plan.read_bytes().splitlines(keepends=True)[:13]))
    with Store.open(tmp_path) as store:
        found = by_label(verdicts(store, "quickstart"))["SSA"]
        assert any("plan of quickstart has 20 trials, and 13 can be read" in said for said in store.warnings())
        assert store.warnings("quickstart") == store.warnings()
    assert found["planned"] == 10
    assert found["pairs"] < 10
    assert f"preliminary: {found['pairs']} of 10 seeds" in found["reason"]


def test_cells_come_in_the_order_of_the_axes_with_the_baseline_first(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, operators=("softmax", "SSA"), factors={"width": (16, 8)}, seeds=range(3))
    shuffled = sorted(campaign.lines, key=lambda line: (line["seed"], line["cell"]))
    publish_grid(campaign.layout, {**campaign.header, "baseline": campaign.line("SSA · 8", 0)["cell"]}, shuffled)
    others = ["softmax · 16", "softmax · 8", "SSA · 16"]
    with Store.open(tmp_path) as store:
        assert verdicts(store, "quickstart")["label"].to_list() == others
        assert store.progress("quickstart")["label"].to_list() == ["SSA · 8", *others]


def test_two_versions_of_one_definition_are_mixed_code(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, operators=("softmax", "SSA", "Integral"), seeds=range(4))
    for line in campaign.lines:
        path = campaign.layout.start(line["trial"], 1)
        made_of = {
            "softmax": {"softmax.py": "1"},
            "Integral": {"integral.py": "1"},
            "SSA": {"mine.py": "old" if line["seed"] else "new"},
        }
        write_json(path, {**read_json(path), "sources": made_of[line["operator"]]})
    with Store.open(tmp_path) as store:
        found = verdicts(store, store.grids()[0])
    said = {row["label"]: (row["verdict"], row["reason"]) for row in found.rows(named=True)}
    assert said["SSA"][0] == "no verdict"
    assert "mixed code" in said["SSA"][1]
    assert "mixed code" not in said["Integral"][1]


def test_only_axes_on_which_baselines_differ_are_matched(tmp_path: Path) -> None:
    made = write_campaign(
        tmp_path, operators=("softmax", "SSA"), factors={"depth": [1, 2], "width": [1, 2]}, seeds=(0,)
    )
    cells = {
        (line["axes"]["operator"], line["axes"]["depth"], line["axes"]["width"]): line["cell"] for line in made.lines
    }
    of = {cell: cells["softmax", depth, 1] for (name, depth, _), cell in cells.items() if name == "SSA"}
    publish_grid(made.layout, {**made.header, "baselines": of, "matched": ["depth", "width"]}, made.lines)
    with Store.open(tmp_path) as store:
        assert matched_axes(store, "quickstart") == ["depth"]
