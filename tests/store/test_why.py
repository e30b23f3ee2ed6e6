"""Why a cell of a campaign has its verdict, and verdicts of cells that were chosen as the best over an axis."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import SUBMISSION, Campaign, write_campaign, write_shard

from ablate.grid.errors import SpecError
from ablate.store.analysis.explain_verdict import why
from ablate.store.analysis.verdicts import tune_over, verdicts
from ablate.store.files.atomic import write_json
from ablate.store.statistics import item_bars, summarise
from ablate.store.statistics.shared_variance import guard_variance
from ablate.store.store import Store


def asked(campaign: Campaign, cell: str = "SSA", **how: Any) -> dict[str, Any]:
    with Store.open(campaign.root) as store:
        return why(store, "quickstart", cell, **how)


def test_it_is_the_row_of_the_table_and_what_the_row_rests_on(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, noise=0.01, failed={("Integral", 1): "diverged"})
    with Store.open(tmp_path) as store:
        table = {row["label"]: row for row in verdicts(store, "quickstart").iter_rows(named=True)}
    found = asked(campaign)
    shared = [name for name in table["SSA"] if name in found]
    assert {name: found[name] for name in shared} == {name: table["SSA"][name] for name in shared}
    assert (found["budgets"], len(found["codes"]), found["items"]) == ([60.0], 1, None)
    assert asked(campaign, campaign.line("SSA", 0)["cell"]) == found
    lost = asked(campaign, "Integral")
    assert (lost["failed_here"], lost["verdict"]) == (1, "no verdict")


def with_items(campaign: Campaign, labels: tuple[str, ...], seeds: range) -> dict[str, np.ndarray]:
    """Record values of 12 items at the measure's point; returns them by label, [seeds, items]."""
    rng, point = np.random.default_rng(0), {"sigma_f": 5.0, "sigma_x": 1.0}
    values = {label: rng.normal(size=(len(seeds), 12)) for label in labels}
    rows: dict[str, list[Any]] = {name: [] for name in ("trial", "attempt", "step", "name", "point", "item", "value")}
    for label, numbers in values.items():
        for seed, row in zip(seeds, numbers, strict=True):
            for item, value in enumerate(row):
                whole = (campaign.line(label, seed)["trial"], 1, 60, "mse", point, f"item {item}", float(value))
                for name, each in zip(rows, whole, strict=True):
                    rows[name].append(each)
    write_shard(campaign.layout, "item", rows, submission=SUBMISSION, worker=7, sequence=0)
    return values


@pytest.mark.parametrize("seeds", [range(4), range(1)])
def test_items_that_both_arms_recorded_give_both_error_bars(tmp_path: Path, seeds: range) -> None:
    campaign = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(4), noise=0.01)
    values = with_items(campaign, ("softmax", "SSA"), seeds)
    expected = item_bars(values["SSA"] - values["softmax"])
    found = asked(campaign)["items"]
    assert (found["seeds"], found["items"]) == (len(seeds), 12)
    assert found["difference"] == pytest.approx(expected.difference)
    assert (found["se_items"], found["se_seeds"]) == pytest.approx((expected.se_items, expected.se_seeds), nan_ok=True)


def rates(root: Path, seeds: range = range(8), missing: dict[tuple[str, int], str] | None = None) -> Campaign:
    effect = {"SSA": -0.5, "softmax": 0.0}
    return write_campaign(
        root,
        operators=("softmax", "SSA"),
        factors={"rate": (0.1, 0.2, 0.3)},
        seeds=seeds,
        noise=0.02,
        steps=4,
        sigma_f=(5,),
        sigma_x=(1,),
        effect=lambda axes: effect[axes["operator"]] + abs(axes["rate"] - 0.2),
        failed={who: status for who, status in (missing or {}).items() if status != "pending"},
        pending=[who for who, status in (missing or {}).items() if status == "pending"],
    )


def test_the_best_rate_of_each_operator_is_chosen_by_the_other_seeds(tmp_path: Path) -> None:
    campaign = rates(tmp_path)
    with Store.open(campaign.root) as store:
        found = verdicts(tune_over(store, "quickstart", ["rate"]), "quickstart")
        plain = {row["label"]: row for row in verdicts(store, "quickstart").iter_rows(named=True)}
    (row,) = found.iter_rows(named=True)
    assert (row["label"], row["selected"], row["among"]) == ("SSA", "rate=0.2", 3)
    assert (row["otherwise"], row["pairs"]) == (0, 8)
    assert (row["verdict"], row["family"]) == ("better", 1)
    assert row["difference"] == pytest.approx(-0.5, abs=0.05)  # against softmax at its own best rate
    assert plain["SSA · 0.2"]["difference"] < row["difference"] - 0.05  # the grid's baseline has another rate


@pytest.mark.parametrize("status", ["pending", "diverged"])
@pytest.mark.parametrize("operator", ["SSA", "softmax"])
def test_without_a_value_to_choose_by_there_is_no_verdict(tmp_path: Path, operator: str, status: str) -> None:
    lost = {(f"{operator} · {rate}", seed): status for rate in (0.1, 0.2, 0.3) for seed in range(8)}
    some = {(f"{operator} · 0.1", 0): status}
    with Store.open(rates(tmp_path / "all", missing=lost).root) as store:
        (row,) = verdicts(tune_over(store, "quickstart", ["rate"]), "quickstart").iter_rows(named=True)
    assert (row["verdict"], row["p_holm"], row["difference"]) == ("no verdict", None, None)
    where = " in the baseline" if operator == "softmax" else ""
    assert "24" in row["reason"]
    assert ("outstanding" in row["reason"]) == (status == "pending")
    assert (row["among"], row["selected"]) == ((0, None) if operator == "SSA" else (3, "rate=0.2"))
    with Store.open(rates(tmp_path / "some", missing=some).root) as store:
        (row,) = verdicts(tune_over(store, "quickstart", ["rate"]), "quickstart").iter_rows(named=True)
    told = "preliminary: 23 of 24 runs that choose" if status == "pending" else "1 of 24 runs that choose"
    assert (row["verdict"], row["reason"].startswith(told + where)) == ("better", True)


@pytest.mark.parametrize(
    ("axis", "told"),
    [("operator", "over operator one cell is left"), ("rate", "over rate there is nothing to choose")],
)
def test_a_selection_that_leaves_one_cell_or_has_no_choice_is_refused(tmp_path: Path, axis: str, told: str) -> None:
    """An axis that is zipped with another one gives no choice."""
    factors = {"rate": (0.1,)} if axis == "rate" else {}
    campaign = write_campaign(tmp_path, operators=("softmax", "SSA"), factors=factors, seeds=range(4))
    with Store.open(campaign.root) as store, pytest.raises(SpecError, match=told):
        tune_over(store, "quickstart", [axis])


def test_a_variance_of_the_grid_is_that_of_its_verdicts(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, seeds=range(3))
    own = asked(campaign)
    assert (own["error"], own["freedom"]) == (own["own_error"], own["own_freedom"])
    write_json(campaign.layout.grid_header("quickstart"), {**campaign.header, "variance": "shared"})
    with Store.open(tmp_path) as store:
        table = {row["label"]: row for row in verdicts(store, "quickstart").iter_rows(named=True)}
        labels = ("SSA", "Integral", "Principled")
        found = [why(store, "quickstart", label) for label in labels]
        with pytest.raises(SpecError):
            verdicts(store, "quickstart", measure={"variance": "own"})
    assert any(each["freedom"] > 2 for each in found)
    known = summarise(np.array([[each["own_error"] * np.sqrt(3) * (at - 1) for at in range(3)] for each in found]))
    guarded = guard_variance(known)
    assert [each["error"] for each in found] == pytest.approx(guarded.error)
    assert [each["freedom"] for each in found] == pytest.approx(guarded.freedom)
    assert [each["high"] for each in found] == [table[label]["high"] for label in labels]
    assert {each["own_freedom"] for each in found} == {2.0}
