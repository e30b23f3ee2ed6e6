"""The guarded variance: its laws, an oracle by other means, and its false claims and power in simulated tables."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import optimize, special, stats

from ablate.store.statistics import Paired, compare, decide, summarise
from ablate.store.statistics.shared_variance import guard_variance

Floats = NDArray[np.float64]


def pairs(n: Any, sd: Any) -> Paired:
    n, sd = np.asarray(n, dtype=np.float64), np.asarray(sd, dtype=np.float64)
    return Paired(n, np.zeros(sd.shape), sd)


def by_hand(n: Floats, sd: Floats) -> list[tuple[float, float]]:
    """Standard error and degrees of freedom of each comparison, one at a time."""
    d, variance = n - 1, sd**2
    logs = [np.log(v) - special.digamma(k / 2) + np.log(k / 2) for v, k in zip(variance, d, strict=True)]
    excess = np.var(logs, ddof=1) - np.mean(special.polygamma(1, d / 2))
    prior, size = np.inf, np.exp(np.mean(logs))
    if excess > 0:
        prior = 2 * optimize.brentq(lambda y: special.polygamma(1, y) - excess, 1e-6, 1e9, xtol=1e-14)
        size *= np.exp(special.digamma(prior / 2) - np.log(prior / 2))
    found = []
    for v, k in zip(variance, d, strict=True):
        moderated = size if np.isinf(prior) else (prior * size + k * v) / (prior + k)
        freedom = k if v >= moderated else min(prior + k, k * np.sqrt(len(n)))
        found.append((np.sqrt(max(v, moderated) / (k + 1)), freedom))
    return found


def test_it_is_what_a_slower_computation_finds() -> None:
    rng = np.random.default_rng(0)
    tables = [(np.full(6, 5.0), np.exp(rng.normal(size=6))) for _ in range(20)]
    tables += [(np.full(6, 3.0), rng.uniform(0.9, 1.1, 6)), (np.array([3.0, 5, 4, 5, 3]), np.exp(rng.normal(size=5)))]
    for n, sd in tables:
        found = guard_variance(pairs(n, sd))
        assert np.stack([found.error, found.freedom], -1) == pytest.approx(np.array(by_hand(n, sd)), rel=1e-6)


def test_no_comparison_is_surer_than_its_own_spread_allows() -> None:
    rng = np.random.default_rng(1)
    own = pairs(np.full((500, 8), 4.0), np.exp(rng.normal(size=(500, 8))))
    found = guard_variance(own)
    assert (found.error >= own.error * (1 - 1e-12)).all()
    assert (found.freedom >= 3 - 1e-12).all()
    assert (found.freedom <= 3 * np.sqrt(8) + 1e-12).all()
    assert np.unique(found.freedom[np.isclose(found.error, own.error)]) == pytest.approx([3.0])


def test_a_comparison_without_spread_shares_nothing() -> None:
    alone = guard_variance(pairs([5.0, 5.0, 1.0], [0.7, 0.0, np.nan]))
    assert alone.n.tolist() == [5.0, 5.0, 1.0]
    assert alone.sd == pytest.approx([0.7, 0.0, np.nan], nan_ok=True)
    two = guard_variance(pairs([5.0, 5.0, 5.0], [0.7, 0.0, 0.3]))
    known = guard_variance(pairs([5.0, 5.0], [0.7, 0.3]))
    assert two.error[[0, 2]] == pytest.approx(known.error)


def differences(noise: str, rng: np.random.Generator, tables: int, m: int, n: int) -> Floats:
    runs = rng.standard_t(3, (tables, m + 1, n)) if noise == "t3" else rng.normal(size=(tables, m + 1, n))
    wide = {"half": slice(1, 1 + m // 2), "one": slice(1, 2), "baseline": slice(0, 1)}
    runs[:, wide.get(noise, slice(0))] *= 6
    return np.asarray(runs[:, 1:] - runs[:, :1])


@pytest.mark.parametrize("noise", ["normal", "t3", "half", "one", "baseline"])
@pytest.mark.parametrize(("m", "n"), [(5, 3), (20, 3), (5, 5)])
def test_tables_without_a_difference_rarely_claim_one(noise: str, m: int, n: int) -> None:
    tables = 2000
    own = summarise(differences(noise, np.random.default_rng([m, n]), tables, m, n))
    words = decide(guard_variance(own), rope=0.0, alpha=0.05, better="lower").words
    false = np.isin(words, ["better", "worse", "real, size unproven"]).any(-1).sum()
    assert false <= stats.binom.ppf(0.9999, tables, 0.065)


def test_it_finds_more_than_each_alone_from_three_seeds() -> None:
    own = summarise(differences("normal", np.random.default_rng(2), 1000, 20, 3) + 3 * np.sqrt(2))
    found = [
        (decide(each, rope=0.0, alpha=0.05, better="lower").words == "worse").mean()
        for each in (own, guard_variance(own))
    ]
    assert found[0] < 0.12
    assert found[1] > 0.45


def test_verdicts_rest_on_it_only_if_asked() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(7, 3)) + np.arange(7)[:, None]
    rows = [(f"c{c}", f"c{c}", "o", s, float(v), "done") for (c, s), v in np.ndenumerate(values)]
    rows += [("c6", "c6", "o", 3, 1.0, "done"), ("c7", "c7", "o", 9, 1.0, "done")]  # no pair
    frame = pl.DataFrame(rows, schema=["cell", "label", "operator", "seed", "value", "state"], orient="row")
    rule: dict[str, Any] = {"baseline": "c0", "scale": "linear", "better": "lower", "rope": 0.0}
    own, shared = compare(frame, **rule), compare(frame, **rule, variance="shared")
    known = summarise(values[1:] - values[0])
    assert own["error"][:6].to_numpy() == pytest.approx(known.error)
    assert own["freedom"][:6].to_list() == [2.0] * 6
    guarded = guard_variance(known)
    assert shared["error"][:6].to_numpy() == pytest.approx(guarded.error)
    assert shared["freedom"][:6].to_numpy() == pytest.approx(guarded.freedom)
    half = stats.t.isf(0.025, guarded.freedom) * guarded.error
    assert shared["high"][:6].to_numpy() == pytest.approx(known.mean + half)
    assert shared["p"][:6].to_numpy() == pytest.approx(2 * stats.t.sf(abs(known.mean / guarded.error), guarded.freedom))
    for name in ("pairs", "difference", "hedges_g", "sign_flip_p", "pairing"):
        assert own[name].equals(shared[name])
    assert own[6].equals(shared[6])
