"""Compare with costs: points, intervals and steps equal plain Python's; ranges keep the cells of the whole page."""

import math
import re
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from statistics import fmean, geometric_mean, stdev

import polars as pl
import pytest
from dashboard_site import ServeSite
from known_campaign import Line, Planted, Seen, plant, seen
from playwright.sync_api import Page as Tab
from scipy import stats

from ablate import Campaign, Measure
from ablate.dashboards.app.page import SlotContent
from ablate.dashboards.app.pages.compare import COMPARE
from ablate.dashboards.data.grid_context import MOST_CURVES, MOST_STYLED
from ablate.dashboards.figures.pareto import on_steps, place_names
from ablate.dashboards.html.blocks import strokes
from ablate.dashboards.theme.styles import DIVERGING, REST
from ablate.store import Store
from ablate.store.analysis.pareto import read_objectives
from ablate.store.analysis.verdicts import measure_of, runs
from ablate.store.statistics import Objective
from ablate.store.statistics.arms import arms, pair

OPERATORS = ("softmax", "zeta", "alpha", "<script>%{x}")
SEEDS = range(5)
MSE = {"softmax": 1.0, "zeta": 0.5, "alpha": 0.4, "<script>%{x}": 1.2}
SECONDS = {"softmax": 10.0, "zeta": 20.0, "alpha": 60.0, "<script>%{x}": 70.0}
"""The last is worse in both than every other."""


def value(line: Line) -> float:
    return float(MSE[line["operator"]] * (1 + 0.02 * ((line["seed"] * 7 + len(line["operator"])) % 5)))


def seconds(operator: str, seed: int) -> float:
    return SECONDS[operator] * (1 + 0.01 * ((seed * 3 + len(operator)) % 4))


def cost(line: Line) -> Mapping[str, float]:
    operator, seed = line["operator"], line["seed"]
    return {"train_s": seconds(operator, seed), "flops": 1e9, "parameters": 1000 if operator == "zeta" else 2000}


def probes(line: Line) -> list[tuple[str, int, int, Mapping[str, float], float]]:
    share = 0.1 * OPERATORS.index(line["operator"]) + 0.01 * line["seed"]
    return [("sink", layer, head, {"eps": eps}, share + layer + 10 * head + 100 * eps)
            for layer in (0, 1) for head in (0, 1) for eps in (0.2, 0.3)]  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    planted = Planted(value, cost=cost, probes=probes, more=lambda line: {"signed": line["seed"] - 2.0})
    return plant(tmp_path_factory.mktemp("trade") / "runs", OPERATORS, SEEDS, planted)


@pytest.fixture(scope="module")
def usual(root: Path) -> Seen:
    return seen(root, COMPARE)


def scatter(root: Path, search: str) -> SlotContent:
    return seen(root, COMPARE, search, ["scatter"]).slots["scatter"]


def test_points_are_means_over_seeds_with_t_intervals_of_both(usual: Seen) -> None:
    frame = usual.frame("scatter")
    assert frame["variant"].to_list() == list(OPERATORS)
    for operator in OPERATORS:
        row = frame.filter(pl.col("variant") == operator).row(0, named=True)
        logs = [math.log(seconds(operator, seed)) for seed in SEEDS]
        half = float(stats.t.ppf(0.975, 4)) * stdev(logs) / 5**0.5
        ends = [math.log(row[name]) for name in ("x", "x_low", "x_high")]
        assert ends == pytest.approx([fmean(logs), fmean(logs) - half, fmean(logs) + half])


def test_a_click_on_a_point_compares_its_cell(root: Path, usual: Seen) -> None:
    figure = usual.slots["scatter"].figure
    assert figure is not None
    with Store.open(root) as store:
        cells = set(store.sql("SELECT DISTINCT cell FROM grid_trial")["cell"])
    assert {key for trace in figure.data if trace.customdata is not None for key, _ in trace.customdata} == cells
    assert next(slot for slot in COMPARE.slots if slot.name == "scatter").sets == "cell"


@pytest.mark.parametrize("better", [("lower", "lower"), ("lower", "higher"), ("higher", "lower"), ("higher", "higher")])
def test_steps_equal_the_definition(better: tuple[str, str]) -> None:
    points = [(1.0, 5.0), (2.0, 3.0), (2.0, 4.0), (3.0, 3.0), (4.0, 1.0), (0.5, 6.0), (4.0, 1.0)]
    x, y = Objective("x", better[0]), Objective("y", better[1])  # type: ignore[arg-type]
    signs = [1 if way == "lower" else -1 for way in better]

    def beaten(point: tuple[float, float]) -> bool:
        own = [sign * part for sign, part in zip(signs, point, strict=True)]
        others = [[sign * part for sign, part in zip(signs, other, strict=True)] for other in points]
        return any(all(a <= b for a, b in zip(o, own, strict=True)) and o != own for o in others)

    found = on_steps([point[0] for point in points] + [None], [point[1] for point in points] + [1.0], x, y)
    assert found == [not beaten(point) for point in points] + [False]


def test_a_probe_is_averaged_over_layers_and_heads_at_the_point_that_is_asked_for(root: Path) -> None:
    shown = scatter(root, "?against=sink@eps%3D0.3")
    row = shown.data.filter(pl.col("variant") == "alpha").row(0, named=True)
    each = [0.2 + 0.01 * seed + layer + 10 * head + 30 for seed in SEEDS for layer in (0, 1) for head in (0, 1)]
    assert row["x"] == pytest.approx(fmean(each))


def test_parameters_are_exact_and_operations_are_those_of_training(root: Path) -> None:
    frame = scatter(root, "?against=parameters").data
    assert frame["x"].round(6).to_list() == [2000, 1000, 2000, 2000]
    assert frame["x_low"].null_count() == frame.height  # no spread, so no interval
    assert scatter(root, "?against=flops").data["x"].round(0).to_list() == [1e9] * 4


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compared by an mse that is better when higher; axes and measurements are called like columns."""

    def more(line: Line) -> Mapping[str, float]:
        return {"accuracy": 0.1 * value(line), "unsaid": 2 + line["seed"], "cell": value(line), "n": 3.0 - value(line)}

    def state(line: Line) -> str:
        return {("alpha", 1): "diverged", ("alpha", 2): "diverged"}.get((line["operator"], line["seed"]), "ok")

    factors = {"cell": [1, 2], "variant": ["x", "y"]}
    planted = Planted(lambda line: math.nan if (line["operator"], line["seed"]) == ("zeta", 3) else value(line), state)
    planted = planted._replace(cost=cost, more=more)
    root = tmp_path_factory.mktemp("others") / "runs"
    return plant(root, ("softmax", "zeta", "alpha"), range(4), planted, factors=factors, measure={"better": "higher"})


def test_the_grid_s_measure_keeps_its_direction_and_scale_when_another_is_judged_by(others: Path) -> None:
    shown = scatter(others, "?measure=accuracy&against=mse@sigma_f%3D5,sigma_x%3D1")
    assert shown.figure is not None
    assert shown.figure.layout.xaxis.type == "log"
    row = shown.data.filter(pl.col("variant").str.starts_with("softmax")).row(0, named=True)
    each = [value({"operator": "softmax", "seed": seed}) for seed in range(4)]
    assert row["x"] == pytest.approx(geometric_mean(each))
    assert row["value"] == pytest.approx(0.1 * fmean(each))


def test_a_direction_that_nothing_says_is_called_a_guess(others: Path) -> None:
    guess = "The direction of unsaid is unknown; lower is taken as better."
    found = seen(others, COMPARE, "?measure=unsaid&against=unsaid&against_better=higher")
    assert guess in found.controls["better"].hint
    for search in ("?measure=unsaid", "?against=unsaid"):
        assert guess in scatter(others, search).caption
        sides = f"{search}&better=higher&against_better=higher"
        assert guess not in scatter(others, sides).caption


def test_cells_that_lack_seeds_are_ringed_and_say_what_they_average(others: Path) -> None:
    shown = scatter(others, "")
    assert shown.figure is not None
    lacking = shown.data.filter(pl.col("n") < pl.col("planned"))
    assert set(lacking.select("n", "planned", "failed", "infinite").rows()) == {(2, 4, 2, 0), (3, 4, 0, 1)}
    assert lacking.height == 8
    rings = [trace for trace in shown.figure.data if trace.name == "lacks seeds of others"]
    assert sorted(at for trace in rings for at in trace.x) == sorted(lacking["x"])
    told = [said for trace in shown.figure.data if trace.customdata is not None for _, said in trace.customdata]
    assert sum("<br>2 of 4 seeds, 2 failed<br>" in said for said in told) == 4


@pytest.mark.parametrize("search", ["", "?measure=cell&against=n", "?measure=n&against=cell"])
def test_axes_and_measurements_may_be_called_like_columns(others: Path, search: str) -> None:
    found = seen(others, COMPARE, search)
    assert all(found.frame(slot).height == 12 for slot in ("scatter", "verdicts", "parallel"))
    figure = found.slots["parallel"].figure
    assert figure is not None
    titles = [note.text for note in figure.layout.annotations if note.y > 1]
    assert titles[:3] == ["operator", "cell (value)", "variant (value)"]


def test_parallel_axes_keep_the_order_of_the_grid(usual: Seen) -> None:
    figure = usual.slots["parallel"].figure
    assert usual.frame("parallel")["variant"].to_list() == ["softmax", "zeta", "alpha", "<script>%{x}"]
    assert figure is not None
    ticks = [note.text for note in figure.layout.annotations if note.x == 0 and note.y <= 1]
    assert ticks == ["softmax", "zeta", "alpha", "&lt;script&gt;%&#123;x}"]
    line = next(trace for trace in figure.data if trace.name == "zeta")
    assert line.y[0] == pytest.approx(1 / 3)


@pytest.mark.parametrize("seeds", [2, 3])
def test_pairs_that_cannot_be_compared_are_those_that_the_comparison_refuses(tmp_path: Path, seeds: int) -> None:
    def state(line: Line) -> str:
        return "diverged" if (line["operator"], line["seed"]) == ("alpha", 1) else "ok"

    def plant_value(line: Line) -> float:
        if line["operator"] in ("zeta", "constant"):
            return 1.0 + 0.1 * line["seed"]
        return 1.0 + (line["seed"] * len(line["operator"])) % 3

    def costs(line: Line) -> Mapping[str, float]:
        return {"train_s": 1.0 + line["seed"]}

    operators = (*OPERATORS, "constant")
    root = plant(tmp_path / "runs", operators, range(seeds), Planted(plant_value, state, costs))
    with Store.open(root) as store:
        rules = measure_of(store, "grid", None)
        values = runs(store, "grid", rules)
        found = read_objectives(store, "grid", ["train_s"]).forbidden
    cells = arms(values)
    expected = {(a, b): pair(cells[a], cells[b], rules.scale).problem for a, b in permutations(cells, 2)}
    assert found == {both: problem for both, problem in expected.items() if problem is not None}
    assert found


def test_intervals_are_drawn_and_told_and_the_usual_cost_is_one_that_varies(tmp_path: Path) -> None:
    costs = {"softmax": 100, "zeta": 200, "alpha": 300}

    def cost(line: Line) -> dict[str, float]:
        return {"train_s": 5.0, "memory_bytes": costs[line["operator"]]}

    def value(line: Line) -> float:
        return {"softmax": 1.0, "zeta": 0.5, "alpha": 0.9}[line["operator"]] * (1 + 0.1 * line["seed"])

    root = plant(tmp_path / "runs", list(costs), range(3), Planted(value, cost=cost))
    found = seen(root, COMPARE, "", ["scatter"])
    assert found.controls["against"].usual == "memory_bytes"
    shown = found.slots["scatter"]
    assert re.match(r"2 of 3 cells .* zeta and softmax\.", shown.answer)
    assert shown.figure is not None
    points = {round(trace.x[0]): trace for trace in shown.figure.data if trace.mode == "markers+text"}
    for at, (low, high) in {300: (0.787, 1.24), 200: (0.437, 0.688)}.items():
        bar, y = points[at].error_y, points[at].y[0]
        assert (y - bar.arrayminus[0], y + bar.array[0]) == pytest.approx((low, high), rel=5e-3)
    assert "<br>0.987 (0.787 to 1.24)<br>300<br>" in points[300].customdata[0][1]


def test_the_usual_cost_of_a_logged_grid_is_one_that_varies(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "runs").grid("grid", measure=Measure(name="loss", better="lower"))
    for place, label in enumerate(("one", "two")):
        for seed in range(3):
            with campaign.start("grid", label=label, seed=seed, config={"place": place}) as run:
                run.log(1, loss=1.0 + seed - 0.1 * place, accuracy=float(seed), seconds=7.0, tokens=10.0 * (place + 1))
    found = seen(tmp_path / "runs", COMPARE)
    assert found.controls["against"].usual == "tokens"
    assert found.frame("scatter")["x"].to_list() == [10.0, 20.0]
    (*cells, front) = (key.style.color for key in found.slots["scatter"].legend)
    assert front not in (*cells, *DIVERGING)  # blue is better


def test_no_name_of_a_cell_covers_another_one() -> None:
    found = pl.DataFrame({"cell": list("abcdef"), "x": [5.0] * 5 + [10.0], "value": [5.0] * 5 + [0.0]})
    axes = [{"type": "linear", "range": [0.0, 10.0]}] * 2
    placed = place_names(found, dict.fromkeys("abcdef", "a name"), axes)
    assert placed == {"a": "top right", "b": "bottom right", "c": "top left", "d": "bottom left", "f": "top left"}


def test_names_keep_off_points_and_the_line() -> None:
    axes = [{"type": "linear", "range": [0.0, 10.0]}] * 2
    found = pl.DataFrame({"cell": ["a", "point"], "x": [5.0, 5.2], "value": [5.0, 5.2]})
    assert place_names(found, {"a": "a name"}, axes) == {"a": "bottom right"}
    found = pl.DataFrame({"cell": ["a", "b"], "x": [5.0, 5.2], "value": [5.0, 6.0]})
    line = place_names(found, {"a": "a name"}, axes, line=["a", "b"])
    assert line == {"a": "bottom right"}  # above it the line goes up


def test_names_keep_off_intervals_where_they_can() -> None:
    axes = [{"type": "linear", "range": [0.0, 10.0]}] * 2
    bars = {"x_low": [None, 5.05], "x_high": [None, 7.0], "low": [None] * 2, "high": [None] * 2}
    found = pl.DataFrame({"cell": ["a", "b"], "x": [5.0, 6.5], "value": [5.0, 5.2], **bars})
    names = {"a": "a name"}
    assert place_names(found, names, axes) == {"a": "bottom right"}
    assert place_names(found.drop(bars), names, axes) == {"a": "top right"}
    around = pl.DataFrame(
        {"cell": list("bcde"), "x": [8.0] * 4, "value": [5.3, 4.7, 5.4, 4.6], "x_low": [2.0] * 4, "x_high": [9.0] * 4}
    )
    crossed = pl.concat([found[:1], around], how="diagonal")
    assert place_names(crossed, names, axes) == {"a": "top right"}  # a name over a bar is better than none


def test_no_name_stands_at_the_point_of_another_cell() -> None:
    """Cells of equal cost stand above each other, 19 pixels apart."""
    axes = [{"type": "linear", "range": [0.0, 10.0]}] * 2
    found = pl.DataFrame({"cell": ["a", "above"], "x": [5.0, 5.0], "value": [5.0, 5.48]})
    assert place_names(found, {"a": "a name"}, axes) == {"a": "bottom right"}


def test_cells_of_the_line_have_colours(tmp_path: Path) -> None:
    """The first of 12 cells is best, and the last, which is worst, costs least."""
    names = [f"op{place}" for place in range(12)]
    cost = dict.fromkeys(names, 200.0) | {"op0": 100.0, "op11": 1.0}
    planted = Planted(
        lambda line: 1.0 + names.index(line["operator"]), cost=lambda line: {"train_s": cost[line["operator"]]}
    )
    found = seen(plant(tmp_path / "runs", names, range(3), planted), COMPARE)
    for slot in ("scatter", "parallel"):
        assert "op11" in [key.name for key in found.slots[slot].legend]
        assert len([key for key in found.slots[slot].legend if key.name.startswith("op")]) == len(names)


def test_cells_without_a_colour_have_an_entry_that_hides_them(tmp_path: Path) -> None:
    names = [f"operator {place}" for place in range(MOST_STYLED + 3)]
    cost = {name: 100.0 * place for place, name in enumerate(names, start=1)}
    planted = Planted(
        lambda line: cost[line["operator"]] * (1 + 0.1 * line["seed"]),
        cost=lambda line: {"train_s": cost[line["operator"]]},
    )
    shown = scatter(plant(tmp_path / "runs", names, range(2), planted), "")
    (entry,) = (key for key in shown.legend if key.style == REST)
    others = len(names) - MOST_CURVES
    assert entry.note == str(others)
    bars = {trace.legendgroup: trace.error_y.visible for trace in shown.figure.data if trace.mode == "markers+text"}
    assert sum(map(bool, bars.values())) == MOST_CURVES
    assert not bars[entry.key]
    line = shown.figure.data[0].line
    assert line.dash == shown.legend[-1].style.dash != REST.dash  # both are grey
    assert "circle" not in strokes(shown.legend[-1].style, line.color, "white")
    grey = [trace for trace in shown.figure.data if trace.legendgroup == entry.key and trace.mode == "markers+text"]
    assert sum(len(trace.x) for trace in grey) == others


def test_a_brushed_range_keeps_the_cells_of_the_whole_page(root: Path, usual: Seen) -> None:
    kept = scatter(root, "?brush=operator=zeta..alpha&brush=mse=0.45..0.9")
    assert kept.data["variant"].to_list() == ["zeta"]
    found = seen(root, COMPARE, "?brush=operator=zeta..alpha")
    for slot, column in (("verdicts", "variant"), ("differences", "variant"), ("wins", "cell")):
        assert set(found.frame(slot)[column]) == {"alpha", "zeta"}, slot
    whole, figure = usual.slots["parallel"].figure, found.slots["parallel"].figure
    assert whole is not None
    assert figure is not None
    assert {trace.legendgroup for trace in whole.data} - {trace.legendgroup for trace in figure.data}  # faint now
    bar = next(shape for shape in figure.layout.shapes if shape.line.width == 6)
    assert (bar.y0, bar.y1) == pytest.approx((1 / 3, 2 / 3), abs=0.01)
    assert figure.layout.meta["axes"][0]["name"] == "operator"
    for brush, named in (("mse=small..large", "LOW..HIGH"), ("depth=1..2", "'depth'"), ("mse=100..200", "o cell")):
        assert named in scatter(root, f"?brush={brush}").message


@pytest.mark.browser
def test_the_sign_of_more_words_stands_on_their_last_line(page: Tab, root: Path, serve_site: ServeSite) -> None:
    alone = """() => {
      const at = (part) => document.querySelector(`#slot-scatter ${part}`), words = at(".caption > span");
      return [...Array(150).keys()].filter((letters) => {  // the first line is full on the way
        words.textContent = "word ".repeat(20) + "i".repeat(letters);
        return at(".info > summary").getBoundingClientRect().top > words.getBoundingClientRect().bottom;
      });
    }"""
    with serve_site([root]) as site:
        page.goto(f"{site.url}/runs/compare")
        page.wait_for_selector("#slot-scatter summary")
        assert page.evaluate(alone) == []
