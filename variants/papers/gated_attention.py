"""Gated attention (Qiu et al. 2025), a baseline of paper 000: softmax with a gate on the output of each head."""

from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.output_gates.per_channel import PerChannel
from variants.stages.output_gates.per_head import PerHead

_OPEN = Limit("gate = 1", {"output_gate.opening": 1.0}, softmax)
_HALF = "The gate is half open at the start, so the outputs of heads are half as large as softmax's."


@named_operator("000", limits=(_OPEN,), traps=(_HALF,))
def gated_heads(*, name: str = "Gated heads") -> Operator:
    """One gate per head and token, from the layer's input."""
    return Operator(name=name, output_gate=PerHead())


@named_operator("000", limits=(_OPEN,), traps=(_HALF, "The overhead that paper 000 reports for Gated is this one's."))
def gated_elements(*, name: str = "Gated elements") -> Operator:
    """One gate per channel, head and token, from the layer's input."""
    return Operator(name=name, output_gate=PerChannel())
