"""PyTorch's fused scaled-dot-product attention: softmax weights, any number of signals (the scale says it all)."""

from torch import Tensor
from torch.nn import functional as F

from variants.attend import Heads, finished
from variants.operator import NumberValues, Operator, by_stage
from variants.products.dot import Dot

_STAGES = {
    "extra": "none",
    "product": "dot",
    "transform": "none",
    "forgetting": "none",
    "margin": "none",
    "gate": "none",
    "score": "exponential",
    "normaliser": "total",
    "merge": "logits",
    "rescale": "none",
    "readout": "values",
}


def cannot(operator: Operator) -> str | None:
    """Why this path cannot run `operator`, or None when it can."""
    for stage, kind in _STAGES.items():
        given = getattr(operator, stage)
        if given.kind != kind:
            return f"sdpa computes {stage} {kind!r} only, not {given.kind!r}"
    return None


def run(operator: Operator, heads: Heads, numbers: NumberValues) -> Tensor:
    """Output [B, H, T, D]. A query that sees nothing gets 0."""
    scale = Dot().scale(heads.q.shape[-1], operator.signals.count)
    mask = _mask(operator, heads)
    output = F.scaled_dot_product_attention(
        heads.q, heads.k, heads.v, attn_mask=mask, is_causal=mask is None, scale=scale
    )
    return finished(operator, output, by_stage(numbers))


def _mask(operator: Operator, heads: Heads) -> Tensor | None:
    """What SDPA is told; None where causal says it all."""
    square = heads.q.shape[-2] == heads.k.shape[-2]
    if heads.mask is None and heads.bias is None and operator.visible.label == "everything" and square:
        return None
    mask = operator.visible.restricted(heads.model_mask, heads.distance)
    return mask if heads.bias is None else heads.bias.to(heads.q.dtype).masked_fill(~mask, -float("inf"))
