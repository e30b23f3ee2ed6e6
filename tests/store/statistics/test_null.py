"""The promises of the verdicts, measured on simulated grids whose truth is known.

Runs are drawn as they come: a seed effect shared by all cells, noise of each run, one baseline shared by all
comparisons. A rate is accepted up to the 99.9 % quantile of the binomial distribution of its own simulation.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ablate.store.statistics import compare, decide, p_zero, summarise, t_interval
from ablate.store.statistics.power import power
from ablate.store.statistics.verdict import Decision

REPS = 4000
ALPHA = 0.05
SEEDS = [3, 8]
VARIANTS = [1, 20]
CLAIMS = ["better", "worse", "real, size unproven"]


def grids(n: int, truth: np.ndarray) -> np.ndarray:
    """Differences from the baseline, [REPS, variants, n]; noise of a difference has the standard deviation 1."""
    rng = np.random.default_rng([n, len(truth)])
    seed = rng.normal(0, 3, (REPS, 1, n))
    runs = seed + rng.normal(0, np.sqrt(0.5), (REPS, len(truth) + 1, n))
    runs[:, 1:] += truth[:, None]
    return runs[:, 1:] - runs[:, :1]


def correlated(n: int, rho: float, reps: int = 4000) -> np.ndarray:
    """Differences [reps, n] of two runs of standard deviation 1 whose seeds correlate by `rho`, about zero."""
    rng = np.random.default_rng([n, int(100 * rho)])
    return np.sqrt(2 * (1 - rho)) * rng.normal(size=(reps, n))


def judged(differences: np.ndarray, rope: float) -> Decision:
    return decide(summarise(differences), rope=rope, alpha=ALPHA, better="lower")


def within_the_promise(wrong: np.ndarray) -> bool:
    """Whether the rate of grids with any wrong word, `wrong` [REPS, variants], may be alpha or less."""
    return wrong.any(-1).sum() <= stats.binom.ppf(0.999, len(wrong), ALPHA)


@pytest.mark.parametrize("n", SEEDS)
@pytest.mark.parametrize("variants", VARIANTS)
@pytest.mark.parametrize("rope", [0.0, 1.0])
def test_a_grid_without_effects_gets_any_false_verdict_at_most_five_times_in_a_hundred(
    n: int, variants: int, rope: float
) -> None:
    words = judged(grids(n, np.zeros(variants)), rope).words
    assert within_the_promise(np.isin(words, CLAIMS))


# Power of the paired t test for a difference in standard deviations of a run, by simulation: seeds -> share found.
POWER_TABLE = {
    (0.5, 0.8): {3: 0.12, 5: 0.27, 8: 0.50, 10: 0.59, 20: 0.91},
    (1.0, 0.0): {3: 0.11, 5: 0.24, 8: 0.41, 10: 0.53, 20: 0.84},
    (1.0, 0.5): {3: 0.19, 5: 0.39, 8: 0.67, 10: 0.81, 20: 0.99},
    (1.0, 0.8): {3: 0.34, 5: 0.74, 8: 0.97, 10: 1.00, 20: 1.00},
    (2.0, 0.5): {3: 0.46, 5: 0.90, 8: 1.00, 10: 1.00, 20: 1.00},
}


@pytest.mark.parametrize(("difference", "rho"), POWER_TABLE)
def test_the_power_table_is_reproduced_by_the_verdicts_and_by_the_formula(difference: float, rho: float) -> None:
    for n, expected in POWER_TABLE[difference, rho].items():
        words = judged((correlated(n, rho) - difference)[:, None], 0.0).words
        found = float((words == "better").mean())
        sd = np.array([np.sqrt(2 * (1 - rho))])
        formula = float(power(np.array([difference]), sd, np.array([float(n)]), alpha=ALPHA)[0])
        assert found == pytest.approx(formula, abs=0.005 + 4 * np.sqrt(formula * (1 - formula) / 4000))
        assert formula == pytest.approx(expected, abs=0.035)  # the table was simulated with few repetitions


@pytest.mark.parametrize("n", SEEDS)
def test_large_effects_elsewhere_do_not_raise_the_rate_for_the_cells_without_one(n: int) -> None:
    truth = np.array([40.0] * 5 + [0.0] * 5)
    words = judged(grids(n, truth), 0.2).words
    assert within_the_promise(np.isin(words[:, 5:], CLAIMS))
    if n == 8:
        assert (words[:, :5] == "worse").all(-1).mean() > 0.9


@pytest.mark.parametrize(("n", "variants"), list(product(SEEDS, VARIANTS)))
def test_an_effect_at_the_edge_of_the_rope_is_rarely_called_equivalent_or_beyond(n: int, variants: int) -> None:
    rope = 3.0
    words = judged(grids(n, np.full(variants, rope)), rope).words
    assert within_the_promise(words == "equivalent")
    assert within_the_promise(np.isin(words, ["better", "worse"]))
    if variants == 1:
        assert within_the_promise(np.isin(words, ["equivalent", "better", "worse"]))


NOISES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "heavy tails": lambda rng, shape: rng.standard_t(3, shape),
    "skewed over decades": lambda rng, shape: np.exp(2 * rng.normal(size=shape)),
    "flat": lambda rng, shape: rng.random(shape),
    "a run in ten is lost": lambda rng, shape: 5 * (rng.random(shape) < 0.1) + rng.normal(0, 0.2, shape),
    "half of the runs are lost": lambda rng, shape: 5 * (rng.random(shape) < 0.5) + rng.normal(0, 0.2, shape),
}


def exchangeable(noise: str, n: int, variants: int) -> np.ndarray:
    runs = NOISES[noise](np.random.default_rng([n, variants]), (REPS, variants + 1, n))
    return runs[:, 1:] - runs[:, :1]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("n", [5])
@pytest.mark.parametrize("variants", VARIANTS)
def test_from_five_seeds_noise_that_is_not_normal_keeps_the_promise(noise: str, n: int, variants: int) -> None:
    assert within_the_promise(np.isin(judged(exchangeable(noise, n, variants), 0.0).words, CLAIMS))


def test_skewed_noise_of_unequal_spread_breaks_the_promise_as_the_page_says() -> None:
    """docs/statistics.md, 5 comparisons of 5 seeds: equal means, lognormal noise, the variants' spread four times."""
    runs = np.exp(np.random.default_rng(9).normal(size=(REPS, 6, 5))) - np.exp(0.5)
    wrong = np.isin(judged(4 * runs[:, 1:] - runs[:, :1], 0.0).words, CLAIMS).any(-1)
    assert wrong.mean() == pytest.approx(0.25, abs=0.025)
    alike = np.isin(judged(runs[:, 1:] - runs[:, :1], 0.0).words, CLAIMS)
    assert within_the_promise(alike)


def bootstrap_claims(differences: np.ndarray) -> np.ndarray:
    """Percentile bootstrap, exact: all n**n resamples."""
    n = differences.shape[-1]
    picks = np.array(list(product(range(n), repeat=n)))
    low, high = np.quantile(differences[..., picks].mean(-1), [0.025, 0.975], axis=-1)
    return (low > 0) | (high < 0)


def uncorrected_claims(differences: np.ndarray) -> np.ndarray:
    return p_zero(summarise(differences)) <= ALPHA


@pytest.mark.parametrize(
    ("procedure", "n", "variants"),
    [(bootstrap_claims, 3, 1), (uncorrected_claims, 5, 5), (uncorrected_claims, 5, 20)],
    ids=["percentile bootstrap of 3 seeds", "no Holm over 5", "no Holm over 20"],
)
def test_the_check_rejects_procedures_known_to_be_wrong(
    procedure: Callable[[np.ndarray], np.ndarray], n: int, variants: int
) -> None:
    assert not within_the_promise(procedure(grids(n, np.zeros(variants))))


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_compare_says_what_the_simulated_judgement_says(scale: str) -> None:
    truth = np.array([0.0, -2.0, 0.3, 0.0, 5.0])
    differences = grids(5, truth)[:40]
    expected = judged(differences, 0.5)
    rope = np.expm1(0.5) if scale == "log" else 0.5
    for rep in range(40):
        arms = np.vstack([np.zeros(5), differences[rep]])
        values = pl.DataFrame(
            [
                {"cell": str(c), "label": str(c), "operator": "x", "seed": s, "value": float(v), "state": "done"}
                for c, row in enumerate(np.exp(arms) if scale == "log" else arms)
                for s, v in enumerate(row)
            ]
        )
        found = compare(values, baseline="0", scale=scale, better="lower", rope=rope)
        assert found["verdict"].to_list() == expected.words[rep].tolist()
        assert found["p_holm"].to_numpy() == pytest.approx(expected.p_holm[rep], rel=1e-6)


@pytest.mark.parametrize("n", SEEDS)
def test_the_interval_covers_the_truth_as_often_as_it_says(n: int) -> None:
    low, high = t_interval(summarise(grids(n, np.array([0.7]))), ALPHA)
    missed = int(((low > 0.7) | (high < 0.7)).sum())
    least, most = stats.binom.ppf([0.0005, 0.9995], REPS, ALPHA)
    assert least <= missed <= most
