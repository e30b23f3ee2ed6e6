"""The family of tokenizers: how text becomes ids, as a spec."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, final

from grid.spec import Choice
from runners.tasks.text.encoder import ByteEncoder, Encoder

Texts = Callable[[], Sequence[str]]
"""Reads the documents of the training part."""


class Tokenizer(Choice):
    """How text becomes ids. Only the training part of a text may be learned from."""

    learned: ClassVar[bool] = False
    """True if it is learned from the text."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of ids, special ones included, known without reading a file."""

    @property
    def hides(self) -> bool:
        """True if it has a mask token, known without reading a file."""
        return True

    @abstractmethod
    def encoder(self, training: Texts) -> Encoder:
        """Make the encoder; `training` is called if the tokenizer is learned.

        SpecError if a file is missing or differs from the spec, or the text has too few tokens. EnvironmentProblem if a
        package is missing.
        """


@final
class Bytes(Tokenizer):
    """Bytes as tokens: vocabulary 256, nothing to learn, every text has them.

    NUL ends a document and SUB stands where something is hidden; no text has them.
    """

    kind: Literal["bytes"] = "bytes"

    @property
    def size(self) -> int:
        return 256

    def encoder(self, training: Texts) -> ByteEncoder:  # noqa: ARG002  (nothing is learned)
        return ByteEncoder()
