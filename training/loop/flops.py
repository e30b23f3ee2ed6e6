"""Counts the FLOPs of matrix products of training a model, by the formulas of `torch.utils.flop_counter`.

One or two layers run forward and backward on meta tensors, and every operation that PyTorch dispatches is counted. So
operators defined by users are counted too. Fused attention recomputes its logits backward.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from ablate.training.trial import Trial
from ablate.variants import ForeignBackbone, Mixer, Scalars, Tokens
from ablate.variants.model.foreign import AnyBackbone, make_model
from ablate.variants.model.mixer import Layers
from ablate.variants.model.shapes import shapes_only
from ablate.variants.paths.choose import PathName

_FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_FUSED_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

_Meta = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]

_MOST: Final = 1 << 16
_known: dict[Any, tuple[type, tuple[_Meta, ...]]] = {}
"""Results of operations on meta tensors. A grid repeats shapes, and counting 400 operators is four times as fast."""


class Shape(NamedTuple):
    """Input of a forward pass: `batch` sequences of `length` tokens."""

    batch: int
    length: int


@lru_cache(maxsize=4096)
def count_flops(
    backbone: AnyBackbone,
    operators: Layers,
    inputs: Scalars | Tokens,
    path: PathName,
    shape: Shape,
    *,
    training: bool,
) -> float:
    """Count a forward pass, with its backward pass if `training`; a layer is the difference of two models.

    Models with mixers, and foreign ones, are counted whole, by the modules of PyTorch that they call.
    """

    def count(whole: AnyBackbone, layers: Layers) -> float:
        with shapes_only():
            model = make_model(whole, layers, inputs=inputs, seed=0, path=path).train(training)
            x = torch.empty(*shape, dtype=torch.int64) if isinstance(inputs, Tokens) else torch.empty(*shape, *inputs)
        counter = _Counter()
        with _Fused(), counter, torch.set_grad_enabled(training):
            outputs = model(x)
            if training:
                loss = outputs.log_softmax(-1) if isinstance(inputs, Tokens) else outputs.square()
                loss.mean().backward()
        return counter.flops

    if isinstance(backbone, ForeignBackbone) or any(isinstance(each, Mixer) for each in operators):
        return count(backbone, operators)
    total = 0.0
    for operator in dict.fromkeys(operators):
        one = count(backbone.changed(layers=1), (operator,))
        if len(operators) == 1:
            return one
        more = max(0.0, count(backbone.changed(layers=2), (operator,) * 2) - one)
        total = (total or one - more) + operators.count(operator) * more
    return total


@final
class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts dispatched operations while it is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0.0

    def __torch_dispatch__(
        self, function: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        keywords = dict(kwargs or {})
        result = function(*args, **keywords) if function.is_view else _compute(function, args, keywords)
        kind = function.overloadpacket
        if kind is _FUSED:
            self.flops += sdpa_flop_count(*(each.shape for each in args[:3]))  # type: ignore[no-untyped-call]
        elif kind is _FUSED_BACKWARD:
            self.flops += sdpa_backward_flop_count(*(each.shape for each in args[:4]))  # type: ignore[no-untyped-call]
        elif kind in flop_registry:
            self.flops += flop_registry[kind](*args, **keywords, out_val=result)
        return result


def _compute(function: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Call `function(*args, **keywords)`, or rebuild its cached results. The function must not return views."""
    key = None if function._schema.is_mutable else _key((function, args, tuple(sorted(keywords.items()))))
    if key in _known:
        kind, metas = _known[key]
        made = [torch.empty_strided(shape, stride, dtype=dtype, device="meta") for shape, stride, dtype in metas]
        return made[0] if kind is Tensor else kind(made)
    result = function(*args, **keywords)
    tensors = result if isinstance(result, list | tuple) else (result,)
    if key is not None and len(_known) < _MOST and all(type(each) is Tensor and each.is_meta for each in tensors):
        _known[key] = type(result), tuple((tuple(each.shape), each.stride(), each.dtype) for each in tensors)
    return result


def _key(value: Any) -> Any:
    if isinstance(value, Tensor):
        return (value.shape, value.stride(), value.dtype) if value.is_meta else None
    if isinstance(value, list | tuple):
        parts = tuple(map(_key, value))
        return None if None in parts else parts
    return type(value), value


class _Fused(TorchFunctionMode):
    """Forces the fused attention kernel; for meta tensors PyTorch would decompose it."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        keywords = dict(kwargs or {})
        if function is F.scaled_dot_product_attention:
            return _fuse(*args, **keywords)
        return function(*args, **keywords)


def _fuse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002
    **more: Any,
) -> Tensor:
    if q.shape[-1] != v.shape[-1] or more.pop("enable_gqa", False):
        return F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal, **more)
    mask = None if attn_mask is None else attn_mask.detach()  # the kernel gives it no gradient, which has no products
    return _FUSED(q, k, v, 0.0, is_causal, attn_mask=mask, **more)[0]  # type: ignore[no-any-return]


def training_flops(trial: Trial) -> float:
    """Count the FLOPs of all training steps of a trial, and of its teachers'."""
    task = trial.task
    shape = Shape(math.ceil(task.batch / trial.parts), task.trained_length)
    step = count_flops(trial.model, trial.operators(), task.inputs, trial.execution.path, shape, training=True)
    for model, operators in task.teachers():
        step += count_flops(model, operators, task.inputs, "auto", shape, training=False)
    return step * trial.parts * trial.training.steps
