"""The check "tuned": where the chosen levels lie among those that were tried."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import Campaign, publish_grid
from tuned_campaign import RATES, tuned

from ablate.store.analysis.tuned_check import tuned_checks
from ablate.store.analysis.verdicts import verdicts
from ablate.store.store import Store


def answers(campaign: Campaign, **how: Any) -> dict[str, tuple[str, float | None]]:
    """The answer and the number of each row, by the label of its cell."""
    with Store.open(campaign.root) as store:
        found, rows = tuned_checks(store, "quickstart", **how), verdicts(store, "quickstart", **how)
    assert [*found] == rows["cell"].to_list()
    assert {check.name for check in found.values()} == {"tuned"}
    return {row["label"]: (found[row["cell"]].answer, found[row["cell"]].number) for row in rows.rows(named=True)}


def rewrite(campaign: Campaign, change: Callable[[dict[str, Any]], None], **axis: Any) -> Campaign:
    """Plan the campaign again with changed lines, and with other fields of the axis `rate`."""
    header = json.loads(campaign.layout.grid_header("quickstart").read_bytes())
    header.pop("seal")
    header["axes"][1] |= axis
    for line in campaign.lines:
        change(line)
    publish_grid(campaign.layout, header, campaign.lines)
    return campaign


@pytest.mark.parametrize("matched", [False, True])
def test_a_level_inside_is_tuned_and_one_at_an_edge_is_not(tmp_path: Path, *, matched: bool) -> None:
    assert answers(tuned(tmp_path, matched=matched)) == {"SSA": ("yes", 0.4), "Integral": ("no", 0.5)}


def test_an_edge_in_the_baseline_counts_as_well(tmp_path: Path) -> None:
    found = answers(tuned(tmp_path), baseline="Integral · 0.1")
    assert found == {"softmax": ("no", 0.5), "SSA": ("no", 0.5)}


@pytest.mark.parametrize(("beyond", "expected"), [("pending", ("no", 0.4)), ("failed", ("yes", 0.4))])
def test_only_levels_that_were_tried_count(tmp_path: Path, beyond: str, expected: tuple[str, float]) -> None:
    """A rate at which every run diverged shows that the best lies before it; one that nobody tried shows nothing."""
    runs = [("SSA · 0.5", seed) for seed in range(6)]
    how = {"pending": runs} if beyond == "pending" else {"failed": dict.fromkeys(runs, "diverged")}
    assert answers(tuned(tmp_path, **how))["SSA"] == expected


def test_two_levels_show_nothing(tmp_path: Path) -> None:
    assert set(answers(tuned(tmp_path, factors={"rate": (0.2, 0.4)})).values()) == {("unknown", 2.0)}
    assert set(answers(tuned(tmp_path / "one", factors={"rate": (0.2,)})).values()) == {("unknown", 1.0)}


def test_without_a_nuisance_axis_nothing_is_known(tmp_path: Path) -> None:
    assert {answer for answer, _ in answers(tuned(tmp_path, axis="")).values()} == {"unknown"}


def test_without_a_value_nothing_is_chosen(tmp_path: Path) -> None:
    pending = [(f"SSA · {rate}", seed) for rate in RATES for seed in range(6)]
    found = answers(tuned(tmp_path, pending=pending))
    assert [answer for label, (answer, _) in found.items() if label.startswith("SSA")] == ["unknown"]
    assert found["Integral"][0] == "no"


def test_levels_without_an_order_have_no_inside(tmp_path: Path) -> None:
    how = {"factors": {"rate": ("cosine", "linear", "constant")}, "effect": lambda axes: len(axes["rate"])}
    assert set(answers(tuned(tmp_path, **how)).values()) == {("unknown", 3.0)}


def test_levels_with_labels_have_the_order_of_their_numbers(tmp_path: Path) -> None:
    def name(line: dict[str, Any]) -> None:
        line["axes"] = {**line["axes"], "rate": f"r{line['axes']['rate']}"}
        line["label"] = line["label"].replace(" · ", " · r")

    campaign = rewrite(tuned(tmp_path), name, labels=[f"r{rate}" for rate in RATES])
    assert answers(campaign) == {"SSA": ("yes", 0.4), "Integral": ("no", 0.5)}


def test_an_arm_without_the_field_is_not_tuned(tmp_path: Path) -> None:
    def drop(line: dict[str, Any]) -> None:
        if line["operator"] == "softmax":
            line["axes"] = {**line["axes"], "rate": None}
            del line["spec"]["operator"]["rate"]

    pending = [(f"softmax · {rate}", seed) for rate in RATES if rate != 0.1 for seed in range(6)]
    campaign = rewrite(tuned(tmp_path, pending=pending), drop)
    assert answers(campaign) == {"SSA": ("unknown", None), "Integral": ("no", 0.5)}


def test_the_axis_itself_is_compared(tmp_path: Path) -> None:
    campaign = rewrite(tuned(tmp_path, axis=""), lambda _: None, path="training.optimiser.lr")
    found = answers(campaign)
    assert {label: answer for label, (answer, _) in found.items()} == {
        label: "-" if label.startswith("softmax") else "unknown" for label in found
    }
