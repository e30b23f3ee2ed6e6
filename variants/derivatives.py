"""Derivatives that fused computations do not have: one sentence in place of PyTorch's own, or of a wrong number.

A backward pass that is written by hand has no derivative, and PyTorch's `once_differentiable` cuts it off from its
inputs: `torch.autograd.grad` of a sum then leaves this summand out without an error. Here, gradients stay connected to
all that they were computed from, by a function that refuses to be differentiated.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from ablate.grid.errors import SpecError

_FUNC: Any = torch._C._functorch
REFERENCE = 'use path="reference"'


def refuse_transforms(what: str, tensors: Iterable[Tensor | None], remedy: str = REFERENCE) -> None:
    """Raise SpecError under `torch.func`, and in forward mode if a tensor has a tangent."""
    if torch.compiler.is_compiling():
        return
    if torch._C._are_functorch_transforms_active() or (
        forward_ad._current_level >= 0
        and any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors)  # type: ignore[no-untyped-call]
    ):
        raise _no_rule(what, remedy)


def _no_rule(what: str, remedy: str = REFERENCE) -> SpecError:
    return SpecError(f"{what} has no rule for this transform of torch.func, or for forward-mode derivatives; {remedy}")


def _no_second(path: str) -> SpecError:
    return SpecError(f"a second derivative was asked of path {path!r}, which has first derivatives only; {REFERENCE}")


class _Last(torch.autograd.Function):
    """Pass the first `count` tensors on, and refuse derivatives by any."""

    @staticmethod
    def forward(ctx: Any, path: str, count: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.path = path
        return tensors[:count]

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        raise _no_second(ctx.path)


Backward = Callable[..., tuple[Tensor | None, ...]]


def first_only(path: str) -> Callable[[Backward], Backward]:
    """Decorate the backward pass (ctx, *slopes) of a path, so that its gradients are not differentiated again."""

    def decorate(backward: Backward) -> Backward:
        @wraps(backward)
        def once(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
            try:
                with torch.no_grad():
                    gradients = backward(ctx, *slopes)
            except RuntimeError as error:
                if any(map(_FUNC.is_batchedtensor, slopes)) or any(map(_FUNC.is_legacy_batchedtensor, slopes)):
                    raise _no_rule(f"path {path!r}") from error
                raise
            if not torch.is_grad_enabled():
                return gradients
            return _Last.apply(path, len(gradients), *gradients, *ctx.saved_tensors, *slopes)  # type: ignore[no-untyped-call, no-any-return]

        return once

    return decorate


def scaled_dot_product(
    q: Float[Tensor, "... queries channels"],
    k: Float[Tensor, "... keys channels"],
    v: Float[Tensor, "... keys values"],
    **how: Any,
) -> Float[Tensor, "... queries values"]:
    """Compute PyTorch's attention, with the sentences of path "sdpa" where a fused kernel has no derivative."""
    if torch.compiler.is_compiling():
        return F.scaled_dot_product_attention(q, k, v, **how)
    try:
        output = F.scaled_dot_product_attention(q, k, v, **how)
    except NotImplementedError as error:
        raise _no_rule("path 'sdpa'") from error
    node = output.grad_fn
    if node is not None and node.name().startswith("Slice"):  # a kernel of GPUs had padded channels
        node = node.next_functions[0][0]
    if node is not None and node.name().startswith("ScaledDotProduct"):  # else it is plain products
        node.register_hook(_watch)
    return output


def _watch(gradients: tuple[Tensor | None, ...], _slopes: Any) -> None:
    for gradient in gradients:
        level = gradient
        while level is not None:  # transforms of torch.func have a graph each
            if level.requires_grad:
                level.register_hook(_refuse)  # type: ignore[no-untyped-call]
            level = _FUNC.get_unwrapped(level) if _FUNC.is_functorch_wrapped_tensor(level) else None


def _refuse(_gradient: Tensor) -> None:
    raise _no_second("sdpa")
