"""Interventions: replace tokens of text windows; positions count from 1, as in paper 004.

A replaced token is no target, because it cannot be learned from text. The paper's loss includes all targets.
"""

from abc import abstractmethod
from typing import Annotated, ClassVar, Final, Literal, final

from jaxtyping import Int
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.grid.spec import Choice
from ablate.grid.validation import INCREASING
from ablate.training.tasks.counter_rng import Draws
from ablate.training.tasks.text.encoder import Encoder

_UNNAMED: Final = (
    "the fixed token is by default the one that hides others; this tokenizer has none; name it: intervention.token"
)


class Intervention(Choice):
    """Replaces tokens of every window in training, in the task's own evaluation and for probes."""

    source: ClassVar[str]

    @property
    def replaced(self) -> tuple[int, ...]:
        """Replaced positions from 1, increasing; none by default."""
        return ()

    def check(self, vocabulary: int, *, hides: bool) -> None:
        """Raise ValueError for a token that does not exist; `hides` is True if there is a mask token."""

    @abstractmethod
    def tokens(self, draws: Draws, windows: int, encoder: Encoder) -> Tensor | int:
        """Draw ids [windows, replaced] on the device of `draws`, or one id for all; SpecError without such a token."""


@final
class NoIntervention(Intervention):
    """Windows as the text has them."""

    source: ClassVar[str] = "none"

    kind: Literal["none"] = "none"

    def tokens(self, draws: Draws, windows: int, encoder: Encoder) -> int:  # noqa: ARG002
        return encoder.end


@final
class FixedToken(Intervention):
    """A fixed token: x_k = x_fix at one position of every window.

    Paper 004 finds the sink on the fixed token, not on the first (table 7: 74.11, 69.03 and 69.64 % at k = 1, 2 and 3).
    The paper's x_fix is the padding token; here it is by default the mask token. Neither occurs in text. The released
    line for it raises an error.
    """

    source: ClassVar[str] = "When Attention Sink Emerges, section 5 and table 7 (fixing token in a specific position)"

    kind: Literal["fixed_token"] = "fixed_token"
    position: PositiveInt = 1
    """Where, counted from 1: k."""
    token: NonNegativeInt | None = None
    """Its id; None is the token that hides others."""

    @property
    def replaced(self) -> tuple[int, ...]:
        return (self.position,)

    def check(self, vocabulary: int, *, hides: bool) -> None:
        if self.token is None and not hides:
            raise ValueError(_UNNAMED)
        if self.token is not None and self.token >= vocabulary:
            raise ValueError(
                f"intervention.token={self.token} is no id of the tokenizer, 0 to {vocabulary - 1}; lower it, or leave "
                "it out for the token that hides others"
            )

    def tokens(self, draws: Draws, windows: int, encoder: Encoder) -> int:  # noqa: ARG002  (nothing is drawn)
        token = encoder.mask if self.token is None else self.token
        if token is None:
            raise SpecError(_UNNAMED)
        return token


@final
class RandomTokens(Intervention):
    """Random tokens: x_k ~ Uniform(V) at some positions of every window, drawn anew each time.

    Paper 004 trains with a random x_1, with random x_1 and x_2, and with a random x_2. It finds the sink on the first,
    the second and the first token (27.03, 14.08 and 20.99 %); with more, it tends to disappear. The paper does not say
    whether its measured sequences have random tokens; here they have. V is all tokens, special ones included.
    """

    source: ClassVar[str] = "When Attention Sink Emerges, section 5 (randomness in data distribution)"

    kind: Literal["random_tokens"] = "random_tokens"
    positions: Annotated[tuple[PositiveInt, ...], Field(min_length=1), INCREASING] = (1,)
    """Where, counted from 1, rising: (1,), (1, 2) and (2,) are the paper's."""

    @property
    def replaced(self) -> tuple[int, ...]:
        return self.positions

    def tokens(self, draws: Draws, windows: int, encoder: Encoder) -> Int[Tensor, "windows replaced"]:
        return draws.below(encoder.filled, windows, len(self.positions))
