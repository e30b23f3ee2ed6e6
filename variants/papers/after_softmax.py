"""What paper 004 does to softmax without touching its weights' shape: their scale, and a value for every query."""

from typing import Literal

from variants.number import Number
from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.readouts.value_bias import ValueBias
from variants.stages.rescales.scale import Scale


@named_operator("004", limits=(Limit("alpha = 1", {"rescale.factor": 1.0}, softmax),))
def scaled_softmax(alpha: float = 0.1, *, name: str = "scaled softmax") -> Operator:
    """Softmax whose weights sum to alpha; the paper tries 2, 1, 0.2, 0.1 and 0.02."""
    return Operator(name=name, rescale=Scale(factor=Number(init=alpha)))


@named_operator("004", limits=(Limit("v* = 0", {"readout.value_bias": 0.0}, softmax),))
def value_bias(per: Literal["layer", "head"] = "head", *, name: str = "V biases") -> Operator:
    """Softmax and a learned value that every query gets besides; per layer is shared by its heads."""
    readout = ValueBias()
    return Operator(name=name, readout=readout.changed(value_bias=readout.value_bias.at(per)))
