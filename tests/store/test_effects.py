"""Effects of axes in campaigns with known effects (tests/synthetic.py)."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest
from scipy import stats
from synthetic import publish_grid, write_campaign, write_grid

from ablate.grid import Experiment, Grid, over, zipped
from ablate.papers.results.grid_results import read
from ablate.store.analysis.effects import analysis, effects
from ablate.store.statistics import variants_together
from ablate.store.store import Store

RESULTS = Path(__file__).parents[2] / "results"

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
        found = effects(store, "quickstart").effects.filter(order=1)
    assert found.select("factor", "level", "against", "n").rows() == [
        ("operator", "SSA", "softmax", 3),
        ("seed", "constant", "head", 3),
        ("seed", "layer", "head", 3),
    ]
    expected = [0.2, *(GATE[level] - GATE["head"] for level in ("constant", "layer"))]
    assert found["effect"].to_list() == pytest.approx(expected, abs=0.003)
    assert found["percent"].to_list() == pytest.approx([math.expm1(e) * 100 for e in expected], abs=0.3)


class Rig(Experiment):
    """A trial of numbers only."""

    kind: Literal["tests_effects_rig"] = "tests_effects_rig"
    clip: float | None = None
    rate: float = 0.1
    width: int = 32
    bias: bool = True


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
    assert [re.findall(r"\d+", note) for note in both.notes] == [["2", "30", "1", "1"], ["1", "30"]]
    notes = dict(both.terms.select("term", "note").iter_rows())
    told = "runs failed unequally (1 of {} with {}), so means are of survivors"
    assert notes == {"operator": told.format(15, "softmax"), "seed": told.format(10, "layer"), "operator × seed": ""}
    assert both.means.filter(term="seed")["level"].to_list() == ["head", "constant", "layer"]
    means = dict(both.means.filter(term="operator × seed").select("level", "mean").iter_rows())
    assert math.log(means["SSA × layer"] / means["softmax × layer"]) == pytest.approx(0.5, abs=0.03)


def write_union(root: Path, **more: Any) -> Path:
    """`(operator {softmax, SSA} x placement, but not for softmax) | (lr, which is bad)`, and a grid of one lr."""
    levels = [
        ("softmax", None, None),
        ("SSA", "all", None),
        ("SSA", "top", None),
        (None, None, "1e-5"),
        (None, None, "3e-5"),
    ]
    shift = {"softmax": 0.0, "all": -0.03, "top": 0.01, "1e-5": 0.6, "3e-5": 0.55}
    campaign = write_campaign(
        root,
        operators=("softmax", "SSA", "Integral", "linear", "cosine"),
        effect=lambda axes: shift[PLACES[axes["operator"]]],
        noise=0.02,
        **more,
    )
    names = dict(zip(("softmax", "SSA", "Integral", "linear", "cosine"), levels, strict=True))
    axes = dict(zip(("operator", "placement", "lr"), zip(*levels, strict=True), strict=True))
    header = {
        **campaign.header,
        "axes": [
            {"name": name, "path": name, "labels": [*dict.fromkeys(level for level in of if level)]}
            for name, of in axes.items()
        ],
    }
    lines = [{**line, "axes": dict(zip(axes, names[line["axes"]["operator"]], strict=True))} for line in campaign.lines]
    publish_grid(campaign.layout, header, lines)
    return root


PLACES = {"softmax": "softmax", "SSA": "all", "Integral": "top", "linear": "1e-5", "cosine": "3e-5"}


def test_a_grid_of_a_union_does_not_move_the_levels_of_another(tmp_path: Path) -> None:
    """SSA is 1 % better than softmax, and runs with another learning rate 80 % worse than both."""
    with Store.open(write_union(tmp_path)) as store:
        found, tested = effects(store, "quickstart"), analysis(store, "quickstart")
        runs = store.final("quickstart", "mse", store.grid("quickstart")["measure"]["point"])
    own = [math.log(value) for value in runs.filter(label="softmax")["value"]]
    softmax = tested.means.filter(term="operator", level="softmax").row(0, named=True)
    assert softmax["mean"] == pytest.approx(math.exp(sum(own) / len(own)))
    assert (softmax["mean"], softmax["note"]) == (pytest.approx(softmax["own_mean"]), "")
    ssa = found.effects.filter(factor="operator", level="SSA").row(0, named=True)
    assert ssa["effect"] == pytest.approx(-0.01, abs=0.03)
    assert ssa["p_holm"] > 0.05
    assert ssa["n"] == 5
    assert tested.terms.filter(term="operator")["p"][0] > 0.05
    together = found.effects.filter(order=0).row(0, named=True)
    assert together["effect"] == pytest.approx((-0.03 + 0.01 + 0.6 + 0.55) / 4, abs=0.03)
    assert (together["level"], together["against"], together["verdict"]) == ("4 cells", "softmax", "worse")


def test_too_many_levels_leave_the_comparison_of_all_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_campaign(tmp_path, operators=("softmax", "SSA"), factors={"rate": (0.1, 0.2, 0.3)})
    with Store.open(tmp_path) as store:
        monkeypatch.setattr("ablate.store.analysis.effects.MOST_COEFFICIENTS", 3)
        levels, tests = effects(store, "quickstart"), analysis(store, "quickstart")
        assert (levels.effects.height, tests.terms.height) == (4, 2)
        monkeypatch.setattr("ablate.store.analysis.effects.MOST_COEFFICIENTS", 2)
        together, none = effects(store, "quickstart"), analysis(store, "quickstart")
    assert together.effects.equals(levels.effects.filter(order=0))
    assert together.notes == none.notes == [*levels.notes, *set(together.notes) - {*levels.notes}]
    assert (none.terms.height, none.means.height, none.runs) == (0, 0, tests.runs)


def test_a_query_leaves_its_runs_and_the_baselines_of_all_variants(tmp_path: Path) -> None:
    with Store.open(write_union(tmp_path)) as store:
        kept = store.sql("SELECT cell, seed FROM grid_trial WHERE label IN ('SSA', 'Integral') AND seed < 4")
        found = effects(store, "quickstart", only=kept)
    assert found.effects.select("factor", "level", "n").rows() == [
        ("all variants", "2 cells", 4),
        ("placement", "top", 4),
    ]
    assert any(note.startswith("operator left out") for note in found.notes)


def test_all_variants_of_the_published_grid_together_are_worse_than_softmax() -> None:
    """192 cells are each undecided; the one contrast is not."""
    result = read(RESULTS / "principled", "design-cpu")
    measure = result.measure()
    rule = {name: getattr(measure, name) for name in ("scale", "better", "rope", "alpha")}
    runs = result.runs(measure)
    row = variants_together(runs, result.baselines, **rule).effects.row(0, named=True)
    assert [round(row[name], 3) for name in ("effect", "low", "high", "p")] == [0.066, 0.009, 0.123, 0.028]
    base = runs.filter(cell=result.baselines).sort("seed")["value"].to_numpy()
    others = runs.filter(pl.col("cell") != result.baselines).group_by("seed").agg(pl.col("value").mean()).sort("seed")
    test = stats.ttest_rel(others["value"].to_numpy(), base)
    assert (row["level"], row["n"]) == ("192 cells", 8)
    assert (row["p"], row["low"]) == pytest.approx((test.pvalue, test.confidence_interval(0.95).low))
