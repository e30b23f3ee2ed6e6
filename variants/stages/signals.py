"""Signals: a head's query and key are cut into S slices of channels, each with its own logits.

The stage `merge` makes one map of them: from the mean of their logits, the mean of their maps, or a difference of maps.
The mean of S signals' logits is softmax at temperature sqrt(S), unless rotary positions turn each slice by its own
frequencies (`rotary="per_signal"`).
Source: Integral Transformer, section 3.
"""

from typing import ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from ablate.grid.spec import Spec


class Signals(Spec):
    """How many signals a head has; 1 is the ordinary product."""

    source: ClassVar[str] = "Integral Transformer, section 3"

    count: PositiveInt = 1
    rotary: Literal["per_signal", "before_split"] = "per_signal"

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if self.count == 1:
            self.set_normal_form(rotary="per_signal")  # one signal is the whole head either way
        return self

    @property
    def label(self) -> str:
        """`S=4`; empty for one signal."""
        return f"S={self.count}" if self.count > 1 else ""
