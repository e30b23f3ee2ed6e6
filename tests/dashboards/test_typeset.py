"""Formulas in plain text are typeset: indices, powers, roots and Greek letters; prose stays prose."""

import pytest

from ablate.dashboards.html.typeset import Piece, formula, inline, typeset
from ablate.runners.catalogue.operator_maths import OperatorMaths

_MARKS = {"sub": "_{%s}", "sup": "^{%s}", "root": "[%s]", "formula": "<%s>", "note": " (%s)", "variable": "%s"}


def written(piece: Piece) -> str:
    inner = piece.inner if isinstance(piece.inner, str) else "".join(map(written, piece.inner))
    return _MARKS.get(piece.kind, "%s") % inner


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("w_ij = f_ij / sum_j f_ij", "w_{ij} = f_{ij} / ∑_{j} f_{ij}"),
        ("z_ij = q_i . k_j / sqrt(d)", "z_{ij} = q_{i} · k_{j} / √[d]"),
        ("sgn(a) e^|a|", "sgn(a) e^{|a|}"),
        ("1 / (1 + e^-(a + b))", "1 / (1 + e^{−(a + b)})"),
        ("(1 + b |a|) ** (n sgn a)", "(1 + b |a|) ^{n sgn a}"),
        ("o_i = v* + w_i0 v0", "o_{i} = v^{*} + w_{i0} v_{0}"),
        ("lambda_init(l) = 0.8 - 0.6 e^(-0.3 l)", "λ_{init}(l) = 0.8 − 0.6 e^{−0.3 l}"),
        ("sum_{l = j+1 .. i} ln f_l", "∑_{l = j+1 … i} ln f_{l}"),
        ("sqrt(mean(o^2) + eps)", "√[mean(o^{2}) + ε]"),
        ("sqrt(a_", "√[a_{}]"),
    ],
)
def test_a_formula_is_set(text: str, expected: str) -> None:
    assert "".join(map(written, formula(text))) == expected


def test_paragraphs_have_formulas_inside_and_indented_lines_are_displayed() -> None:
    found = typeset(
        'The sum:  o_i = sum_j w_ij v_j.  Set "log_count".\n\n    a = c z          if b = 0\n\nTo K_i keys.'
    )
    assert [piece.kind for piece in found] == ["paragraph", "display", "paragraph"]
    words, shown, last = map(written, found)
    assert words == 'The sum: <o_{i} = ∑_{j} w_{ij} v_{j}>. Set "log_count".'
    assert shown == "<a = c z> (if <b = 0>)"
    assert last == "To <K_{i}> keys."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Each of S signals has d / S channels, a fixed e^0.4 and n >= 1.", "S, d / S, e^{0.4}, n ≥ 1"),
        ("At a tie a = gamma the key counts; |t| < 2, and a logit at (t, 0).", "a = γ, |t| < 2, (t, 0)"),
        ("It divides by sqrt(d), as 1 - sum w; sgn(a) of a sum.", "√[d], 1 − ∑ w, sgn(a)"),
        (
            "Under the plain sum a row has z = q_i . k_j, i.e. a product; gain / sqrt(d) on an H100.",
            "z = q_{i} · k_{j}, √[d]",
        ),
        ("softmax's outputs within 1e-12, in section 3.1, off-by-one, of score f(s)", "f(s)"),
    ],
)
def test_formulas_within_a_sentence_are_set_and_words_are_not(text: str, expected: str) -> None:
    formulas = [piece for piece in inline(text) if piece.kind == "formula"]
    assert ", ".join("".join(map(written, piece.inner)) for piece in formulas) == expected


def test_every_formula_of_the_operators_loses_no_letter() -> None:
    maths = OperatorMaths()
    parts = {part for each in maths.list_operators() for part in maths.describe(each.name, {}).parts}
    for part in parts:
        set_text = "".join(map(_plain, typeset(part.formula)))
        lost = set(part.formula) - set(set_text) - set(" \n_^{}()*<>=.'`-!+/|")
        assert not {letter for letter in lost if letter.isupper() or letter.isdigit()}, part.formula


def _plain(piece: Piece) -> str:
    return piece.inner if isinstance(piece.inner, str) else "".join(map(_plain, piece.inner))
