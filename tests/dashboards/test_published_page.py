"""The page Published: printed values beside one's own, a band and no equality, and what is lacking."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean, stdev

import polars as pl
import pytest
from known_campaign import open_view
from published_campaign import mse, planted
from synthetic import write_campaign

from ablate.dashboards.app.address import read
from ablate.dashboards.app.engine import shown_of
from ablate.dashboards.app.page import PageView, Slot, SlotContent, grid_of
from ablate.papers.figures.items import ITEMS
from ablate.papers.matching.published_comparison import compare_published
from ablate.papers.page import PUBLISHED, chosen_item
from ablate.runners.cli.named_grids import locate_spec
from ablate.runners.cli.options import SpecFlags
from ablate.store.published.tables import cells, papers
from ablate.variants import integral, principled_ground, softmax, ssa

ROOT = Path(__file__).parent.parent.parent
EFFECTS = dict.fromkeys(range(1, 11), 0.0)
SLOTS: Mapping[str, Slot] = {slot.name: slot for slot in PUBLISHED.slots}


def ssa_effects(seed: int) -> dict[int, float]:
    """Half the error, a little other by seed."""
    return {f: -0.7 + 0.02 * ((3 * seed + f) % 4) for f in range(1, 11)}


At = Callable[[str], PageView]


def views(root: Path) -> Iterator[At]:
    with open_view(root, PUBLISHED) as view:
        yield lambda search: view._replace(address=read(PUBLISHED.address, search))


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[At]:
    root = tmp_path_factory.mktemp("published") / "runs"
    values = {
        "softmax": [mse(seed, EFFECTS) for seed in range(4)],
        "ssa": [mse(seed, ssa_effects(seed)) for seed in range(4)],
    }
    planted(root, {"softmax": softmax(), "ssa": ssa()}, values).close()
    yield from views(root)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[At]:
    """A campaign of operators that no paper has, with a hostile name."""
    root = tmp_path_factory.mktemp("published") / "foreign"
    write_campaign(root, operators=("mine", "<script>%{x}"), seeds=range(2), steps=4)
    yield from views(root)


def show_slot(view: PageView, name: str) -> SlotContent:
    return shown_of(SLOTS[name], view)


def words(found: SlotContent) -> str:
    parts = json.dumps([part.to_plotly_json() for part in found.parts], default=lambda part: part.to_plotly_json())
    return f"{found.caption} {found.message} {parts} {found.data.rows()}"


def find_printed(row: str, column: str) -> float:
    place = ("003", "T1", row, column)
    (value,) = (c.value for c in cells() if (c.paper, c.paper_table, c.row_label, c.column_label) == place)
    assert value is not None
    return value


def test_without_a_choice_it_shows_the_table_that_the_grid_has_most_of(at: At) -> None:
    assert chosen_item(at("")).key == "003-table-1"
    assert chosen_item(at("?paper=002")).key == "002-table-1"
    assert chosen_item(at("?paper=003&item=figure 4")).key == "003-figure-4"


def test_own_means_and_differences_stand_where_the_paper_prints(at: At) -> None:
    found = show_slot(at(""), "item")
    row = found.data.filter((pl.col("row") == "SSA") & (pl.col("column") == "5")).row(0, named=True)
    values = [mse(seed, ssa_effects(seed))[4][3] for seed in range(4)]
    logs = [math.log(value) for value in values]
    half = 3.182446 * stdev(logs) / 2  # t quantile with 3 degrees of freedom / sqrt(4)
    wanted = [math.exp(fmean(logs) + each) for each in (0, -half, half)]
    assert [row["own_mean"], row["own_low"], row["own_high"]] == pytest.approx(wanted)
    assert row["own_spread"] == pytest.approx(wanted[2] - wanted[0])
    assert row["own_less_printed"] == pytest.approx(fmean(logs) - math.log(find_printed("SSA", "5")))
    assert (row["own_n"], row["own_planned"], row["printed_in_own_interval"], row["claim_word"]) == (
        4,
        4,
        "below",
        "same direction",
    )
    empty = found.data.filter(pl.col("row") == "Sparsemax").row(0, named=True)
    assert (empty["own_mean"], empty["missing"]) == (None, "unmeasured")
    assert empty["why"] == "no cell of the grid is sparsemax"


def test_a_missing_row_leads_to_the_grid_of_results(at: At, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lead = "no cell of the grid is sparsemax; results/ has its grid: `ablate papers ssa:table1`"
    search = "?paper=003&item=table 1"
    assert lead not in words(show_slot(at(search), "item"))
    (tmp_path / "results" / "ssa").mkdir(parents=True)
    (tmp_path / "results" / "ssa" / "table1-cpu.json").touch()
    told = words(show_slot(at(search), "item"))
    assert lead in told
    assert "`ablate papers ssa:table4`" not in words(show_slot(at("?paper=003&item=table 4"), "item"))


def test_a_printed_value_inside_the_interval_is_in_the_band(tmp_path: Path) -> None:
    value = find_printed("Softmax", "4")
    rows = [[("evaluation", "mse", {"sigma_f": 4, "sigma_x": 1}, value * (1 + each))] for each in (-0.1, 0.0, 0.2)]
    planted(tmp_path / "runs", {"softmax": softmax(), "ssa": ssa()}, {"softmax": rows, "ssa": rows}).close()
    for at in views(tmp_path / "runs"):
        data = show_slot(at("?paper=003&item=table 1"), "item").data
        row = data.filter((pl.col("row") == "Softmax") & (pl.col("column") == "4")).row(0, named=True)
        assert (row["printed_in_own_interval"], row["claim_word"]) == ("inside", None)
        assert row["own_low"] < value < row["own_high"]


def test_claims_are_those_of_the_comparison_with_published_numbers(at: At) -> None:
    view = at("")
    wanted = compare_published(view.store, "planted", paper="003", table="T1")
    compared = wanted.filter(pl.col("word") != "not comparable")
    assert show_slot(view, "claims").data.select("word", "claim").rows() == compared.select("word", "claim").rows()
    data = show_slot(view, "item").data
    beside = data.filter(pl.col("claim_word").is_not_null()).select("row", "column", "claim_word").rows()
    assert sorted(beside) == sorted(compared.select("row_label", "column_label", "word").rows())
    assert set(compared["word"]) <= {"same direction", "within noise", "differs"}
    assert 0 < compared.height < wanted.height


def test_printed_values_are_hollow_marks_on_a_figure(at: At) -> None:
    found = show_slot(at("?paper=003&item=figure 3"), "item")
    assert found.figure is not None
    marks = [
        trace
        for trace in found.figure.data
        if trace.type == "scatter" and trace.marker.symbol == "circle-open" and trace.text is not None
    ]
    by_group = {trace.legendgroup: dict(zip(trace.x, trace.y, strict=True)) for trace in marks}
    names = {key.key: key.name for key in found.legend}
    assert {names[group] for group in by_group} == {"softmax", "ssa"}
    for group, points in by_group.items():
        row = {"softmax": "Softmax", "ssa": "SSA"}[names[group]]
        assert points == {float(f): find_printed(row, str(f)) for f in range(1, 11)}
    low, high = found.figure.layout.yaxis.range
    assert 10**low <= min(min(points.values()) for points in by_group.values())
    assert 10**high >= max(max(points.values()) for points in by_group.values())


def test_doubts_and_what_is_lacking_are_said(at: At) -> None:
    assert "tables 1 and 6" in words(show_slot(at(""), "doubts"))
    assert show_slot(at(""), "item").answer.startswith("20 of 140")
    assert "linear_functions" in words(show_slot(at("?paper=004&item=table 1"), "item"))  # the paper's task is text


def test_doubts_are_those_of_the_item_itself_and_of_the_values_that_it_shows(at: At) -> None:
    assert "two normalisations are described" in words(show_slot(at("?paper=002&item=figure 3"), "doubts"))
    assert "two normalisations" not in words(show_slot(at("?paper=002&item=figure 4"), "doubts"))
    marked = words(show_slot(at("?paper=003&item=figure 3"), "doubts"))
    assert "tables 1 and 6" in marked


def test_a_row_without_a_value_says_why_beside_it(at: At, foreign: At) -> None:
    shown = show_slot(at("?paper=003&item=table 1"), "item")
    rows = shown.parts[0].children[0].children.children[1].children
    said = {row.children[0].children: row.children[-1] for row in rows}
    missing = [name for name, last in said.items() if last.children]
    assert 0 < len(missing) < len(rows)
    assert all(said[name].className == "why" for name in said)
    assert any("no cell of the grid is" in said[name].children for name in missing)
    have, _, printed, *_ = shown.answer.split()
    assert 0 < int(have) < int(printed)
    assert show_slot(foreign("?paper=003&item=table 1"), "item").answer.startswith("None of ")


def test_specs_that_are_named_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    named = {each.spec for each in ITEMS if each.spec}
    assert {spec for spec in named if not spec.endswith(".py")} == {"principled:design"}
    assert all(locate_spec(Path(spec), SpecFlags())[0].is_file() for spec in named)


@pytest.mark.parametrize("paper", papers())
def test_a_campaign_with_nothing_of_it_has_a_sentence_for_every_item(foreign: At, paper: str) -> None:
    kinds = set[str]()
    for place, each in enumerate(reversed([e for e in ITEMS if e.paper == paper])):
        view, kind = foreign(f"?paper={paper}&item={each.name}"), str(getattr(each.make, "func", each.make))
        if kind in kinds:  # the page is shown for one item of each way to draw one
            drawn = each.make(grid_of(view))
            assert drawn.figure is not None or drawn.sheet is not None or drawn.message, each.key
            continue
        kinds.add(kind)
        for slot in SLOTS if place == 0 else ("item",):
            found = show_slot(view, slot)
            assert found.figure is not None or found.message or found.parts or found.data.height
            assert "reproduced" not in words(found).lower()
            assert found.figure is None or "<script>%{x}" not in json.dumps(json.loads(found.figure.to_json()))


def test_a_grid_that_no_paper_prints_begins_with_the_table_that_has_most_of_it(tmp_path: Path) -> None:
    """A union has softmax and SSA of table 1 of 003 among more cells that no paper prints."""
    own = {"two": integral(2), "three": integral(3), "ground": principled_ground()}
    known = {"softmax": softmax(), "ssa": ssa()}
    values = {name: [mse(seed, EFFECTS) for seed in range(3)] for name in (*known, *own)}
    planted(tmp_path / "runs", known | own, values).close()
    for at in views(tmp_path / "runs"):
        assert chosen_item(at("")).key == "003-table-1"
        shown = shown_of(SLOTS["item"], at(""))
        assert shown.data["own_mean"].drop_nulls().len() > 0
        (paper, item) = PUBLISHED.controls(at(""))
        assert (paper.usual, item.usual) == ("003", "table 1")
        assert not shown_of(SLOTS["item"], at("?paper=003")).message


def test_a_grid_without_any_printed_value_shows_a_table_when_asked(foreign: At) -> None:
    shown = [show_slot(foreign(""), name) for name in SLOTS]
    assert all(each.data.is_empty() and not each.parts and each.message for each in shown)
    assert "No table has a value" in shown[0].message
    assert show_slot(foreign("?paper=003"), "item").data.height > 0
