"""Integral attention on logits (paper 002)."""

from typing import Literal

from variants.operator import Operator
from variants.papers.named import named
from variants.signals import Signals


@named("002")
def integral(
    signals: int = 8, *, rotary: Literal["per_signal", "before_split"] = "per_signal", name: str = "Integral"
) -> Operator:
    """The mean of S signals' logits. Without per-signal rotary this is softmax at temperature sqrt(S)."""
    return Operator(name=name, signals=Signals(count=signals, rotary=rotary))
