"""Controls are no variants: counts and options of pages leave them out, and the report names the doubt they leave."""

import re
from html import unescape
from pathlib import Path

import pytest
from known_campaign import Line, Planted, plant, seen
from synthetic import plan_lines

from ablate.dashboards import write_report
from ablate.dashboards.app.pages.compare import COMPARE
from ablate.dashboards.app.pages.overview import OVERVIEW
from ablate.store import Store
from ablate.store.analysis.judge import judge
from ablate.store.files.atomic import read_json, write_json
from ablate.store.files.layout import Layout

MSE = {"softmax": 1.0, "zeta": 0.5, "alpha": 0.99, "apart": 0.45, "longer": 0.4}


def value(line: Line) -> float:
    noise = 0.02 * ((line["seed"] * 7 + 3 * len(line["operator"])) % 5)
    return MSE[line["operator"]] * (1 + 0.3 * line["seed"]) * (1 + noise)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("added") / "runs"
    plant(root, tuple(MSE), range(6), Planted(value))
    path = Layout(root).grid_header("grid")
    header = {name: of for name, of in read_json(path).items() if name != "seal"}
    cells = {line["label"]: line["cell"] for line in plan_lines(tuple(MSE), range(6), "grid", {})}
    controls = {"cells": {cells["apart"]: "distance"}, "of": {cells["zeta"]: [cells["apart"]]}}
    longer = {"added": [cells["longer"]], "of": {}, "factor": 2}
    write_json(path, {**header, "controls": {**controls, "missing": {cells["zeta"]: ["ALiBi"]}}, "longer": longer})
    return root


def test_pages_count_the_cells_that_are_compared(root: Path) -> None:
    shown = seen(root, COMPARE, "", ["scatter", "parallel", "wins", "verdicts"])
    assert shown.slots["scatter"].message == ""
    assert shown.frame("scatter")["variant"].to_list() == ["softmax", "zeta", "alpha"]
    assert "left out" not in shown.slots["parallel"].caption
    assert {*shown.frame("wins")["cell"], *shown.frame("wins")["against"]} == {"softmax", "zeta", "alpha"}
    for field in ("baseline", "cell"):
        assert [*shown.controls[field].options] == ["softmax", "zeta", "alpha"]


def test_what_to_do_next_begins_with_the_failed_check_and_names_the_control(root: Path) -> None:
    steps = seen(root, OVERVIEW, "", ["next"]).frame("next")
    (what, why) = steps.select("what", "why").row(0)
    assert ("control" in what, "zeta" in what, "apart" in why) == (True, True, True)
    assert not steps["what"].str.contains("failed check").slice(1).any()


def test_the_report_names_the_doubt_that_overview_names(root: Path) -> None:
    with Store.open(root) as store:
        judged = judge(store, "grid").rows
    (doubt,) = judged.filter(label="zeta")["doubt"]
    assert doubt.startswith("control")
    assert doubt in seen(root, OVERVIEW, "", ["differences"]).slots["differences"].answer
    lead = re.search(r'<p class="lead">(.*?)</p>', write_report(root).read_text())
    assert lead is not None
    assert doubt in unescape(lead[1])
