"""Operators of paper 002: Integral attention, its control, and its baselines Cog and Differential attention."""

import math
from typing import Literal

from ablate.variants.number import ByDepth, Contrast, Number
from ablate.variants.operator import Operator
from ablate.variants.papers.catalogue import Limit, named_operator, softmax
from ablate.variants.stages.head_norms import RMS
from ablate.variants.stages.merges import Difference, MeanWeights
from ablate.variants.stages.normalisers import Absolute
from ablate.variants.stages.scores import SignedExponential
from ablate.variants.stages.signals import Signals
from ablate.variants.stages.transforms import Temperature


@named_operator(
    "002",
    limits=(Limit("all logits above 0", {}, softmax, where="logits above 0"),),
    pitfalls=(
        "The released code keeps softmax in the first and the last layer; paper 002 has Cog in the top half.",
        "Weights jump where a logit changes its sign, and the sign has no gradient: precision of the logits matters.",
        "It is softmax only for queries all of whose logits are above 0.",
    ),
)
def cog(*, name: str = "Cog") -> Operator:
    """sgn(z) softmax(|z|): weights of both signs whose sizes sum to one."""
    return Operator(name=name, score=SignedExponential(), normaliser=Absolute())


_NORM = RMS(factor=ByDepth(init=0.8, deep=0.2))


def _first_map() -> Operator:
    """Softmax on half of the channels, at their own scale, normed."""
    half = Temperature(tau=Number(init=math.sqrt(0.5), link="positive"))
    return Operator(name="softmax on the first signal", transform=half, head_norm=_NORM)


@named_operator(
    "002",
    limits=(
        Limit("lambda = 0, q and k within the first signal", {"merge.factor": 0.0}, _first_map, where="first signal"),
    ),
    pitfalls=(
        "It adds six vectors of one signal's width per layer; paper 002 says that it adds no parameters.",
        "With lambda = 0 it is softmax on the first signal, still normed and multiplied by 1 - lambda_init.",
        "The output for the first token is the normed value times 1 - lambda_init, whatever lambda is below 1.",
    ),
)
def differential(
    per: Literal["layer", "head", "query"] = "layer",
    *,
    form: Literal["vectors", "scalar"] = "vectors",
    heads: Literal["halved", "kept"] = "halved",
    name: str = "Differential",
) -> Operator:
    """One map less lambda times another, normed per head. `per` and `form` are lambda's.

    Raises pydantic's ValidationError for per="query" with form="vectors".
    """
    factor = Contrast(init=0.2, deep=0.8, per=per, form=form)
    merge = Difference(factor=factor, heads=heads)
    return Operator(name=name, signals=Signals(count=2), merge=merge, head_norm=_NORM)


@named_operator("002", limits=(Limit("tau = 1", {"transform.tau": 1.0}, softmax),))
def integral_control(signals: int = 8, *, name: str = "Integral control") -> Operator:
    """Softmax at scale 1/sqrt(S d): what Integral on S signals' logits is, but for rotary positions per signal."""
    return Operator(
        name=f"{name} S={signals}", transform=Temperature(tau=Number(init=math.sqrt(signals), link="positive"))
    )


@named_operator(
    "002",
    limits=(Limit("no rotary positions per signal", {}, integral_control, within=1e-7),),
    pitfalls=(
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
    pitfalls=("It takes S softmaxes per head; the paper reports chance-level accuracy for it.",),
)
def integral_weights(
    signals: int = 8, *, rotary: Literal["per_signal", "before_split"] = "per_signal", name: str = "Integral on weights"
) -> Operator:
    """The mean of S signals' softmax outputs."""
    return Operator(name=name, signals=Signals(count=signals, rotary=rotary), merge=MeanWeights())
