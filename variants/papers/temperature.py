"""Softmax at another temperature (paper 003, table 1)."""

from variants.number import Number, PerScalar
from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.transforms.temperature import Temperature


@named_operator(
    "003",
    limits=(Limit("tau = 1", {"transform.tau": 1.0}, softmax),),
    traps=("The scale 1 / sqrt(d) is kept; tau comes on top of it.",),
)
def temperature(
    tau: float = 10.0,
    *,
    per: PerScalar = "constant",
    name: str = "softmax at a temperature",
) -> Operator:
    """Softmax of z / tau; the paper tries 5, 10, 20, 50 and 100, none of them trained."""
    return Operator(name=name, transform=Temperature(tau=Number(init=tau, per=per, link="positive")))
