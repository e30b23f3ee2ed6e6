"""How text becomes token ids and ids become text: what a tokenizer is once it has been read or trained."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

import numpy as np

END, SUBSTITUTE = 0, 26
"""Control characters that no text needs: NUL ends a document, SUB stands where something is missing."""


class EncodedText(NamedTuple):
    """A text as tokens."""

    ids: Sequence[int]
    spans: Sequence[tuple[int, int]]
    """The characters [start, end) of the text that each token stands for; tokens of one character share its span."""


class Encoder(ABC):
    """Text to ids and back. Ids of special tokens never come from text."""

    @property
    @abstractmethod
    def record(self) -> Mapping[str, Any]:
        """What it is, for the record of an attempt: kind, vocabulary and where it has one, the hash of its file."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Number of ids, special tokens included, and those that stand for nothing (`filled`)."""

    @property
    def filled(self) -> int:
        """Ids from here on stand for nothing: a vocabulary may be longer than its tokens. By default all stand for
        something."""
        return self.vocabulary

    @property
    @abstractmethod
    def end(self) -> int:
        """The id after every document, which is also what a model reads before one."""

    @property
    @abstractmethod
    def mask(self) -> int | None:
        """The id that hides a token; None where there is none."""

    @property
    @abstractmethod
    def special(self) -> frozenset[int]:
        """All ids that never come from text."""

    @abstractmethod
    def encode(self, text: str) -> EncodedText:
        """The tokens of `text`, without special ones before or after it."""

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of many texts, as those of `encode` one by one: whole numbers [tokens] each."""
        return [np.array(self.encode(text).ids, np.int64) for text in texts]

    def sizes(self, text: str, encoded: EncodedText) -> np.ndarray:
        """How many UTF-8 bytes of `text` each of its tokens stands for, int64 [tokens]; their sum is all of them."""
        return sizes_of_spans(text, encoded.spans)

    @abstractmethod
    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        """What each of `ids`, none of them special, adds to the text of all of them, in UTF-8 bytes; of one character
        several tokens may each have a part."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text that `ids` stand for, without special ones; what is no text becomes U+FFFD."""

    @abstractmethod
    def piece(self, token: int) -> str:
        """What a token is, for people: an axis label of a picture."""


def sizes_of_spans(text: str, spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """UTF-8 bytes by token, int64 [tokens]: what no token stands for counts with the next, at the end with the last.

    Tokens of one and the same character share its bytes, in order and as evenly as whole numbers can.
    """
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
        """Its tokenizer, read or trained; cheap after the first time in a process.

        Raises:
            SpecError: a file it names is missing or is not what the spec says.
        """


@final
class ByteEncoder(Encoder):
    """UTF-8 bytes, vocabulary 256."""

    @property
    def record(self) -> Mapping[str, Any]:
        return {"kind": "bytes", "vocabulary": self.vocabulary}

    @property
    def vocabulary(self) -> int:
        return 256

    @property
    def end(self) -> int:
        return END

    @property
    def mask(self) -> int:
        return SUBSTITUTE

    @property
    def special(self) -> frozenset[int]:
        return frozenset({END, SUBSTITUTE})

    def encode(self, text: str) -> EncodedText:
        sizes = [len(character.encode()) for character in text]
        spans = [(at, at + 1) for at, size in enumerate(sizes) for _ in range(size)]
        ids = list(text.encode())
        if not self.special.isdisjoint(ids):
            raise ValueError("a text has no NUL and no SUB characters, which end documents and hide tokens")
        return EncodedText(ids, spans)

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.frombuffer(text.encode(), np.uint8) for text in texts]

    def sizes(self, text: str, encoded: EncodedText) -> np.ndarray:  # noqa: ARG002  (every token is a byte)
        return np.ones(len(encoded.ids), np.int64)

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        return [bytes([token]) for token in ids]

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(token for token in ids if token not in self.special).decode(errors="replace")

    def piece(self, token: int) -> str:
        if token in self.special:
            return "<end>" if token == END else "<mask>"
        return chr(token) if 32 < token < 127 else f"0x{token:02x}"
