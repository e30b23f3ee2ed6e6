"""Escaping and rounding: hostile names stay names, and numbers say what is known of them."""

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st
from markdown_it import MarkdownIt
from store_export_reader import rows, shown, tokens

from ablate.grid.errors import SpecError
from ablate.store.export import latex, markdown
from ablate.store.export.cells import round_to_spread
from ablate.store.export.formats import encode, escape_number
from ablate.store.export.plain import escape_control

HOSTILE = [
    r"\input{/etc/passwd}", "100 % & more", "a_b^c", "#1 $x$ {y} ~z", "<script>alert(1)</script>", "a|b`c`", "[0]", "*",
    "-- --- <<x>>", "\\\\", "%", "a\nb\tc", "**bold** _it_ [l](http://x) ![i](x)", "&amp; &lt;", "@user #1 :smile:",
    "SSA · 8", "κ → ∞", "naïve Ærø", "| --- |", "\\|", "~~gone~~",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_typeset_as_itself(name: str) -> None:
    text = encode(pl.DataFrame({name: [name, "b"], "n": ["1", name]}), "tex").decode()
    assert [len(row) for row in rows(text)] == [2, 2, 2]
    if all(character.isascii() for character in name):
        assert shown(latex.escape(name)) == name.replace("\n", " ").replace("\t", " ")


@settings(max_examples=30)
@given(st.text(max_size=30))
def test_any_text_is_one_balanced_line_of_latex(text: str) -> None:
    escaped = latex.escape(text)
    assert len(escaped.splitlines()) <= 1
    tokens(escaped)


@pytest.mark.parametrize("character", ["\x00", "\x07", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066"])
def test_no_character_of_a_name_is_obeyed(character: str) -> None:
    written = f"{ord(character):04x}"
    assert escape_control(f"a{character}b\n\t") == f"a\\u{written}b\n\t"
    assert markdown.escape(f"a{character}b") == rf"a\\u{written}b"
    assert latex.escape(f"a{character}b") == rf"a\texttt{{U+{written.upper()}}}b"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("x=1: y", "x=1: y"),
        ("a==b", r"a\=\=b"),
        ("a===b", r"a\=\=\=b"),
        ("http://a", r"http\://a"),
        ("=:", "=:"),
        ("p (Holm)", "p (Holm)"),
    ],
)
def test_markdown_is_escaped_where_it_would_mean_something(text: str, written: str) -> None:
    assert markdown.escape(text) == written


def test_characters_that_need_packages_are_written_as_their_number() -> None:
    assert latex.escape("中") == r"\texttt{U+4E2D}"
    assert latex.escape("σ\u00a0Λ") == r"$\sigma$~$\Lambda$"
    assert latex.escape("é Ž") == "é Ž"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_shown_as_itself_in_markdown(name: str) -> None:
    text = encode(pl.DataFrame({name: [name, "b"], "n": ["1", "x"]}), "md").decode()
    parsed = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    assert [token.type for token in parsed].count("tr_open") == 3
    cells = [token for token in parsed if token.type == "inline"]
    assert len(cells) == 6
    for cell in (cells[0], cells[2]):
        assert {child.type for child in cell.children or []} <= {"text", "text_special"}
        assert "".join(child.content for child in cell.children or []) == " ".join(name.split())


@pytest.mark.parametrize(
    ("value", "spread", "shown_as"),
    [
        (0.123456, 0.0099, ("0.1235", "0.0099", 0)),
        (0.1234, 0.0996, ("0.12", "0.10", 0)),
        (12345.0, 1234.0, ("12300", "1200", 0)),
        (1.5e-7, 2e-8, ("1.50", "0.20", -7)),
        (-0.00004, 0.01, ("0.000", "0.010", 0)),
        (3.0, None, ("3.000", None, 0)),
        (5.0, 0.0, ("5.000", "0", 0)),
        (0.0, 0.0, ("0", "0", 0)),
    ],
)
def test_a_number_is_rounded_to_two_digits_of_its_spread(
    value: float, spread: float | None, shown_as: tuple[str, str | None, int]
) -> None:
    assert tuple(round_to_spread(value, spread)) == shown_as


def test_numbers_on_a_page_have_real_minus_signs_and_powers() -> None:
    assert escape_number("-1.2e-05 to +3.4", "tex") == r"$-$1.2 $\times 10^{-5}$ to +3.4"
    assert escape_number("-1.2e-05", "md") == r"−1.2 × 10\^-5"
    assert r"$-$0.1235 & a-{}b \\" in encode(pl.DataFrame({"x": [-0.123456], "y": ["a-b"]}), "tex").decode()


def test_more_rows_than_a_page_holds_are_refused_on_a_page_only() -> None:
    frame = pl.DataFrame({"i": range(10_001)})
    assert encode(frame, "csv").count(b"\n") == 10_002
    with pytest.raises(SpecError, match=r"10001 rows .* at most 10000; write them as \.csv or \.parquet"):
        encode(frame, "tex")


def test_csv_has_no_formula_for_a_spreadsheet() -> None:
    cells = ["=1+1", "+a", "-a", "@a", " =a", "-1.5", "+1e-3", "-inf", "a=b", None]
    data = encode(pl.DataFrame({"=x": cells, "n": [-1.5] * len(cells)}), "csv").decode()
    found = pl.read_csv(data.encode(), infer_schema=False)
    assert found["'=x"].to_list() == ["'=1+1", "'+a", "'-a", "'@a", "' =a", "-1.5", "+1e-3", "-inf", "a=b", None]
    assert found["n"].to_list() == ["-1.5"] * len(cells)


@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e9))
def test_rounding_changes_neither_number_by_more_than_a_twentieth_of_the_spread(value: float, spread: float) -> None:
    found = round_to_spread(value, spread)
    assert found.spread is not None
    for text, number in ((found.value, value), (found.spread, spread)):
        assert float(text) * 10.0**found.exponent == pytest.approx(number, rel=1e-12, abs=0.0501 * spread)
    assert 1 <= len(found.spread.lstrip("0.").replace(".", "").rstrip("0")) <= 2
