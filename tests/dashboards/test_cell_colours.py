"""A cell has one colour and one marker in every figure, whatever is chosen, sorted or shown beside it."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from known_campaign import Planted, plant
from synthetic import write_campaign

from ablate import dashboards
from ablate.dashboards.data.grid_context import campaign_styles
from ablate.dashboards.theme.styles import Style
from ablate.store import Campaign, Store

RATES, OPERATORS = (0.001, 0.003, 0.01, 0.03, 0.1), ("softmax", "SSA", "Integral", "Principled")
CHOSEN, OTHER = "Principled · 0.1", "SSA · 0.03"
FIGURES = (
    "overview/differences",
    "curves/curves",
    "curves/curves?show=*",
    f"curves/curves?show={CHOSEN}",
    f"curves/curves?by=run&show={CHOSEN} · seed 1",
    "compare/differences",
    f"compare/differences?baseline={OTHER}",
    f"compare/paired?cell={CHOSEN}",
    "compare/scatter?against=loss",
    "compare/scatter?against=loss&against_better=higher",
    "compare/scatter?against=loss&brush=operator=Integral..Principled",
    "compare/parallel",
    "mechanism/training",
    f"mechanism/training?cells={CHOSEN}&cells={OTHER}",
    "mechanism/against",
)


def write(root: Path, better: str) -> Path:
    """Make 20 cells, of which those of the operator `better` are best, each with one run less than planned."""

    def effect(axes: Mapping[str, Any]) -> float:
        return 2.0 * RATES.index(axes["lr"]) - 3.0 * (axes["operator"] == better)  # so that cells lead on Overview

    points = {"sigma_f": (1, 2, 5), "sigma_x": (1,)}
    write_campaign(root, operators=OPERATORS, factors={"lr": RATES}, seeds=range(3), effect=effect, steps=6, **points)
    return root


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with Campaign(write(tmp_path_factory.mktemp("colours") / "c", "Integral")) as found:
        yield found


def looks_of(figure: Mapping[str, Any], cells: Mapping[str, str]) -> set[tuple[str, str, str]]:
    """Return what the figure shows: kind, cell, and colour or marker; `cells` maps keys of cells and runs to cells."""
    found = set()
    for trace in figure["data"]:
        marked = trace.get("customdata")
        rows = [row[0] for row in marked if isinstance(row, list)] if isinstance(marked, list) else []
        keys = [cells[key] for key in [trace.get("legendgroup"), *rows] if key in cells]
        for part, kind in (("marker", "color"), ("line", "color"), ("marker", "symbol")):
            said = trace.get(part, {}).get(kind)
            if isinstance(said, str) and (kind == "symbol" or said.startswith("#")):
                found |= {(kind, key, said[:7] if kind == "color" else said) for key in keys}
    return found


def own(styles: Mapping[str, Style], found: set[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    told = {"color": lambda style: style.color, "symbol": lambda style: style.marker}
    return {(kind, cell, told[kind](styles[cell])) for kind, cell, _ in found}


def keys_of(store: Store) -> dict[str, str]:
    rows = store.sql("SELECT trial, cell FROM grid_trial").rows()
    return {key: cell for trial, cell in rows for key in (trial, cell)}


@pytest.mark.parametrize("address", FIGURES)
def test_every_figure_shows_each_cell_in_its_style(campaign: Campaign, address: str) -> None:
    figure = json.loads(dashboards.dashboard_figure(campaign, address).to_json())
    found = looks_of(figure, keys_of(campaign.store))
    assert found
    assert found == own(campaign_styles(campaign.store), found)


def test_a_run_has_the_style_of_its_cell(campaign: Campaign) -> None:
    rows = campaign.store.sql("SELECT trial FROM grid_trial WHERE label = 'SSA · 0.03' ORDER BY seed")["trial"]
    for runs in ([rows[0]], [*rows]):
        address = "run/curves?" + "&".join(f"run={run}" for run in runs)
        figure = json.loads(dashboards.dashboard_figure(campaign, address).to_json())
        found = looks_of(figure, keys_of(campaign.store))
        assert found
        assert found == own(campaign_styles(campaign.store), found)
        lines = {trace["line"]["dash"] for trace in figure["data"] if "dash" in trace.get("line", {})}
        assert len(lines) == len(runs)


def test_figures_of_notebooks_and_of_the_report_do_too(campaign: Campaign) -> None:
    styles, cells = campaign_styles(campaign.store), keys_of(campaign.store)
    figures = [dashboards.training_curves(campaign), dashboards.error_by(campaign), dashboards.differences(campaign)]
    drawn = [json.loads(go.Figure(figure).to_json()) for figure in figures]
    page = dashboards.report(campaign.store, "c", campaign.grids())
    blocks = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    drawn += [json.loads(block) for block in blocks if '"layout"' in block]
    assert len(drawn) > 8
    for figure in drawn:
        found = looks_of(figure, cells)
        assert found == own(styles, found)


def test_styles_are_those_of_the_plan_whichever_cell_is_best(tmp_path: Path, campaign: Campaign) -> None:
    with Store.open(write(tmp_path / "c", "SSA")) as store:
        assert campaign_styles(store) == campaign_styles(campaign.store)


def test_softmax_is_one_colour_in_every_campaign_grid_and_place(tmp_path: Path, campaign: Campaign) -> None:
    plant(tmp_path / "runs", ["zeta", "softmax", "alpha"], range(2), Planted(lambda _: 1.0))
    for store in (campaign.store, Store.open(tmp_path / "runs")):
        styles = campaign_styles(store)
        for cell, operator in store.sql("SELECT DISTINCT cell, operator FROM grid_trial").rows():
            assert (styles[cell].color == styles["softmax"].color == "#23282e") == (operator == "softmax")
