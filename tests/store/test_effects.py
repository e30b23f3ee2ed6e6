"""Main effects of campaigns on disk whose truth is planted (tests/synthetic.py)."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_campaign, write_grid

from grid import Grid, Spec, over, zipped
from store.effects import effects, moving_together
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
        found = effects(store, "quickstart")
    assert found.select("factor", "level", "n").rows() == [
        ("operator", "softmax", 13),
        ("operator", "SSA", 14),
        ("seed", "head", 8),
        ("seed", "constant", 10),
        ("seed", "layer", 9),
    ]
    mean = sum(GATE.values()) / 3
    expected = [-0.1, 0.1, *(GATE[level] - mean for level in ("head", "constant", "layer"))]
    assert found["effect"].to_list() == pytest.approx(expected, abs=0.003)
    assert found["percent"].to_list() == pytest.approx([math.expm1(e) * 100 for e in expected], abs=0.3)


def test_levels_that_are_not_text_are_written_as_in_json(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, operators=("softmax",), factors={"signals": (8, 4, 2)}, noise=0.01)
    with Store.open(campaign.root) as store:
        assert effects(store, "quickstart")["level"].to_list() == ["8", "4", "2"]


def test_columns_move_together_when_they_tell_the_same_cells_apart() -> None:
    columns = {
        "a": ["x", "y", "y"],
        "b": ["1", "2", "2"],
        "c": ["y", "x", "y"],
        "still": ["x", "x", "x"],
        "rare": [None, "x", "x"],
    }
    assert moving_together(columns) == [["a", "b"], ["c"]]


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
        found = effects(store, "rig")
    assert found.select("factor", "level").rows() == [
        *[("clip", "none"), ("clip", "1.0")],
        *[("bias", "true"), ("bias", "false")],
        *[("rate = width", "0.3 / 64"), ("rate = width", "0.1 / 32")],
    ]


def test_a_grid_of_one_cell_has_no_main_effects(tmp_path: Path) -> None:
    write_campaign(tmp_path, operators=("softmax",), seeds=range(3))
    with Store.open(tmp_path) as store:
        assert effects(store, store.grids()[0]).is_empty()
