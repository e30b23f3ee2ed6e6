import math

import numpy as np
import pytest
from scipy import special, stats

from ablate.store.statistics import compare
from ablate.store.statistics.scales import Scale, back, fits, forward, percent

BASE = [0.6, 0.7, 0.65, 0.62]
NOISE = [0.03, -0.02, 0.01, -0.01]
RULES = {"baseline": "key of softmax", "scale": "logit", "better": "higher", "rope": 0.05}


def odds_times(factor: float) -> list[float]:
    """Rates whose odds are the baseline's times `factor`, but for noise."""
    return [float(special.expit(special.logit(b) + math.log(factor) + e)) for b, e in zip(BASE, NOISE, strict=True)]


@pytest.mark.parametrize("scale", ["log", "linear", "logit"])
def test_back_undoes_forward(scale: Scale) -> None:
    values = np.array([1e-9, 0.3, 0.5, 0.999])
    assert [back(float(unit), scale) for unit in forward(values, scale)] == pytest.approx(values)


@pytest.mark.parametrize(
    ("scale", "bad"), [("log", 0.0), ("log", -1.0), ("logit", 0.0), ("logit", 1.0), ("logit", 1.2)]
)
def test_a_value_that_a_scale_cannot_take_is_said(scale: Scale, bad: float) -> None:
    assert not fits(np.array([0.5, bad]), scale)
    assert np.isnan(forward(np.array([0.5, bad]), scale)).tolist() == [False, True]
    assert fits(np.array([0.5, bad]), "linear")


@pytest.mark.parametrize(
    ("scale", "there"),
    [("linear", 0.6 + 0.2), ("log", 0.6 * math.exp(0.2)), ("logit", special.expit(special.logit(0.6) + 0.2))],
)
def test_per_cent_is_what_the_average_changes_by(scale: Scale, there: float) -> None:
    assert percent(0.2, 0.6, scale) == pytest.approx(100 * (there / 0.6 - 1))


def test_rates_are_compared_by_their_odds(frame) -> None:
    cell = odds_times(1.5)
    row = compare(frame({"softmax": BASE, "SSA": cell}), **RULES).row(0, named=True)
    oracle = stats.ttest_rel(special.logit(cell), special.logit(BASE))
    assert row["p"] == pytest.approx(oracle.pvalue)
    assert (row["low"], row["high"]) == pytest.approx(tuple(oracle.confidence_interval(0.95)))
    assert row["value"] == pytest.approx(special.expit(special.logit(cell).mean()))
    assert row["percent"] == pytest.approx(100 * (row["value"] / row["baseline_value"] - 1))
    assert row["verdict"] == "better"


def test_error_and_accuracy_get_one_verdict(frame) -> None:
    """The logit scale knows no side: what is right and what is wrong are one question."""
    right = compare(frame({"softmax": BASE, "SSA": odds_times(1.2)}), **RULES).row(0, named=True)
    wrong_values = {"softmax": [1 - b for b in BASE], "SSA": [1 - c for c in odds_times(1.2)]}
    wrong = compare(frame(wrong_values), **{**RULES, "better": "lower"}).row(0, named=True)
    assert (wrong["difference"], wrong["p"]) == pytest.approx((-right["difference"], right["p"]))
    assert wrong["verdict"] == right["verdict"] == "better"
