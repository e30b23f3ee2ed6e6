"""Counts FLOPs, bytes moved and kernel launches of training a model.

One layer runs forward and backward on meta tensors, and every operation that PyTorch dispatches is counted. So
operators defined by users are counted too. FLOPs of matrix products come from `torch.utils.flop_counter`: a product of
[m, k] and [k, n] is 2 m k n, and its two gradients cost as much each. Fused attention has two products forward and five
backward, since it recomputes its logits. An AdamW step moves 44 bytes per parameter: it reads parameter, gradient and
two moments, writes three of them, and clears, measures and clips the gradient.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from variants import Backbone, Operator, Scalars, Tokens, Transformer
from variants.model.shapes import shapes_only
from variants.paths.choose import PathName

_aten = torch.ops.aten
_FUSED = _aten._scaled_dot_product_flash_attention_for_cpu
_FUSED_BACKWARD = _aten._scaled_dot_product_flash_attention_for_cpu_backward

_Meta = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]

_MOST: Final = 1 << 16
_known: dict[Any, tuple[type, tuple[_Meta, ...]]] = {}
"""Results of operations on meta tensors: a grid repeats the same shapes, and PyTorch computes most in Python."""

OPTIMISER_BYTES = 44
"""Bytes moved per parameter and step."""
OPTIMISER_KERNELS = 12


class Work(NamedTuple):
    """FLOPs, bytes and kernels; adds and scales entry by entry."""

    flops: float = 0.0
    """FLOPs of matrix products."""
    product_bytes: float = 0.0
    """Read and written by matrix products and fused attention."""
    other_bytes: float = 0.0
    """Read and written by everything else."""
    kernels: float = 0.0

    def plus(self, other: "Work", times: float = 1.0) -> "Work":
        """Add `times` the other, clamped at zero."""
        return Work(*(max(0.0, one + times * two) for one, two in zip(self, other, strict=True)))

    def scale(self, times: float) -> "Work":
        """Multiply by `times`."""
        return Work().plus(self, times)


class Shape(NamedTuple):
    """Input of a forward pass: `batch` sequences of `length` tokens."""

    batch: int
    length: int


@lru_cache(maxsize=4096)
def forward_work(
    backbone: Backbone, operators: tuple[Operator, ...], inputs: Scalars | Tokens, path: PathName, shape: Shape
) -> Work:
    """Count one forward pass without gradients, as in an evaluation; `operators` has one entry per layer."""
    return _stack_layers(
        backbone, operators, lambda thin, chosen: _count_work(thin, chosen, inputs, path, shape, training=False)
    )


@lru_cache(maxsize=4096)
def step_work(
    backbone: Backbone, operators: tuple[Operator, ...], inputs: Scalars | Tokens, path: PathName, shape: Shape
) -> Work:
    """Count one forward and backward pass, without the optimiser."""
    return _stack_layers(
        backbone, operators, lambda thin, chosen: _count_work(thin, chosen, inputs, path, shape, training=True)
    )


def optimiser_work(parameters: int) -> Work:
    """Count one step of AdamW."""
    return Work(other_bytes=float(OPTIMISER_BYTES * parameters), kernels=float(OPTIMISER_KERNELS))


def _stack_layers(
    backbone: Backbone, operators: tuple[Operator, ...], counted: Callable[[Backbone, tuple[Operator, ...]], Work]
) -> Work:
    """Count the layers of each operator: a two-layer model minus a one-layer model is the work of one layer."""
    thin, total, first = backbone.changed(layers=1), Work(), True
    for operator in dict.fromkeys(operators):
        one = counted(thin, (operator,))
        count = operators.count(operator)
        if len(operators) == 1:
            return one
        layer = counted(backbone.changed(layers=2), (operator, operator)).plus(one, -1.0)
        total = total.plus(one).plus(layer, count - 1) if first else total.plus(layer, count)
        first = False
    return total


@lru_cache(maxsize=4096)
def _count_work(
    backbone: Backbone,
    operators: tuple[Operator, ...],
    inputs: Scalars | Tokens,
    path: PathName,
    shape: Shape,
    *,
    training: bool,
) -> Work:
    with shapes_only():
        model = Transformer(backbone, operators, inputs=inputs, seed=0, path=path)
    if isinstance(inputs, Tokens):
        x = torch.empty(shape.batch, shape.length, dtype=torch.int64, device="meta")
    else:
        x = torch.empty(shape.batch, shape.length, inputs.width, device="meta")
    model.train(training)
    counter = Counter()
    with _Fused(), counter, torch.set_grad_enabled(training):
        outputs = model(x)
        if training:
            loss = outputs.log_softmax(-1) if isinstance(inputs, Tokens) else outputs.square()
            loss.mean().backward()
    return counter.work


@final
class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts dispatched operations while it is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sums = [0.0, 0.0, 0.0, 0.0]

    @property
    def work(self) -> Work:
        """The work counted so far."""
        return Work(*self._sums)

    def __torch_dispatch__(
        self, function: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run `function` and count it; views are free."""
        del types
        given = dict(kwargs or {})
        if function.is_view:
            return function(*args, **given)
        found = _outcome(function, args, given)
        flops = _flops(function, args, given, found)
        self._sums[0] += flops or 0.0
        self._sums[2 if flops is None else 1] += sum(map(_bytes, _tensors((args, tuple(given.values()), found))))
        self._sums[3] += 1
        return found


def _outcome(function: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
    """Call `function(*args, **given)`, or rebuild its cached results. The function must not return views."""
    key = None if function._schema.is_mutable else _key((function, args, tuple(sorted(given.items()))))
    if key is None:
        return function(*args, **given)
    if key not in _known:
        found = function(*args, **given)
        results = found if isinstance(found, list | tuple) else (found,)
        if len(_known) < _MOST and all(type(each) is Tensor and each.is_meta for each in results):
            _known[key] = type(found), tuple((tuple(each.shape), each.stride(), each.dtype) for each in results)
        return found
    kind, metas = _known[key]
    made = [torch.empty_strided(shape, stride, dtype=dtype, device="meta") for shape, stride, dtype in metas]
    return made[0] if kind is Tensor else kind(made)


def _key(value: Any) -> Any:
    """Build the cache key from shapes and arguments; None if a tensor has memory, since its values may matter."""
    if isinstance(value, Tensor):
        return (value.shape, value.stride(), value.dtype) if value.is_meta else None
    if isinstance(value, list | tuple):
        parts = tuple(map(_key, value))
        return None if None in parts else parts
    return type(value), value


def _flops(function: Any, args: tuple[Any, ...], given: Mapping[str, Any], found: Any) -> float | None:
    """Count the FLOPs of a matrix product; None for other operations."""
    kind = function.overloadpacket
    if kind is _FUSED:
        return float(sdpa_flop_count(*(each.shape for each in args[:3])))  # type: ignore[no-untyped-call]
    if kind is _FUSED_BACKWARD:
        return float(sdpa_backward_flop_count(*(each.shape for each in args[:4])))  # type: ignore[no-untyped-call]
    formula = flop_registry.get(kind)
    return None if formula is None else float(formula(*args, **given, out_val=found))


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _bytes(tensor: Tensor) -> int:
    """Count the stored bytes; expanded dimensions are read once."""
    entries = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        entries *= size if stride else 1
    return entries * tensor.element_size()


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
        given = dict(kwargs or {})
        if function is F.scaled_dot_product_attention and args[0].shape[-1] == args[2].shape[-1]:
            return _FUSED(*args, 0.0, given["is_causal"], attn_mask=given["attn_mask"], scale=given["scale"])[0]
        return function(*args, **given)
