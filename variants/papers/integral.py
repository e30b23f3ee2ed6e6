"""Integral attention on logits (paper 002)."""

from typing import Literal

from variants.logits.signals import Signals
from variants.operator import Operator


def integral(
    signals: int = 8, *, rotary: Literal["per_signal", "before_split"] = "per_signal", name: str = "Integral"
) -> Operator:
    """The mean of S signals' logits. Without per-signal rotary this is softmax at temperature sqrt(S)."""
    return Operator(name=name, signals=Signals(count=signals, rotary=rotary))
