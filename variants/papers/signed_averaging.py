"""Operators of paper 003: scaled signed averaging (SSA) and its baselines."""

import math
from typing import Literal

from ablate.variants.granularity import PerScalar
from ablate.variants.number import Number
from ablate.variants.operator import Operator
from ablate.variants.papers.catalogue import Limit, named_operator, softmax
from ablate.variants.stages.normalisers import Absolute, Count, Entmax15, SelfAdjusted, Sparsemax
from ablate.variants.stages.products import CosFormer, ReluFeatures
from ablate.variants.stages.scores import SSA, Exponential, HeadGroups, Identity, Relu, Square, Tanh, Uniform
from ablate.variants.stages.transforms import Temperature

_EQUAL = Limit("all logits equal", {}, softmax, where="logits of 0")


@named_operator(
    "003",
    limits=(_EQUAL,),
    pitfalls=(
        "The second half's projections of queries and keys are parameters without a purpose.",
        "Averaging is over the visible tokens, not over the whole length.",
    ),
)
def soft_avg(*, name: str = "SOFT/AVG") -> Operator:
    """Softmax in the first half of the heads, the mean of the visible values in the second."""
    return Operator(name=name, score=HeadGroups(parts=(Exponential(), Uniform())))


@named_operator(
    "003",
    pitfalls=(
        "The paper does not say how these scores are normalised; divided='count' takes means over the visible keys.",
        "At logits of 0 only the averaging heads have an output.",
    ),
)
def four_scores(divided: Literal["count", "absolute"] = "count", *, name: str = "Four scores") -> Operator:
    """tanh, mean, ReLU and square, each in a quarter of the heads.

    `divided` by the number of visible keys, or by the sum of the scores' sizes.
    """
    score = HeadGroups(parts=(Tanh(), Uniform(), Relu(), Square()))
    return Operator(name=name, score=score, normaliser=Count() if divided == "count" else Absolute())


def _relu_features() -> Operator:
    """Weights proportional to relu(q) . relu(k)."""
    return Operator(name="ReLU features", product=ReluFeatures(), score=Identity())


@named_operator("003", limits=(Limit("M -> inf", {}, _relu_features, fields={"product": {"length": 10**9}}),))
def cosformer(length: int | None = None, *, name: str = "cosFormer") -> Operator:
    """Weights proportional to relu(q) . relu(k), less with distance by a cosine.

    `length` is M, at least the longest sequence; None takes the length of the sequence, as the released code does.
    """
    return Operator(name=name, product=CosFormer(length=length), score=Identity())


@named_operator(
    "003",
    limits=(Limit("all logits 0", {}, softmax, where="logits of 0"),),
    pitfalls=(
        "0 / 0, where all visible logits are 0, is 1 here; the paper leaves it open.",
        "The paper does not say whether gradients flow through the smallest and largest logit; here they do.",
        "A first token whose own logit is below 0 attends to nothing.",
    ),
)
def sa_softmax(*, normalised: bool = True, name: str = "SA-Softmax") -> Operator:
    """Softmax times a factor in 0..1 that grows with the logit; normalised=False is z softmax(z)."""
    return Operator(name=name, normaliser=SelfAdjusted(normalised=normalised))


_SCALED = (
    "Unlike softmax they are not smooth in the scale: with 1 / sqrt(d) kept, a fresh model's weights are all nonzero."
)


@named_operator(
    "003", limits=(_EQUAL,), pitfalls=(_SCALED, "One key has all the weight once its logit is 1 above all others.")
)
def sparsemax(*, name: str = "Sparsemax") -> Operator:
    """The nearest distribution to the logits; many weights are exactly 0."""
    return Operator(name=name, normaliser=Sparsemax())


@named_operator(
    "003",
    limits=(_EQUAL,),
    pitfalls=(
        _SCALED,
        "One key has all the weight once its logit is 2 above all others.",
        "The paper does not give alpha; 1.5 is the value that has a closed form.",
    ),
)
def entmax15(*, name: str = "Entmax-1.5") -> Operator:
    """Between softmax and sparsemax: alpha = 1.5."""
    return Operator(name=name, normaliser=Entmax15())


_TENDS = Limit("n, 1/b -> inf", {"score.n": 1e7, "score.b": 1e-7}, softmax, within=1e-4)


@named_operator(
    "003",
    limits=(_TENDS,),
    pitfalls=(
        "The paper trains n and b per head from 1.5 and 1. Its released GPT-2 code trains them per layer from e^0.4 "
        "and e, as exponentials without n >= 1. Its later code trains n per layer from 1.5, with b fixed at 0.8.",
        "That GPT-2 code does not call the score if fused attention is available: the run called SSA is softmax.",
        "Formulas by sgn and |z| have gradient 0 at z = 0 in autograd; the slope there is n b.",
    ),
)
def ssa(
    n: float = 1.5,
    b: float = 1.0,
    *,
    per: PerScalar = "head",
    b_per: PerScalar | None = None,
    n_link: Literal["at_least_one", "positive"] = "at_least_one",
    name: str = "SSA",
) -> Operator:
    """SSA scores under the ordinary sum; n and b per head as in the paper, starting at 1.5 and 1.

    "constant" is fixed. `b_per` is b's own granularity, by default n's. `ssa_released` has the values of the released
    script. Later variants are `ssa(1.5, 0.8, per="layer", b_per="constant")` and `ssa(2.0, per="constant")`.
    """
    slope = Number(init=b, per=per if b_per is None else b_per, link="positive")
    return Operator(name=name, score=SSA(n=Number(init=n, per=per, link=n_link), b=slope))


@named_operator("003", limits=(_TENDS,), pitfalls=("n may fall below 1, which the paper excludes.",))
def ssa_released(*, name: str = "SSA, released") -> Operator:
    """SSA as in the released script: n = e^a and b = e^c per layer, starting at a = 0.4 and c = 1."""
    return ssa(math.exp(0.4), math.e, per="layer", n_link="positive", name=name)


@named_operator(
    "003",
    limits=(Limit("tau = 1", {"transform.tau": 1.0}, softmax),),
    pitfalls=("The scale 1 / sqrt(d) is kept; tau comes on top of it.",),
)
def temperature(tau: float = 10.0, *, per: PerScalar = "constant", name: str = "softmax at a temperature") -> Operator:
    """Softmax of z / tau; the paper tries 5, 10, 20, 50 and 100, none of them trained."""
    return Operator(name=name, transform=Temperature(tau=Number(init=tau, per=per, link="positive")))
