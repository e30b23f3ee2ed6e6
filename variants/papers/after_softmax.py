"""Softmax with another scale of its weights, or with a value added for every query (paper 004)."""

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
    """Softmax plus a learned value for every query; per layer, heads share it."""
    readout = ValueBias()
    return Operator(name=name, readout=readout.changed(value_bias=readout.value_bias.at(per)))
