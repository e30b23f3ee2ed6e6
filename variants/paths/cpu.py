"""Operators of one score on the CPU: `ablate.variants.paths.score_rows` by `ablate.variants.paths.tiles`.

All is float32 or more, and only the output is rounded to the precision of the values.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ablate.variants.attend import Heads, Keywords, definition, without_autocast
from ablate.variants.operator import NumberValues, Operator, by_stage
from ablate.variants.paths.case import Case
from ablate.variants.paths.linear import count_seen, find_seen
from ablate.variants.paths.score_rows import ScoreRows, cannot_fold, fold, rule_of, unfold
from ablate.variants.paths.tiles import ROWS, MapInputs, attend_by_tiles


def cannot(operator: Operator) -> str | None:
    """Return why this path cannot run `operator`, or None if it can."""
    return cannot_fold(operator, "cpu")


def cannot_call(case: Case) -> str | None:
    """Return why this path cannot compute a call, or None if it can."""
    if case.device not in ("cpu", "meta"):
        return f"cpu computes on the CPU only, not on {case.device}"
    if case.biased:
        return "cpu computes logits without a position bias only"
    if case.dropout:
        return "cpu drops no weights"
    return "cpu needs as many queries as keys" if case.queries != case.keys else None


def slower(_operator: Operator, case: Case) -> str | None:
    """Return why the definition is as fast, or None if this path is faster."""
    if case.compiled:
        return "a compiled model fuses the definition"
    return f"below {ROWS} tokens the definition is as fast" if case.keys < ROWS else None


def run(operator: Operator, heads: Heads, numbers: NumberValues) -> Float[Tensor, "batch heads tokens values"]:
    """Compute the output."""
    if heads.q.is_meta or needs_definition(operator, heads):  # it follows fewer operations for shapes alone
        return definition(operator, heads, numbers).output
    dtype, value = heads.v.dtype, by_stage(numbers)
    working = torch.promote_types(dtype, torch.float32)
    heads = heads._replace(q=heads.q.to(working), k=heads.k.to(working), v=heads.v.to(working))
    with without_autocast(heads.q.device.type):
        return _compute(operator, heads, value).to(dtype)


def needs_definition(operator: Operator, heads: Heads) -> bool:
    """Return True for forgetting under a mask that is not causal."""
    if operator.forgetting.label == "none":
        return False
    seen = find_seen(heads)
    return seen is None or seen.ahead


def _compute(operator: Operator, heads: Heads, value: Keywords) -> Float[Tensor, "batch heads tokens values"]:
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
    inputs = _flatten(fold(operator, heads, value, count))
    if operator.forgetting.label != "none" and seen is not None:
        inputs = inputs._replace(forgetting=_sum_logs(value["forgetting"]["gate"], seen.keys, heads))
    maps = None if shown is None else _maps(shown, heads)
    output, ground = attend_by_tiles(rule_of(operator, causal=causal), inputs, maps)
    return unfold(operator, output.view(*shape, -1), ground.view(*shape, 1), count, value)


def _sum_logs(
    gate: Float[Tensor, "#batch #heads #tokens 1"], visible: Bool[Tensor, "*#maps tokens 1"] | None, heads: Heads
) -> Float[Tensor, "maps tokens 1"]:
    """Sum the logarithms of forget gates up to each token; tokens that no query sees count nothing."""
    log = gate.double().clamp(min=torch.finfo(gate.dtype).tiny).log().expand(*heads.q.shape[:3], 1)
    return _flat((log if visible is None else log.masked_fill(~visible, 0)).cumsum(-2))


def _flatten(folded: ScoreRows) -> MapInputs:
    """Write heads one after another, queries scaled, and numbers as rows."""
    q, q_gate, k_gate = folded.q, folded.q_gate, folded.k_gate
    return MapInputs(
        q=_flat(q * folded.scale),
        k=_flat(folded.k),
        v=_flat(folded.v),
        factor=_row(folded.factor, q),
        q_gate=None if q_gate is None else _flat(q_gate * folded.gate_scale),
        k_gate=None if k_gate is None else _flat(k_gate),
        strength=_row(folded.strength, q),
        exponent=_row(folded.exponent, q),
        shift=_row(folded.shift, q),
        floor=_row(folded.floor, q),
    )


def _flat(x: Float[Tensor, "batch heads tokens channels"]) -> Float[Tensor, "maps tokens channels"]:
    """Write the heads of all sequences one after another."""
    return x.reshape(-1, *x.shape[-2:])


def _row(
    x: Tensor | float | None, q: Float[Tensor, "batch heads tokens channels"]
) -> Float[Tensor, "maps tokens 1"] | None:
    """Return a number as rows in the precision of `q`."""
    return None if x is None else _flat(torch.as_tensor(x).to(q).expand(*q.shape[:-1], 1))


def _maps(shown: Bool[Tensor, "*#maps #tokens tokens"], heads: Heads) -> Float[Tensor, " maps #tokens tokens"]:
    """Return visibility as 1 or 0: one map is not repeated."""
    shown = shown[(None,) * (4 - shown.dim())]
    front = (1, 1) if shown.shape[:2].numel() == 1 else heads.q.shape[:2]
    return _flat(shown.expand(*front, *shown.shape[-2:]).to(heads.q))
