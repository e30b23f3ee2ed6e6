"""Numbers and names as a reader wants them."""

import math

import pytest

from ablate.dashboards.data.formatting import change, count, duration, entry, join_words, number, p_value, short_names


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0123456, "0.0123"),
        (-0.5, "−0.5"),
        (0.0, "0"),
        (-0.0, "0"),
        (12345.6, "12,346"),
        (999.7, "1,000"),
        (1.234e-5, "1.23 × 10⁻⁵"),
        (-2.5e9, "−2.50 × 10⁹"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_a_number_has_three_digits_and_a_real_minus_sign(value: float | None, words: str) -> None:
    assert number(value) == words


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (math.log(0.75), "−25 %"),
        (math.log(1.052), "+5.2 %"),
        (math.log(4), "+300 %"),
        (math.log(1 / 4), "−75 %"),
        (math.log(14), "× 14"),
        (math.log(1 / 14), "÷ 14"),
        (0.0, "0.0 %"),
        (-1e-5, "0.0 %"),
        (1e-5, "0.0 %"),
        (-0.0006, "−0.1 %"),
        (2000.0, "× 1.0 × 10³⁰⁴"),
        (None, "–"),
    ],
)
def test_a_log_ratio_is_a_percentage_until_it_is_a_factor_of_ten(difference: float | None, words: str) -> None:
    assert change(difference, "log") == words


def test_counts_and_lists_read_as_english() -> None:
    assert [count(n, "seed") for n in (0, 1, 1200)] == ["0 seeds", "1 seed", "1,200 seeds"]
    assert [join_words(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert [duration(s) for s in (0.5, 9.9, 61, 3725)] == ["0.5 s", "10 s", "1 min 01 s", "1 h 02 min"]
    assert [p_value(p) for p in (0.0004, 0.0312, 0.999, None)] == ["< 0.001", "0.031", "1", "–"]


AXES = {"size", "strength", "a", "b", "c", "lr", "decay"}


def test_what_zipped_axes_repeat_and_what_all_labels_begin_with_is_left_out_of_names() -> None:
    found = short_names(["softmax", "P · size=head · strength=head", "P · size=query · strength=query"], AXES)
    assert found == (["softmax", "P · head", "P · query"], ("size",), "")
    labels = [f"a={a} · b={b}" for a in ("x", "y") for b in ("x", "y")]
    assert short_names([*labels, "softmax"], AXES) == (["x · x", "x · y", "y · x", "y · y", "softmax"], ("a", "b"), "")
    found = short_names(["P · deep · a=x · b=x", "P · deep · a=x · b=y", "P · deep · a=y · b=x"], AXES)
    assert found == (["x · x", "x · y", "y · x"], ("a", "b"), "P · deep")
    assert short_names(["P · 1", "P · 2"], AXES) == (["1", "2"], (), "P")
    assert short_names(["P", "P · 2"], AXES).names == ["P", "P · 2"]
    assert short_names(["P · 2"], AXES).names == ["P · 2"]


def test_names_keep_the_axis_where_values_alone_would_collide_or_axes_differ() -> None:
    assert short_names(["a=1 · c=1", "b=1 · c=2"], AXES).names == ["a=1 · c=1", "b=1 · c=2"]
    assert short_names(["lr=1 · decay=3", "lr=2 · decay=4"], AXES).names == ["1 · 3", "2 · 4"]
    assert short_names(["x", "a=x"], AXES).names == ["x", "a=x"]
    assert short_names(["softmax", "Integral S=4"], AXES).names == ["softmax", "Integral S=4"]
    assert short_names(["a=1 · tau=5", "a=1 · tau=50"], AXES).names == ["tau=5", "tau=50"]  # a level, not an axis


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "–"), ([], "–"), (["a", "b"], "a; b"), ([0.5, None], "0.5; –"), (True, "yes"), (False, "no"), (3, "3"),
     (list("abcdefgh"), "a; b; c; d; e; f and 2 more"), (list("abcdef"), "a; b; c; d; e; f")],
)  # fmt: skip
def test_an_entry_of_a_table_is_words_and_no_python(value: object, words: str) -> None:
    assert entry(value) == words
