"""Controls in a grid with a nuisance axis are tuned as variants are."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from known_campaign import open_view, show_slot
from synthetic import publish_grid, write_campaign

from ablate.dashboards import write_report
from ablate.dashboards.app.pages.compare import COMPARE
from ablate.runners.cli.app import execute
from ablate.store.analysis.control_tests import beside_control, control_rows, control_tests
from ablate.store.analysis.explain_verdict import why
from ablate.store.analysis.judge import judge
from ablate.store.analysis.verdicts import every_run, measure_of, verdicts
from ablate.store.store import Store

RATES = (0.1, 0.2, 0.3, 0.4, 0.5)
BEST = {"softmax": 0.2, "SSA": 0.4, "near": 0.1, "far": 0.3}
SHIFT = {"softmax": 0.0, "SSA": -0.5, "far": -0.1}


@pytest.fixture(params=[-0.6, -0.3], ids=["as good", "worse"])
def store(tmp_path: Path, request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """SSA with two controls at each rate; `near` is far behind at the rate that is best for SSA."""
    shift = {**SHIFT, "near": request.param}

    def effect(axes: Mapping[str, Any]) -> float:
        return shift[axes["operator"]] + 3 * abs(axes["rate"] - BEST[axes["operator"]])

    fixed: dict[str, Any] = {"noise": 0.02, "steps": 4, "sigma_f": (5,), "sigma_x": (1,), "seeds": range(6)}
    made = write_campaign(tmp_path, operators=tuple(shift), factors={"rate": RATES}, effect=effect, **fixed)
    cells = {(line["axes"]["operator"], line["axes"]["rate"]): line["cell"] for line in made.lines}
    controls = [name for name in shift if name in ("near", "far")]
    for line in made.lines:
        name, rate = line["axes"]["operator"], line["axes"]["rate"]
        if name in controls:
            line |= {"axes": {"operator": None, "rate": rate}, "control": "kind"}
            line["label"] = f"softmax · {rate} with {name}"
    made.header["axes"][1]["tune"] = True
    made.header["controls"] = {
        "cells": {cells[name, rate]: "kind" for name in controls for rate in RATES},
        "of": {cells["SSA", rate]: [cells[name, rate] for name in controls] for rate in RATES},
        "missing": {cells["SSA", rate]: ["a third"] for rate in RATES} if request.param == -0.3 else {},
    }
    made.header["baselines"] = {cells["SSA", rate]: cells["softmax", rate] for rate in RATES}
    publish_grid(made.layout, {**made.header, "matched": []}, made.lines)
    with Store.open(tmp_path) as opened:
        yield opened, request.param


def test_a_control_is_compared_at_its_own_best_level(store: tuple[Store, float]) -> None:
    opened, shift = store
    (row,) = control_tests(opened, "quickstart").rows(named=True)
    (verdict,) = verdicts(opened, "quickstart").rows(named=True)
    assert (row["cell"], row["family"], row["controls"]) == (verdict["cell"], 1, 2)
    assert row["control_label"] == "softmax with near"
    assert row["difference"] == pytest.approx(-0.5 - shift, abs=0.05)
    assert row["beyond"] == ("no" if shift == -0.6 else "unknown")  # one more is missing
    assert row["untested"] == ([] if shift == -0.6 else ["a third"])
    assert why(opened, "quickstart", "SSA · 0.1")["controls"] == row
    rows = control_rows(opened, "quickstart")
    assert {*rows["control_label"]} == {"softmax with near", "softmax with far"}
    same = ["cell", "control", "difference", "low", "high", "pairs"]
    assert all(rows[name][0] == row[name] for name in same)  # the least sure decides


def test_the_page_and_the_report_list_the_controls_of_a_claim(store: tuple[Store, float]) -> None:
    opened, shift = store
    with open_view(opened.layout.root, COMPARE) as view:
        shown = show_slot(view, COMPARE, "controls").data
    said = dict(shown.select("control", "than the control").rows())
    near = "not beyond it" if shift == -0.6 else "better"
    assert said == {"softmax with near": near, "softmax with far": "better"}
    written = write_report(opened.layout.root).read_text()
    assert all(f"<td>{control}</td>" in written for control in said)


def test_why_lists_each_control_of_the_cell(store: tuple[Store, float], capsys: pytest.CaptureFixture[str]) -> None:
    opened, _ = store
    rows = control_rows(opened, "quickstart").rows(named=True)
    assert execute(["table", "--why", "SSA", "--campaign", str(opened.layout.root)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  control softmax")]
    assert len(lines) == len(rows) == 2
    for line, row in zip(lines, rows, strict=True):
        numbers = f"{row['difference']:+.3g}, {row['low']:+.3g} to {row['high']:+.3g}; "
        said = "better" if row["p"] <= 0.05 else "not beyond it"
        assert line == f"  control {row['control_label']}: difference {numbers}{said}"


def test_a_variant_can_be_beyond_a_control_by_less_than_the_band(store: tuple[Store, float]) -> None:
    opened, _ = store
    by = measure_of(opened, "quickstart", None)
    row = next(
        row for row in control_rows(opened, "quickstart").rows(named=True) if row["control_label"].endswith("far")
    )
    widest = max(abs(row["low"]), abs(row["high"]))
    assert [beside_control(row, by._replace(rope=rope)) for rope in (0.9 * widest, 1.1 * widest)] == [
        "better",
        "better, by less than the band",
    ]
    other = {**row, "difference": -row["difference"], "low": -row["high"], "high": -row["low"]}
    assert beside_control(other, by._replace(rope=0.9 * widest)) == "worse"


@pytest.mark.parametrize(
    ("idle", "beyond"), [([], "yes"), (["far"], "yes"), (["near", "far"], "unknown")], ids=["none", "one", "all"]
)
def test_a_control_that_never_learned_explains_nothing(tmp_path: Path, idle: list[str], beyond: str) -> None:
    shift = {"softmax": 0.0, "SSA": -2.0, "near": -1.5, "far": -0.5}
    names = ("near", "far")
    fixed: dict[str, Any] = {"noise": 0.02, "steps": 4, "sigma_f": (5,), "sigma_x": (1,), "seeds": range(6)}
    made = write_campaign(tmp_path, operators=tuple(shift), effect=lambda axes: shift[axes["operator"]], **fixed)
    cells = {line["axes"]["operator"]: line["cell"] for line in made.lines}
    for line in made.lines:
        if (name := line["axes"]["operator"]) in names:
            line |= {"axes": {"operator": None}, "control": "kind", "label": f"softmax with {name}"}
    controls = {cells[name]: "kind" for name in names}
    made.header["controls"] = {"cells": controls, "of": {cells["SSA"]: [*controls]}, "missing": {}}
    made.header["baselines"] = {cells["SSA"]: cells["softmax"]}
    measure = made.header["measure"]
    with Store.open(tmp_path) as opened:
        values = every_run(opened, "quickstart", measure_of(opened, "quickstart", None))
    level = float(values.filter(cell=cells["softmax"])["value"].mean())  # type: ignore[arg-type]
    limit = level * math.exp({0: 1, 1: -1, 2: -1.75}[len(idle)])
    learned = {"name": measure["name"], "point": measure["point"], "limit": limit, "better": "lower"}
    publish_grid(made.layout, {**made.header, "matched": [], "learned": learned}, made.lines)
    with Store.open(tmp_path) as opened:
        (row,) = control_tests(opened, "quickstart").rows(named=True)
        (check,) = (each for each in judge(opened, "quickstart").checks[cells["SSA"]] if each.name == "control")
    assert (row["beyond"], check.answer) == (beyond, beyond)
    assert row["never_learned"] == [f"softmax with {name}" for name in idle]
    assert all(f"softmax with {name}" in check.reason for name in idle)
