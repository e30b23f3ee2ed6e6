"""Principled Attention: ground state, gate and margin amplification, each at its own granularity (paper 001)."""

from typing import Literal

from variants.gates.suppress import Suppress
from variants.margins.log_count import LogCount
from variants.normalisers.ground import Ground
from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.named import Limit, named
from variants.readouts.ground_value import GroundValue

Scalar = Literal["constant", "layer", "head", "query"]
Vectorial = Literal["constant", "layer", "head"]


@named(
    "001",
    limits=(
        Limit(
            "alpha, beta, gamma -> -inf",
            {"margin.amplification": -60.0, "gate.strength": -60.0, "normaliser.threshold": -60.0},
            softmax,
        ),
    ),
)
def principled(
    per: Scalar = "constant",
    *,
    ground_value: Vectorial | None = None,
    gate_width: int = 16,
    gate_dims: Literal["add", "split"] = "add",
    name: str = "Principled",
) -> Operator:
    """All components on. `per` is the granularity of alpha, beta and gamma; v0 follows it as far as it can.

    Single components are set on the stages: `Operator(normaliser=Ground(), readout=GroundValue())`, or by a grid axis
    such as "operator.gate.strength.per".
    """
    vector = ground_value or ("head" if per == "query" else per)
    margin, gate, ground, readout = LogCount(), Suppress(width=gate_width, dims=gate_dims), Ground(), GroundValue()
    return Operator(
        name=name,
        margin=margin.changed(amplification=margin.amplification.at(per)),
        gate=gate.changed(strength=gate.strength.at(per)),
        normaliser=ground.changed(threshold=ground.threshold.at(per)),
        readout=readout.changed(ground_value=readout.ground_value.at(vector)),
    )
