"""Fused attention with a sink on the CPU, without an extra key.

The kernel returns its output o and the logarithm of each row's sum, l. Keys keep sigmoid(l - s) of the weight, so the
output is that share times o. The kernel's own backward pass gives the gradients of queries, keys and values if it gets
this output and the logarithm of the whole sum, log(e^l + e^s). The sink's weight is w0 = e^s / (e^l + e^s), and its
gradient is ds = -w0 (g . output) for an incoming gradient g.
"""

from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from variants.stages.normalisers.sink import Sink

_FORWARD: Final = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_BACKWARD: Final = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class _SinkAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scale: float, mask: Tensor | None, *tensors: Tensor) -> Tensor:
        *heads, logit = tensors
        output, log_sum = _FORWARD(*heads, 0.0, mask is None, attn_mask=mask, scale=scale)
        output = output * Sink.key_share(log_sum, logit)[..., None]
        ctx.save_for_backward(*tensors, output, torch.logaddexp(log_sum, logit), mask)
        ctx.scale = scale
        return cast("Tensor", output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        *heads, logit, output, total, mask = ctx.saved_tensors
        found = _BACKWARD(slope, *heads, output, total, 0.0, mask is None, attn_mask=mask, scale=ctx.scale)
        logit_slope = -(logit - total).exp() * (slope * output).sum(-1) if ctx.needs_input_grad[-1] else None
        return None, None, *found, logit_slope


def fits(q: Tensor, v: Tensor, bias: Tensor | None, dropout: float) -> bool:
    """Return True if the kernel computes these queries and values [..., T, D]; it has no gradient for a bias."""
    return q.device.type == "cpu" and dropout == 0.0 and bias is None and q.shape[-1] == v.shape[-1] and q.numel() > 0


def attend_with_sink(q: Tensor, k: Tensor, v: Tensor, logit: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Compute softmax attention [B, H, T, D] with a sink; causal without a mask.

    Args:
        q, k, v: queries, keys and values [B, H, T, D], float32 or float64.
        logit: the sink's logit [B, H, T].
        mask: True where a key is visible, [T, T] or four dimensions that broadcast to [B, H, T, T].
        scale: factor of the products of queries and keys.
    """
    if mask is not None:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -float("inf"))
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))  # the kernel reads rows of channels
    return cast(Tensor, _SinkAttention.apply(scale, mask, q, k, v, logit))  # type: ignore[no-untyped-call]
