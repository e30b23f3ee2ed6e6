"""Operators of paper 004: what else than softmax, with or without an attention sink, a model can train with."""

import math
from typing import Literal

from ablate.variants.granularity import PerVector
from ablate.variants.number import KeyVector, Matrix, Number, Vector
from ablate.variants.operator import Operator
from ablate.variants.papers.affine_scaled import off_by_one
from ablate.variants.papers.catalogue import Limit, named_operator, softmax
from ablate.variants.stages.extras import KeyBias, KeyValueBias
from ablate.variants.stages.normalisers import Clamped, NoNormaliser
from ablate.variants.stages.products import MLP, LinearELU
from ablate.variants.stages.readouts import ValueBias
from ablate.variants.stages.rescales import Scale
from ablate.variants.stages.scores import EluPlusOne, Identity, Sigmoid, Uniform
from ablate.variants.stages.visible import Prefix, Window


@named_operator("004", limits=(Limit("alpha = 1", {"rescale.factor": 1.0}, softmax),))
def scaled_softmax(alpha: float = 0.1, *, name: str = "scaled softmax") -> Operator:
    """Softmax whose weights sum to alpha; the paper tries 2, 1, 0.2, 0.1 and 0.02."""
    return Operator(name=name, rescale=Scale(factor=Number(init=alpha)))


@named_operator("004", limits=(Limit("v* = 0", {"readout.value_bias": 0.0}, softmax),))
def value_bias(per: Literal["layer", "head"] = "head", *, spread: float = 0.02, name: str = "V biases") -> Operator:
    """Softmax plus a learned value for every query; per layer, heads share it.

    It starts with noise of standard deviation `spread`, as in the released code.
    """
    return Operator(name=name, readout=ValueBias(value_bias=Vector(init=0.0, per=per, spread=spread)))


_SHARED = "In the paper's table 11 the marks over the columns cannot be right: the first of each pair is not shared."


def _key(*, shared: bool) -> KeyVector:
    return KeyVector(init=0.0, per="layer" if shared else "head", spread=0.02)


@named_operator("004", limits=(Limit("k* = 0", {"extra.learned_key": 0.0}, off_by_one),), pitfalls=(_SHARED,))
def key_bias(*, shared: bool = False, name: str = "K biases") -> Operator:
    """A learned key of value 0, per head or shared by a layer's heads."""
    return Operator(name=name, extra=KeyBias(learned_key=_key(shared=shared)))


@named_operator("004", limits=(Limit("v* = 0", {"extra.learned_value": 0.0}, key_bias),), pitfalls=(_SHARED,))
def key_value_bias(*, shared: bool = False, name: str = "KV biases") -> Operator:
    """A learned key and a learned value, per head or shared by a layer's heads."""
    value = Vector(init=0.0, per="layer" if shared else "head", spread=0.02)
    return Operator(name=name, extra=KeyValueBias(learned_key=_key(shared=shared), learned_value=value))


@named_operator("004", limits=(Limit("m = 0", {"extra.learned_value": 0.0}, key_bias),))
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


_SMALL = "small logits, whose sum is within 1"
_FAILED = "The paper reports that training failed."


@named_operator(
    "004", limits=(Limit("q = k = 0", {}, softmax, where="logits of 0"),), pitfalls=("The scale 1 / sqrt(d) cancels.",)
)
def linear_elu(*, name: str = "linear ELU") -> Operator:
    """Weights proportional to phi(q) . phi(k), phi(x) = elu(x) + 1: linear attention."""
    return Operator(name=name, product=LinearELU(), score=Identity())


@named_operator("004", pitfalls=(_FAILED,))
def linear_elu_unnormalised(*, name: str = "linear ELU, not normalised") -> Operator:
    """Weights phi(q) . phi(k) / sqrt(d), phi(x) = elu(x) + 1, that need not sum to 1."""
    return Operator(name=name, product=LinearELU(), score=Identity(), normaliser=NoNormaliser())


_RELEASED_GAIN = math.sqrt(0.4)


def _mlp(gain: float) -> MLP:
    return MLP(inner=Matrix(init=gain), outer=Matrix(init=gain))


@named_operator("004")
def mlp_kernel_unnormalised(gain: float = _RELEASED_GAIN, *, name: str = "MLP kernel, not normalised") -> Operator:
    """Weights phi(q) . phi(k) / sqrt(d) of a learned phi, of either sign.

    Weights of phi start with standard deviation gain / sqrt(d); sqrt(0.4 / d) is the released code's.
    """
    return Operator(name=name, product=_mlp(gain), score=Identity(), normaliser=NoNormaliser())


@named_operator("004", limits=(Limit(_SMALL, {}, mlp_kernel_unnormalised, where="small logits"),))
def mlp_kernel(gain: float = _RELEASED_GAIN, *, name: str = "MLP kernel") -> Operator:
    """Weights phi(q) . phi(k) / sqrt(d) of a learned phi, divided by |their sum| where that is above 1.

    `gain` is as in `mlp_kernel_unnormalised`.
    """
    return Operator(name=name, product=_mlp(gain), score=Identity(), normaliser=Clamped())


_GROWS = "Outputs grow with the number of visible keys: a fresh model's weights sum to"


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
    pitfalls=(f"{_GROWS} K / 2.", "The paper has no bias b; a fixed b = -ln n belongs to another paper."),
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
    "004", limits=(Limit("all logits below 0", {}, _exponential, where="logits below 0"),), pitfalls=(f"{_GROWS} K.",)
)
def elu_plus_one(*, name: str = "ELU + 1") -> Operator:
    """elu(z) + 1 as weights, without a sum."""
    return Operator(name=name, score=EluPlusOne(), normaliser=NoNormaliser())


@named_operator(
    "004",
    limits=(Limit("all logits below 0", {}, softmax, where="logits below 0"),),
    pitfalls=(_FAILED, "It is softmax for queries all of whose logits are at most 0."),
)
def elu_plus_one_normalised(*, name: str = "ELU + 1 normalised") -> Operator:
    """elu(z) + 1 over its sum."""
    return Operator(name=name, score=EluPlusOne())


@named_operator(
    "004", pitfalls=("It is linear attention without features: its outputs are sums, of both signs, of any size.",)
)
def identity(*, name: str = "Identity") -> Operator:
    """The logits as weights, without a sum."""
    return Operator(name=name, score=Identity(), normaliser=NoNormaliser())


@named_operator(
    "004",
    limits=(Limit(_SMALL, {}, identity, where="small logits"),),
    pitfalls=(_FAILED, "The sum of logits has either sign; the size of a row's sum is at most 1."),
)
def identity_clamped(*, name: str = "Identity clamped") -> Operator:
    """The logits over max(|their sum|, 1)."""
    return Operator(name=name, score=Identity(), normaliser=Clamped())


@named_operator("004", limits=(Limit("as long as the sequence", {}, softmax, fields={"visible": {"size": 10**6}}),))
def sliding_window(size: int = 64, *, name: str = "sliding window") -> Operator:
    """Softmax over the last `size` keys, the query's own among them."""
    return Operator(name=name, visible=Window(size=size))


@named_operator("004", limits=(Limit("a prefix of one key", {}, softmax, fields={"visible": {"length": 1}}),))
def prefix_lm(length: int = 16, *, name: str = "prefix LM") -> Operator:
    """Softmax in which every query sees the first `length` keys; the loss belongs after them."""
    return Operator(name=name, visible=Prefix(length=length))
