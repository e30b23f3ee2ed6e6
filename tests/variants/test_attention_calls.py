"""Calls of attention with arguments that do not fit, and calls that raise: one sentence, and nothing is kept."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ablate.grid.errors import SpecError
from ablate.variants import (
    Alibi,
    Attention,
    AttentionOp,
    Operator,
    Rotary,
    Tokens,
    Transformer,
    affine_scaled,
    differential,
    fox,
    principled,
    softmax,
    ssa,
    tiny,
)
from ablate.variants.laws.examples import every_choice, named_operators
from ablate.variants.model.cache import KeyCache

B, T, HEADS, KV, D, WIDTH = 3, 5, 4, 2, 12, 48
SIZE: dict[str, Any] = {"width": WIDTH, "heads": HEADS, "kv_heads": KV}


def layer_of(operator: Operator, **fields: Any) -> Attention:
    torch.manual_seed(0)
    return Attention(operator, **{**SIZE, "layer": 0, "positions": Rotary(), **fields}).eval()


def op_of(operator: Operator, **fields: Any) -> AttentionOp:
    torch.manual_seed(0)
    return AttentionOp(operator, **{**SIZE, "head_width": D, "layer": 0, "positions": Rotary(), **fields}).eval()


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def refused(call: Callable[..., Any], **arguments: Any) -> str:
    with pytest.raises(SpecError) as error:
        call(**arguments)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


RIGHT = {
    "q": draw(B, HEADS, T, D),
    "k": draw(B, KV, T, D),
    "v": draw(B, KV, T, D),
    "x": draw(B, T, WIDTH),
}
OPERATORS = [softmax(), fox(), ssa(), principled("query", gate_width=4), affine_scaled(), differential()]


def others(x: Tensor) -> Iterator[Any]:
    """Everything that could be broadcast, converted or misread."""
    for dim, size in enumerate(x.shape):
        for other in {1, size - 1, size + 1, 2 * size} - {size}:
            yield torch.zeros(*x.shape[:dim], other, *x.shape[dim + 1 :])
    yield from (x[0], x[None], x[..., None], x[:0], x.transpose(0, 1), x.transpose(-1, -2))
    yield from (x.long(), x > 0, x.to(torch.complex64), x.to("meta"), x.numpy(), None, [x])


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.label)
@pytest.mark.parametrize("name", RIGHT)
def test_heads_and_inputs_fit_exactly(name: str, operator: Operator) -> None:
    op = op_of(operator)
    op(**RIGHT)
    for other in others(RIGHT[name]):
        said = refused(op, **{**RIGHT, name: other})
        assert said.split()[0] in (*RIGHT,)
    if name != "x":  # numbers are predicted in their own precision
        for dtype in (torch.bfloat16, torch.float64):
            refused(op, **{**RIGHT, name: RIGHT[name].to(dtype)})


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.label)
def test_the_input_of_a_layer_fits_exactly(operator: Operator) -> None:
    layer = layer_of(operator)
    for other in others(RIGHT["x"]):
        sizes = isinstance(other, Tensor) and other.dim() == 3 and other.numel() and other.shape[2] == WIDTH
        if sizes and other.is_cpu and other.dtype == torch.float32:
            layer(other)  # another batch or length
        else:
            assert refused(layer, x=other).startswith("x ")
    for dtype in (torch.bfloat16, torch.float64):
        refused(layer, x=RIGHT["x"].to(dtype))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.label)
@pytest.mark.parametrize("build", [layer_of, op_of])
def test_masks_and_biases_belong_to_sequences_or_heads_and_never_to_either(build: Any, operator: Operator) -> None:
    """Three dimensions would be heads where batches and heads agree, which no caller can have meant."""
    module = build(operator)
    heads = module.heads
    arguments = {"x": RIGHT["x"]} if build is layer_of else RIGHT
    whole = (B, heads, T, T)
    fits = [(T, T), (1, T), whole, (1, 1, T, T), (B, 1, 1, T), (1, heads, T, T), (B, 1, T, T), (1, 1, T, 1)]
    for shape in fits:
        module(**arguments, mask=torch.ones(shape, dtype=torch.bool))
    wrong = [(), (T,), (B, T), (B, T, T), (heads, T, T), (1, T, T), (T, T + 1), (T - 1, T), (B, KV + 1, T, T)]
    wrong += [(B + 1, 1, T, T), (heads, B, T, T), (1, *whole), (2, *whole), (B, 1, T), (B, 1, T, T + 1)]
    for shape in wrong:
        assert refused(module, **arguments, mask=torch.ones(shape, dtype=torch.bool)).startswith("mask ")
    for mask in (torch.zeros(T, T), torch.ones(T, T, dtype=torch.long), np.ones((T, T), bool), "causal"):
        assert refused(module, **arguments, mask=mask).startswith("mask ")
    assert "meta" in refused(module, **arguments, mask=torch.ones(T, T, dtype=torch.bool, device="meta"))

    for shape in ((heads, T, T), (1, T, T), (T, T), whole, (1, heads, T, T)):
        module(**arguments, bias=torch.zeros(shape))
    for shape in (
        (),
        (T,),
        (heads,),
        (B, T, T),
        (heads, T, T + 1),
        (heads, 1, T),
        (1, T),
        (2, *whole),
        (B, KV + 1, T, T),
    ):
        assert refused(module, **arguments, bias=torch.zeros(shape)).startswith("bias ")
    for bias in (torch.ones(T, T, dtype=torch.bool), torch.ones(T, T, dtype=torch.long), 1.0):
        assert refused(module, **arguments, bias=bias).startswith("bias ")


@pytest.mark.parametrize("build", [Attention, AttentionOp])
@pytest.mark.parametrize(
    ("name", "values"),
    {
        "operator": [None, "softmax", softmax, [softmax()], {"score": "ssa"}],
        "width": [0, -48, 48.0, "48", None, True],
        "heads": [0, -4, 4.0, "4", None],
        "kv_heads": [0, -2, 3, 8, 2.0, "2"],
        "layer": [-1, 2, 1.0, "1"],
        "layers": [0, -1, 2.0, "2"],
        "positions": [None, "rotary", Rotary, 3],
        "dropout": [-0.1, 1.0, 1.5, float("nan"), "0.1", None],
        "shared": [[], 1, "all"],
        "path": ["nowhere", None],
    }.items(),
)
def test_a_layer_is_built_of_what_it_says(build: type, name: str, values: list[Any]) -> None:
    size = {**SIZE, **({"head_width": D} if build is AttentionOp else {"bias": "all"}), "layers": 2}
    build(operator=softmax(), **{**size, "layer": np.int64(1)})
    for value in values:
        said = refused(
            build, **{"operator": softmax(), **size, **({"layer": 1} if name == "layers" else {}), name: value}
        )
        assert name in said


def test_sizes_of_one_module_alone() -> None:
    for value in (0, -1, 12.0, "12", None):
        assert "head_width" in refused(op_of, operator=softmax(), head_width=value)
    for value in ("some", True, None):
        assert "bias" in refused(layer_of, operator=softmax(), bias=value)
    assert "heads" in refused(layer_of, operator=softmax(), heads=5)


class Fails(TorchFunctionMode):
    """Raises at the n-th call of PyTorch; counts them."""

    def __init__(self, at: int = -1) -> None:
        super().__init__()
        self.at, self.count = at, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        if self.count == self.at:
            raise RuntimeError("injected")
        return func(*args, **(kwargs or {}))


def require_unchanged_by_any_fault(call: Callable[[Tensor, Any], Tensor], start: Callable[[], Any], x: Tensor) -> None:
    """Raise at every operation of the second call in turn, and then make it."""
    first, second = x.split([3, 2], 1)

    def begun() -> Any:
        cache = start()
        call(first, cache)
        return cache

    expected = call(second, begun())  # it also fills what modules share
    cache, counting = begun(), Fails()
    with counting:
        call(second, cache)
    cache = begun()
    layers = getattr(cache, "layers", [cache])
    for at in range(1, counting.count + 1):
        before = [dict(each._tensors) for each in layers]
        with pytest.raises(RuntimeError, match="injected"), Fails(at):
            call(second, cache)
        for each, kept in zip(layers, before, strict=True):
            assert each._tensors.keys() == kept.keys()
            assert all(each._tensors[name] is kept[name] for name in kept)
    assert torch.equal(call(second, cache), expected)
    assert cache.length == x.shape[1]


CACHED = [each for each in (*named_operators(), *every_choice()) if each.no_cache is None and not each.visible.ahead]


@pytest.mark.parametrize("operator", {each.key: each for each in CACHED}.values(), ids=lambda each: each.label)
def test_a_fault_at_any_operation_leaves_the_cache_as_it_was(operator: Operator) -> None:
    try:
        layer = layer_of(operator, kv_heads=None)
    except SpecError:
        layer = layer_of(operator, kv_heads=None, width=128, positions=Alibi())
    with torch.no_grad():
        require_unchanged_by_any_fault(
            lambda x, cache: layer(x, cache=cache), KeyCache, draw(2, 5, layer.qkv.in_features)
        )


@pytest.mark.parametrize("shift", ["none", "both"])
def test_a_fault_in_any_layer_leaves_the_cache_of_the_model(shift: Any) -> None:
    backbone = tiny("llama3").changed(token_shift=shift, sink_tokens=1)
    model = Transformer(backbone, [fox(), principled("query", gate_width=4)], inputs=Tokens(11), seed=0).eval()
    with torch.no_grad():
        require_unchanged_by_any_fault(
            lambda x, cache: model(x, None, cache), lambda: model.start_cache(3), torch.arange(10).view(2, 5)
        )


@pytest.mark.parametrize("operator", [softmax(), fox(), principled("query", gate_width=4)], ids=lambda each: each.label)
def test_a_refused_call_keeps_nothing(operator: Operator) -> None:
    layer, op, cache, x = layer_of(operator), op_of(operator), KeyCache(), RIGHT["x"]
    layer(x, cache=cache)
    for wrong in (draw(B + 1, 1, WIDTH), draw(1, 1, WIDTH)):
        refused(layer, x=wrong, cache=cache)  # another batch
    refused(layer, x=x[:, :2], mask=torch.ones(2, 2, dtype=torch.bool), cache=cache)  # without the keys so far
    refused(layer_of(operator, kv_heads=4), x=x[:, :1], cache=cache)  # another layer
    refused(op, **{**RIGHT, "v": RIGHT["v"].double()}, cache=cache)
    assert cache.length == T
    layer(x[:, :2], torch.ones(2, T + 2, dtype=torch.bool), cache=cache)
    assert cache.length == T + 2
    for other in ({}, [KeyCache()], "kv"):
        refused(layer, x=x, cache=other)
