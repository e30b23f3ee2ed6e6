"""Pareto sets with noise: the planted front is found, ties are not broken by luck, false claims are as rare as said."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ablate.store.statistics.pareto import Objective, pareto

TWO = [Objective("loss", "lower", "linear"), Objective("seconds", "lower", "linear")]


def runs(cells: dict[str, tuple[float, float]], *, noise: float, seeds: int, rng: np.random.Generator) -> pl.DataFrame:
    shared = rng.normal(0, 1, (seeds, 2))
    rows = [
        {"cell": f"key of {name}", "label": name, "seed": seed, "loss": at[0], "seconds": at[1]}
        for name, centre in cells.items()
        for seed in range(seeds)
        for at in [np.array(centre) + shared[seed] + noise * rng.normal(size=2)]
    ]
    return pl.DataFrame(rows)


def standing(found: pl.DataFrame) -> dict[str, str]:
    return dict(found.select("label", "standing").iter_rows())


CELLS = {"good": (1.0, 5.0), "cheap": (5.0, 1.0), "bad": (6.0, 6.0), "middle": (3.0, 3.0)}


def test_without_much_noise_it_is_the_pareto_set_by_definition() -> None:
    rng = np.random.default_rng(0)
    cells = {f"c{i}": tuple(rng.uniform(0, 10, 2)) for i in range(12)}
    found = standing(pareto(runs(cells, noise=1e-6, seeds=4, rng=rng), TWO))
    for name, at in cells.items():
        beaten = any(all(x < y for x, y in zip(other, at, strict=True)) for other in cells.values())
        assert found[name] == ("dominated" if beaten else "on the front")


def test_a_cell_without_runs_counts_in_both_families() -> None:
    values = runs({"a": (1.0, 1.0), "b": (1.3, 1.3)}, noise=0.1, seeds=4, rng=np.random.default_rng(2))
    a, b = (values.filter(label=name).select("loss", "seconds").to_numpy() for name in "ab")
    p = stats.ttest_rel(a, b, alternative="less").pvalue
    empty = values.head(1).with_columns(cell=pl.lit("none"), label=pl.lit("none"), loss=pl.lit(None, pl.Float64))
    more = pl.concat([values, empty])
    for claim, cell, planned in (("dominated", "b", (2, 6)), ("on the front", "a", (2, 3))):
        least = max(p) if claim == "dominated" else 2 * min(p)  # the better of two objectives, Bonferroni
        told = [standing(pareto(of, TWO, alpha=least * sum(planned) / 2))[cell] for of in (values, more)]
        assert told == [claim, "inconclusive"]


def test_the_front_names_the_cells_that_nothing_is_known_of_and_against_nobody_nothing_is_shown() -> None:
    values = runs({"a": (1.0, 2.0), "b": (2.0, 1.0)}, noise=1e-3, seeds=5, rng=np.random.default_rng(4))
    empty = values.head(1).with_columns(cell=pl.lit("none"), label=pl.lit("none"), loss=pl.lit(None, pl.Float64))
    found = pareto(pl.concat([values, empty]), TWO)
    assert set(zip(found["standing"], found["note"], strict=True)) == {
        ("on the front", "not compared with none: no usable run")
    }
    for few in (values.filter(label="a"), pl.concat([values.filter(label="a"), empty]), values.head(1)):
        assert pareto(few, TWO)["standing"].to_list() == ["inconclusive"]


def test_two_seeds_show_nothing_however_far_apart() -> None:
    values = runs(CELLS, noise=1e-6, seeds=2, rng=np.random.default_rng(3))
    assert set(pareto(values, TWO)["standing"]) == {"inconclusive"}


@pytest.mark.parametrize(("seeds", "share"), [(5, 0.01)])
def test_noise_of_two_outcomes_keeps_the_promise_from_five_pairs_on(seeds: int, share: float) -> None:
    """Half of the runs learn the task, in all cells alike, and costs are clear; docs/factorial.md gives the shares."""
    rng, reps, wrong = np.random.default_rng(11), 300, 0
    rows = [{"cell": str(c), "label": str(c), "seed": seed} for c in range(5) for seed in range(seeds)]
    for _ in range(reps):
        loss = 5 * (rng.random((5, seeds)) < 0.5) + rng.normal(0, 0.2, (5, seeds))
        cost = 10 * np.arange(5)[:, None] + rng.normal(0, 0.01, (5, seeds))
        values = pl.DataFrame(rows).with_columns(loss=pl.Series(loss.ravel()), seconds=pl.Series(cost.ravel()))
        claimed = pareto(values, TWO).filter(standing="dominated")
        wrong += not claimed.is_empty()
        assert claimed["note"].str.starts_with("caution").all() == (seeds < 5) or claimed.is_empty()
    assert wrong / reps == pytest.approx(share, abs=0.05)
    assert (wrong > stats.binom.ppf(0.999, reps, 0.05)) == (seeds == 3)


def test_what_is_the_same_on_every_seed_needs_no_test() -> None:
    """Parameters have no noise: equal ones leave it to the other objective, unequal ones show at once."""
    values = runs(
        {"a": (1.0, 0.0), "b": (2.0, 0.0), "c": (9.0, 0.0)}, noise=0.01, seeds=4, rng=np.random.default_rng(4)
    )
    values = values.with_columns(parameters=pl.when(label="c").then(100).otherwise(200))
    found = pareto(values, [TWO[0], Objective("parameters", exact=True)])
    assert standing(found) == {"a": "on the front", "b": "dominated", "c": "on the front"}
    assert found["parameters"].to_list() == pytest.approx([200, 200, 100])
    twins = pareto(values.with_columns(loss=pl.lit(1.0), parameters=pl.lit(5)), [TWO[0], Objective("parameters")])
    assert set(twins["standing"]) == {"inconclusive"}, "equal in everything is no domination"


def test_a_tie_in_what_has_noise_is_no_equality() -> None:
    """Accuracies of 20 items often tie on three seeds: 99 % is no better than 97 % is worse, whatever the ties say."""
    rng, reps, wrong = np.random.default_rng(10), 300, 0
    for _ in range(reps):
        rates, seconds = rng.binomial(20, [[0.97] * 3, [0.99] * 3]) / 20, rng.normal([[1.0] * 3, [1.2] * 3], 0.01)
        values = pl.DataFrame(
            [
                {"cell": name, "label": name, "seed": seed, "rate": rates[i, seed], "seconds": seconds[i, seed]}
                for i, name in enumerate("ab")
                for seed in range(3)
            ]
        )
        found = pareto(values, [Objective("rate", "higher", "linear"), TWO[1]])
        wrong += standing(found)["b"] == "dominated"
    assert wrong <= stats.binom.ppf(0.999, reps, 0.05)


def test_a_forbidden_pair_shows_nothing_and_says_why() -> None:
    values = runs(CELLS, noise=0.01, seeds=5, rng=np.random.default_rng(1))
    keys = {name: f"key of {name}" for name in CELLS}
    barred = {(keys["bad"], keys[name]): "failures differ" for name in CELLS if name != "bad"}
    found = pareto(values, TWO, forbidden=barred | {(b, a): why for (a, b), why in barred.items()})
    assert set(found["standing"]) == {"inconclusive"}
    notes = dict(found.select("label", "note").iter_rows())
    assert notes["bad"] == "against good, cheap, middle: failures differ"
    assert notes["good"] == "against bad: failures differ"


def test_equal_cells_are_called_dominated_or_on_the_front_at_most_five_times_in_a_hundred() -> None:
    rng, reps = np.random.default_rng(7), 300
    cells = {f"c{i}": (0.0, 0.0) for i in range(4)}
    found = [pareto(runs(cells, noise=1.0, seeds=5, rng=rng), TWO)["standing"] for _ in range(reps)]
    most = stats.binom.ppf(0.999, reps, 0.05)
    for word in ("dominated", "on the front"):
        assert sum((each == word).any() for each in found) <= most


def test_a_cell_better_in_one_respect_only_is_rarely_called_dominating() -> None:
    """The hardest case for "dominated": far better in loss, equal in seconds. Half of the means would say so."""
    rng, reps = np.random.default_rng(8), 400
    cells = {"a": (0.0, 0.0), "b": (50.0, 0.0)}
    frames = [runs(cells, noise=1.0, seeds=5, rng=rng) for _ in range(reps)]
    wrong = sum(standing(pareto(each, TWO))["b"] == "dominated" for each in frames)
    assert wrong <= stats.binom.ppf(0.999, reps, 0.05)
    by_means = sum(
        each.filter(label="a")["seconds"].mean() < each.filter(label="b")["seconds"].mean() for each in frames
    )
    assert by_means > 0.4 * reps


def test_the_best_of_equal_levels_is_called_dominating_or_on_the_front_no_more_often_than_promised() -> None:
    """Each setting has 8 equal levels; a seed reports the level that the others choose, which alone is too sure."""
    rng, reps, seeds, levels = np.random.default_rng(12), 200, 5, 8
    keys = [(str(c), str(c), seed, level) for c in range(3) for seed in range(seeds) for level in range(levels)]
    every = pl.DataFrame(keys, schema=["cell", "label", "seed", "level"], orient="row")
    wrong = {"dominated": 0, "on the front": 0}
    for _ in range(reps):
        values = every.with_columns(
            loss=pl.Series(rng.normal(size=every.height)), seconds=pl.Series(rng.normal(size=every.height))
        )
        total = pl.col("loss").sum().over("cell", "level")
        left_out = values.sort(total - pl.col("loss")).unique(["cell", "seed"], keep="first", maintain_order=True)
        chosen = values.sort(total).unique(["cell", "seed"], keep="first", maintain_order=True)
        found = pareto(left_out, TWO, chosen=chosen)["standing"]
        for word in wrong:
            wrong[word] += (found == word).any()
    assert max(wrong.values()) <= stats.binom.ppf(0.999, reps, 0.05), wrong
