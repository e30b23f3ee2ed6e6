"""PyTorch's fused scaled-dot-product attention: softmax weights, any number of signals (the scale says it all)."""

from torch import Tensor
from torch.nn import functional as F

from variants.operator import NumberValues, Operator

_STAGES = {"margin": "none", "gate": "none", "score": "exponential", "normaliser": "total", "readout": "values"}


def cannot(operator: Operator) -> str | None:
    """Why this path cannot run `operator`, or None when it can."""
    for stage, kind in _STAGES.items():
        given = getattr(operator, stage)
        if given.kind != kind:
            return f"sdpa computes {stage} {kind!r} only, not {given.kind!r}"
    return None


def run(operator: Operator, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, numbers: NumberValues) -> Tensor:  # noqa: ARG001
    """Output [B, H, T, D]. A query that sees nothing gets 0."""
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=operator.signals.scale(q.shape[-1])
    )
