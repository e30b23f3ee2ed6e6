"""The winner's curse: how large it is, and that choosing on other seeds lifts it."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ablate.store.statistics import compare
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


def test_the_value_that_other_seeds_choose_is_unbiased_and_that_of_all_is_flattered_by_the_optimism() -> None:
    rng, searches = np.random.default_rng(1), 300
    others, same = [], []
    for _ in range(searches):
        values = runs(rng.normal(size=(8, 4)))
        others.append(select(values).values["value"].mean())
        same.append(select(values, by="all").values["value"].mean())
    assert np.mean(others) == pytest.approx(0, abs=4 / math.sqrt(searches))
    assert np.mean(same) == pytest.approx(-expected_optimism(8, 4), abs=4 * 0.5 / math.sqrt(searches))


def test_every_setting_has_its_own_choice() -> None:
    both = pl.concat([runs(np.array([[3.0] * 5, [1.0] * 5])), runs(np.array([[2.0] * 5, [9.0] * 5]), "b")])
    found = select(both)
    assert {cell: (choice.levels["rate"], choice.otherwise) for cell, choice in found.choices.items()} == {
        "a1": (1, 0),
        "b0": (0, 0),
    }
    assert sorted(found.values.select("cell", "seed").rows()) == [
        (cell, seed) for cell in ("a1", "b0") for seed in range(5)
    ]
    assert set(select(both, better="higher").choices) == {"a0", "b1"}
    assert "the best of 2 equal cells looks 0.25 standard deviations of a run better" in select(both, by="all").warning


def test_of_equal_levels_the_middle_one_is_chosen() -> None:
    found = select(runs(np.array([[1.0] * 4, [0.0] * 4, [0.0] * 4, [0.0] * 4, [2.0] * 4])))
    assert [choice.levels["rate"] for choice in found.choices.values()] == [2]
    assert found.choices["a2"].otherwise == 0


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_each_seed_reports_the_best_level_of_the_other_seeds(better: str) -> None:
    """Against a loop over seeds, with levels that lost runs."""
    rng = np.random.default_rng(4)
    for _ in range(40):
        values = rng.normal(size=(4, 5))
        values[rng.random((4, 5)) < 0.1] = math.nan
        found, best = select(runs(values), better=better), (np.nanargmin if better == "lower" else np.nanargmax)
        for seed in range(5):
            rest = np.delete(values, seed, axis=1)
            known = np.isfinite(rest).sum(1)
            means = np.where(known == known.max(), np.where(np.isfinite(rest), rest, 0).sum(1) / known.max(), math.nan)
            (row,) = found.values.filter(seed=seed).rows(named=True)
            assert row["value"] == pytest.approx(values[best(means), seed], nan_ok=True)
            assert row["chosen"] == pytest.approx(values[found.choices[row["cell"]].levels["rate"], seed], nan_ok=True)


def tuned(ours: np.ndarray, theirs: np.ndarray) -> dict[str, object]:
    """The row of `compare` of a against b, each [rates, seeds] at its best rate."""
    found = select(pl.concat([runs(ours), runs(theirs, "b")]))
    (base,) = (cell for cell in found.choices if cell.startswith("b"))
    return compare(found.values, baseline=base, scale="linear", better="lower", rope=0.0).row(0, named=True)


def test_the_error_has_what_choosing_adds() -> None:
    rng = np.random.default_rng(5)
    ours, theirs = rng.normal(size=(3, 6)), rng.normal(size=(2, 6))
    left_out, chosen = np.empty(6), ours[ours.mean(1).argmin()] - theirs[theirs.mean(1).argmin()]
    for seed in range(6):
        at = (arm[np.delete(arm, seed, axis=1).mean(1).argmin(), seed] for arm in (ours, theirs))
        left_out[seed] = next(at) - next(at)
    error = math.hypot(max(stats.sem(left_out), stats.sem(chosen)), left_out.mean() - chosen.mean())
    row = tuned(ours, theirs)
    assert row["difference"] == pytest.approx(left_out.mean())
    assert row["high"] - row["low"] == pytest.approx(2 * stats.t.ppf(0.975, 5) * error)


def test_equal_levels_seldom_claim_a_difference_and_one_level_is_the_plain_t_test() -> None:
    rng, tables, claims = np.random.default_rng(6), 300, 0
    for _ in range(tables):
        claims += tuned(rng.normal(size=(5, 8)), rng.normal(size=(5, 8)))["p"] <= 0.05
    assert claims <= stats.binom.isf(1e-4, tables, 0.055)
    ours, theirs = rng.normal(size=(2, 1, 6))
    assert tuned(ours, theirs)["p"] == pytest.approx(stats.ttest_rel(ours[0], theirs[0]).pvalue)


def test_a_clear_difference_at_clear_levels_is_the_plain_t_test_of_these_levels() -> None:
    rng = np.random.default_rng(7)
    ours, theirs = (rng.normal(size=(3, 5)) + np.array([[9.0], [0.0], [9.0]]) for _ in range(2))
    assert tuned(ours, theirs)["p"] == pytest.approx(stats.ttest_rel(ours[1], theirs[1]).pvalue)


def test_seeds_that_failed_do_not_lessen_the_warning() -> None:
    rng = np.random.default_rng(2)
    values = runs(rng.normal(size=(4, 6)))
    found = select(
        values.with_columns(state=pl.when(pl.col("seed") > 1).then(pl.lit("failed")).otherwise("state")), by="all"
    )
    assert f"the best of 4 equal cells looks {expected_optimism(4, 2):.2g} standard deviations" in found.warning
    assert found.warning.endswith("with 2 values each")
    assert {choice.values for choice in found.choices.values()} == {2}


def test_a_cell_whose_runs_are_lost_is_not_chosen_for_those_that_are_left() -> None:
    values = runs(np.array([[1.0, 1.0, math.nan, 1.0], [2.0, 2.0, 2.0, 2.0]]))
    assert list(select(values).choices) == ["a1"]
    lost = values.with_columns(state=pl.lit("failed"))
    assert list(select(lost).choices) == ["a0"]
    assert select(lost).choices["a0"].among == 0
