"""Operators of one score on the CPU, by `variants.paths.tiles`. Margin, threshold and numbers become rows of queries.

    margin c_i over gamma    logits c_i z_ij and threshold c_i gamma: a constant added to both changes no weight
    SSA's slope b            a factor of the queries and of the gate, as b |a| = |b a|
    ground value v0          the ground state's weight times v0, outside of the tiles

All is float32 or more, and only the output is rounded to the precision of the values.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from variants.attend import Heads, Keywords, definition, postprocess, without_autocast
from variants.operator import NumberValues, Operator, by_stage
from variants.paths.case import Case, refuse_kinds
from variants.paths.linear import count_seen, find_seen
from variants.paths.tiles import ROWS, Given, Normalised, Rule, attend_by_tiles
from variants.stages.products.dot import Dot

_DOT = Dot()
_KINDS = {
    "extra": ("none",),
    "product": ("dot",),
    "transform": ("none", "temperature"),
    "forgetting": ("none",),
    "margin": ("none", "log_count", "ssmax"),
    "gate": ("none", "suppress"),
    "score": ("exponential", "ssa", "signed_exponential", "sigmoid", "elu_plus_one"),
    "normaliser": ("total", "absolute", "ground", "none", "count"),
    "merge": ("logits",),
    "rescale": ("none", "scale"),
    "readout": ("values", "ground_value", "value_bias"),
}
_NORMALISED: dict[str, Normalised] = {"total": "total", "absolute": "total", "ground": "ground"}


def cannot(operator: Operator) -> str | None:
    """Return why this path cannot run `operator`, or None if it can."""
    if (reason := refuse_kinds("cpu", _KINDS, operator)) is not None:
        return reason
    score, normaliser = operator.score.label, operator.normaliser.label
    if normaliser == "ground" and operator.margin.label != "none" and score != "exponential":
        return f"cpu computes a margin over the threshold with score 'exponential' only, not {score!r}"
    return None


def cannot_call(case: Case) -> str | None:
    """Return why this path cannot compute a call, or None if it can."""
    if case.device not in ("cpu", "meta"):
        return f"cpu computes on the CPU only, not on {case.device}"
    if case.biased:
        return "cpu computes logits without a position bias only"
    if case.dropout:
        return "cpu drops no weights"
    return "cpu needs as many queries as keys" if case.queries != case.keys else None


def slower(case: Case) -> str | None:
    """Return why the definition is as fast, or None if this path is faster."""
    if case.compiled:
        return "a compiled model fuses the definition"
    return f"below {ROWS} tokens the definition is as fast" if case.keys < ROWS else None


def run(operator: Operator, heads: Heads, numbers: NumberValues) -> Tensor:
    """Compute the output [B, H, T, D]; of shapes alone, by the definition, which has fewer operations to follow."""
    if heads.q.is_meta:
        return definition(operator, heads, numbers).output
    given, value = heads.v.dtype, by_stage(numbers)
    working = torch.promote_types(given, torch.float32)
    heads = heads._replace(q=heads.q.to(working), k=heads.k.to(working), v=heads.v.to(working))
    with without_autocast(heads.q.device.type):
        return _compute(operator, heads, value).to(given)


def _compute(operator: Operator, heads: Heads, value: Keywords) -> Tensor:
    seen = find_seen(heads) if operator.visible.label == "everything" else None
    shape = heads.q.shape[:3]
    if seen is None:
        mask = operator.visible.restrict(heads.model_mask, heads.distance)
        count, causal = mask.sum(-1, keepdim=True, dtype=heads.q.dtype), False
        shown: Tensor | None = mask
    else:
        count, causal = count_seen(seen, heads.q), not seen.ahead
        shown = None if seen.keys is None else seen.keys.transpose(-2, -1)
        if seen.keys is not None:
            heads = heads._replace(k=heads.k.masked_fill(~seen.keys, 0), v=heads.v.masked_fill(~seen.keys, 0))
    rule = Rule(operator.score.label, _NORMALISED.get(operator.normaliser.label, "none"), causal)  # type: ignore[arg-type]
    tensors = _fold(operator, heads, value, count)
    output, ground = attend_by_tiles(rule, tensors, None if shown is None else _maps(shown, heads))
    output, ground = output.view(*shape, -1), ground.view(*shape, 1)
    if operator.normaliser.label == "count":
        output = output / count.clamp(min=1)
    if operator.rescale.label == "scale":
        output, ground = output * value["rescale"]["factor"], ground * value["rescale"]["factor"]
    if operator.readout.label == "ground_value":
        output = output + ground * value["readout"]["ground_value"]
    if operator.readout.label == "value_bias":
        output = output + value["readout"]["value_bias"]
    return postprocess(operator, output, value)


def _fold(operator: Operator, heads: Heads, value: Keywords, count: Tensor) -> Given:
    """Write the operator's numbers as rows [N, T, 1], and heads as [N, T, D]."""
    own, score = operator.gate.channels, value["score"]
    q, k = heads.q, heads.k
    q_own, k_own = (q[..., :-own], k[..., :-own]) if own else (q, k)
    c = operator.margin.factor(count, **value["margin"])
    factors = [] if c is None else [c]
    factors += [1 / value["transform"]["tau"]] if operator.transform.label == "temperature" else []
    factors += [score["b"]] if operator.score.label == "ssa" else []
    factor = math.prod(factors) if factors else None
    floor = None
    if (gamma := operator.normaliser.relevance(**value["normaliser"])) is not None:
        floor = gamma if c is None else c * gamma
        if operator.score.label != "exponential":
            floor = operator.score.log_score(gamma, **score)  # type: ignore[attr-defined]
    gate = value["gate"].get("strength")
    strength = None if gate is None else functional.softplus(gate) * score.get("b", 1)
    return Given(
        q=_flat(q_own * _DOT.scale(q_own.shape[-1], operator.signals.count)),
        k=_flat(k_own),
        v=_flat(heads.v),
        factor=_row(factor, q),
        q_gate=_flat(q[..., -own:] / math.sqrt(own)) if own else None,
        k_gate=_flat(k[..., -own:]) if own else None,
        strength=_row(strength, q),
        exponent=_row(score.get("n"), q),
        shift=_row(score.get("shift"), q),
        floor=_row(floor, q),
    )


def _flat(x: Tensor) -> Tensor:
    """Return [B, H, T, D] as [B H, T, D]."""
    return x.reshape(-1, *x.shape[-2:])


def _row(x: Tensor | float | None, q: Tensor) -> Tensor | None:
    """Return a number as rows [B H, T, 1] in the precision of `q`."""
    return None if x is None else _flat(torch.as_tensor(x).to(q).expand(*q.shape[:-1], 1))


def _maps(shown: Tensor, heads: Heads) -> Tensor:
    """Return visibility that broadcasts to [B, H, T, T] as 1 or 0, [N, 1 or T, T]."""
    shown = shown[(None,) * (4 - shown.dim())]
    return _flat(shown.expand(*heads.q.shape[:2], *shown.shape[-2:]).to(heads.q))
