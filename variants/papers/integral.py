"""Integral attention (paper 002): the mean of signals, on logits or on softmax outputs, and its control."""

import math
from typing import Literal

from variants.number import Number
from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.merges.mean import MeanWeights
from variants.stages.signals import Signals
from variants.stages.transforms.temperature import Temperature


@named_operator("002", limits=(Limit("tau = 1", {"transform.tau": 1.0}, softmax),))
def integral_control(signals: int = 8, *, name: str = "Integral control") -> Operator:
    """Softmax at scale 1/sqrt(S d): what Integral on S signals' logits is, but for rotary positions per signal."""
    return Operator(
        name=f"{name} S={signals}", transform=Temperature(tau=Number(init=math.sqrt(signals), link="positive"))
    )


@named_operator(
    "002",
    limits=(Limit("no rotary positions per signal", {}, integral_control, within=1e-7),),
    traps=(
        "The mean of S signals' logits is one product of the whole head at scale 1/sqrt(S d): softmax at temperature "
        "sqrt(S). Only rotary positions per signal make it another operator; compare it with integral_control.",
        "S signals with rotary positions of their own have only d / (2 S) frequencies.",
    ),
)
def integral(
    signals: int = 8, *, rotary: Literal["per_signal", "before_split"] = "per_signal", name: str = "Integral"
) -> Operator:
    """The mean of S signals' logits. Without per-signal rotary this is softmax at temperature sqrt(S)."""
    return Operator(name=name, signals=Signals(count=signals, rotary=rotary))


@named_operator(
    "002",
    limits=(Limit("all signals equal", {}, integral_control, where="equal signals"),),
    traps=("It takes S softmaxes per head; the paper reports chance-level accuracy for it.",),
)
def integral_weights(
    signals: int = 8, *, rotary: Literal["per_signal", "before_split"] = "per_signal", name: str = "Integral on weights"
) -> Operator:
    """The mean of S signals' softmax outputs."""
    return Operator(name=name, signals=Signals(count=signals, rotary=rotary), merge=MeanWeights())
