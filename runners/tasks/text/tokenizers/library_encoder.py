"""Encoder of a tokenizer of the package `tokenizers`."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, final

import numpy as np

from runners.tasks.optional_packages import require_package
from runners.tasks.text.encoder import EncodedText, Encoder, sizes_of_spans

_BYTE: Final = re.compile("<0x([0-9A-F]{2})>")
"""SentencePiece's form of a byte of a character without a token."""


def library(by: str) -> Any:
    """Import the package `tokenizers` for tokenizer `by`; EnvironmentProblem if it is not installed."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads would not survive a fork
    return require_package("tokenizers", by=f"tokenizer {by!r}", extra="tokenizers")


class Special(NamedTuple):
    """Ids that never come from text."""

    end: int
    mask: int | None


@final
class LibraryEncoder(Encoder):
    """Ids of a `tokenizers.Tokenizer`; text is never read as a special token.

    `record` describes it; `vocabulary` is the number of ids if it exceeds the tokenizer's.
    """

    def __init__(
        self, tokenizer: Any, special: Special, record: Mapping[str, Any], *, vocabulary: int | None = None
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self._tokenizer, self.end, self.mask = tokenizer, special.end, special.mask
        self.filled = size_of(tokenizer)
        self.vocabulary = self.filled if vocabulary is None else vocabulary
        self.record = {**record, "vocabulary": self.vocabulary}
        unknown = getattr(tokenizer.model, "unk_token", None)
        added = tokenizer.get_added_tokens_decoder().items()
        named = {number for number, token in added if token.special and token.content != unknown}
        empty = range(self.filled, self.vocabulary)
        self.special = frozenset({*named, special.end, *empty, *(() if special.mask is None else (special.mask,))})
        self._falls_back = bool(getattr(tokenizer.model, "byte_fallback", False))
        """True if tokens like <0xE6> are bytes."""

    def encode(self, text: str) -> EncodedText:
        found = self._tokenizer.encode(text, add_special_tokens=False)
        return EncodedText(found.ids, found.offsets)

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(each.ids, np.int64) for each in found]

    def sizes(self, text: str, encoded: EncodedText) -> np.ndarray:
        if self._bytes is not None:
            found = np.array([len(self._bytes.get(token, b"")) for token in encoded.ids], np.int64)
            if found.sum() == len(text.encode()):  # and not where the text was normalised first
                return found
        return sizes_of_spans(text, encoded.spans)

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        if self._bytes is not None:
            return [self._bytes.get(token, b"") for token in ids]
        found, before = [], None
        for token in ids:
            byte = _BYTE.fullmatch(self._tokenizer.id_to_token(token) or "") if self._falls_back else None
            if byte is not None:
                found.append(bytes.fromhex(byte.group(1)))
                before = self._tokenizer.token_to_id("<0x41>") or before  # any whole character
            else:  # blanks and marks of a tokenizer depend on the token before
                known = "" if before is None else self._decode([before])
                both = self._decode([token] if before is None else [before, token])
                found.append((both.removeprefix(known) if both.startswith(known) else self._decode([token])).encode())
                before = token
        return found

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        ordinary = [token for token in ids if token not in self.special]
        if self._bytes is not None:
            return b"".join(self._bytes.get(token, b"") for token in ordinary).decode(errors="replace")
        return str(self._tokenizer.decode(ordinary))

    def piece(self, token: int) -> str:
        if self._bytes is not None and token in self._bytes:
            return _show_bytes(self._bytes[token])
        return str(self._tokenizer.id_to_token(token) or f"<{token}>")

    @cached_property
    def _bytes(self) -> dict[int, bytes] | None:
        """Bytes of each ordinary token; None if tokens are not strings of bytes."""
        if type(self._tokenizer.decoder).__name__ != "ByteLevel":
            return None
        alphabet = _alphabet()
        tokens = self._tokenizer.get_vocab(with_added_tokens=False).items()
        found = {
            number: bytes(alphabet[character] for character in token)
            for token, number in tokens
            if alphabet.keys() >= set(token)
        }
        added = {number: token.content.encode() for number, token in self._tokenizer.get_added_tokens_decoder().items()}
        return {number: what for number, what in (found | added).items() if number not in self.special}


def _show_bytes(what: bytes) -> str:
    """Show bytes readably: blanks as marks, invalid characters as numbers."""
    try:
        text = what.decode()
    except UnicodeDecodeError:
        return "0x" + what.hex()
    return text.replace(" ", "·").replace("\n", "↵").replace("\t", "→")


def size_of(tokenizer: Any) -> int:
    """Count the ids of a `tokenizers.Tokenizer`, holes included."""
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def _alphabet() -> dict[str, int]:
    """Map GPT-2's character of each byte to the byte: itself if visible, else one from U+0100 on."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + at): byte for at, byte in enumerate(others)}
