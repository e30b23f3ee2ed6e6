"""A learned key without a value: a sink whose logit depends on the query.

    s_i = q_i . k* / sqrt(d)          v* = 0

Positions do not rotate the key; it is not counted in K_i and never gated. If k* = 0, this is off-by-one softmax.
Weights of the sequence's keys sum to sigmoid(LSE_i - s_i).
"""

from typing import ClassVar, Literal

from torch import Tensor

from variants.number import KeyVector
from variants.stages.families import Extra, QueryKey


class KeyBias(Extra):
    """A learned key k*; its weight adds nothing to the output."""

    source: ClassVar[str] = "When Attention Sink Emerges, section 7.2 (K biases)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "Rotary positions turn the query and not k*, so its logit depends on the absolute position.",
    )

    kind: Literal["key_bias"] = "key_bias"
    learned_key: KeyVector = KeyVector(init=0.0, per=("layer", "head"), spread=0.02)
    """The key k*; per layer is one for all heads."""

    @property
    def has_value(self) -> bool:
        return False

    def pair(self, *, learned_key: Tensor) -> QueryKey:
        return QueryKey(learned_key, None)

    def oracle(self, *, learned_key: list[float]) -> tuple[list[float], None]:
        return learned_key, None
