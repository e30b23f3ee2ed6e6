"""The family of interventions: tokens of a window that are replaced, whatever the text says there.

Positions count the tokens of a window from 1, as paper 004 does. A token that is replaced is no target: that it comes
is nothing to learn from text. The paper's sum runs over all targets; of a random token only the entropy of its
distribution could be learnt.
"""

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from grid.spec import Choice
from runners.tasks.counter_rng import Draws
from runners.tasks.text.encoder import Encoder


class Intervention(Choice):
    """Replaces tokens of every window, in training, in the task's own evaluation and where probes look."""

    source: ClassVar[str]
    """Where it is from."""

    @property
    @abstractmethod
    def replaced(self) -> tuple[int, ...]:
        """Which positions, rising, from 1."""

    def check(self, vocabulary: int, *, hides: bool) -> None:
        """Raise ValueError where it asks for a token that is not there; `hides`: there is one that hides others."""

    @abstractmethod
    def tokens(self, draws: Draws, windows: int, encoder: Encoder) -> Tensor | int:
        """What comes there: ids [windows, replaced], drawn on the device of `draws`, or one id for all.

        Raises:
            SpecError: the tokenizer has no such token.
        """
