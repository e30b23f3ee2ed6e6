"""Which layers get the operator: a share of the depth from the top or the bottom, the rest another operator.

Source: Integral Transformer, section 4 (denoising in the top 50 % of layers; tables 2 and 9 sweep the share).
"""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from grid.spec import Spec
from variants.operator import Operator


class Placement(Spec):
    """`share` of the layers (rounded up) counted from `side` get the operator; the others get `rest`."""

    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    side: Literal["top", "bottom"] = "top"
    rest: Operator = Operator()

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if self.share == 1 and self.rest != Operator():
            raise ValueError("with share=1 no layer is left for `rest`; leave it out or lower the share")
        if self.share == 1 and self.side == "bottom":
            object.__setattr__(self, "side", "top")  # all layers are all layers
        return self

    @property
    def label(self) -> str:
        """For tables: `top 50 %`."""
        return "all layers" if self.share == 1 else f"{self.side} {self.share:.0%}"

    def on(self, layers: int) -> Self:
        """The same placement with the exact share of `layers` it selects, so that equal placements are equal specs.

        Raises ValueError when `rest` is given and no layer is left for it.
        """
        placed = self._placed(layers)
        if placed == layers and self.rest != Operator():
            raise ValueError(
                f"share {self.share:g} of {layers} layers is all of them; leave `rest` out or lower the share"
            )
        return self.changed(share=placed / layers)

    def _placed(self, layers: int) -> int:
        return math.ceil(round(self.share * layers, 9))

    def operators(self, operator: Operator, layers: int) -> tuple[Operator, ...]:
        """The operator of every layer, bottom first."""
        placed = self._placed(layers)
        rest = (self.rest,) * (layers - placed)
        return (*rest, *(operator,) * placed) if self.side == "top" else (*(operator,) * placed, *rest)
