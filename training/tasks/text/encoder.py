"""Encoders: a tokenizer that was read or trained, from text to token ids and back."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Never, Protocol, final, runtime_checkable

import numpy as np

from ablate.grid.errors import SpecError

UNSPELLED: Final = (
    "the tokenizer 'token_ids' has ids and no text; give the one that made them, such as tokenizer=TokenizerFile(...)"
)

END, SUBSTITUTE = 0, 26
"""Control characters: NUL ends a document, SUB hides a token."""


class EncodedText(NamedTuple):
    ids: Sequence[int]
    spans: Sequence[tuple[int, int]]
    """Characters [start, end) of each token; tokens of one character share its span."""


class Encoder(ABC):
    """Maps text to ids and back. Ids of special tokens never come from text."""

    record: Mapping[str, Any]
    """Record for an attempt: kind, vocabulary and, if any, the hash of its file."""
    vocabulary: int
    """Number of ids, with special and unused ones."""
    filled: int
    """First unused id; a vocabulary may have more ids than tokens."""
    end: int
    """Id that ends a document; a model also reads it before a document."""
    mask: int | None
    """Id that hides a token, if any."""
    special: frozenset[int]
    """Ids that never come from text."""

    @abstractmethod
    def encode(self, text: str) -> EncodedText:
        """Encode `text` without special tokens."""

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encode many texts to ids [tokens] each."""
        return [np.array(self.encode(text).ids, np.int64) for text in texts]

    def sizes(self, text: str, encoded: EncodedText) -> np.ndarray:
        """Count the UTF-8 bytes of each token of `text`, int64 [tokens]; they sum to all bytes."""
        return sizes_of_spans(text, encoded.spans)

    @abstractmethod
    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        """Return the UTF-8 bytes that each of `ids`, none special, adds to their text; tokens may split a character."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Decode `ids` without special ones; invalid bytes become U+FFFD."""


def sizes_of_spans(text: str, spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """Count UTF-8 bytes by token, int64 [tokens]; bytes without a token count with the next or last one."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    offsets = np.concatenate(([0], np.cumsum(1 + (points > 0x7F) + (points > 0x7FF) + (points > 0xFFFF))))
    if not spans:
        return np.zeros(0, np.int64)
    pairs = np.array(spans, np.int64)
    ends = np.maximum.accumulate(pairs[:, 1])
    ends[-1] = len(points)
    first = np.concatenate(([True], (pairs[1:] != pairs[:-1]).any(1)))
    group = np.cumsum(first) - 1
    count = np.bincount(group)
    whole = np.diff(offsets[ends[np.cumsum(count) - 1]], prepend=0)[group]
    place = np.arange(len(pairs)) - (np.cumsum(count) - count)[group]
    return np.asarray(whole * (place + 1) // count[group] - whole * place // count[group], np.int64)


@runtime_checkable
class Encodes(Protocol):
    """A task whose tokens are text."""

    def encoder(self) -> Encoder:
        """Read or train its tokenizer, once per process; SpecError if a file is missing or differs from the spec."""


def require_spelled(task: object, by: str) -> None:
    """Raise ValueError if the tokens of `task` are ids of a file whose tokenizer is not known."""
    if not getattr(task, "spelled", True):
        raise ValueError(f"{by} reads text; {UNSPELLED}")


@final
class ByteEncoder(Encoder):
    """UTF-8 bytes, vocabulary 256."""

    record = MappingProxyType({"kind": "bytes", "vocabulary": 256})
    vocabulary = filled = 256
    end, mask, special = END, SUBSTITUTE, frozenset({END, SUBSTITUTE})

    def encode(self, text: str) -> EncodedText:
        sizes = [len(character.encode()) for character in text]
        spans = [(at, at + 1) for at, size in enumerate(sizes) for _ in range(size)]
        ids = list(text.encode())
        if not self.special.isdisjoint(ids):
            raise ValueError("the text has a NUL or SUB character, which end documents and hide tokens; remove it")
        return EncodedText(ids, spans)

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.frombuffer(text.encode(), np.uint8) for text in texts]

    def sizes(self, text: str, encoded: EncodedText) -> np.ndarray:  # noqa: ARG002  (every token is a byte)
        return np.ones(len(encoded.ids), np.int64)

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        return [bytes([token]) for token in ids]

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(token for token in ids if token not in self.special).decode(errors="replace")


@final
class IdEncoder(Encoder):
    """Ids without a text. SpecError if it is asked for text."""

    mask = None

    def __init__(self, vocabulary: int, end: int | None, record: Mapping[str, Any]) -> None:
        self.vocabulary = self.filled = vocabulary
        self.end = -1 if end is None else end  # no token
        self.special, self.record = frozenset({self.end}), record

    def encode(self, text: str) -> Never:  # noqa: ARG002
        raise SpecError(UNSPELLED)

    def token_bytes(self, ids: Sequence[int]) -> Never:  # noqa: ARG002
        raise SpecError(UNSPELLED)

    def decode(self, ids: Sequence[int]) -> Never:  # noqa: ARG002
        raise SpecError(UNSPELLED)
