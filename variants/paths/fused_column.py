"""Fused attention with one more column, a sink or a learned key, without an extra key.

The kernel returns its output o and the log-sum-exp l of each row. With a column of logit s and value u, keys keep the
share p = sigmoid(l - s), and the output is p o + w0 u with w0 = e^s / (e^l + e^s). The kernel's own backward pass gives
the gradients of queries, keys and values if it gets this output and the whole log-sum-exp, log(e^l + e^s). For an
incoming gradient g, the column's gradients are ds = w0 (g . u - g . output) and du = w0 g, summed over queries.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.variants.axes import HeadOutput, HeadValues, Keys, Mask, Queries
from ablate.variants.derivatives import first_only, refuse_transforms
from ablate.variants.stages.normalisers import Sink

_ATEN: Final = torch.ops.aten
WIDEST: Final = 128
"""Channels of the widest head of which all kernels of GPUs compute gradients."""


class Column(NamedTuple):
    """One more column, with the kernel beside which it is computed."""

    logit: Float[Tensor, "batch heads queries"]
    """In float32 or float64."""
    value: Float[Tensor, "batch heads 1 values"] | None
    """None is 0."""
    kernel: str
    """A name in `KERNELS`."""


class Kernel(NamedTuple):
    """A fused kernel. Queries, keys and values are [B, H, T, D]; without a mask it is causal."""

    forward: Callable[..., tuple[Any, ...]]
    """(q, k, v, mask, scale) -> output, log-sum-exp [B, H, T] or [B, H, T, 1], and what `backward` needs besides."""
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]]
    """(grad_output, q, k, v, mask, scale, output, log-sum-exp, *saved) -> gradients of q, k and v."""


def _cpu(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> tuple[Any, ...]:
    kernel = _ATEN._scaled_dot_product_flash_attention_for_cpu
    return tuple(kernel(q, k, v, 0.0, mask is None, attn_mask=mask, scale=scale))


def _cpu_backward(
    grad_output: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, *kept: Any
) -> Any:
    kernel = _ATEN._scaled_dot_product_flash_attention_for_cpu_backward
    return kernel(grad_output, q, k, v, *kept, 0.0, mask is None, attn_mask=mask, scale=scale)


def _cudnn(q: Tensor, k: Tensor, v: Tensor, mask: None, scale: float) -> tuple[Any, ...]:
    assert mask is None
    kernel = _ATEN._scaled_dot_product_cudnn_attention
    return tuple(kernel(q, k, v, None, compute_log_sumexp=True, is_causal=True, scale=scale)[:-1])


def _cudnn_backward(grad_output: Tensor, q: Tensor, k: Tensor, v: Tensor, _mask: None, scale: float, *kept: Any) -> Any:
    output, log_sum, *lengths, seed, offset = kept
    kernel = _ATEN._scaled_dot_product_cudnn_attention_backward
    arguments = grad_output, q, k, v, output, log_sum, seed, offset, None, *lengths, 0.0
    return kernel(*arguments, is_causal=True, scale=scale)


def _flash(q: Tensor, k: Tensor, v: Tensor, mask: None, scale: float) -> tuple[Any, ...]:
    assert mask is None
    return tuple(_ATEN._scaled_dot_product_flash_attention(q, k, v, is_causal=True, scale=scale)[:-1])


def _flash_backward(grad_output: Tensor, q: Tensor, k: Tensor, v: Tensor, _mask: None, scale: float, *kept: Any) -> Any:
    *results, seed, offset = kept
    random = {"philox_seed": seed, "philox_offset": offset}
    kernel = _ATEN._scaled_dot_product_flash_attention_backward
    return kernel(grad_output, q, k, v, *results, 0.0, is_causal=True, **random, scale=scale)


KERNELS: Final = {
    "cpu": Kernel(_cpu, _cpu_backward),
    "cudnn": Kernel(_cudnn, _cudnn_backward),
    "flash": Kernel(_flash, _flash_backward),
}


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, scale: float, mask: Tensor | None, *tensors: Tensor | None) -> Tensor:
        *heads, logit, value = cast("tuple[Tensor, ...]", tensors)
        output, log_sum, *saved = KERNELS[name].forward(*heads, mask, scale)
        rows = log_sum.view(logit.shape)
        total = torch.logaddexp(rows, logit)
        output = output * Sink.key_share(rows, logit)[..., None]
        if value is not None:
            output = output + (logit - total).exp()[..., None] * value
        output = output.to(heads[0].dtype)
        kept = [each if isinstance(each, Tensor) else None for each in saved]
        ctx.save_for_backward(*tensors, mask, output, total.view(log_sum.shape), *kept)
        ctx.name, ctx.scale = name, scale
        ctx.non_tensors = [None if isinstance(each, Tensor) else each for each in saved]
        return cast("Tensor", output)

    @staticmethod
    @first_only("sdpa")
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, logit, value, mask, output, total, *kept = ctx.saved_tensors
        saved = [other if x is None else x for x, other in zip(kept, ctx.non_tensors, strict=True)]
        gradients = KERNELS[ctx.name].backward(grad_output, q, k, v, mask, ctx.scale, output, total, *saved)
        weight, wide = (logit - total.view(logit.shape)).exp(), grad_output.to(logit.dtype)
        grad_logit, grad_value = None, None
        if ctx.needs_input_grad[-2]:
            grad_logit = -weight * (wide * (output if value is None else output - value)).sum(-1)
        if ctx.needs_input_grad[-1]:
            grad_value = (weight[..., None] * wide).sum(-2, keepdim=True)
        return None, None, None, *gradients, grad_logit, grad_value


def find_kernel(q: Queries, v: Float[Tensor, "*more_heads keys values"]) -> str | None:
    """Name the kernel that computes these queries and values with a column; None if there is none."""
    if q.shape[-1] != v.shape[-1] or q.numel() == 0:
        return None
    if q.device.type == "cpu":
        return "cpu"
    half = q.dtype in (torch.bfloat16, torch.float16)
    fits = q.shape[-2] > 1 and q.shape[-1] % 8 == 0 and q.shape[-1] <= WIDEST
    return _of_gpu(q.device) if q.device.type == "cuda" and half and fits else None


def _of_gpu(device: torch.device) -> str | None:
    """Name the kernel that PyTorch would choose. The gradients of cuDNN are not deterministic."""
    if torch.version.cuda is None:
        return None
    capability, backends = torch.cuda.get_device_capability(device), cast(Any, torch.backends.cuda)
    deterministic = torch.are_deterministic_algorithms_enabled()
    if capability in ((9, 0), (10, 0)) and backends.cudnn_sdp_enabled() and not deterministic:
        return "cudnn"
    return "flash" if capability >= (8, 0) and backends.flash_sdp_enabled() else None


_of_gpu._dynamo_marked_constant = True  # type: ignore[attr-defined]  # `assume_constant_result` would import the compiler


def attend_with_column(
    q: Queries, k: Keys, v: HeadValues, column: Column, mask: Mask | None, scale: float
) -> HeadOutput:
    """Compute softmax attention with one more column; causal, or by a boolean `mask` on the CPU."""
    refuse_transforms("path 'sdpa'", (q, k, v, *column[:2]))
    if mask is not None:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -float("inf"))
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))  # the kernel reads rows of channels
    return cast(Tensor, _Attention.apply(column.kernel, scale, mask, q, k, v, *column[:2]))  # type: ignore[no-untyped-call]
