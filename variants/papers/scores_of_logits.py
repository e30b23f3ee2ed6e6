"""Softmax's exponential exchanged for another function of the logit, with and without a sum below it (paper 004)."""

from variants.number import Number, PerVector
from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.normalisers.against_count import AgainstCount
from variants.stages.normalisers.clamped import Clamped
from variants.stages.normalisers.none import NoNormaliser
from variants.stages.scores.elu_plus_one import EluPlusOne
from variants.stages.scores.identity import Identity
from variants.stages.scores.sigmoid import Sigmoid
from variants.stages.scores.uniform import Uniform

_GROWS = "Outputs grow with the number of visible keys: a fresh model's weights sum to"
_FAILED = "The paper reports that training failed."


def _sigmoid(shift: float, per: PerVector) -> Sigmoid:
    return Sigmoid(shift=Number(init=shift, per=per))


def _ones() -> Operator:
    """The sum of the visible values."""
    return Operator(name="every key counts 1", score=Uniform(), normaliser=NoNormaliser())


def _exponential() -> Operator:
    """e^z as weights, without a sum."""
    return Operator(name="exponential, not normalised", normaliser=NoNormaliser())


@named_operator(
    "004",
    limits=(Limit("b -> inf", {"score.shift": 60.0}, _ones),),
    traps=(f"{_GROWS} K / 2.", "The paper has no bias b; a fixed b = -ln n belongs to another paper."),
)
def sigmoid(shift: float = 0.0, *, per: PerVector = "constant", name: str = "Sigmoid") -> Operator:
    """sigmoid(z + b) as weights, without a sum; b = 0 in the paper."""
    return Operator(name=name, score=_sigmoid(shift, per), normaliser=NoNormaliser())


@named_operator("004", limits=(Limit("b -> -inf", {"score.shift": -40.0}, softmax),))
def sigmoid_normalised(
    shift: float = 0.0, *, per: PerVector = "constant", name: str = "Sigmoid normalised"
) -> Operator:
    """sigmoid(z + b) over its sum; softmax where all z + b are far below 0."""
    return Operator(name=name, score=_sigmoid(shift, per))


@named_operator(
    "beyond",
    traps=(
        "The published b = -ln n has the length n of training; here n is what each query sees. "
        "sigmoid(-math.log(n)) is the published one.",
    ),
)
def sigmoid_log_count(*, name: str = "Sigmoid - ln n") -> Operator:
    """sigmoid(z - ln n) for n visible keys, so that rows of a fresh model sum to nearly one (Ramapuram et al. 2024)."""
    return Operator(name=name, normaliser=AgainstCount())


@named_operator(
    "004",
    limits=(Limit("all logits below 0", {}, _exponential, where="logits below 0"),),
    traps=(f"{_GROWS} K.",),
)
def elu_plus_one(*, name: str = "ELU + 1") -> Operator:
    """elu(z) + 1 as weights, without a sum."""
    return Operator(name=name, score=EluPlusOne(), normaliser=NoNormaliser())


@named_operator(
    "004",
    limits=(Limit("all logits below 0", {}, softmax, where="logits below 0"),),
    traps=(_FAILED, "It is softmax for queries all of whose logits are at most 0."),
)
def elu_plus_one_normalised(*, name: str = "ELU + 1 normalised") -> Operator:
    """elu(z) + 1 over its sum."""
    return Operator(name=name, score=EluPlusOne())


@named_operator(
    "004", traps=("It is linear attention without features: its outputs are sums, of both signs, of any size.",)
)
def identity(*, name: str = "Identity") -> Operator:
    """The logits as weights, without a sum."""
    return Operator(name=name, score=Identity(), normaliser=NoNormaliser())


@named_operator(
    "004",
    limits=(Limit("small logits, whose sum is within 1", {}, identity, where="small logits"),),
    traps=(_FAILED, "The sum of logits has either sign; the size of a row's sum is at most 1."),
)
def identity_clamped(*, name: str = "Identity clamped") -> Operator:
    """The logits over max(|their sum|, 1)."""
    return Operator(name=name, score=Identity(), normaliser=Clamped())
