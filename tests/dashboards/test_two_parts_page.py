"""How often and how well runs learn: the page Compare and the report have one table, where some runs did not learn."""

import re
from html import unescape
from pathlib import Path

import pytest
from known_campaign import Line, Planted, open_view, plant, seen

from ablate.dashboards import write_report
from ablate.dashboards.app.page import AS_ABOVE, grid_of
from ablate.dashboards.app.pages.compare import COMPARE
from ablate.dashboards.app.pages.overview import OVERVIEW
from ablate.dashboards.data.two_part_rows import tell_learned
from ablate.store import Store
from ablate.store.analysis.two_part import two_part
from ablate.store.files.atomic import read_json, write_json
from ablate.store.files.layout import Layout

LATE = {("SSA", seed) for seed in range(6)} | {("softmax", 7)}


def value(line: Line) -> float:
    return 1 + 0.01 * ((line["seed"] * 7) % 5)


def accuracy(line: Line) -> dict[str, float]:
    return {"accuracy": 0.1 if (line["operator"], line["seed"]) in LATE else 0.95}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("parts") / "runs"
    plant(root, ("softmax", "SSA", "Integral", "FoX"), range(8), Planted(value, more=accuracy))
    path = Layout(root).grid_header("grid")
    header = {name: of for name, of in read_json(path).items() if name != "seal"}
    write_json(path, {**header, "learned": {"name": "accuracy", "point": {}, "limit": 0.9, "better": "higher"}})
    return root


def test_the_page_and_the_report_have_one_table(root: Path) -> None:
    rows = seen(root, COMPARE, "", ["parts"]).frame("parts")
    assert rows.select("variant", "learned", "baseline", "pairs that learned").rows() == [
        ("SSA", "2 of 8", "7 of 8", 1),
        ("Integral", "8 of 8", "7 of 8", 7),
        ("FoX", "8 of 8", "7 of 8", 7),
    ]
    html = write_report(root).read_text()
    table = re.search(r'class="block two-parts".*?</table>', html, re.DOTALL)
    assert table is not None
    cells = [unescape(each) for each in re.findall(r"<td>(.*?)</td>", table[0])]
    assert cells == [str(each) for row in rows.rows() for each in row]


def test_overview_says_which_arms_did_not_learn_in_every_run(root: Path) -> None:
    told = seen(root, OVERVIEW, "", ["differences"]).slots["differences"].answer.partition("\n")[2]
    assert "softmax in 7 of 8, SSA in 2 of 8." in told
    assert "accuracy of at least 0.9" in told
    with open_view(root, OVERVIEW) as view:
        context = grid_of(view)
        parts = two_part(view.store, context.grid)
        assert parts is not None
        assert tell_learned(context, parts._replace(source="groups")) == "", "such groups may be noise"


def test_another_baseline_has_its_own_parts(root: Path) -> None:
    rows = seen(root, COMPARE, "?baseline=SSA", ["parts"]).frame("parts")
    assert rows.select("variant", "learned", "baseline").rows() == [
        ("softmax", "7 of 8", "2 of 8"),
        ("Integral", "8 of 8", "2 of 8"),
        ("FoX", "8 of 8", "2 of 8"),
    ]


def test_a_cell_that_always_learned_as_its_baseline_is_left_out(root: Path) -> None:
    with Store.open(root) as store:
        (whole,) = (parts.rows["label"] for parts in [two_part(store, "grid", baseline="Integral")] if parts)
    assert "FoX" in whole.to_list()
    shown = seen(root, COMPARE, "?baseline=Integral", ["parts"]).slots["parts"]
    assert shown.data["variant"].to_list() == ["softmax", "SSA"]
    assert "not shown" in shown.caption.lower()


def test_where_every_run_learned_the_part_is_not_shown(tmp_path: Path) -> None:
    plant(tmp_path / "runs", ("softmax", "SSA"), range(4), Planted(value))
    assert seen(tmp_path / "runs", COMPARE, "", ["parts"]).slots["parts"].message == AS_ABOVE
