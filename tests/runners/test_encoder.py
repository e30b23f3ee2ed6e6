"""Bytes as tokens."""

import pytest
from hypothesis import given, strategies as st

from runners.tasks.text.encoder import END, SUBSTITUTE, ByteEncoder

ENCODER = ByteEncoder()
TEXTS = st.text(st.characters(exclude_characters=[chr(END), chr(SUBSTITUTE)], exclude_categories=["Cs"]))


@given(TEXTS)
def test_text_comes_back_and_every_token_knows_its_character(text: str) -> None:
    ids, spans = ENCODER.encode(text)
    assert ENCODER.decode(ids) == text
    assert bytes(ids) == text.encode()
    assert [text[start:end] for start, end in spans] == [c for c in text for _ in c.encode()]


def test_special_tokens_are_left_out_and_broken_characters_replaced() -> None:
    assert ENCODER.decode([*"é".encode(), END, SUBSTITUTE, 0xC3]) == "é\ufffd"


@pytest.mark.parametrize("character", ["\0", "\x1a"])
def test_a_text_with_a_special_character_is_refused(character: str) -> None:
    with pytest.raises(ValueError, match="no NUL and no SUB"):
        ENCODER.encode(f"a{character}b")


def test_pieces_are_readable() -> None:
    assert [ENCODER.piece(token) for token in (END, SUBSTITUTE, 65, 32, 0xC3)] == [
        "<end>",
        "<mask>",
        "A",
        "0x20",
        "0xc3",
    ]
