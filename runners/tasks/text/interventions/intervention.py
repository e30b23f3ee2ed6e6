"""The family of interventions: replacement of tokens of a window.

Positions count the tokens of a window from 1, as in paper 004. A replaced token is no target, because it cannot be
learned from text. The paper's loss includes all targets.
"""

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from grid.spec import Choice
from runners.tasks.counter_rng import Draws
from runners.tasks.text.encoder import Encoder


class Intervention(Choice):
    """Replaces tokens of every window in training, in the task's own evaluation and for probes."""

    source: ClassVar[str]
    """Source of the intervention."""

    @property
    @abstractmethod
    def replaced(self) -> tuple[int, ...]:
        """Replaced positions from 1, increasing."""

    def check(self, vocabulary: int, *, hides: bool) -> None:
        """Raise ValueError for a token that does not exist; `hides` is True if there is a mask token."""

    @abstractmethod
    def tokens(self, draws: Draws, windows: int, encoder: Encoder) -> Tensor | int:
        """Draw the replacements: ids [windows, replaced] on the device of `draws`, or one id for all.

        Raises:
            SpecError: the tokenizer has no such token.
        """
