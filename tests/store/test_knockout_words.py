"""Words for knock-outs: the rules, and what must hold whatever the numbers are."""

import math

import pytest
from hypothesis import given, strategies as st

from ablate.store.statistics.knockout_words import describe_removal

BAND = 0.03
CHANGES = st.lists(st.floats(-1, 1), min_size=1, max_size=6)


def word(changes: list[float], error: float | None = 0.0, **more: object) -> str:
    return describe_removal(changes, [error] * len(changes), BAND, **more).word  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([0.0019, -0.0019, 0.0], "off"),
        ([0.003, 0.0, 0.0], "faint"),
        ([0.03, 0.5, 1.0], "on"),
        ([-0.03, -0.2], "on, and it hurts"),
        ([0.0299, 0.5], "faint"),
        ([-0.0003, 0.069], "mixed"),
        ([0.04, -0.04], "mixed"),
        ([0.013, 0.157], "faint"),
        ([], "unknown"),
        ([0.5, math.nan], "unknown"),
        ([math.inf], "unknown"),
    ],
)
def test_rules(changes: list[float], expected: str) -> None:
    assert word(changes) == expected


def test_the_range_of_changes_is_told_and_no_run_says_nothing() -> None:
    found = describe_removal([0.5, 0.7], [0.0] * 2, BAND)
    assert (found.word, found.runs, found.low, found.high) == ("on", 2, 0.5, 0.7)
    assert describe_removal([], [], BAND).word == "unknown"


def test_too_few_items_leave_it_open() -> None:
    found = describe_removal([0.0005, 0.001], [0.001, 0.003], BAND, items=[100, 100])
    assert (found.word, found.items) == ("unknown", 400)
    assert describe_removal([0.0005], [None], BAND, items=[100]) == ("unknown", 1, 0.0005, 0.0005, None)
    assert describe_removal([0.8], [0.02], BAND, items=[100]).word == "on"
    assert describe_removal([0.031], [0.002], BAND, items=[100]).word == "on"
    assert describe_removal([0.031], [0.015], BAND, items=[100]).word == "unknown"  # it may be off


def test_the_items_that_would_do_do() -> None:
    found = describe_removal([0.0], [0.004], BAND, items=[57])
    assert found.items is not None
    for items, expected in ((found.items, "off"), (found.items - 1, "unknown")):
        assert word([0.0], 0.004 * math.sqrt(57 / items)) == expected


@given(CHANGES, st.floats(0, 0.01), st.floats(1e-3, 1e3))
def test_units_say_nothing(changes: list[float], error: float, unit: float) -> None:
    """A power of two scales without rounding."""
    scale = 2.0 ** round(math.log2(unit))
    scaled = describe_removal([each * scale for each in changes], [error * scale] * len(changes), BAND * scale)
    assert scaled.word == word(changes, error)


@given(CHANGES, st.floats(0, 0.01), st.randoms(use_true_random=False))
def test_the_order_of_seeds_says_nothing(changes: list[float], error: float, random: object) -> None:
    shuffled = list(changes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert word(shuffled, error) == word(changes, error)


@given(CHANGES, st.floats(0, 0.01))
def test_the_other_sign_only_tells_help_from_harm(changes: list[float], error: float) -> None:
    other = {"on": "on, and it hurts", "on, and it hurts": "on"}
    found = word(changes, error)
    assert word([-each for each in changes], error) == other.get(found, found)


@given(CHANGES, st.floats(0, 0.01), st.floats(-1, 1))
def test_one_more_run_never_turns_faint_into_a_claim(changes: list[float], error: float, more: float) -> None:
    claims = {"off", "on", "on, and it hurts"}
    before, after = word(changes, error), word([*changes, more], error)
    assert after not in claims or before == after


@given(CHANGES, st.floats(0, 0.01), st.floats(1, 10))
def test_larger_errors_claim_no_more(changes: list[float], error: float, factor: float) -> None:
    assert word(changes, error * factor) in ("unknown", word(changes, error))


@pytest.mark.parametrize("band", [0.0, -1.0, math.nan, math.inf])
def test_a_band_is_positive(band: float) -> None:
    with pytest.raises(ValueError, match="band"):
        describe_removal([0.0], [0.0], band)
