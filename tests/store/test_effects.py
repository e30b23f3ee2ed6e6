"""Effects of axes in campaigns with known effects (tests/synthetic.py)."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_campaign, write_grid

from grid import Grid, Spec, over, zipped
from store.analysis.effects import analysis, effects
from store.store import Store

GATE = {"constant": 0.0, "layer": -0.1, "head": -0.3}


def with_gate(axes: Mapping[str, Any]) -> float:
    return (0.2 if axes["operator"] == "SSA" else 0.0) + sum(GATE.get(level, 0.0) for level in axes.values())


def test_effects_find_the_planted_ones_in_the_order_of_the_grid_although_runs_are_missing(tmp_path: Path) -> None:
    campaign = write_campaign(
        tmp_path,
        operators=("softmax", "SSA"),
        factors={"seed": ("head", "constant", "layer")},  # an axis may be called like a column of the statistics
        effect=with_gate,
        noise=0.001,
        pending=[("SSA · head", 0), ("softmax · head", 0)],
        failed={("softmax · layer", 3): "diverged"},
    )
    with Store.open(campaign.root) as store:
        found = effects(store, "quickstart").effects
    assert found.select("factor", "level", "against", "n").rows() == [
        ("operator", "SSA", "softmax", 3),
        ("seed", "constant", "head", 3),
        ("seed", "layer", "head", 3),
    ]
    expected = [0.2, *(GATE[level] - GATE["head"] for level in ("constant", "layer"))]
    assert found["effect"].to_list() == pytest.approx(expected, abs=0.003)
    assert found["percent"].to_list() == pytest.approx([math.expm1(e) * 100 for e in expected], abs=0.3)


class Rig(Spec):
    """A trial of numbers only."""

    clip: float | None = None
    rate: float = 0.1
    width: int = 32
    bias: bool = True
    seed: int = 0


def test_the_axes_of_a_real_grid_are_its_factors_by_its_own_labels(tmp_path: Path) -> None:
    """None is a level called none; zipped numbers are one factor; true is true."""
    axes = [
        over("clip", [None, 1.0]),
        over("bias", [True, False]),
        zipped(over("rate", [0.3, 0.1]), over("width", [64, 32])),
    ]
    write_grid(tmp_path, Grid("rig", Rig(), axes, seeds=range(4)))
    with Store.open(tmp_path) as store:
        found = effects(store, "rig").effects
    assert found.filter(order=1).select("factor", "level", "against").rows() == [
        ("clip", "1.0", "none"),
        ("bias", "false", "true"),
        ("rate = width", "0.1 / 32", "0.3 / 64"),
    ]


def test_tests_and_means_come_from_the_grid_with_interactions_when_asked(tmp_path: Path) -> None:
    write_campaign(
        tmp_path,
        operators=("softmax", "SSA"),
        factors={"seed": ("head", "constant", "layer")},
        effect=lambda axes: with_gate(axes) + (0.3 if tuple(axes.values()) == ("SSA", "layer") else 0.0),
        noise=0.01,
        pending=[("SSA · head", 0)],
        failed={("softmax · layer", 3): "diverged"},
    )
    with Store.open(tmp_path) as store:
        plain, both = analysis(store, "quickstart"), analysis(store, "quickstart", interactions=True)
    assert plain.terms["term"].to_list() == ["operator", "seed"]
    assert both.terms["term"].to_list() == ["operator", "seed", "operator × seed"]
    assert both.terms["p_holm"].max() < 1e-6
    assert both.noise == pytest.approx(0.01, rel=0.5)
    assert both.notes == [
        "2 of 30 planned runs are left out: 1 failed, 1 pending",
        "preliminary: 1 of 30 planned runs outstanding",
    ]
    notes = dict(both.terms.select("term", "note").iter_rows())
    told = "runs failed unequally (1 of {} with {}), so means are of survivors"
    assert notes == {"operator": told.format(15, "softmax"), "seed": told.format(10, "layer"), "operator × seed": ""}
    assert both.means.filter(term="seed")["level"].to_list() == ["head", "constant", "layer"]
    means = dict(both.means.filter(term="operator × seed").select("level", "mean").iter_rows())
    assert math.log(means["SSA × layer"] / means["softmax × layer"]) == pytest.approx(0.5, abs=0.03)
