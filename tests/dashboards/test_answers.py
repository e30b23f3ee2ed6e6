"""The answer at the top of a page: the verdict that matters, the axes by size, captions of two lines."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl
import pytest
from dashboard_site import ServeSite, Site
from hypothesis import given, strategies as st
from known_campaign import Line, Planted, open_view, plant, seen
from playwright.sync_api import Page
from synthetic import plan_lines, write_campaign

from ablate.dashboards import write_report
from ablate.dashboards.app.frame import control_props, controls, words
from ablate.dashboards.app.page import Control, Key, SlotContent, explain_names
from ablate.dashboards.app.pages.compare import COMPARE
from ablate.dashboards.app.pages.curves import CURVES
from ablate.dashboards.app.pages.factors import FACTORS
from ablate.dashboards.app.pages.overview import OVERVIEW
from ablate.dashboards.app.pages.run import RUN
from ablate.dashboards.data.captions import lead_by_axes, name_best, rank_axes
from ablate.dashboards.data.formatting import split_caption
from ablate.dashboards.data.grid_context import CellLook, GridContext
from ablate.dashboards.theme.styles import REST, CellStyle
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.files.atomic import read_json, write_json
from ablate.store.files.layout import Layout

MSE = GridMeasure("mse", {}, "log", "lower", 0.05, 0.05)
NAMES = CellLook({"a": "SSA", "b": "Cog", "c": "Integral"}, {})
ABOUT = GridContext(None, "g", {}, MSE, None, [], NAMES, [], (), "")  # type: ignore[arg-type]
OF = "corrected 95 % interval of the mean difference: "


def verdicts(**given: tuple[str, float | None]) -> pl.DataFrame:
    rows = [
        {"cell": cell, "verdict": verdict, "difference": size, "low": None, "high": None}
        | {"corrected_low": size and size - 0.05, "corrected_high": size and size + 0.05}
        for cell, (verdict, size) in given.items()
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


@pytest.mark.parametrize(
    ("found", "better", "words"),
    [
        ({"a": ("better", -0.1), "b": ("better", -0.3), "c": ("worse", 0.5)}, "lower", "Cog is better than softmax: "),
        ({"a": ("worse", 0.1), "b": ("worse", 0.4), "c": ("undecided", -0.6)}, "lower", "Cog is worse than softmax: "),
        ({"a": ("better", 0.1), "b": ("better", 0.3)}, "higher", f"Cog is better than softmax: mse +35 % ({OF}+28"),
        ({"a": ("real, size unproven", -0.1), "b": ("worse", 0.4)}, "lower", "SSA differs from softmax, by an amount"),
        ({"a": ("equivalent", 0.0), "b": ("equivalent", 0.01)}, "lower", "All 2 variants are equivalent to softmax."),
        ({"a": ("undecided", 0.1), "b": ("undecided", -0.3)}, "lower", "No variant is shown to differ from soft"),
        ({"a": ("no verdict", None)}, "lower", "No difference from softmax is known yet."),
    ],
)  # fmt: skip
def test_the_answer_names_the_verdict_that_matters(found: Any, better: Any, words: str) -> None:
    said = name_best(ABOUT, MSE._replace(better=better), verdicts(**found), "softmax")
    assert said.startswith(words)


def test_the_headline_names_a_baseline_of_many_levels_in_full() -> None:
    cell = CellStyle("b", "gate=head · margin=query · threshold=constant", "softmax")
    about = ABOUT._replace(header={"baseline": "b"}, cells=[cell], look=CellLook({"b": "baseline"}, {}))
    assert about.baseline_label == f"the baseline ({cell.label})"
    assert about._replace(look=CellLook({"b": "softmax"}, {})).baseline_label == "softmax"


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
    assert shown.answer.startswith("Axes that matter, the largest first: depth (two against one +")
    assert shown.answer.index("operator (SSA against softmax −") > shown.answer.index("depth")
    assert any(tick == "operator<br>SSA against softmax" for tick in shown.figure.layout.yaxis.ticktext)


def test_axes_are_told_by_verdict() -> None:
    """A difference that is real and of unproven size, and one that is shown to be small, are not called alike."""
    rows = [
        ("a", "on", -0.02, "real, size unproven"),
        ("b", "on", 0.001, "equivalent"),
        ("c", "on", 0.3, "undecided"),
        ("d", "one", -0.5, "better"),
        ("d", "two", 0.1, "undecided"),
    ]
    about = {"order": 1, "against": "off", "p_holm": 0.01}
    frame = pl.DataFrame(rows, ["factor", "level", "effect", "verdict"], orient="row")
    said = rank_axes(
        frame.with_columns(**{name: pl.lit(value) for name, value in about.items()}), MSE._replace(scale="linear")
    )
    assert said == (
        "One axis matters: d (one against off −0.50, p 0.01). "
        "One axis makes a difference, by an amount not shown to matter: a (on against off −0.020, p 0.01). "
        "B makes no difference that matters. C is not shown to matter."
    )


@pytest.mark.parametrize(
    ("axes", "cells", "leads"),
    [
        (["better", "undecided"], ["real, size unproven", "undecided"], True),
        (["better", "undecided"], ["real, size unproven", "worse"], False),
        (["real, size unproven"], ["undecided"], True),
        (["real, size unproven"], ["real, size unproven"], False),
        (["undecided"], ["undecided"], False),
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
    differences = [float(text.replace("\u2212", "-").removesuffix(" %")) for text in shown]
    assert len(differences) == len(drawn) > 1
    order = sorted(range(len(drawn)), key=lambda at: differences[at])
    assert order == sorted(order, key=lambda at: drawn[at][2])
    table = page.locator("#slot-verdicts")
    reason = table.get_by_text("5 pairs)").first
    assert not reason.is_visible()
    table.get_by_text("Why").first.click()
    reason.wait_for()
    paragraph, row = reason.bounding_box(), table.locator(".ag-row").first.bounding_box()
    assert paragraph is not None
    assert row is not None
    assert paragraph["width"] > 0.9 * row["width"]  # over the whole row, not in its column
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
    assert len(before) == 3


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


def test_numbers_of_pages_are_typeset(root: Path) -> None:
    shown = str(words(SlotContent(answer="a −3.1 %", caption="within 5 % of b", message="5 % or less"), ()))
    assert shown.count(r"\xa0%") == 3
    assert " %" not in shown
    facts = str(seen(root, COMPARE, "", ["why"]).slots["why"].parts)
    assert "−" in facts
    assert re.search(r"[\s'(]-\d", facts) is None
    slider = Control("smooth", "Smoothing", "slider", usual=0.9, span=(0.0, 0.99, 0.01))
    assert control_props(slider, 0.9)["marks"] is None  # the number below the place covers no other
    assert "Smoothing (0 to 0.99)" in str(controls([slider], {}))


def test_answers_name_the_baseline_of_the_cell_and_the_axis_with_the_largest_effect_first(tmp_path: Path) -> None:
    def value(line: Line) -> float:
        size = {"softmax": 0.0, "SSA": -0.3}[line["operator"]] + {1: 0.0, 2: -1.0}[line["axes"]["depth"]]
        reacts = (line["seed"] - 2) * (line["axes"]["depth"] == 2) + line["seed"] * (line["operator"] == "SSA")
        return math.exp(size + 0.01 * reacts)

    planted = Planted(value, metrics=lambda line: {"loss": value(line)})
    root = plant(tmp_path / "runs", ["softmax", "SSA"], range(5), planted, factors={"depth": [1, 2]})
    layout = Layout(root)
    header = read_json(layout.grid_header("grid"))
    lines = plan_lines(["softmax", "SSA"], range(1), "grid", {"depth": [1, 2]})
    cells = {(line["operator"], line["axes"]["depth"]): line["cell"] for line in lines}
    matched = {cells["SSA", depth]: cells["softmax", depth] for depth in (1, 2)}
    write_json(layout.grid_header("grid"), header | {"baselines": matched, "matched": ["depth"]}, durable="nothing")
    assert seen(root, CURVES).slots["curves"].answer == (
        "SSA · 2 ends with the lowest mean loss of those shown: 0.278 (softmax · 2: 0.368). "
        "Overview tells which differences are real."
    )
    answer = seen(root, OVERVIEW, only=["differences"]).slots["differences"].answer
    assert "better than the baseline of the same depth: " in answer
    assert answer.index("depth (2 against 1 −") < answer.index("operator (SSA against softmax −")
    assert seen(root, COMPARE).controls["baseline"].options[""] == "the baseline of the same depth"
    runs = {(line["operator"], line["axes"]["depth"]): line["trial"] for line in lines}
    ways = str(seen(root, RUN, f"?run={runs['SSA', 2]}", only=["what"]).slots["what"].parts)
    assert f"run={runs['softmax', 2][:8]}" in ways
    assert f"run={runs['softmax', 1][:8]}" not in ways


def test_figures_with_short_names_say_what_these_end_with(tmp_path: Path) -> None:
    factors = {"width": ["width=16", "width=32"]}
    write_campaign(tmp_path, operators=("softmax", "SSA"), factors=factors, seeds=range(3), steps=2, sigma_f=(5,))
    overview, factors_page, curves = (seen(tmp_path, page).slots for page in (OVERVIEW, FACTORS, CURVES))
    for shown in (overview["differences"], overview["progress"], curves["curves"]):
        assert "Names end with width. " in split_caption(shown.caption)[0]
    long = SlotContent(
        go.Figure(), "Share of " + "many seeds " * 12 + "is told. More.", legend=[Key(REST, "SSA · 32", "x")]
    )
    with open_view(tmp_path, OVERVIEW) as view:
        assert explain_names(long, view.about).caption.endswith(" is told. Names end with width. More.")
    assert "Names end" not in factors_page["pivot"].caption  # its axes are named
    assert "Names end with width." in write_report(tmp_path).read_text(encoding="utf-8")
