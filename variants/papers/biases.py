"""A learned key, with or without a value, that every query can attend to (paper 004, section 7.2 and appendix D.5)."""

from typing import Literal

from variants.number import KeyVector, Vector
from variants.operator import Operator
from variants.papers.catalogue import Limit, named_operator
from variants.papers.sinks import off_by_one
from variants.stages.extras.key_bias import KeyBias
from variants.stages.extras.key_value_bias import KeyValueBias

_SHARED = "In the paper's table 11 the marks over the columns cannot be right: the first of each pair is not shared."


def _key(*, shared: bool) -> KeyVector:
    return KeyVector(init=0.0, per="layer" if shared else "head", spread=0.02)


@named_operator("004", limits=(Limit("k* = 0", {"extra.learned_key": 0.0}, off_by_one),), traps=(_SHARED,))
def key_bias(*, shared: bool = False, name: str = "K biases") -> Operator:
    """A learned key of value 0, per head or shared by a layer's heads."""
    return Operator(name=name, extra=KeyBias(learned_key=_key(shared=shared)))


@named_operator("004", limits=(Limit("v* = 0", {"extra.learned_value": 0.0}, key_bias),), traps=(_SHARED,))
def key_value_bias(*, shared: bool = False, name: str = "KV biases") -> Operator:
    """A learned key and a learned value, per head or shared by a layer's heads."""
    value = Vector(init=0.0, per="layer" if shared else "head", spread=0.02)
    return Operator(name=name, extra=KeyValueBias(learned_key=_key(shared=shared), learned_value=value))


@named_operator(
    "004",
    limits=(Limit("m = 0", {"extra.learned_value": 0.0}, key_bias),),
    traps=("At m = 0 it is the K biases.",),
)
def fixed_value_bias(
    m: float = 1.0,
    *,
    along: Literal["first", "all"] = "first",
    shared: bool = False,
    name: str = "K biases, fixed value",
) -> Operator:
    """A learned key whose value is fixed: m in the first channel, or in all of them; the paper tries m of 1, 5 and 20.

    The paper's second direction has length m: of d channels, `m` here is its m / sqrt(d).
    """
    value = Vector(init=m, along=along)
    return Operator(name=name, extra=KeyValueBias(learned_key=_key(shared=shared), learned_value=value))
