"""A learned key and value that every query sees."""

from typing import ClassVar, Literal, Self

from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor

from ablate.variants.number import KeyVector, Vector
from ablate.variants.stages.families import Extra, QueryKey


class KeyBias(Extra):
    """A learned key without a value: a sink whose logit depends on the query.

        s_i = q_i . k* / sqrt(d)          v* = 0

    Positions do not rotate the key; it is not counted in K_i and never gated. If k* = 0, this is off-by-one softmax.
    Weights of the sequence's keys sum to sigmoid(LSE_i - s_i).
    """

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

    def pair(self, *, learned_key: Float[Tensor, "1 #heads 1 channels"]) -> QueryKey:
        return QueryKey(learned_key, None)

    def oracle(self, *, learned_key: list[float]) -> tuple[list[float], None]:
        return learned_key, None


class KeyValueBias(Extra):
    """A learned key with a value: every query can attend to a vector of its own choosing.

        o_i = w_i (sum_j p_ij v_j) + (1 - w_i) v*          w_i = sigmoid(LSE_i - q_i . k* / sqrt(d))

    under softmax. Positions do not rotate the key; it is not counted in K_i and never gated. The value v* is trained or
    fixed: m in the first channel (m v' in the paper), or m / sqrt(d) in each of d channels (m v''). A fixed v* of 0 is
    kind "key_bias".
    """

    source: ClassVar[str] = "When Attention Sink Emerges, section 7.2 (KV biases) and appendix D.5"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "Rotary positions turn the query and not k*, so its logit depends on the absolute position.",
        "A query that sees nothing of the sequence gets v*, not 0.",
    )

    kind: Literal["key_value_bias"] = "key_value_bias"
    learned_key: KeyVector = KeyVector(init=0.0, per=("layer", "head"), spread=0.02)
    """The key k*; per layer is one for all heads."""
    learned_value: Vector = Vector(init=0.0, per=("layer", "head"), spread=0.02)
    """The value v*; fixed where it is constant."""

    @model_validator(mode="after")
    def _one_value_for_all_queries(self) -> Self:
        if "token" in self.learned_value.per:
            raise ValueError(
                "per='token' does not fit the value of a learned key, which is one for all queries; use constant, "
                "layer or head"
            )
        return self

    @property
    def has_value(self) -> bool:
        return self.learned_value.trained or self.learned_value.init != 0

    def pair(
        self, *, learned_key: Float[Tensor, "1 #heads 1 channels"], learned_value: Float[Tensor, "1 #heads 1 values"]
    ) -> QueryKey:
        return QueryKey(learned_key, learned_value)

    def oracle(self, *, learned_key: list[float], learned_value: list[float]) -> tuple[list[float], list[float]]:
        return learned_key, learned_value
