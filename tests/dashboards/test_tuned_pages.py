"""Pages and the report of a grid with a nuisance axis show the settings that its verdicts compare."""

import json
import re
from pathlib import Path

import pytest
from known_campaign import open_view, seen, show_slot
from plotly.utils import PlotlyJSONEncoder
from tuned_campaign import tuned

from ablate.dashboards import write_report
from ablate.dashboards.app.page import AS_ABOVE
from ablate.dashboards.app.pages.compare import COMPARE
from ablate.dashboards.app.pages.curves import CURVES
from ablate.dashboards.app.pages.factors import FACTORS
from ablate.dashboards.app.pages.overview import OVERVIEW
from ablate.store import Store
from ablate.store.analysis.verdicts import compared_runs, measure_of


@pytest.fixture(scope="module", params=[False, True], ids=["one baseline", "a baseline at each rate"])
def root(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    return tuned(tmp_path_factory.mktemp("tuned") / "runs", matched=request.param).root


def test_overview_and_compare_list_settings(root: Path) -> None:
    chosen = ["SSA", "Integral"]
    assert seen(root, OVERVIEW, "", ["verdicts"]).frame("verdicts")["variant"].to_list() == chosen
    found = seen(root, COMPARE)
    assert found.frame("differences")["variant"].to_list() == chosen
    assert found.frame("verdicts")["variant"].to_list() == [*chosen, "softmax"]
    content = [each for each in found.slots.values() if each.message != AS_ABOVE]
    assert all(shown.figure or shown.data.height or shown.parts for shown in content)


def test_what_to_do_next_names_the_level_beyond_the_edge(root: Path) -> None:
    steps = seen(root, OVERVIEW, "", ["next"]).frame("next")
    failed = steps.filter(steps["what"].str.contains("tuned of Integral"))
    assert ["rate above 0.5" in how for how in failed["how"]] == [True]
    assert steps["what"].str.contains("failed check")[: steps["what"].index_of(failed["what"][0])].all()


@pytest.mark.parametrize("cell", ["", "?cell=SSA", "?cell=SSA · 0.1", "?cell=SSA · 0.4"])
def test_seed_by_seed_shows_the_runs_that_the_verdict_compares(root: Path, cell: str) -> None:
    shown = seen(root, COMPARE, cell, ["paired", "why"])
    with Store.open(root) as store:
        values = compared_runs(store, "quickstart", measure_of(store, "quickstart", None)).values
    for column, label in (("value", "SSA"), ("baseline_value", "softmax")):
        assert shown.frame("paired")[column].to_list() == values.filter(label=label).sort("seed")["value"].to_list()


def test_factors_compares_settings_and_says_once_why_there_is_no_test(root: Path) -> None:
    shown = seen(root, FACTORS, "", ["effects", "importance", "matrix", "pair"])
    assert {*shown.frame("effects")["factor"]} == {"all variants", "operator"}
    (message,) = {shown.slots[name].message for name in ("importance", "matrix", "pair")}
    assert message


def test_the_report_has_a_row_for_each_setting(root: Path) -> None:
    html = write_report(root).read_text()
    assert re.findall(r'<th scope="row"[^>]*data-value="([^"]*)"', html) == ["SSA", "Integral"]


def test_curves_begin_with_the_settings_that_are_compared_and_offer_the_others(root: Path) -> None:
    with open_view(root, CURVES) as view:
        shown = show_slot(view, CURVES, "curves", "")
        every = show_slot(view, CURVES, "curves", "?show=*")
    assert {key.name for key in shown.legend} == {"SSA · 0.4", "Integral · 0.5", "softmax · 0.2"}
    assert {*shown.data["group"]} == {key.name for key in shown.legend}
    assert not every.parts
    offered = {key.name for key in every.legend} - {key.name for key in shown.legend}
    assert all(
        f'"data-add": "{name}"' in json.dumps(shown.parts, cls=PlotlyJSONEncoder, ensure_ascii=False)
        for name in offered
    )
