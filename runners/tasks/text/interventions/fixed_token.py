"""A fixed token: x_k = x_fix at one position of every window.

Paper 004 finds the sink on the fixed token, not on the first (table 7: 74.11, 69.03 and 69.64 % at k = 1, 2 and 3).
The paper's x_fix is the padding token; here it is by default the mask token. Neither occurs in text. The released line
for it raises an error.
"""

from typing import ClassVar, Final, Literal, final

from pydantic import NonNegativeInt, PositiveInt

from grid.errors import SpecError
from runners.tasks.counter_rng import Draws
from runners.tasks.text.encoder import Encoder
from runners.tasks.text.interventions.intervention import Intervention

_UNNAMED: Final = (
    "the fixed token is by default the one that hides others; this tokenizer has none; name it: intervention.token"
)


@final
class FixedToken(Intervention):
    """The same token everywhere."""

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
                f"intervention.token is an id of the tokenizer, 0 to {vocabulary - 1}; got {self.token}; lower it, or "
                "leave it out for the token that hides others"
            )

    def tokens(self, draws: Draws, windows: int, encoder: Encoder) -> int:  # noqa: ARG002  (nothing is drawn)
        token = encoder.mask if self.token is None else self.token
        if token is None:
            raise SpecError(_UNNAMED)
        return token
