"""Weights of an operator on one fixed row of logits, as pictures show them: as by hand."""

import math
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ablate.variants import Operator
from ablate.variants.papers.catalogue import catalogue

GENERATE = Path(__file__).parent.parent / "docs" / "generate"
LOGITS, SETTINGS, profiles = map(
    runpy.run_path(str(GENERATE / "weight_profile.py")).get, ("LOGITS", "SETTINGS", "profiles")
)


def ratios(score: Callable[[float], float]) -> list[float]:
    total = sum(map(score, LOGITS))
    return [score(z) / total for z in LOGITS]


def power(z: float, n: float, b: float) -> float:
    return math.pow(1 + b * abs(z), n if z >= 0 else -n)


def cog(z: float) -> float:
    return math.copysign(math.exp(abs(z)), z) / sum(math.exp(abs(other)) for other in LOGITS)


def ground(threshold: float) -> tuple[list[float], float]:
    """Weights of keys and of the ground state."""
    total = sum(max(math.exp(threshold), math.exp(z)) for z in LOGITS)
    short = sum(max(0.0, math.exp(threshold) - math.exp(z)) for z in LOGITS)
    return [math.exp(z) / total for z in LOGITS], short / total


def amplified(z: float) -> float:
    return math.exp((1 + math.log1p(math.exp(0.5)) * math.log(len(LOGITS))) * z)


BY_HAND: dict[str, tuple[dict[str, float], Callable[[], Sequence[float]]]] = {
    "softmax": ({}, lambda: ratios(math.exp)),
    "ssa": ({"score.n": 3.0, "score.b": 0.25}, lambda: ratios(lambda z: power(z, 3.0, 0.25))),
    "temperature": ({"transform.tau": 5.0}, lambda: ratios(lambda z: math.exp(z / 5))),
    "cog": ({}, lambda: list(map(cog, LOGITS))),
    "principled_ground": ({"normaliser.threshold": 1.5}, lambda: ground(1.5)[0]),
    "principled_margin": ({"margin.amplification": 0.5}, lambda: ratios(amplified)),
}
ROUNDED = 5.1e-4
"""Weights have three decimals."""


def profile(name: str, numbers: dict[str, float]) -> Any:
    (row,) = profiles(catalogue()[name].make(), numbers)
    return row


@pytest.mark.parametrize("name", BY_HAND)
def test_weights_are_those_computed_by_hand(name: str) -> None:
    numbers, expected = BY_HAND[name]
    row = profile(name, numbers)
    assert row.keys == pytest.approx(list(expected()), abs=ROUNDED)
    assert row.total == pytest.approx(sum(expected()), abs=ROUNDED)


def test_the_ground_state_a_sink_and_a_learned_key_have_weights_of_their_own() -> None:
    total = sum(map(math.exp, LOGITS))
    assert profile("principled_ground", {"normaliser.threshold": 1.5}).ground == pytest.approx(
        ground(1.5)[1], abs=ROUNDED
    )
    sink = profile("learned_sink", {"normaliser.logit": 2.0}).ground
    assert sink == pytest.approx(math.exp(2) / (math.exp(2) + total), abs=ROUNDED)
    key = profile("key_bias", {"extra.learned_key": 1.0}).extra
    assert key == pytest.approx(math.exp(1) / (math.exp(1) + total), abs=ROUNDED)


def test_heads_with_different_scores_have_a_profile_each() -> None:
    rows = profiles(catalogue()["soft_avg"].make(), {})
    assert [row.heads for row in rows] == ["head 1 of 2", "head 2 of 2"]
    assert rows[0].keys == profiles(Operator(), {})[0].keys
    assert set(rows[1].keys) == {round(1 / len(LOGITS), 3)}


@pytest.mark.parametrize("name", ["differential", "mlp_kernel", "key_bias"])
def test_profiles_do_not_depend_on_the_random_state(name: str) -> None:
    rows = []
    for seed in (0, 7):
        torch.manual_seed(seed)
        rows.append(profiles(catalogue()[name].make(), {}))
    assert rows[0] == rows[1]


def test_a_prefix_shows_more_keys_to_a_query() -> None:
    setting = SETTINGS["prefix_lm"]
    (row,) = profiles(catalogue()["prefix_lm"].make(**setting.arguments), {}, setting.query)
    total = sum(map(math.exp, LOGITS[:8]))
    assert row.keys == pytest.approx([math.exp(z) / total for z in LOGITS[:8]] + [0.0] * 5, abs=ROUNDED)
    for name, each in SETTINGS.items():
        assert set(each.numbers) <= set(catalogue()[name].make().numbers())
