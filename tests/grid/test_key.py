"""The laws of canonical JSON and of the key."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from grid import SpecError, canonical_json, content_key

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_canonical_json_reads_back_as_what_was_written(data: Any) -> None:
    assert json.loads(canonical_json(data)) == data


@given(PLAIN)
def test_canonical_json_is_its_own_canonical_form(data: Any) -> None:
    text = canonical_json(data)
    assert canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text("abcxyz", min_size=1), st.integers(), min_size=2))
def test_the_order_of_entries_does_not_matter(data: dict[str, int]) -> None:
    assert canonical_json(dict(reversed(data.items()))) == canonical_json(data)


def test_minus_zero_is_zero() -> None:
    assert canonical_json(-0.0) == canonical_json(0.0) == "0.0"


def test_true_is_not_one() -> None:
    assert canonical_json(True) != canonical_json(1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(SpecError, match="finite"):
        canonical_json({"a": [value]})


def test_what_is_not_plain_data_is_refused() -> None:
    with pytest.raises(SpecError, match=r"not what makes them; got test_what_is_not_plain_data_is_refused, call it"):
        canonical_json(test_what_is_not_plain_data_is_refused)
    with pytest.raises(SpecError, match="object has no canonical JSON"):
        canonical_json({"a": object()})


def test_entries_that_are_not_named_by_strings_are_refused() -> None:
    with pytest.raises(SpecError, match="named by strings; got 1"):
        canonical_json({1: "a"})


def test_half_a_character_has_no_key() -> None:
    with pytest.raises(SpecError, match="half a character"):
        content_key(canonical_json("\ud800"))


def test_a_key_is_128_bits_in_hexadecimal() -> None:
    key = content_key("{}")
    assert len(key) == 32
    assert int(key, 16) >= 0
