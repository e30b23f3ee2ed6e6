"""Factors: effects, interactions and the map equal what plain Python makes of planted values."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, stdev
from typing import Any

import polars as pl
import pytest
from known_campaign import Line, Planted, Seen, plant, seen
from scipy import stats

from ablate.dashboards.app.page import AS_ABOVE
from ablate.dashboards.app.pages.factors import FACTORS
from ablate.store.statistics.selection import expected_optimism

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


Look = Callable[..., Seen]
"""The page for a state, and for another than the usual one only the slots that are named."""


def looking(root: Path) -> Look:
    kept: dict[tuple[str, ...], Seen] = {}

    def look(search: str = "", *only: str) -> Seen:
        if (search, *only) not in kept:
            kept[search, *only] = seen(root, FACTORS, search, only)
        return kept[search, *only]

    return look


@pytest.fixture(scope="module")
def page(root: Path) -> Look:
    return looking(root)


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


def test_the_map_averages_over_the_other_axes_by_seed_and_then_over_seeds(page: Look) -> None:
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


def test_a_fixed_axis_leaves_its_other_levels_out(page: Look) -> None:
    row = at(page("?fix=depth%3D4", "pivot").frame("pivot"), "SSA", "64")
    assert row["value"] == pytest.approx(geometric_mean(of[0] for of in runs("SSA", 64, (4,)).values()))
    assert row["planned"] == 4


def test_cells_without_a_value_say_why(page: Look) -> None:
    row = at(page("").frame("pivot"), "SSA", "128")
    assert row["value"] is None
    assert row["reason"] == "failed: diverged; not run 4"
    assert at(page("?fix=depth%3D2", "pivot").frame("pivot"), "SSA", "128")["reason"] == "failed: diverged"
    assert at(page("?fix=depth%3D4", "pivot").frame("pivot"), "SSA", "128")["reason"] == "not run"


def test_a_click_on_the_map_lists_the_runs_behind_it(page: Look) -> None:
    names = [slot.name for slot in FACTORS.slots]
    assert names.index("chosen") == names.index("pivot") + 1  # below each other
    rows = page("?at=1,0", "chosen").frame("chosen")  # SSA at width 32
    assert rows.height == 8
    assert set(rows["label"]) == {"SSA · 32 · 2", "SSA · 32 · 4"}
    assert rows.filter(pl.col("reason") == "killed").height == 2
    for nowhere in ("?at=9,9", "?at=x", "?at=1"):
        assert "no planned runs" in page(nowhere, "chosen").slots["chosen"].message


def test_only_pairs_that_pass_are_proposed_and_others_are_drawn_with_a_warning(page: Look) -> None:
    found = page("")
    passing = list(found.controls["pair"].options)
    assert passing == ["operator*depth"]
    assert found.slots["pair"].message == ""
    other = page("?pair=width*depth", "pair").slots["pair"]
    assert "not shown to act together" in other.message
    assert other.figure is not None


def test_the_lines_of_a_pair_are_its_marginal_means(page: Look) -> None:
    frame = page("?pair=operator*depth", "pair").frame("pair")
    assert frame["x"].unique(maintain_order=True).to_list() == list(OPERATORS)
    row = frame.filter(pl.col("x") == "softmax", pl.col("series") == "2").row(0, named=True)
    cells = [geometric_mean(of[0] for of in runs("softmax", width, (2,)).values()) for width in WIDTHS]
    assert row["value"] == pytest.approx(geometric_mean(cells), rel=1e-6)
    assert row["n"] == 12


def test_the_matrix_holds_every_pair_once_in_each_half(page: Look) -> None:
    frame = page("").frame("matrix")
    assert frame.height == 9
    one, other = at(frame, "operator", "depth"), at(frame, "depth", "operator")
    assert one["value"] == other["value"]
    importance = page("").frame("importance")
    listed = importance.filter(pl.col("axis") == "operator × depth")
    assert one["value"] == listed["partial omega²"][0]
    assert listed["p (Holm)"][0] < 0.05 < importance.filter(pl.col("axis") == "width × depth")["p (Holm)"][0]


def test_one_axis_has_no_pair_and_no_map(tmp_path: Path) -> None:
    def plant_value(line: Line) -> float:
        return 1.0 + 0.1 * line["seed"] + 0.01 * len(line["operator"]) * (line["seed"] + 1)

    found = seen(plant(tmp_path / "runs", OPERATORS, SEEDS, Planted(plant_value)), FACTORS)
    assert found.slots["effects"].figure is not None
    assert "note" in found.slots["importance"].data.columns
    assert "note" not in {column["field"] for column in found.slots["importance"].columns}  # it is empty
    said = [found.slots[name].message for name in ("matrix", "pair", "pivot", "chosen")]
    assert "Fewer than two axes" in said[0]
    assert said == [said[0]] * 3 + [AS_ABOVE]  # which the page says once
    assert found.slots["effects"].above.startswith("Axes: operator (")


def test_a_value_off_the_scale_leaves_the_controls(tmp_path: Path) -> None:
    from_zero = Planted(lambda line: float(line["seed"]), lambda _: "ok")
    found = seen(plant(tmp_path / "c", ("softmax", "SSA"), range(3), from_zero), FACTORS, "", ("effects",))
    assert "is not above 0, as the log scale needs" in str(found.slots)
    assert {"measure", "pair"} <= found.controls.keys()


ODD: dict[str, Any] = {"width": [8, 16], "mean": [32, 64], "seed": [1, 2, 3]}
"""Width and mean are zipped, the third level of `seed` is there for one cell alone; all names are those of columns."""
HOSTILE = ("difference", "reason", "seed")


def odd_planned(line: Line) -> bool:
    axes = line["axes"]
    zipped = (axes["width"] == 8) == (axes["mean"] == 32)
    return zipped and (axes["seed"] < 3 or (axes["operator"], axes["width"]) == ("softmax", 8))


def odd_state(line: Line) -> str:
    axes = line["axes"]
    where = (axes["operator"], axes["width"], axes["seed"])
    if where == ("SSA", 16, 2):
        return "stopped"
    return "diverged" if (*where, line["seed"]) == ("SSA", 8, 2, 0) else "ok"


def odd_value(line: Line) -> float:
    axes = line["axes"]
    if (axes["operator"], axes["width"], axes["seed"]) == ("softmax", 16, 2):
        return math.nan
    noise = 1 + 0.01 * ((5 * axes["width"] + 7 * axes["seed"] + 3 * line["seed"]) % 11)
    return float((3.0 if axes["seed"] == 2 else 1.0) * (1 + 0.5 * line["seed"]) * noise)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Look:
    def more(line: Line) -> dict[str, float]:
        return dict.fromkeys(HOSTILE, 1.0 + line["seed"]) | {
            "signed": line["axes"]["width"] - 12.0 + 0.1 * line["seed"]
        }

    planted = Planted(odd_value, odd_state, more=more, planned=odd_planned)
    root = tmp_path_factory.mktemp("odd") / "runs"
    return looking(plant(root, ("softmax", "SSA"), range(3), planted, factors=ODD, measure={"alpha": 0.1}))


def of(operator: str, width: int, level: int) -> list[float]:
    """The values of one cell that there are."""
    found = []
    for seed in range(3):
        axes = {"operator": operator, "width": width, "mean": 4 * width, "seed": level}
        line = {"axes": axes, "seed": seed}
        if odd_state(line) == "ok" and math.isfinite(odd_value(line)):
            found.append(odd_value(line))
    return found


def test_settings_of_the_other_axes_count_alike_and_a_cell_that_lacks_some_says_so(odd: Look) -> None:
    found = odd("?others=averaged", "pivot").slots["pivot"]
    assert "Winner's curse" not in found.message
    row = at(found.data, "SSA", "8")  # one of its settings lost a seed: the mean of the runs would shift to the other
    assert row["value"] == pytest.approx(geometric_mean([geometric_mean(of("SSA", 8, level)) for level in (1, 2)]))
    assert row["value"] != pytest.approx(geometric_mean(of("SSA", 8, 1) + of("SSA", 8, 2)))
    assert (row["n"], row["runs"], row["planned"], row["settings"]) == (2, 5, 6, 2)
    assert row["note"].endswith("5 of 6 planned runs; without seed 3")
    others = [("softmax", "8"), ("softmax", "16"), ("SSA", "16")]
    assert [at(found.data, *cell)["settings"] for cell in others] == [3, 1, 1]
    assert found.message.startswith("3 of 4 cells with a value lack settings of seed")
    drawn = json.loads(found.figure.to_json())["data"] if found.figure else []
    texts = [text for trace in drawn if trace.get("mode") == "text" for text in trace["text"]]
    assert sorted(text.rpartition("<br>")[2] for text in texts if "settings" in text) == ["1/3 settings"] * 2 + [
        "2/3 settings"
    ]


def test_the_best_setting_is_named_and_one_of_fewer_is_marked(odd: Look) -> None:
    found = odd("?others=best&better=higher", "pivot").slots["pivot"]
    row = at(found.data, "SSA", "8")
    assert (row["best"], row["settings"]) == ("1", 1)  # the other lost a seed
    assert row["note"].endswith("best: seed 1; without seed 3; seed 2 has 2 of 3 values, so not chosen")
    assert row["value"] == pytest.approx(geometric_mean(of("SSA", 8, 1)))
    best = max((1, 2, 3), key=lambda level: geometric_mean(of("softmax", 8, level)))
    assert (at(found.data, "softmax", "8")["best"], best) == ("2", 2)
    assert "Winner's curse" in found.message
    flattery = expected_optimism(3, 3)
    assert f"the best of 3 equal cells looks {flattery:.2g} standard deviations" in found.message


def test_zipped_axes_are_one_and_a_map_is_of_two_that_vary_apart(odd: Look, tmp_path: Path) -> None:
    found = odd("?x=width", "pivot")
    assert (found.controls["x"].usual, found.controls["y"].usual) == ("width", "operator")
    assert {name for name in found.controls if name.startswith("fix:")} == {"fix:seed"}
    diagonal = odd("?x=width&y=mean", "pivot").frame("pivot")
    assert diagonal.filter(pl.col("value").is_null())["reason"].to_list() == ["not planned"] * 2
    planted = Planted(lambda _: 1.0, planned=lambda line: (line["operator"] == "SSA") == (line["axes"]["a"] == 2))
    root = plant(tmp_path / "tied", ["softmax", "SSA"], [0], planted, factors={"a": [1, 2], "b": [1]})
    assert "Fewer than two axes vary apart" in seen(root, FACTORS, "", ["pivot"]).slots["pivot"].message


def test_names_of_axes_and_measures_may_be_those_of_columns(odd: Look) -> None:
    whole = odd("")
    assert whole.slots["matrix"].figure is not None
    for name in HOSTILE:
        rows = odd(f"?at=0,0&measure={name}", "chosen").frame("chosen")
        assert sorted(rows[rows.columns[-1]].to_list()) == [1.0] * 3 + [2.0] * 3 + [3.0] * 3
        assert rows.columns[-1] == ("value" if name in ("reason", "seed") else name)
