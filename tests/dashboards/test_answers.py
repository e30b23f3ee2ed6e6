"""The answer at the top of a page: the verdict that matters, the axes by size, captions of two lines."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import polars as pl
import pytest
from dashboard_site import ServeSite, Site
from hypothesis import given, strategies as st
from known_campaign import Line, Planted, plant, seen
from playwright.sync_api import Page
from synthetic import plan_lines

from ablate.dashboards.app.pages.compare import COMPARE
from ablate.dashboards.app.pages.factors import FACTORS
from ablate.dashboards.app.pages.overview import OVERVIEW
from ablate.dashboards.app.pages.run import RUN
from ablate.dashboards.data.captions import CLAIMS, ICONS, find_doubtful, lead_by_axes, name_best
from ablate.dashboards.data.formatting import split_caption
from ablate.dashboards.data.grid_context import Appearance, GridContext
from ablate.dashboards.report.parts import _RANK
from ablate.dashboards.theme.styles import VERDICT_STYLES
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.files.atomic import read_json, write_json
from ablate.store.files.layout import Layout
from ablate.store.statistics.verdict import CLAIMS as STATISTICAL_CLAIMS, Verdict

MSE = GridMeasure("mse", {}, "log", "lower", 0.05, 0.05)
NAMES = Appearance({"a": "SSA", "b": "Cog", "c": "Integral"}, {})
ABOUT = GridContext(None, "g", {}, MSE, None, [], NAMES, [])  # type: ignore[arg-type]


def verdicts(*sure: str, **given: tuple[str, float | None]) -> pl.DataFrame:
    rows = [
        {"cell": cell, "verdict": verdict, "difference": size, "low": None, "high": None}
        | {"corrected_low": size and size - 0.05, "corrected_high": size and size + 0.05}
        | {"doubt": None if cell in sure else "control: not shown to be better than ALiBi", "headline": cell in sure}
        for cell, (verdict, size) in given.items()
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def test_the_answer_names_the_verdict_that_matters() -> None:
    for found, better, named in (
        ({"a": ("better", -0.1), "b": ("better", -0.3), "c": ("worse", 0.5)}, "lower", "Cog"),
        ({"a": ("worse", 0.1), "b": ("worse", 0.4), "c": ("undecided", -0.6)}, "lower", "Cog"),
        ({"a": ("better", 0.1), "b": ("better", 0.3)}, "higher", "Cog"),
        ({"a": ("real, size unproven", -0.1), "b": ("worse", 0.4)}, "lower", "SSA"),
        ({"a": ("equivalent", 0.0), "b": ("equivalent", 0.01)}, "lower", "All 2"),
    ):
        assert name_best(ABOUT, MSE._replace(better=better), verdicts(**found), "softmax").startswith(named)


def test_the_answer_is_a_claim_that_passes_every_check_before_a_larger_one_in_doubt() -> None:
    given = {"a": ("better", -0.1), "b": ("better", -0.3)}
    sure = name_best(ABOUT, MSE, verdicts("a", **given), "softmax")
    assert sure.startswith("SSA")
    assert "ALiBi" not in sure
    passed = verdicts("b", **{**given, "b": ("equivalent", 0.0)})  # the claim that passes is another one
    assert (find_doubtful(passed, MSE) or {})["cell"] == "a"
    assert "No claim" not in name_best(ABOUT, MSE, passed, "softmax")
    doubted = name_best(ABOUT, MSE, verdicts(**given), "softmax")
    assert doubted.startswith("Cog")
    assert "control: not shown to be better than ALiBi" in doubted


@given(st.lists(st.text("ab ,;", min_size=1, max_size=120).map(lambda words: f"A{words}."), min_size=1, max_size=8))
def test_a_caption_is_cut_between_sentences_and_nothing_is_lost(sentences: list[str]) -> None:
    first, rest = split_caption(" ".join(sentences))
    assert " ".join(filter(None, (first, rest))) == " ".join(sentences)
    assert len(first) <= 210 or first == sentences[0]


EFFECTS = {"softmax": 0.0, "SSA": -0.4, "one": 0.0, "two": 0.6, "left": 0.0, "right": 0.0}


def value(line: Line) -> float:
    levels = line["axes"].values()
    noise = 0.01 * ((line["seed"] * 7 + 3 * sum(len(str(level)) for level in levels)) % 5)
    return float(2.0 ** sum(EFFECTS[level] for level in levels) + noise)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    factors = {"depth": ["one", "two"], "side": ["left", "right"]}
    return plant(
        tmp_path_factory.mktemp("answers") / "runs", ["softmax", "SSA"], range(5), Planted(value), factors=factors
    )


def test_axes_stand_by_size_and_their_levels_from_best_to_worst(root: Path) -> None:
    shown = seen(root, FACTORS, "", ["effects"]).slots["effects"]
    levels = shown.data.filter(order=1).select("factor", "level").rows()
    assert levels == [("operator", "SSA"), ("side", "right"), ("depth", "two")]
    assert shown.data.filter(order=2).height == 3
    assert shown.answer.startswith("Compared axes that matter, the largest first: depth (two against one +")
    assert shown.answer.index("operator (SSA against softmax −") > shown.answer.index("depth")
    ticks = list(shown.figure.layout.yaxis.ticktext)
    assert ticks[ticks.index("<b>operator, against softmax</b>") + 1] == "SSA"


@pytest.mark.parametrize(
    ("axes", "cells", "leads"),
    [
        (["better", "undecided"], ["real, size unproven", "undecided"], True),
        (["better", "undecided"], ["real, size unproven", "worse"], False),
        (["real, size unproven"], ["undecided"], True),
        (["real, size unproven"], ["real, size unproven"], False),
        (["undecided"], ["undecided"], True),
        (["undecided"], ["better", "undecided"], False),
        (["undecided"], ["better", "undecided", "no verdict"], True),
    ],
)
def test_axes_lead_where_they_are_more_certain_than_cells(axes: list[str], cells: list[str], leads: bool) -> None:
    effects = pl.DataFrame({"verdict": axes, "order": [1] * len(axes)})
    assert lead_by_axes(effects, pl.DataFrame({"verdict": cells})) is leads


@pytest.fixture(scope="module")
def site(root: Path, serve_site: ServeSite) -> Iterator[Site]:
    with serve_site([root]) as found:
        yield found


@pytest.mark.browser
def test_answer_and_figure_are_on_the_first_screen(page: Page, site: Site) -> None:
    for name in ("overview", "compare"):
        page.goto(f"{site.url}/runs/{name}")
        page.wait_for_selector(".slot .main-svg")
        for width in (600, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            answer, figure = (page.locator(f".slot {part}").first.bounding_box() for part in (".answer", ".plot"))
            assert answer is not None
            assert figure is not None
            assert answer["y"] < figure["y"] < 720
        assert page.locator(".head").bounding_box()["width"] > 1300  # type: ignore[index]


@pytest.mark.browser
def test_a_row_of_verdicts_has_its_interval_and_opens_its_reason(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/runs/compare")
    page.locator("#slot-verdicts svg.interval").first.wait_for()
    places = """(drawings) => drawings.map((each) => {
        const [own, decides] = [".bar", ".thin"].map((name) => each.querySelector(name));
        const ends = (box) => [box.x.baseVal.value, box.x.baseVal.value + box.width.baseVal.value];
        const [[low, high], [least, greatest]] = [ends(own), ends(decides)];
        return [least, low, each.querySelector("circle").cx.baseVal.value, high, greatest];
    })"""
    drawn = page.locator("#slot-verdicts svg.interval").evaluate_all(places)
    assert all(ends == sorted(ends) for ends in drawn)
    assert any(ends[0] < ends[1] for ends in drawn)
    shown = page.locator("#slot-verdicts .ag-cell[col-id=difference]").all_inner_texts()
    differences = [float(text.replace("\u2212", "-").removesuffix(" %")) for text in shown if "%" in text]
    assert len(differences) == len(drawn) > 1
    order = sorted(range(len(drawn)), key=lambda at: differences[at])
    assert order == sorted(order, key=lambda at: drawn[at][2])
    table = page.locator("#slot-verdicts")
    reason = table.get_by_text("5 pairs)").first
    assert not reason.is_visible()
    table.get_by_text("Why", exact=True).first.click()
    reason.wait_for()
    paragraph, row = reason.bounding_box(), table.locator(".ag-center-cols-viewport").bounding_box()
    assert paragraph is not None
    assert row is not None
    assert paragraph["width"] > 0.9 * row["width"]  # over the row in view, not in its column
    assert paragraph["x"] >= row["x"]
    names = table.locator(".ag-cell[col-id=variant]").evaluate_all("(cells) => cells.map((each) => each.clientHeight)")
    assert max(names[1:]) < 40  # one line


@pytest.mark.browser
def test_more_controls_leave_title_and_others_in_their_place(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{site.url}/runs/compare")
    page.wait_for_selector(".slot .main-svg")
    places = """() => [...document.querySelectorAll("h1, .controls:not(#more) .control")].map(
        (each) => [each.offsetLeft, each.offsetTop])"""
    before = page.evaluate(places)
    assert not page.locator("#more").is_visible()
    page.get_by_role("button", name="More").click()
    assert page.locator("#more").is_visible()
    assert page.evaluate(places) == before
    assert len(before) == 5


@pytest.mark.browser
def test_the_title_of_an_axis_has_as_many_lines_as_the_figure_is_narrow(page: Page, site: Site) -> None:
    lines = "(n) => document.querySelectorAll('#slot-differences .xtitle tspan.line').length"
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{site.url}/runs/overview")
    title = page.locator("#slot-differences .xtitle")
    title.wait_for()
    assert page.evaluate(lines) == 0  # one line
    assert len(title.text_content() or "") > 44
    page.set_viewport_size({"width": 420, "height": 900})
    page.wait_for_function(f"() => ({lines})() > 1")
    box = title.bounding_box()
    assert box is not None
    assert box["x"] > 0


def test_answers_name_the_baseline_of_the_cell_and_the_axis_with_the_largest_effect_first(tmp_path: Path) -> None:
    def value(line: Line) -> float:
        size = {"softmax": 0.0, "SSA": -0.3}[line["operator"]] + {1: 0.0, 2: -1.0}[line["axes"]["depth"]]
        reacts = (line["seed"] - 2) * (line["axes"]["depth"] == 2) + line["seed"] * (line["operator"] == "SSA")
        return math.exp(size + 0.01 * reacts)

    planted = Planted(value)
    root = plant(tmp_path / "runs", ["softmax", "SSA"], range(5), planted, factors={"depth": [1, 2]})
    layout = Layout(root)
    header = read_json(layout.grid_header("grid"))
    lines = plan_lines(["softmax", "SSA"], range(1), "grid", {"depth": [1, 2]})
    cells = {(line["operator"], line["axes"]["depth"]): line["cell"] for line in lines}
    matched = {cells["SSA", depth]: cells["softmax", depth] for depth in (1, 2)}
    write_json(layout.grid_header("grid"), header | {"baselines": matched, "matched": ["depth"]}, durable="nothing")
    answer = seen(root, OVERVIEW, only=["differences"]).slots["differences"].answer
    assert "better than the baseline of the same depth: " in answer
    assert answer.index("depth (2 against 1 −") < answer.index("operator (SSA against softmax −")
    assert seen(root, COMPARE).controls["baseline"].options[""] == "the baseline of the same depth"
    runs = {(line["operator"], line["axes"]["depth"]): line["trial"] for line in lines}
    beside = seen(root, RUN, f"?run={runs['SSA', 2]}", only=["spec"]).frame("spec").columns
    assert all(
        runs[who].startswith(begins) for who, begins in zip((("softmax", 2), ("SSA", 2)), beside[1:], strict=True)
    )


def test_every_list_of_verdict_words_has_all() -> None:
    words = set(get_args(Verdict))
    assert words == set(ICONS) == set(VERDICT_STYLES) == set(_RANK)
    assert set(CLAIMS) == set(STATISTICAL_CLAIMS) < words
