"""Bytes as tokens: vocabulary 256, nothing to learn, every text has them.

NUL ends a document and SUB stands where something is hidden; no text has them.
"""

from typing import Literal, final

from runners.tasks.text.encoder import ByteEncoder
from runners.tasks.text.tokenizers.tokenizer import Texts, Tokenizer


@final
class Bytes(Tokenizer):
    """UTF-8 bytes."""

    kind: Literal["bytes"] = "bytes"

    @property
    def size(self) -> int:
        return 256

    def encoder(self, training: Texts) -> ByteEncoder:  # noqa: ARG002  (nothing is learned)
        return ByteEncoder()
