"""The page of a campaign in every state, from empty to finished, as text."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from known_campaign import Line, Planted, plant
from synthetic import MEASURE, publish_grid, write_campaign

from ablate.dashboards import write_report
from ablate.dashboards.data.grid_context import (
    averages,
    best_first,
    campaign_styles,
    grid_context,
    in_grid_order,
    worth_drawing,
)
from ablate.dashboards.report.parts import verdict_table
from ablate.dashboards.report.report import report
from ablate.dashboards.theme.styles import CellStyle
from ablate.grid.errors import NotFoundError
from ablate.store import Store
from ablate.store.analysis.judge import judge
from ablate.store.analysis.verdicts import GridMeasure, measure_of


def page(root: Path) -> str:
    """The report without plotly.js, whose size would drown a failing assertion."""
    return without_plotly(write_report(root))


def without_plotly(path: Path) -> str:
    html = path.read_text(encoding="utf-8")
    return re.sub(r"<script>/\*\*\n\* plotly\.js.*?</script>", "", html, flags=re.DOTALL)


@pytest.fixture(scope="module")
def of_finished(finished: Path) -> Path:
    """Where the report of the finished campaign was written."""
    return write_report(finished)


def test_by_default_the_report_lies_in_its_campaign_and_else_where_it_is_asked_for(
    finished: Path, of_finished: Path, tmp_path: Path
) -> None:
    assert of_finished == finished / "report.html"
    (tmp_path / "c" / "grids").mkdir(parents=True)
    out = tmp_path / "deep" / "page.html"
    assert write_report(tmp_path / "c", out) == out
    assert "<html" in out.read_text(encoding="utf-8")


def test_the_report_is_one_file_in_which_hostile_labels_and_names_are_text(of_finished: Path) -> None:
    whole, html = of_finished.read_text(encoding="utf-8"), without_plotly(of_finished)
    assert whole.count("* plotly.js (cartesian - minified) v") == 1
    assert '<link rel="stylesheet"' not in whole
    assert " src=" not in re.sub(r"<script.*?</script>", "", whole, flags=re.DOTALL).replace("&lt;img src=", "")
    assert "<i>runs</i>" not in html
    assert "&lt;script&gt;window.hacked=1&lt;/script&gt;" in html
    assert "<script>window.hacked" not in html
    assert "<img" not in html


def test_failures_are_told_with_reason_message_and_traceback(of_finished: Path) -> None:
    html = without_plotly(of_finished)
    assert all(each in html for each in ("ValueError: signals must divide", "Traceback (most recent", "diverged"))


def test_a_grid_that_cannot_be_judged_says_why_and_shows_its_runs(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path / "c", operators=("softmax", "SSA"), seeds=range(3), steps=4)
    changes = {"quickstart": ["measure"], "second": ["baseline"]}
    for grid, missing in changes.items():
        lines = [line | {"grid": grid} for line in campaign.lines]
        publish_grid(campaign.layout, campaign.header | {"grid": grid} | dict.fromkeys(missing), lines, None)
    html = page(tmp_path / "c")
    parts = html.split('id="grid-')
    for number, words in enumerate(("names no measure", "names no baseline"), 1):
        of_grid = "".join(part for part in parts if part.startswith(f"{number}"))
        assert words in of_grid
        assert f'id="grid-{number}-curves-curves"' in html
        for figure in ("factors-effects", "compare-scatter", "compare-wins"):  # these need a measure alone
            assert (f'id="grid-{number}-{figure}"' in html) == (number == 2)
    assert 'class="block verdicts"' not in html


def test_what_could_not_be_read_is_reported_and_the_rest_is_served(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path / "c", operators=("softmax", "SSA"), seeds=range(3), steps=4)
    shard = sorted((campaign.root / "spool").rglob("*-metric.*"))[0]
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    html = page(tmp_path / "c")
    assert shard.name in html
    assert 'class="block verdicts"' in html


def test_cells_stand_in_the_order_of_their_axes_with_the_baseline_first() -> None:
    header = {"baseline": "k2", "axes": [{"name": "op", "labels": ["b", "a"]}, {"name": "size", "labels": ["8", "16"]}]}
    given = [("k1", "a", 8), ("k2", "a", 16), ("k3", "b", 16), ("k4", "b", 8), ("k5", "b", None)]
    cells = [(CellStyle(key, key, op), {"op": op, "size": size}) for key, op, size in given]
    assert [cell.cell for cell in in_grid_order(header, cells)] == ["k2", "k5", "k4", "k3", "k1"]


def test_pictures_of_a_large_grid_show_the_baseline_and_the_best() -> None:
    cells = [CellStyle(f"k{i}", "", "A") for i in range(20)]
    values = pl.DataFrame({"cell": [f"k{i}" for i in range(20)], "value": [float(i) for i in range(20)]})
    lower = worth_drawing(cells, {f"k{i}": "k19" for i in range(20)}, values, GridMeasure("mse"))
    assert lower == [*(f"k{i}" for i in range(8)), "k19"]
    higher = worth_drawing(cells, {f"k{i}": "k0" for i in range(20)}, values, GridMeasure("mse", better="higher"))
    assert higher == ["k0", *(f"k{i}" for i in range(12, 20))]
    own = worth_drawing(cells, {f"k{i}": f"k{19 - i}" for i in range(10)}, values, GridMeasure("mse"))
    assert own == [*(f"k{i}" for i in range(4)), *(f"k{i}" for i in range(16, 20))]  # each beside its own baseline
    assert len(worth_drawing(cells, {}, None, None)) == 9
    assert worth_drawing(cells[:9], {}, None, None) == [f"k{i}" for i in range(9)]


def test_the_table_of_a_large_grid_has_the_best_and_its_copy_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("softmax", "SSA", "Cog", "Integral", "Principled")
    root = plant(tmp_path / "runs", names, range(3), Planted(lambda line: 1.0 + names.index(line["operator"])))
    monkeypatch.setitem(verdict_table.__globals__, "MOST_DATA_ROWS", 2)
    with Store.open(root) as store:
        about = grid_context(store, "grid", campaign_styles(store))
        assert about.measure is not None
        judged = judge(store, "grid")
        html = verdict_table(about, about.measure, judged._replace(rows=best_first(judged.rows, about.measure)))
    shown = re.findall(r'<th scope="row"[^>]*data-value="([^"]*)"', html)
    assert shown == ["SSA", "Cog"]
    copied = re.findall(r'data-csv="([^"]*)"', html)[0].splitlines()
    assert len(copied) == 1 + 4


@pytest.mark.parametrize(("scale", "wild"), [("log", math.nan), ("logit", math.inf)])
def test_a_cell_with_a_value_that_is_no_number_is_not_the_best(tmp_path: Path, scale: str, wild: float) -> None:
    def value(line: Line) -> float:
        return wild if (line["operator"], line["seed"]) == ("SSA", 0) else 0.2 + 0.1 * line["seed"]

    root = plant(tmp_path / "runs", ("softmax", "SSA", "Cog"), (0, 1), Planted(value), measure={"scale": scale})
    with Store.open(root) as store:
        found = averages(store, "grid", measure_of(store, "grid", None))
        assert dict(found.join(store.sql("SELECT DISTINCT cell, operator FROM grid_trial"), on="cell")
                    .select("operator", pl.col("value").is_not_null()).iter_rows()) == {
            "softmax": True, "SSA": False, "Cog": True}  # fmt: skip


WRONG = {"misspelt": {"name": "msee"}, "no-number": {"point": {"sigma_x": "one"}}}


def test_measures_that_cannot_be_judged_leave_the_other_grid_its_verdicts(tmp_path: Path) -> None:
    names = ("softmax", "SSA")
    campaign = write_campaign(tmp_path / "c", operators=names, seeds=range(4), failed={("SSA", 3): "error"}, steps=4)
    for grid, wrong in WRONG.items():
        lines = [line | {"grid": grid} for line in campaign.lines]
        header = campaign.header | {"grid": grid, "measure": MEASURE | wrong}
        publish_grid(campaign.layout, header, lines, None)
    html = page(tmp_path / "c")
    assert 'href="#grid-3"' in html
    with Store.open(tmp_path / "c") as store:
        assert 'href="#grid-' not in report(store, "c", ["misspelt"])
        with pytest.raises(NotFoundError, match="quickstart"):
            report(store, "c", ["quickstat"])
    assert html.count('class="block verdicts"') == 1
    assert html.count("Nothing is compared.") == len(WRONG)
    assert all(f'id="grid-{number}-curves-curves"' in html for number in range(1, len(WRONG) + 2))


def test_a_value_that_the_scale_cannot_take_costs_its_own_figure_only(opened: Callable[..., Store]) -> None:
    store = opened(
        {(name, seed): 0.0 if name == "B" and seed == 1 else 2.0**seed for name in "AB" for seed in range(3)}
    )
    html = report(store, "c", ["known"])
    assert 'class="block verdicts"' in html
    assert re.search(r"<h3>Main effects</h3><div class=.state.>", html)
    assert 'id="grid-1-by-sigma_f"' in html
