"""Principled Attention: ground state, gate and margin amplification, each at its own granularity (paper 001).

The formulas are those of the stages `LogCount` (`margins.py`), `Suppress` (`gates.py`), `Ground` (`normalisers.py`) and
`GroundValue` (`readouts.py`), which `ablate.variants.attend` puts together.
"""

from typing import Literal

from ablate.variants.granularity import PerScalar, PerVector
from ablate.variants.operator import Operator
from ablate.variants.papers.catalogue import Limit, named_operator, softmax
from ablate.variants.stages.gates import Suppress
from ablate.variants.stages.margins import LogCount
from ablate.variants.stages.normalisers import Ground
from ablate.variants.stages.readouts import GroundValue

Dims = Literal["add", "split"]

_NO_MARGIN, _NO_GATE = {"margin.amplification": -60.0}, {"gate.strength": -60.0}
_NO_GROUND = {"normaliser.threshold": -60.0}

_SPLIT = "A split gate takes channels from the logit, so a gate that is off is softmax on the channels that are left."
_MASS = (
    "The ground state's mass grows with the number of keys below the threshold: each leaves e^gamma there, so the "
    "threshold alone does not cure dilution."
)
_DEAD = (
    "A threshold far below all logits is softmax exactly, and its gradient and the ground value's are exactly 0: such "
    "a start never leaves softmax. The start here, gamma = 0 with small logits, is near softmax and alive."
)
_COUNT = "K counts visible keys before gating, not the length of the sequence."


@named_operator(
    "001",
    limits=(Limit("alpha, beta, gamma -> -inf", {**_NO_MARGIN, **_NO_GATE, **_NO_GROUND}, softmax),),
    pitfalls=(_MASS, _DEAD, _COUNT, _SPLIT),
)
def principled(
    per: PerScalar = "constant",
    *,
    ground_value: PerVector | None = None,
    gate_width: int = 16,
    gate_dims: Dims = "add",
    name: str = "Principled",
) -> Operator:
    """All components on. `per` is the granularity of alpha, beta and gamma; v0 follows it as far as it can.

    One component off is another choice of its stage: `principled().changed(gate=NoGate())`, or a grid axis such as
    `over("operator.gate", [NoGate(), Suppress()])`. Granularities are axes such as "operator.gate.strength.per".
    """
    ground = principled_ground(per, ground_value=ground_value)
    return ground.changed(
        name=name,
        margin=principled_margin(per).margin,
        gate=principled_gate(per, width=gate_width, dims=gate_dims).gate,
    )


@named_operator("001", limits=(Limit("alpha -> -inf", _NO_MARGIN, softmax),), pitfalls=(_COUNT,))
def principled_margin(per: PerScalar = "constant", *, name: str = "Principled margin") -> Operator:
    """Margin amplification alone: logits grow with the logarithm of the number of visible keys."""
    margin = LogCount()
    return Operator(name=name, margin=margin.changed(amplification=margin.amplification.at(per)))


@named_operator("001", limits=(Limit("beta -> -inf", _NO_GATE, softmax),), pitfalls=(_SPLIT,))
def principled_gate(
    per: PerScalar = "constant", *, width: int = 16, dims: Dims = "add", name: str = "Principled gate"
) -> Operator:
    """The gate alone: a second product of query and key can lower a logit."""
    gate = Suppress(width=width, dims=dims)
    return Operator(name=name, gate=gate.changed(strength=gate.strength.at(per)))


@named_operator("001", limits=(Limit("gamma -> -inf", _NO_GROUND, softmax),), pitfalls=(_MASS, _DEAD))
def principled_ground(
    per: PerScalar = "constant", *, ground_value: PerVector | None = None, name: str = "Principled ground"
) -> Operator:
    """The ground state alone, with its value v0: keys below a relevance threshold leave their weight to it.

    `per` is the granularity of the threshold; v0 follows it as far as it can, and `ground_value` sets it apart.
    """
    vector = ground_value or ("head" if per == "query" else per)
    ground, readout = Ground(), GroundValue()
    return Operator(
        name=name,
        normaliser=ground.changed(threshold=ground.threshold.at(per)),
        readout=readout.changed(ground_value=readout.ground_value.at(vector)),
    )
