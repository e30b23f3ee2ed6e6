"""Numbers of operators with one score as rows of queries, for the paths "cpu" and "triton".

    margin c_i over gamma    logits c_i z_ij and threshold c_i gamma
    SSA's slope b            a factor of the queries and of the gate, as b |a| = |b a|
    ground value v0          the ground state's weight times v0, outside of the tiles

The margin leaves out a constant that it adds to logits and threshold alike, since that changes no weight.
"""

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from ablate.variants.attend import Heads, Keywords, postprocess
from ablate.variants.axes import HeadOutput, HeadValues, Keys, Queries, Scalar
from ablate.variants.operator import Operator
from ablate.variants.paths.case import refuse_kinds
from ablate.variants.paths.tiles import POWERS, Normalised, Rule
from ablate.variants.stages.products import Dot

GATED = ("forget_gate", "decay_times")
"""Forgetting by a gate of every token."""
_KINDS = {
    "extra": ("none",),
    "product": ("dot",),
    "transform": ("none", "temperature"),
    "forgetting": ("none", *GATED),
    "margin": ("none", "log_count", "ssmax"),
    "gate": ("none", "suppress"),
    "score": ("exponential", "ssa", "signed_exponential", "sigmoid", "elu_plus_one"),
    "normaliser": ("total", "absolute", "ground", "none", "count", *POWERS),
    "merge": ("logits",),
    "rescale": ("none", "scale"),
    "readout": ("values", "ground_value", "value_bias"),
}
_DOT = Dot()
_BESIDE_FORGETTING = {"visible": "everything", "margin": "none", "transform": "none", "score": "exponential"}
_NORMALISED: dict[str, Normalised] = {
    "total": "total", "absolute": "total", "ground": "ground", "sparsemax": "sparsemax", "entmax15": "entmax15",
    "sink": "sink",
}  # fmt: skip


def cannot_fold(operator: Operator, path: str, **kinds: tuple[str, ...]) -> str | None:
    """Return why `path` cannot run `operator`, or None if it can. `kinds` are those of stages of which it has fewer."""
    if (reason := refuse_kinds(path, {**_KINDS, **kinds}, operator)) is not None:
        return reason
    for stage, label in _BESIDE_FORGETTING.items() if operator.forgetting.label != "none" else ():
        if (kind := getattr(operator, stage).label) != label:
            return f"{path} computes forgetting with {stage} {label!r} only, not {kind!r}"
    score, normaliser = operator.score.label, operator.normaliser.label
    if normaliser == "sink" and score != "exponential":
        return f"{path} computes a sink with score 'exponential' only, not {score!r}"
    if normaliser == "ground" and operator.margin.label != "none" and score != "exponential":
        return f"{path} computes a margin over the threshold with score 'exponential' only, not {score!r}"
    return None


def rule_of(operator: Operator, *, causal: bool) -> Rule:
    """Return score, normaliser and direction of the operator's map."""
    return Rule(operator.score.label, _NORMALISED.get(operator.normaliser.label, "none"), causal)  # type: ignore[arg-type]


class ScoreRows(NamedTuple):
    """Heads without gate channels, the gate's channels, and numbers; None if absent."""

    q: Queries
    """Logits are scale c_i q_i . k_j."""
    k: Keys
    v: HeadValues
    scale: float
    q_gate: Float[Tensor, "batch heads queries gate"] | None
    k_gate: Float[Tensor, "batch heads keys gate"] | None
    gate_scale: float
    factor: Float[Tensor, "*#maps #queries 1"] | None
    """c_i."""
    strength: Scalar | None
    """softplus(beta)."""
    exponent: Scalar | None
    """n of "ssa"."""
    shift: Tensor | float | None
    """Added to the logits."""
    gamma: Scalar | None
    """The ground state's threshold."""
    floor: Float[Tensor, "*#maps #queries 1"] | None
    """The logarithm of the score at the threshold, under the margin; of a sink, its logit."""


def fold(operator: Operator, heads: Heads, value: Keywords, count: Float[Tensor, "*#maps queries 1"]) -> ScoreRows:
    """Write the operator's numbers as rows of queries. `count` is the number of visible keys."""
    own, score = operator.gate.channels, value["score"]
    q, k = heads.q, heads.k
    q_own, k_own = (q[..., :-own], k[..., :-own]) if own else (q, k)
    c = operator.margin.factor(count, **value["margin"])
    factors = [] if c is None else [c]
    factors += [1 / value["transform"]["tau"]] if operator.transform.label == "temperature" else []
    factors += [score["b"]] if operator.score.label == "ssa" else []
    floor = value["normaliser"].get("logit")  # a sink has one
    if (gamma := operator.normaliser.relevance(**value["normaliser"])) is not None:
        floor = gamma if c is None else c * gamma
        if operator.score.label != "exponential":
            floor = operator.score.log_score(gamma, **score)  # type: ignore[attr-defined]
    gate = value["gate"].get("strength")
    return ScoreRows(
        q=q_own,
        k=k_own,
        v=heads.v,
        scale=_DOT.scale(q_own.shape[-1], operator.signals.count),
        q_gate=q[..., -own:] if own else None,
        k_gate=k[..., -own:] if own else None,
        gate_scale=1 / math.sqrt(own) if own else 1.0,
        factor=math.prod(factors) if factors else None,  # type: ignore[arg-type]
        strength=None if gate is None else functional.softplus(gate) * score.get("b", 1),
        exponent=score.get("n"),
        shift=score.get("shift"),
        gamma=gamma,
        floor=floor,
    )


def unfold(
    operator: Operator,
    output: HeadOutput,
    ground: Float[Tensor, "batch heads queries 1"],
    count: Float[Tensor, "*#maps queries 1"],
    value: Keywords,
) -> HeadOutput:
    """Apply what follows the tiles to the output; `ground` is the ground state's weight."""
    if operator.normaliser.label == "count":
        output = output / count.clamp(min=1)
    if operator.rescale.label == "scale":
        output, ground = output * value["rescale"]["factor"], ground * value["rescale"]["factor"]
    if operator.readout.label == "ground_value":
        output = output + ground * value["readout"]["ground_value"]
    if operator.readout.label == "value_bias":
        output = output + value["readout"]["value_bias"]
    return postprocess(operator, output, value)
