"""Attention without an exponential: weights are products of features (papers 003 and 004)."""

from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.normalisers.clamped import Clamped
from variants.stages.normalisers.none import NoNormaliser
from variants.stages.products.cosformer import CosFormer
from variants.stages.products.linear_elu import LinearELU
from variants.stages.products.mlp import MLP
from variants.stages.products.relu import ReluFeatures
from variants.stages.scores.identity import Identity

_SMALL = "small logits, whose sum is within 1"
_DIVERGED = "The paper reports that its training failed."


@named_operator(
    "004",
    limits=(Limit("q = k = 0", {}, softmax, where="logits of 0"),),
    traps=("The scale 1 / sqrt(d) cancels.",),
)
def linear_elu(*, name: str = "linear ELU") -> Operator:
    """Weights proportional to phi(q) . phi(k), phi(x) = elu(x) + 1: linear attention."""
    return Operator(name=name, product=LinearELU(), score=Identity())


@named_operator("004", traps=(_DIVERGED,))
def linear_elu_unnormalised(*, name: str = "linear ELU, not normalised") -> Operator:
    """Weights phi(q) . phi(k) / sqrt(d), phi(x) = elu(x) + 1, that need not sum to 1."""
    return Operator(name=name, product=LinearELU(), score=Identity(), normaliser=NoNormaliser())


@named_operator("004")
def mlp_kernel_unnormalised(*, name: str = "MLP kernel, not normalised") -> Operator:
    """Weights phi(q) . phi(k) / sqrt(d) of a learned phi, of either sign."""
    return Operator(name=name, product=MLP(), score=Identity(), normaliser=NoNormaliser())


@named_operator("004", limits=(Limit(_SMALL, {}, mlp_kernel_unnormalised, where="small logits"),))
def mlp_kernel(*, name: str = "MLP kernel") -> Operator:
    """Weights phi(q) . phi(k) / sqrt(d) of a learned phi, divided by |their sum| where that is above 1."""
    return Operator(name=name, product=MLP(), score=Identity(), normaliser=Clamped())


def _relu_features() -> Operator:
    """Weights proportional to relu(q) . relu(k)."""
    return Operator(name="ReLU features", product=ReluFeatures(), score=Identity())


@named_operator("003", limits=(Limit("M -> inf", {}, _relu_features, fields={"product": {"length": 10**9}}),))
def cosformer(length: int | None = None, *, name: str = "cosFormer") -> Operator:
    """Weights proportional to relu(q) . relu(k), less with distance by a cosine.

    `length` is M, at least the longest sequence; None takes the length of the sequence, as the released code does.
    """
    return Operator(name=name, product=CosFormer(length=length), score=Identity())
