"""A forget gate: the logit of a key falls with every later token that forgets.

    z_ij + sum_{l = j+1 .. i} ln f_l          0 < f_l <= 1

The sum is over the tokens that query i sees. Keys after the query, in an encoder, are not lowered. The Forgetting
Transformer predicts f from the token. One f per head is a learned linear decay: ALiBi with a trained slope -ln f.
With f = 1 nothing is forgotten.
"""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import model_validator

from variants.number import Number, require_link
from variants.stages.gated_forgetting import GatedForgetting


class ForgetGate(GatedForgetting):
    """Decay by a gate of every token between key and query."""

    source: ClassVar[str] = "Forgetting Transformer, section 3"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "It starts at f = 0.5, as in the released code: a weight halves with every token until the gate has learned.",
    )

    kind: Literal["forget_gate"] = "forget_gate"
    gate: Annotated[Number, require_link("unit")] = Number(init=0.5, per="token", link="unit")
    """The share f that a token keeps of earlier keys."""

    @model_validator(mode="after")
    def _is_a_share(self) -> Self:
        if self.gate.init == 0:
            raise ValueError("a forget gate of 0 leaves only the query's own key; use visible=Window(size=1)")
        return self
