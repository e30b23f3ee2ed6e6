"""The winner's curse: how large it is, and that choosing on other seeds lifts it."""

import math

import numpy as np
import polars as pl
import pytest

from ablate.store.statistics.selection import expected_optimism, select_then_report


@pytest.mark.parametrize(
    ("variants", "seeds", "optimism"),
    [(8, 1, 1.42), (8, 3, 0.82), (8, 5, 0.64), (32, 1, 2.07), (32, 3, 1.20), (32, 5, 0.93), (1, 1, 0.0)],
)
def test_the_best_of_equal_variants_looks_so_much_better(variants: int, seeds: int, optimism: float) -> None:
    assert expected_optimism(variants, seeds) == pytest.approx(optimism, abs=0.006)


def runs(values: np.ndarray, operator: str = "a") -> pl.DataFrame:
    """`values` [rates, seeds] of one operator at several learning rates."""
    return pl.DataFrame(
        [
            {
                "cell": f"{operator}{rate}", "label": f"{operator} at {rate}", "operator": operator, "seed": seed,
                "value": float(value), "state": "done", "rate": rate, "op": operator,
            }
            for rate, row in enumerate(values)
            for seed, value in enumerate(row)
        ]
    )  # fmt: skip


def select(values: pl.DataFrame, **how: object):
    return select_then_report(
        values, **{"over": ["rate"], "within": ["op"], "scale": "linear", "better": "lower", **how}
    )


def test_apart_the_chosen_value_is_unbiased_and_on_the_same_seeds_it_is_flattered_by_the_optimism() -> None:
    rng, searches = np.random.default_rng(1), 300
    apart, same = [], []
    for _ in range(searches):
        values = runs(rng.normal(size=(8, 4)))
        apart.append(select(values).values["value"].mean())
        same.append(select(values, split="same").values["value"].mean())
    assert np.mean(apart) == pytest.approx(0, abs=4 / math.sqrt(2 * searches))
    assert np.mean(same) == pytest.approx(-expected_optimism(8, 4), abs=4 * 0.5 / math.sqrt(searches))


def test_every_setting_has_its_own_choice_and_the_split_is_recorded() -> None:
    both = pl.concat([runs(np.array([[3.0] * 5, [1.0] * 5])), runs(np.array([[2.0] * 5, [9.0] * 5]), "b")])
    found = select(both)
    assert {cell: choice.levels["rate"] for cell, choice in found.choices.items()} == {"a1": 1, "b0": 0}
    assert (found.selected_on, found.reported_on, found.warning) == ((0, 2, 4), (1, 3), "")
    assert sorted(found.values.select("cell", "seed").rows()) == [("a1", 1), ("a1", 3), ("b0", 1), ("b0", 3)]
    assert set(select(both, better="higher").choices) == {"a0", "b1"}
    same = select(both, split="same")
    assert same.selected_on == same.reported_on == (0, 1, 2, 3, 4)
    assert "the best of 2 equal cells looks 0.25 standard deviations of a run better" in same.warning


def test_seeds_that_failed_do_not_lessen_the_warning() -> None:
    rng = np.random.default_rng(2)
    values = runs(rng.normal(size=(4, 6)))
    found = select(
        values.with_columns(state=pl.when(pl.col("seed") > 1).then(pl.lit("failed")).otherwise("state")), split="same"
    )
    assert f"the best of 4 equal cells looks {expected_optimism(4, 2):.2g} standard deviations" in found.warning
    assert found.warning.endswith("with 2 values each")
    assert {choice.values for choice in found.choices.values()} == {2}


def test_values_on_the_reported_seeds_have_no_part_in_the_choice() -> None:
    values = np.array([[1.0, 9.0, 1.0, 9.0], [2.0, 0.0, 2.0, 0.0]])
    assert list(select(runs(values)).choices) == ["a0"]


def test_a_cell_whose_runs_are_lost_is_not_chosen_for_those_that_are_left() -> None:
    values = runs(np.array([[1.0, 1.0, math.nan, 1.0], [2.0, 2.0, 2.0, 2.0]]))
    assert list(select(values).choices) == ["a1"]
    lost = values.with_columns(state=pl.when(pl.col("seed") < 4).then(pl.lit("failed")))
    assert list(select(lost).choices) == ["a0"]
    assert select(lost).choices["a0"].among == 0
