"""The host Transformer as a spec, with the papers' models as named functions.

Any operator goes into any backbone. Sizes are free; a function only fixes what makes the family.
"""

from typing import Literal, Self

from pydantic import PositiveFloat, PositiveInt, model_validator

from grid.spec import Label, Spec
from variants.positions.learned import Learned
from variants.positions.rotary import Rotary
from variants.positions.scheme import Positions


class Backbone(Spec):
    """A pre-norm decoder: x + attention(norm(x)), then x + feedforward(norm(x))."""

    name: Label = ""
    layers: PositiveInt
    heads: PositiveInt
    width: PositiveInt
    feedforward_width: PositiveInt
    feedforward: Literal["gelu", "swiglu"]
    norm: Literal["layer", "rms"]
    norm_eps: PositiveFloat = 1e-5
    bias: bool
    positions: Positions
    tied: bool = True
    """Whether token embedding and read-out share their weights."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            valid = [h for h in range(1, self.width + 1) if self.width % h == 0]
            nearest = min(valid, key=lambda heads: abs(heads - self.heads))
            raise ValueError(f"heads divides width {self.width}; got {self.heads}, nearest is {nearest}")
        return self

    @property
    def label(self) -> str:
        """For tables: the family and its size."""
        return f"{self.name or self.norm} {self.layers}L {self.heads}H {self.width}"

    @property
    def head_width(self) -> int:
        """Channels of one head."""
        return self.width // self.heads


def gpt2(*, layers: int, heads: int, width: int, max_positions: int = 512) -> Backbone:
    """GPT-2: LayerNorm, GELU, biases, learned positions. gpt2(layers=12, heads=8, width=256) is the paper 003 model."""
    return Backbone(
        name="gpt2",
        layers=layers,
        heads=heads,
        width=width,
        feedforward_width=4 * width,
        feedforward="gelu",
        norm="layer",
        bias=True,
        positions=Learned(count=max_positions),
    )


def llama2(*, layers: int, heads: int, width: int, feedforward_width: int) -> Backbone:
    """Llama-2: RMSNorm, SwiGLU, rotary positions, no biases, tied embeddings."""
    return Backbone(
        name="llama2",
        layers=layers,
        heads=heads,
        width=width,
        feedforward_width=feedforward_width,
        feedforward="swiglu",
        norm="rms",
        bias=False,
        positions=Rotary(),
    )
