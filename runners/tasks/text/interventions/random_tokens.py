"""Random tokens: x_k ~ Uniform(V) at some positions of every window, drawn anew each time.

Paper 004 trains with a random x_1, with random x_1 and x_2, and with a random x_2. It finds the sink on the first, the
second and the first token (27.03, 14.08 and 20.99 %); with more, it tends to disappear. The paper does not say whether
its measured sequences have random tokens; here they have. V is all tokens, special ones included.
"""

from typing import Annotated, ClassVar, Literal, final

from pydantic import Field, PositiveInt
from torch import Tensor

from grid.validation import INCREASING
from runners.tasks.counter_rng import Draws
from runners.tasks.text.encoder import Encoder
from runners.tasks.text.interventions.intervention import Intervention


@final
class RandomTokens(Intervention):
    """Tokens without a meaning."""

    source: ClassVar[str] = "When Attention Sink Emerges, section 5 (randomness in data distribution)"

    kind: Literal["random_tokens"] = "random_tokens"
    positions: Annotated[tuple[PositiveInt, ...], Field(min_length=1), INCREASING] = (1,)
    """Where, counted from 1, rising: (1,), (1, 2) and (2,) are the paper's."""

    @property
    def replaced(self) -> tuple[int, ...]:
        return self.positions

    def tokens(self, draws: Draws, windows: int, encoder: Encoder) -> Tensor:
        return draws.below(encoder.filled, windows, len(self.positions))
