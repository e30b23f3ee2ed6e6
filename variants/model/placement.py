"""Placement of operators: which layers get the operator, and which operator the other layers get.

Sources: Integral Transformer, section 4 (denoising in the top 50 % of layers; tables 2 and 9 sweep the share); Cog
Attention (all layers but the first and the last).
"""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablate.grid.spec import Spec
from ablate.variants.model.mixer import Layers, Mixer, OperatorOrMixer
from ablate.variants.operator import Operator

_SOFTMAX = Operator()


class Placement(Spec):
    """Selects the layers that get the operator; the others get `rest`.

    "top" and "bottom" take `share` of the layers, rounded up; "inner" all but the first and the last; "alternate" every
    second layer, the top one included, counted down from it.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of the layers, rounded up, counted from `side`."""
    side: Literal["top", "bottom", "inner", "alternate"] = "top"
    """Which layers: counted from the top or bottom, all but the first and last, or every second from the top."""
    rest: OperatorOrMixer = _SOFTMAX
    """The operator, or mixer, of the other layers."""

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if self.side in ("inner", "alternate"):
            if self.share != 1:
                raise ValueError(f"side={self.side!r} says which layers, share={self.share:g} nothing; leave it out")
            return self
        if self.share == 1 and self.rest != _SOFTMAX:
            raise ValueError("with share=1 no layer is left for `rest`; leave it out or lower the share")
        if self.share == 1 and self.side == "bottom":
            self.set_normal_form(side="top")  # all layers are all layers
        return self

    @property
    def label(self) -> str:
        if self.side == "inner":
            return "inner layers"
        if self.side == "alternate":
            return "every second layer"
        return "all layers" if self.share == 1 else f"{self.side} {self.share:.0%}"

    def on(self, layers: int) -> Self:
        """Return it with the exact share of `layers`; ValueError if no layer is selected, or none left for `rest`."""
        chosen = self.chosen(layers)
        if not chosen:
            rule = "side='inner' is all layers but the first and the last"
            raise ValueError(f"{rule}; {layers} layers have none, 3 have one")
        if len(chosen) == layers and self.rest != _SOFTMAX:
            what = f"side={self.side!r}" if self.side == "alternate" else f"share {self.share:g}"
            raise ValueError(f"{what} of {layers} layers is all of them; leave `rest` out or take fewer")
        exact = len(chosen) / layers
        for side, first in (("top", layers - len(chosen)), ("bottom", 0)):
            if chosen == range(first, first + len(chosen)):
                return self if (self.side, self.share) == (side, exact) else self.changed(side=side, share=exact)
        return self

    def chosen(self, layers: int) -> range:
        """Return the layers that get the operator, counted from 0 at the bottom."""
        if self.side == "inner":
            return range(1, layers - 1)
        if self.side == "alternate":
            return range((layers - 1) % 2, layers, 2)
        placed = max(1, math.ceil(round(self.share * layers, 9)))
        return range(layers - placed, layers) if self.side == "top" else range(placed)

    def operators(self, operator: Operator | Mixer, layers: int) -> Layers:
        """Return the operator or mixer of every layer, bottom first."""
        chosen = self.chosen(layers)
        return tuple(operator if layer in chosen else self.rest for layer in range(layers))
