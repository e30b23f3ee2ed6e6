"""The units that the plan of a grid writes of a user's own rows are on every page that shows these rows."""

from pathlib import Path

import pytest
from known_campaign import open_view, seen, show_slot
from synthetic import publish_grid, write_campaign

from ablate.dashboards.app.pages.compare import COMPARE
from ablate.dashboards.app.pages.curves import CURVES
from ablate.dashboards.app.pages.mechanism import MECHANISM
from ablate.dashboards.app.pages.run import RUN
from ablate.dashboards.app.pages.runs import RUNS
from ablate.grid.row_info import RowInfo, header_rows

OWN = {"grad_norm": "newtons", "number.strength": "volts"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("units") / "runs"
    campaign = write_campaign(
        place, operators=("softmax", "SSA"), seeds=range(3), steps=6, sigma_f=(1, 5), sigma_x=(1,)
    )
    rows = header_rows(RowInfo(name, unit) for name, unit in OWN.items())
    publish_grid(campaign.layout, {**campaign.header, "rows": rows}, campaign.lines)
    return place


def test_curves_and_mechanism_have_units_on_their_axes(root: Path) -> None:
    with open_view(root, CURVES) as view:
        shown = show_slot(view, CURVES, "curves", "?metric=grad_norm")
        assert shown.figure is not None
        assert "newtons" in shown.figure.layout.yaxis.title.text
        assert shown.data["unit"].unique().to_list() == ["newtons"]
    mechanism = seen(root, MECHANISM, "?probe=number.strength", ["layers"]).slots["layers"]
    assert mechanism.figure is not None
    assert "volts" in mechanism.figure.layout.yaxis.title.text


def test_costs_have_units_on_their_axis_and_in_their_column(root: Path) -> None:
    for cost, unit in OWN.items():
        found = seen(root, COMPARE, f"?against={cost}", ["scatter", "verdicts"]).slots
        assert found["scatter"].figure is not None
        assert unit in found["scatter"].figure.layout.xaxis.title.text
        (head,) = (each["headerName"] for each in found["verdicts"].columns if each["field"] == "cost")
        assert unit in head


def test_tables_of_runs_and_of_a_run_have_units(root: Path) -> None:
    with open_view(root, RUNS) as view:
        shown = show_slot(view, RUNS, "runs", "?columns=grad_norm&columns=mse@sigma_f=5,sigma_x=1")
        heads = {each["field"]: each["headerName"] for each in shown.columns}
        assert heads["grad_norm"] == "grad_norm (newtons)"
        trial = shown.data.filter(label="SSA")["trial"][0]
    with open_view(root, RUN) as view:
        probes = show_slot(view, RUN, "probes", f"?run={trial}").data
        assert probes.filter(name="number.strength")["unit"].unique().to_list() == ["volts"]
        evaluations = show_slot(view, RUN, "evaluations", f"?run={trial}").data
        assert evaluations["unit"].unique().to_list() == ["squared output units"]
