"""Operators of other papers that act on logits."""

import math
from typing import Literal

from ablate.grid.errors import SpecError
from ablate.variants.granularity import PerScalar, PerVector
from ablate.variants.number import Number
from ablate.variants.operator import Operator
from ablate.variants.papers.catalogue import Limit, named_operator, softmax
from ablate.variants.stages.forgetting import DecayTimes, ForgetGate, HeadDecay, Selective
from ablate.variants.stages.margins import SSMax
from ablate.variants.stages.normalisers import AgainstCount
from ablate.variants.stages.preparations import RMSNorm
from ablate.variants.stages.scores import Uniform
from ablate.variants.stages.transforms import Softcap


def _equal() -> Operator:
    """Every visible key weighs as much."""
    return Operator(name="equal weights", score=Uniform())


@named_operator("beyond", limits=(Limit("q and k of root mean square 1", {}, softmax, within=1e-4, where="unit"),))
def qk_norm(per: PerVector = "layer", *, name: str = "QK-norm") -> Operator:
    """Softmax of queries and keys whose root mean square is 1, times a gain per channel (ViT-22B, Qwen3, Gemma 3)."""
    norm = RMSNorm()
    return Operator(
        name=name, preparation=norm.changed(query_gain=norm.query_gain.at(per), key_gain=norm.key_gain.at(per))
    )


@named_operator("beyond", limits=(Limit("c -> inf", {"transform.cap": 1e8}, softmax),))
def softcap(cap: float = 50.0, *, per: PerScalar = "constant", name: str = "softcap") -> Operator:
    """Softmax of c tanh(z / c), so that no logit leaves [-c, c] (Gemma 2)."""
    return Operator(name=name, transform=Softcap(cap=Number(init=cap, per=per, link="positive")))


@named_operator("beyond", limits=(Limit("s = 0, where weights are equal", {"margin.scale": 0.0}, _equal),))
def ssmax(scale: float = 0.168, *, bias: float | None = None, per: PerScalar = "head", name: str = "SSMax") -> Operator:
    """Softmax of s ln(K) z: attention does not fade as the number of visible keys K grows (scalable softmax).

    With `bias`, the factor is s ln(K) + b, and b is learned from there, as finely as s.
    """
    margin = SSMax(scale=Number(init=scale, per=per))
    return Operator(name=name, margin=margin if bias is None else margin.changed(bias=Number(init=bias, per=per)))


@named_operator("beyond", limits=(Limit("s = 0, b = 1", {"margin.scale": 0.0, "margin.bias": 1.0}, softmax),))
def ssmax_biased(*, name: str = "SSMax with bias") -> Operator:
    """Softmax of (s ln(K) + b) z, with s and b learned per head."""
    return ssmax(bias=0.0, name=name)


@named_operator("beyond", limits=(Limit("f = 1", {"forgetting.gate": 1.0}, softmax),))
def fox(
    per: Literal["constant", "layer", "head", "query", "token"] = "token",
    *,
    forget: float = 0.5,
    projection_std: float = 0.02,
    name: str = "Forgetting Transformer",
) -> Operator:
    """Softmax whose logits decay by a forget gate of every token between key and query; per head a learned decay.

    `forget` is the gate f at step 0, the share that a token leaves, for an input of 0. Its projection starts at random
    with `projection_std`, as in the released code. The Pro model also has `token_shift="both"` in its backbone.
    """
    gate = Number(init=forget, per=per, link="unit", projection_std=projection_std)
    return Operator(name=name, forgetting=ForgetGate(gate=gate))


@named_operator("beyond")
def fox_decay_times(shortest: float = 2.0, longest: float = 128.0, *, name: str = "FoX, decay times") -> Operator:
    """A learned decay per head whose time, in tokens, starts between `shortest` and `longest`, spaced in logarithm.

    Raises SpecError if a time is not above 0.
    """
    for time in (shortest, longest):
        if not time > 0:
            raise SpecError(f"a decay time of {time} tokens is not above 0; raise it")
    gate = HeadDecay(init=math.exp(-1 / shortest), last=math.exp(-1 / longest))
    return Operator(name=name, forgetting=DecayTimes(gate=gate))


@named_operator("beyond", limits=(Limit("all logits below 0", {}, softmax, where="logits below 0"),))
def selective(*, name: str = "Selective Attention") -> Operator:
    """Softmax in which the first head's earlier queries take from a key what they attended to; no parameters."""
    return Operator(name=name, forgetting=Selective())


@named_operator(
    "beyond",
    pitfalls=(
        "The published b = -ln n has the length n of training; here n is what each query sees. "
        "sigmoid(-math.log(n)) is the published one.",
    ),
)
def sigmoid_log_count(*, name: str = "Sigmoid - ln n") -> Operator:
    """sigmoid(z - ln n) for n visible keys, so that rows of a fresh model sum to nearly one (Ramapuram et al. 2024)."""
    return Operator(name=name, normaliser=AgainstCount())
