"""Numbers and names as a reader wants them."""

import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from synthetic import write_campaign

from ablate.dashboards.data.captions import rank_axes
from ablate.dashboards.data.formatting import change, count, duration, entry, join_words, number, p_value
from ablate.dashboards.figures import forest
from ablate.store.analysis.judge import judge
from ablate.store.analysis.verdicts import measure_of
from ablate.store.statistics.check import CHECK_NAMES
from ablate.store.store import Store


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0123456, "0.0123"),
        (-0.5, "−0.5"),
        (0.0, "0"),
        (-0.0, "0"),
        (12345.6, "12,346"),
        (999.7, "1,000"),
        (1.234e-5, "1.23 × 10⁻⁵"),
        (-2.5e9, "−2.50 × 10⁹"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_a_number_has_three_digits_and_a_real_minus_sign(value: float | None, words: str) -> None:
    assert number(value) == words


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (math.log(0.75), "−25 %"),
        (math.log(1.052), "+5.2 %"),
        (math.log(4), "+300 %"),
        (math.log(1 / 4), "−75 %"),
        (math.log(14), "× 14"),
        (math.log(1 / 14), "÷ 14"),
        (0.0, "0.0 %"),
        (-1e-5, "0.0 %"),
        (1e-5, "0.0 %"),
        (-0.0006, "−0.1 %"),
        (2000.0, "× 1.0 × 10³⁰⁴"),
        (None, "–"),
    ],
)
def test_a_log_ratio_is_a_percentage_until_it_is_a_factor_of_ten(difference: float | None, words: str) -> None:
    assert change(difference, "log") == words


def test_counts_and_lists_read_as_english() -> None:
    assert [count(n, "seed") for n in (0, 1, 1200)] == ["0 seeds", "1 seed", "1,200 seeds"]
    assert [join_words(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert [duration(s) for s in (0.5, 9.9, 61, 3725)] == ["0.5 s", "10 s", "1 min 01 s", "1 h 02 min"]
    assert [p_value(p) for p in (0.0004, 0.0312, 0.999, None)] == ["< 0.001", "0.031", "1", "–"]


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "–"), ([], "–"), (["a", "b"], "a; b"), ([0.5, None], "0.5; –"), (True, "yes"), (False, "no"), (3, "3"),
     (list("abcdefgh"), "a; b; c; d; e; f and 2 more"), (list("abcdef"), "a; b; c; d; e; f")],
)  # fmt: skip
def test_an_entry_of_a_table_is_words_and_no_python(value: object, words: str) -> None:
    assert entry(value) == words


def test_a_level_without_a_value_is_named_before_what_axes_do(tmp_path: Path) -> None:
    dead = {(f"{operator} · 1e6", seed): "diverged" for operator in ("softmax", "SSA") for seed in range(3)}
    factors = {"lr": ["0.1", "1e6"]}
    fixed: dict[str, Any] = {"steps": 2, "sigma_f": (5,), "sigma_x": (1,), "seeds": range(3)}
    write_campaign(tmp_path, operators=("softmax", "SSA"), factors=factors, failed=dead, **fixed)
    with Store.open(tmp_path) as store:
        measure = measure_of(store, "quickstart", None)
        levels = forest.effects(store, "quickstart", measure)
        assert levels is not None
        said, _ = rank_axes(levels.effects, measure)
    assert said.partition(".")[0].endswith("lr 1e6")


def test_an_axis_is_named_with_the_checks_of_its_cells_that_do_not_say_yes(tmp_path: Path) -> None:
    fixed: dict[str, Any] = {"steps": 2, "sigma_f": (5,), "sigma_x": (1,), "seeds": range(5)}
    write_campaign(tmp_path, operators=("softmax", "SSA"), factors={"lr": ["0.1", "0.2"]}, **fixed)
    with Store.open(tmp_path) as store:
        measure = measure_of(store, "quickstart", None)
        levels, judged = forest.effects(store, "quickstart", measure), judge(store, "quickstart")
    assert levels is not None
    effects = levels.effects.filter(factor="operator", order=1)
    assert effects["verdict"].to_list() == ["better"]
    of_level = judged.rows.filter(pl.col("label").str.starts_with("SSA"))
    counts = {name: of_level[name].to_list().count("unknown") for name in CHECK_NAMES}
    (said,) = [each for each in rank_axes(effects, measure)[1].split(". ") if "perator" in each]
    assert max(counts.values()) == of_level.height == 2
    unknown = said.partition("unknown ")[2]
    assert [f"{name} ({n})" in unknown for name, n in counts.items()] == [n > 0 for n in counts.values()]
