"""Checks of a layer of attention, when it is built and when it is called: nothing is broadcast without a word."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ablate.grid.errors import SpecError
from ablate.grid.values import require_whole, show
from ablate.variants.attend import PRECISIONS
from ablate.variants.number import ByDepth
from ablate.variants.operator import Operator
from ablate.variants.stages.positions import Positions


class LayerHeads(NamedTuple):
    """Heads of a layer as its model counts them, before an operator joins some."""

    heads: int
    kv_heads: int
    head_width: int
    """Channels of a head, without those that a gate adds."""
    width: int
    """Channels of the layer's input."""


def require_sizes(*, kv_heads: int | None, **sizes: int) -> None:
    """Raise SpecError if a size is no whole number from 1 on."""
    for name, size in (*sizes.items(), ("kv_heads", 1 if kv_heads is None else kv_heads)):
        require_whole(size, name, 1)


def check_layer(
    operator: Operator,
    size: LayerHeads,
    positions: Positions,
    *,
    depth: tuple[int | None, int | None],
    shared: dict[str, nn.Parameter] | None,
    dropout: float,
) -> None:
    """Raise SpecError if a layer outside of a model would leave something out without a word."""
    if not isinstance(operator, Operator):
        raise SpecError(
            f"operator={show(operator)} is no Operator; give one, such as softmax(), or use make_layer, which takes "
            "mixers, too"
        )
    if not isinstance(positions, Positions):
        raise SpecError(f"positions={show(positions)} is no scheme; give one, such as Rotary()")
    if shared is not None and not isinstance(shared, dict):
        raise SpecError(f"shared={show(shared)} is no dict; give one for all layers")
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise SpecError(f"dropout={show(dropout)} is no probability; give one from 0 to below 1")
    if size.heads % size.kv_heads:
        raise SpecError(f"kv_heads={size.kv_heads} is no divisor of heads={size.heads}; give one")
    _check_depth(operator, depth, shared)
    if positions.table or positions.buckets or positions.embedding(1, size.width, torch.device("cpu")) is not None:
        raise SpecError(
            f"positions {positions.label!r} belong to the whole model; add them to the embeddings or pass bias=, and "
            "leave positions out here"
        )
    try:
        operator.check(
            heads=size.heads, kv_heads=size.kv_heads, head_width=size.head_width, positions=positions, causal=True
        )
    except ValueError as error:
        raise SpecError(str(error)) from error


def _check_depth(
    operator: Operator, depth: tuple[int | None, int | None], shared: dict[str, nn.Parameter] | None
) -> None:
    layer, layers = depth
    for name, number, least in (("layer", layer, 0), ("layers", layers, 1)):
        if number is not None:
            require_whole(number, name, least)
    if layer is not None and layers is not None and layer >= layers:
        raise SpecError(f"layer {layer} is none of {layers} layers, which are counted from 0")
    numbers = operator.numbers()
    deep = [name for name, each in numbers.items() if isinstance(each, ByDepth) and each.init != each.deep]
    if deep and layer is None:
        raise SpecError(f"{', '.join(deep)} of {operator.label!r} starts by depth; pass layer=, counted from 0")
    common = [name for name, each in numbers.items() if each.trained and "layer" not in each.per]
    if common and shared is None and (layers or 1) > 1:
        raise SpecError(
            f"{', '.join(common)} of {operator.label!r} is shared by all layers; pass shared=, one dict for all of them"
        )


def require_tensor(name: str, value: object, *shape: int | str) -> Tensor:
    """Return `value` if it is a tensor of numbers, and of this shape if one is passed; letters are sizes from 1."""
    if not isinstance(value, Tensor):
        raise SpecError(f"{name} is {type(value).__name__}; give a tensor")
    same = (isinstance(want, str) or want == size for want, size in zip(shape, value.shape, strict=False))
    if shape and not (value.dim() == len(shape) and all(same) and value.numel()):
        raise SpecError(f"{name} has the shape {[*value.shape]}; give [{', '.join(map(str, shape))}]")
    if value.dtype not in PRECISIONS:
        raise SpecError(f"{name} is {value.dtype}; give float16, bfloat16, float32 or float64")
    return value


def require_like(name: str, value: Tensor, others: str, other: Tensor) -> None:
    """Raise SpecError if `value` is on another device, or of another precision outside of autocast."""
    require_device(name, value, other.device)
    device = value.device.type
    if value.dtype != other.dtype and (device == "meta" or not torch.is_autocast_enabled(device)):
        raise SpecError(f"{name} is {value.dtype}, and {others} {other.dtype}; convert one of them")


def check_mask(mask: object, device: torch.device, sizes: tuple[int, int, int, int]) -> None:
    """Raise SpecError if a mask is neither [T_q, T_k] nor [B, H, T_q, T_k], each size or 1; `sizes` are B, H, T_q, T_k.

    With three dimensions the first could be that of sequences or of heads.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise SpecError(f"mask is {got}; give a boolean tensor, True where a query may look")
    if mask.dim() not in (2, 4) or not _broadcasts(mask, sizes):
        raise SpecError(f"mask has the shape {[*mask.shape]}; give {[*sizes[2:]]} or {[*sizes]}, or 1 for a size")
    require_device("mask", mask, device)


def check_bias(bias: object, device: torch.device, sizes: tuple[int, int, int, int]) -> None:
    """Raise SpecError if a bias of the logits is not [T_q, T_k], [H or 1, T_q, T_k] or [B or 1, H or 1, T_q, T_k]."""
    bias = require_tensor("bias", bias)
    if not 2 <= bias.dim() <= 4 or bias.shape[-2:] != sizes[2:] or not _broadcasts(bias, sizes):
        raise SpecError(
            f"bias has the shape {[*bias.shape]}; give {[*sizes[1:]]} or {[*sizes]}, perhaps of 1 head or sequence"
        )
    require_device("bias", bias, device)


def _broadcasts(value: Tensor, sizes: tuple[int, ...]) -> bool:
    return all(own in (1, size) for own, size in zip(value.shape, sizes[-value.dim() :], strict=True))


def require_device(name: str, value: Tensor, device: torch.device) -> None:
    """Raise SpecError if `value` is on another device."""
    if value.device != device:
        raise SpecError(f"{name} is on {value.device} and the others on {device}; move one of them")
