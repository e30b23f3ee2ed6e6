"""The family of tokenizers: how text becomes ids, as a spec."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from grid.spec import Choice
from runners.tasks.text.encoder import Encoder

Texts = Callable[[], Sequence[str]]
"""Reads the documents of the training part."""


class Tokenizer(Choice):
    """How text becomes ids. Only the training part of a text may be learned from."""

    learned: ClassVar[bool] = False
    """Whether it needs the text to be what it is."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of ids, special ones included, known without reading anything."""

    @property
    def hides(self) -> bool:
        """Whether it has a token that hides others, known without reading anything."""
        return True

    @abstractmethod
    def encoder(self, training: Texts) -> Encoder:
        """The tokenizer at work; `training` is called where it is learned.

        Raises:
            SpecError: a file it names is missing or not what the spec says, or the text has fewer tokens than asked.
            EnvironmentProblem: a package is missing.
        """
