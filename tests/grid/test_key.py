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


def test_numbers_have_one_form_and_a_key_has_128_bits() -> None:
    assert canonical_json(-0.0) == canonical_json(0.0) == "0.0"
    assert canonical_json(True) != canonical_json(1)
    assert len(content_key("{}")) == len(f"{int(content_key('{}'), 16):032x}") == 32


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"a": [math.nan]}, "finite"),
        ({"a": [-math.inf]}, "finite"),
        (test_numbers_have_one_form_and_a_key_has_128_bits, "not what makes them; got test_numbers.*, call it"),
        ({"a": object()}, "object has no canonical JSON"),
        ({1: "a"}, "named by strings; got 1"),
        ("\ud800", "half a character"),
    ],
)
def test_what_has_no_canonical_form_is_refused(data: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        content_key(canonical_json(data))
