"""Factors: effects, interactions and the map equal what plain Python makes of planted values."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, stdev
from typing import Any

import polars as pl
import pytest
from planted import Line, Planted, Seen, plant, seen
from scipy import stats

from dashboards.app.pages.factors import FACTORS
from dashboards.problems import Unknown

OPERATORS = ("softmax", "SSA", "<script>%{x}")
WIDTHS = (32, 128, 64)
"""Not sorted: the grid's own order."""
SEEDS = range(4)


def value(line: Line) -> float:
    """SSA is better where depth is 2 and worse where it is 4; noise depends on everything."""
    axes = line["axes"]
    sign = {"softmax": 0, "SSA": 1 if axes["depth"] == 4 else -1}.get(axes["operator"], 2)
    noise = 0.001 * ((7 * axes["width"] + 3 * axes["depth"] + 11 * line["seed"] + len(axes["operator"])) % 13)
    return float(1.5**sign * (1 + axes["width"] / 64) * (1 + 0.1 * line["seed"]) * (1 + noise))


def state(line: Line) -> str:
    axes = line["axes"]
    if (axes["operator"], axes["width"]) == ("SSA", 128):
        return "diverged" if axes["depth"] == 2 else "pending"
    if (axes["operator"], axes["width"], line["seed"]) == ("SSA", 32, 0):
        return "killed"
    return "ok"


FACTORS_OF: dict[str, Any] = {"width": WIDTHS, "depth": [2, 4]}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(
        tmp_path_factory.mktemp("factors") / "runs", OPERATORS, SEEDS, Planted(value, state), factors=FACTORS_OF
    )


@pytest.fixture(scope="module")
def page(root: Path) -> Callable[[str], Seen]:
    kept: dict[str, Seen] = {}
    return lambda search="": kept.setdefault(search, seen(root, FACTORS, search))


def runs(operator: str, width: int, depths: tuple[int, ...]) -> dict[int, list[float]]:
    """Values that there are, by seed."""
    found: dict[int, list[float]] = {}
    for seed in SEEDS:
        for depth in depths:
            line = {"axes": {"operator": operator, "width": width, "depth": depth}, "seed": seed}
            if state(line) == "ok":
                found.setdefault(seed, []).append(value(line))
    return found


def at(frame: pl.DataFrame, x: str, y: str) -> dict[str, Any]:
    return frame.filter(pl.col("x") == x, pl.col("y") == y).row(0, named=True)


def test_the_map_averages_over_the_other_axes_by_seed_and_then_over_seeds(page: Callable[[str], Seen]) -> None:
    frame = page("").frame("pivot")
    assert frame["x"].cast(pl.String).unique(maintain_order=True).to_list() == list(OPERATORS)
    assert frame["y"].cast(pl.String).unique(maintain_order=True).to_list() == [str(width) for width in WIDTHS]
    for operator, width in (("softmax", 32), ("SSA", 64), ("SSA", 32)):
        by_seed = [geometric_mean(of) for of in runs(operator, width, (2, 4)).values()]
        row = at(frame, operator, str(width))
        assert row["value"] == pytest.approx(geometric_mean(by_seed))
        logs = pl.Series(by_seed).log().to_list()
        half = float(stats.t.ppf(0.975, len(logs) - 1)) * stdev(logs) / len(logs) ** 0.5
        assert pl.Series([row["high"] / row["value"]]).log()[0] == pytest.approx(half)
        assert (row["n"], row["runs"], row["planned"]) == (len(by_seed), 2 * len(by_seed), 8)


def test_a_fixed_axis_leaves_its_other_levels_out(page: Callable[[str], Seen]) -> None:
    row = at(page("?fix=depth%3D4").frame("pivot"), "SSA", "64")
    assert row["value"] == pytest.approx(geometric_mean(of[0] for of in runs("SSA", 64, (4,)).values()))
    assert row["planned"] == 4


def test_the_best_cell_stands_for_its_setting_and_the_page_warns_of_the_winner_s_curse(
    page: Callable[[str], Seen],
) -> None:
    best = page("?others=best")
    row = at(best.frame("pivot"), "SSA", "64")
    assert row["value"] == pytest.approx(geometric_mean(of[0] for of in runs("SSA", 64, (2,)).values()))
    assert "Winner's curse" in best.slots["pivot"].message
    assert "Winner's curse" not in page("").slots["pivot"].message


def test_cells_without_a_value_say_why(page: Callable[[str], Seen]) -> None:
    row = at(page("").frame("pivot"), "SSA", "128")
    assert row["value"] is None
    assert row["reason"] == "failed: diverged; not run 4"
    assert at(page("?fix=depth%3D2").frame("pivot"), "SSA", "128")["reason"] == "failed: diverged"
    assert at(page("?fix=depth%3D4").frame("pivot"), "SSA", "128")["reason"] == "not run"


def test_colours_that_span_the_grid_are_the_same_for_every_choice_of_the_others(page: Callable[[str], Seen]) -> None:
    def span(search: str) -> tuple[float, float]:
        figure = page(search).slots["pivot"].figure
        assert figure is not None
        trace = json.loads(figure.to_json())["data"][0]
        return trace["zmin"], trace["zmax"]

    assert span("?shared=1&fix=depth%3D2") == span("?shared=1&fix=depth%3D4")
    assert span("?fix=depth%3D2") != span("?fix=depth%3D4")


def test_a_click_on_the_map_lists_the_runs_behind_it(page: Callable[[str], Seen]) -> None:
    rows = page("?at=1,0").frame("chosen")  # SSA at width 32
    assert rows.height == 8
    assert set(rows["label"]) == {"SSA · 32 · 2", "SSA · 32 · 4"}
    assert rows.filter(pl.col("reason") == "killed").height == 2
    for nowhere in ("?at=9,9", "?at=x", "?at=1"):
        assert "no planned runs" in page(nowhere).slots["chosen"].message


def test_only_pairs_that_pass_are_proposed_and_others_are_drawn_with_a_warning(page: Callable[[str], Seen]) -> None:
    found = page("")
    passing = [option.value for option in found.controls["pair"].options]
    assert passing == ["operator*depth"]
    assert "Shown to act together: operator × depth." in found.slots["matrix"].caption
    assert found.slots["pair"].message == ""
    other = page("?pair=width*depth").slots["pair"]
    assert "not shown to act together" in other.message
    assert other.figure is not None


def test_the_lines_of_a_pair_are_its_marginal_means(page: Callable[[str], Seen]) -> None:
    frame = page("?pair=operator*depth").frame("pair")
    assert frame["x"].unique(maintain_order=True).to_list() == list(OPERATORS)
    row = frame.filter(pl.col("x") == "softmax", pl.col("series") == "2").row(0, named=True)
    cells = [geometric_mean(of[0] for of in runs("softmax", width, (2,)).values()) for width in WIDTHS]
    assert row["value"] == pytest.approx(geometric_mean(cells), rel=1e-6)
    assert row["n"] == 12


def test_the_matrix_holds_every_pair_once_in_each_half(page: Callable[[str], Seen]) -> None:
    frame = page("").frame("matrix")
    assert frame.height == 9
    one, other = at(frame, "operator", "depth"), at(frame, "depth", "operator")
    assert one["value"] == other["value"]
    importance = page("").frame("importance")
    listed = importance.filter(pl.col("axis") == "operator × depth")
    assert one["value"] == listed["partial omega²"][0]
    assert listed["p (Holm)"][0] < 0.05 < importance.filter(pl.col("axis") == "width × depth")["p (Holm)"][0]


def words(root: Path, search: str) -> str:
    """What the page or one of its slots says instead of what cannot be shown."""
    try:
        return "; ".join(shown.message for shown in seen(root, FACTORS, search).slots.values())
    except Unknown as error:
        return str(error)


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ("?x=nowhere", "has no axis 'nowhere'; it has operator, width, depth"),
        ("?x=depth&y=depth", "a map needs two axes; the address says 'depth' for both"),
        ("?fix=depth%3D9", "axis 'depth' has no level '9'; it has 2, 4"),
        ("?fix=depth", "the address says 'depth' where it takes name=value"),
        ("?fix=height%3D9", "has no axis 'height' to fix"),
        ("?measure=nothing", "no finished run of 'grid' has 'nothing'; they have mse@sigma_f=5,sigma_x=1"),
    ],
)
def test_an_address_that_names_what_is_not_there_gets_a_sentence(root: Path, search: str, said: str) -> None:
    assert said.lower() in words(root, search).lower()


def test_a_pair_that_is_not_there_gets_a_sentence(page: Callable[[str], Seen]) -> None:
    assert "No two axes are called 'a*b'" in page("?pair=a*b").slots["pair"].message


def test_one_seed_has_its_effects_against_half_normal_quantiles(tmp_path: Path) -> None:
    def planted(line: Line) -> float:
        return value(line) / (1 + 0.1 * line["seed"])

    root = plant(tmp_path / "one", OPERATORS, [0], Planted(planted), factors=FACTORS_OF)
    found = seen(root, FACTORS)
    frame = found.frame("half-normal")
    assert frame.height == 17  # of 18 runs
    largest = frame.row(0, named=True)
    assert largest["beyond"] == "simultaneous margin"
    assert frame["size"].to_list() == sorted(frame["size"].to_list(), reverse=True)
    several = seen(plant(tmp_path / "two", OPERATORS, [0, 1], Planted(value), factors=FACTORS_OF), FACTORS)
    assert "Several seeds tell the noise" in several.slots["half-normal"].message


def test_one_axis_has_no_pair_and_no_map(tmp_path: Path) -> None:
    def planted(line: Line) -> float:
        return 1.0 + 0.1 * line["seed"] + 0.01 * len(line["operator"]) * (line["seed"] + 1)

    found = seen(plant(tmp_path / "runs", OPERATORS, SEEDS, Planted(planted)), FACTORS)
    assert found.slots["effects"].figure is not None
    assert "Fewer than two axes vary" in found.slots["matrix"].message
    assert "No pair passes" in found.slots["pair"].message
    assert "a map needs two" in found.slots["pivot"].message


def test_axes_of_very_many_levels_have_effects_and_a_map_but_no_interactions(tmp_path: Path) -> None:
    def planted(line: Line) -> float:
        return 1.0 + 0.01 * ((17 * line["axes"]["n"] + 5 * line["axes"]["m"] + 3 * line["seed"]) % 7)

    factors: dict[str, Any] = {"n": list(range(60)), "m": list(range(15))}
    root = plant(tmp_path / "runs", ["softmax"], [0, 1], Planted(planted), factors=factors)
    found = seen(root, FACTORS)
    assert "too many pairs of levels" in found.slots["matrix"].message
    assert set(found.frame("importance")["axis"]) == {"n", "m"}
    assert found.frame("pivot").height == 60 * 15


def test_nothing_finished_is_said(tmp_path: Path) -> None:
    root = plant(tmp_path / "runs", OPERATORS, SEEDS, Planted(value, lambda _: "pending"), factors=FACTORS_OF)
    found = seen(root, FACTORS)
    assert "no effect to show" in found.slots["effects"].message
    assert set(found.frame("pivot")["reason"]) == {"not run"}
