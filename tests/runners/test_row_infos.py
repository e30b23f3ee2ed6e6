"""The plan records titles and units of a user's own probe and evaluation, and pages and commands show them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from known_campaign import open_view, show_slot
from real_spec import real_spec

from ablate.dashboards.app.pages.curves import CURVES
from ablate.dashboards.app.pages.mechanism import MECHANISM
from ablate.runners.cli.app import execute
from ablate.store import Store
from ablate.store.analysis.row_labels import row_label

OWN = '''
from dataclasses import replace
from typing import ClassVar, Literal

from ablate import Measure, RowInfo
from ablate.training.evaluations import Evaluation, Evaluator
from ablate.training.probes import Probe, Probed, Probing
from ablate.training.tasks import Measurements


class Reach(Probe):
    """How far a head reaches."""

    kind: Literal["reach{kind}"] = "reach{kind}"
    rows: ClassVar = (RowInfo("reach.KIND", {unit!r}, title="reach of a head", least=0.25),)

    def of_layer(self, layer, seen):
        for head in range(2):
            yield Probed("reach.mean", 1.0 + head, layer.layer, head)


class Own(Evaluation):
    """A length."""

    kind: Literal["spans{kind}"] = "spans{kind}"
    units: ClassVar = {{"span": "parsecs"}}
    rows: ClassVar = (RowInfo("loss", "crowns", title="price of an error"),)

    @property
    def length(self):
        return 3

    def check(self, task, model):
        pass

    def measures(self):
        return {{"span": [{{}}]}}

    def open(self, task):
        return Spans()


class Spans(Evaluator):
    def evaluate(self, predict):
        yield Measurements("span", 2.0, {{}}, 1, None)

'''
AFTER = """
base = grid.base.changed(probing=Probing(probes=(Reach(),)), evaluations=(Own(),))
grid = replace(grid, base=base, measure=Measure(name="span", scale="linear"), baseline={"operator": "softmax"})
"""


def write_spec(folder: Path, unit: object, kind: str = "") -> Path:
    """A grid with an own probe and evaluation; `kind` ends their names, which are unique in a process."""
    spec = folder / "own.py"
    before = OWN.format(unit=unit, kind=kind)
    spec.write_text(real_spec("own", training="steps=2, evaluate_every=1", seeds=2, before=before, after=AFTER))
    return spec


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    spec, root = write_spec(folder, "furlongs"), folder / "campaign"
    assert execute(["run", str(spec), "--campaign", str(root), "--workers", "1"]) == 0
    return root


def test_the_plan_records_titles_units_and_bounds(campaign: Path) -> None:
    rows = json.loads((campaign / "grids" / "own.json").read_text())["rows"]
    assert rows["reach"] == {"title": "reach of a head", "unit": "furlongs", "least": 0.25}
    assert rows["span"] == {"title": "span", "unit": "parsecs", "least": None}
    assert rows["mse"]["unit"]


def test_pages_and_commands_show_them(campaign: Path, ablate: Callable[..., Any]) -> None:
    with open_view(campaign, MECHANISM) as view:
        shown = show_slot(view, MECHANISM, "training", "?probe=reach.mean")
        titles = {axis.title.text for axis in shown.figure.select_yaxes()}
        assert any("reach of a head" in title and "furlongs" in title for title in titles if title)
        assert any("parsecs" in axis.title.text for axis in show_slot(view, MECHANISM, "against").figure.select_yaxes())
    with open_view(campaign, CURVES) as view:
        found = show_slot(view, CURVES, "curves", "?metric=loss").data
        assert set(found["unit"]) == {"crowns"}
    assert "parsecs" in ablate("table", "--campaign", campaign).out
    assert "parsecs" in ablate("table", "--measure", "span", "--campaign", campaign).out


def test_a_plan_of_before_has_titles_of_our_probes(campaign: Path) -> None:
    with Store.open(campaign) as store:
        header = {name: value for name, value in store.grid("own").items() if name != "rows"}
    assert row_label(header, "entropy").unit == "nats"
    assert row_label(header, "entropy").least == 0.0
    assert row_label(header, "reach.mean") == ("reach.mean", "", None)


@pytest.mark.parametrize("unit", ["two\nlines", "x" * 2000, 3])
def test_a_unit_that_cannot_be_written_is_refused_at_the_plan(
    tmp_path: Path, ablate: Callable[..., Any], unit: object
) -> None:
    root = tmp_path / "campaign"
    ablate("run", write_spec(tmp_path, unit, f"_{len(str(unit))}"), "--campaign", root, code=2)
    assert not (root / "grids").exists()


@pytest.mark.parametrize(("row", "code"), [({"title": "a", "unit": "b", "least": None}, 0), (3, 6), ({"title": 1}, 6)])
def test_a_header_with_a_damaged_row_is_reported(tmp_path: Path, campaign: Path, row: object, code: int) -> None:
    root = Path(shutil.copytree(campaign, tmp_path / "copy"))
    path = root / "grids" / "own.json"
    header = {name: value for name, value in json.loads(path.read_text()).items() if name != "seal"}
    path.write_text(json.dumps({**header, "rows": {"reach": row}}))
    assert execute(["check", "--campaign", str(root)]) == code
