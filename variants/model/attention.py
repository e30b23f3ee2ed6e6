"""Attention by any operator as a module: from a layer's input, or from heads that other code has projected."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ablate.grid.errors import SpecError
from ablate.variants.attend import PRECISIONS, AttentionOutput, Heads, definition, prepare, split_gate
from ablate.variants.model.parameters import NumberParameters
from ablate.variants.number import ByDepth
from ablate.variants.operator import NumberValues, Operator, distances, head_shape
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PATHS, Path, PathName, choose, devices_of
from ablate.variants.stages.positions import NoPositions, Positions

_COMPILED_LENGTHS = (4096, 4096)
"""A compiled model chooses its path as for so many queries and keys, whatever the true length."""
_NO_POSITIONS = NoPositions()


class LayerHeads(NamedTuple):
    """Heads of a layer as its model counts them, before an operator joins some."""

    heads: int
    kv_heads: int
    head_width: int
    """Channels of a head, without those that a gate adds."""
    width: int
    """Channels of the layer's input."""


class HostOptions(NamedTuple):
    """Options of `Attention` that a model sets, which draws the weights and adds its positions, too."""

    head_outputs: Literal["concatenated", "added"] = "concatenated"
    token_shift: Literal["none", "keys", "values", "both"] = "none"


class AttentionTrace(NamedTuple):
    """Inputs and results of a layer's attention on a batch."""

    heads: Heads
    numbers: NumberValues
    attended: AttentionOutput


class HeadScales(NamedTuple):
    """Factors of the heads of a layer, [H, 1, 1] each."""

    query: Tensor
    output: Tensor


class HeadAttention(nn.Module):
    """An operator on projected heads, with the parameters of its numbers; the base of both public modules."""

    gate: nn.Linear | None
    """Projects the channels that a gate adds to queries and keys."""
    numbers: NumberParameters

    def __init__(
        self, operator: Operator, size: LayerHeads, *, positions: Positions, dropout: float, path: PathName
    ) -> None:
        super().__init__()
        self.watched: list[AttentionTrace] | None = None
        """If set to a list, attention is computed by the definition and its trace is appended."""
        joined = operator.merge.heads_joined
        self.heads, self.key_heads = size.heads // joined, size.kv_heads // joined
        self.operator, self.positions = operator, positions
        self.replacement: Operator | None = None
        """If set, the operator that computes instead, with some stages at their default choice (`knockout.py`)."""
        self.uniform = False
        """True if all logits are zero."""
        self.scales: HeadScales | None = None
        """If set, prepared queries and the output are multiplied by it."""
        self.adjust: Callable[[NumberValues, Tensor | None], NumberValues] | None = None
        """If set, it returns the numbers that are used, from their values and the tokens that are present."""
        self.dropout, self.path = dropout, path
        self.channels, self.gate_channels = size.head_width * joined, operator.added_channels
        compiled_case = Case(
            *_COMPILED_LENGTHS, biased=positions.adds_bias, dropout=dropout > 0, compiled=True, channels=self.channels
        )
        self._compiled = {
            (device, dtype): choose(operator, compiled_case._replace(device=device, dtype=dtype), path).path
            for device in devices_of(path)
            for dtype in (PRECISIONS if path == "auto" else (torch.float32,))
        }

    def _make_gate(self, width: int, *, bias: bool) -> nn.Linear | None:
        channels = (self.heads + self.key_heads) * self.gate_channels
        return nn.Linear(width, channels, bias=bias) if channels else None

    def _make_numbers(self, width: int, layer: int, shared: dict[str, nn.Parameter]) -> NumberParameters:
        query = self.channels + self.gate_channels
        shape = head_shape(self.operator, heads=self.heads, query=query, value=self.channels, width=width)
        return NumberParameters(self.operator, shape, shared, layer)

    @property
    def computed(self) -> Operator:
        """The operator that computes: its own, or what a knock-out leaves of it."""
        return self.operator if self.replacement is None else self.replacement

    def _attend(self, heads: Heads, x: Tensor) -> Tensor:
        """Return the heads' outputs [B, H, T, D] from heads without positions, in the operator's own heads."""
        present = present_tokens(heads.mask)
        numbers: NumberValues = self.numbers.values(heads.q, x, present)
        numbers = numbers if self.adjust is None else self.adjust(numbers, present)
        q, k = heads.q, heads.k
        if self.replacement is not None:  # numbers may be projections from a query with its gate channels
            numbers = {name: numbers[name] for name in self.replacement.numbers()}
            if not self.replacement.gate.channels:
                (q, _), (k, _) = split_gate(self.operator, q), split_gate(self.operator, k)
        q, k = prepare(self.computed, q, k, self.positions, numbers)
        bias = heads.bias
        if self.uniform:
            q, bias = torch.zeros_like(q), None
        if self.scales is not None:
            q = (q * self.scales.query).to(q.dtype)
        dropout = self.dropout if self.training else 0.0
        output = self._output(heads._replace(q=q, k=k, bias=bias, dropout=dropout), numbers)
        return output if self.scales is None else (output * self.scales.output).to(output.dtype)

    def _output(self, heads: Heads, numbers: NumberValues) -> Tensor:
        operator = self.computed
        if self.watched is not None:
            attended = definition(operator, heads, numbers)
            self.watched.append(AttentionTrace(heads, numbers, attended))
            return attended.output
        if self.replacement is not None:  # a path chosen by name need not run it
            return choose(operator, Case.of(heads)).path.run(operator, heads, numbers)
        if torch.compiler.is_compiling():  # the choice itself cannot be traced
            path = self._compiled_path(heads.q.device.type, heads.v.dtype)
        else:
            path = choose(operator, Case.of(heads), self.path).path
            if self.path != "auto" and path.needs_definition(operator, heads):
                raise SpecError(f"path {self.path!r} computes causal masks and padding only; use path='auto'")
        return path.run(operator, heads, numbers)

    def _compiled_path(self, device: str, dtype: torch.dtype) -> Path:
        named = self.path != "auto"
        path = self._compiled.get((device, torch.float32 if named else dtype))
        if path is None and named:
            raise SpecError(f"path {self.path!r} does not compute on {device}; use path='auto'")
        return path or PATHS[-1]

    def _add_gate(self, q: Tensor, k: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Append the gate's channels, which are projected from the layer's input, to queries and keys."""
        if self.gate is None:
            return q, k
        sizes = (self.heads * self.gate_channels, self.key_heads * self.gate_channels)
        q_gate, k_gate = (_in_heads(each, self.gate_channels) for each in self.gate(x).split(sizes, -1))
        return torch.cat((q, q_gate), -1), torch.cat((k, k_gate), -1)

    def _repeat(self, x: Tensor) -> Tensor:
        """Repeat keys or values of grouped queries for the heads that share them."""
        return x if self.key_heads == self.heads else x.repeat_interleave(self.heads // self.key_heads, 1)

    def _own_bias(self, bias: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        """Return the bias of the positions if none is passed; a model passes its own to all layers."""
        if bias is not None or not self.positions.adds_bias:
            return bias
        return self.positions.bias(distances(q.shape[-2], k.shape[-2], q.device), self.heads, None, causal=True)


class Attention(HeadAttention):
    """Attention by an operator in a layer: from x [B, T, width] to [B, T, width].

        attention = Attention(principled("query"), width=512, heads=8, layer=0, layers=6, positions=Rotary())
        y = attention(x)

    Numbers and weights start by themselves: weights from N(0, 0.02) as in GPT-2, those of the output divided by
    sqrt(2 layers). Layers with a learned constant, which is one scalar of the whole model, get one mapping `shared`. A
    layer without `mask` is causal. Keys and values of grouped queries are repeated for their heads.
    """

    def __init__(  # noqa: PLR0913  (what a layer consists of)
        self,
        operator: Operator,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        layer: int | None = None,
        layers: int | None = None,
        positions: Positions = _NO_POSITIONS,
        bias: Literal["none", "all", "qkv"] = "none",
        dropout: float = 0.0,
        shared: dict[str, nn.Parameter] | None = None,
        path: PathName = "auto",
        host: HostOptions | None = None,
    ) -> None:
        """Build layer `layer` of `layers`, counted from 0; SpecError if the operator has no meaning in it.

        `dropout` is that of weights in training. A `host` draws the weights itself.
        """
        size = LayerHeads(heads, kv_heads or heads, width // heads, width)
        if host is None:
            if width % heads:
                raise SpecError(f"heads divide the width {width}; got {heads}")
            _check(operator, size, positions, depth=(layer, layers), shared=shared)
        super().__init__(operator, size, positions=positions, dropout=dropout, path=path)
        options = host or HostOptions()
        self.added = options.head_outputs == "added"
        biased = bias != "none"
        self.qkv = nn.Linear(width, (self.heads + 2 * self.key_heads) * self.channels, bias=biased)
        self.out = nn.Linear(self.channels * (1 if self.added else self.heads), width, bias=bias == "all")
        self.gate = self._make_gate(width, bias=biased)
        self.shifts = tuple(each for each in ("keys", "values") if options.token_shift in (each, "both"))
        self.shift = nn.Linear(width, len(self.shifts) * self.key_heads, bias=False) if self.shifts else None
        self.numbers = self._make_numbers(width, layer or 0, {} if shared is None else shared)
        if host is None:
            _draw(self)
            nn.init.normal_(self.out.weight, 0, _SPREAD / math.sqrt(2 * (layers or 1)))

    def forward(self, x: Tensor, mask: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """Map [B, T, width] to [B, T, width].

        `mask` is boolean and broadcasts to [B, H, T, T]: True = visible, None = causal. `bias` [H or 1, T, T] is added
        to the logits.
        """
        q, k, v = self._project(x)
        output = self._attend(Heads(q, k, v, mask, self._own_bias(bias, q, k)), x)
        joined = output.sum(1) if self.added else output.transpose(1, 2).flatten(2)
        return self.out(joined)  # type: ignore[no-any-return]

    def path_name(self, length: int, dtype: torch.dtype | None = None, *, compiled: bool = False) -> str:
        """Name the path of training on `length` tokens; SpecError if a path given by name cannot compute it."""
        device, dtype = self.out.weight.device.type, dtype or self.out.weight.dtype
        if compiled:
            return self._compiled_path(device, dtype).name
        case = Case(length, length, device, dtype, self.positions.adds_bias, self.dropout > 0, channels=self.channels)
        return choose(self.operator, case, self.path).path.name

    def averages(self, x: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """Return the batch means that running means would take in if `x` [B, T, width] were the whole batch."""
        return self.numbers.averages(self._project(x)[0], x, present_tokens(mask))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project to q and k [B, H, T, D + G] and v [B, H, T, D], without positions."""
        queries, keys = self.heads * self.channels, self.key_heads * self.channels
        q, k, v = (_in_heads(each, self.channels) for each in self.qkv(x).split((queries, keys, keys), -1))
        if self.shift is not None:
            shares = dict(zip(self.shifts, self.shift(x).transpose(1, 2).split(self.key_heads, 1), strict=True))
            k, v = (_shift(each, shares.get(name)) for name, each in (("keys", k), ("values", v)))
        q, k = self._add_gate(q, k, x)
        return q, self._repeat(k), self._repeat(v)


class AttentionOp(HeadAttention):
    """An operator for code with projections of its own: from q, k, v and the layer's input x to the heads' outputs.

        op = AttentionOp(fox(), heads=8, head_width=64, width=512)
        y = op(q, k, v, x)          q and y [B, 8, T, 64], k and v [B, 8 or kv_heads, T, 64], x [B, T, 512]

    It has the parameters of the operator's numbers, and of the channels that a gate adds. Queries and keys come without
    positions; `positions` rotates them or adds to the logits. Everything else is as in `Attention`.
    """

    def __init__(  # noqa: PLR0913  (what a layer consists of)
        self,
        operator: Operator,
        *,
        heads: int,
        head_width: int,
        width: int,
        kv_heads: int | None = None,
        layer: int | None = None,
        layers: int | None = None,
        positions: Positions = _NO_POSITIONS,
        dropout: float = 0.0,
        shared: dict[str, nn.Parameter] | None = None,
        path: PathName = "auto",
    ) -> None:
        """Build the operator of layer `layer` of `layers`; SpecError if it has no meaning with these heads."""
        size = LayerHeads(heads, kv_heads or heads, head_width, width)
        _check(operator, size, positions, depth=(layer, layers), shared=shared)
        super().__init__(operator, size, positions=positions, dropout=dropout, path=path)
        self.gate = self._make_gate(width, bias=False)
        self.numbers = self._make_numbers(width, layer or 0, {} if shared is None else shared)
        self._size = size
        _draw(self)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, mask: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        """Map q [B, heads, T, head_width], k and v [B, kv_heads, T, head_width] and x [B, T, width] to y like q.

        `mask` and `bias` are as in `Attention`.
        """
        self._check_heads(q, k, v, x)
        joined = self.operator.merge.heads_joined
        q, k, v = (_join(each, joined) for each in (q, k, v))
        q, k = self._add_gate(q, k, x)
        heads = Heads(q, self._repeat(k), self._repeat(v), mask, self._own_bias(bias, q, k))
        output = self._attend(heads, x)
        return _part(output, joined)

    def _check_heads(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> None:
        heads, kv_heads, head_width, width = self._size
        for name, each, count in (("q", q, heads), ("k", k, kv_heads), ("v", v, kv_heads)):
            if each.dim() != 4 or (each.shape[1], each.shape[3]) != (count, head_width):
                raise SpecError(f"{name} is [B, {count}, T, {head_width}]; got {[*each.shape]}")
        if x.shape != (q.shape[0], q.shape[2], width):
            raise SpecError(f"x is the layer's input [B, T, {width}] of the queries' tokens; got {[*x.shape]}")


_SPREAD = 0.02


@torch.no_grad()
def _draw(module: HeadAttention) -> None:
    """Draw the start of all parameters from PyTorch's global generator."""
    module.numbers.draw()
    for each in module.modules():
        if isinstance(each, nn.Linear):
            each.weight.normal_(0, _SPREAD)
            if each.bias is not None:
                each.bias.zero_()


def _check(
    operator: Operator,
    size: LayerHeads,
    positions: Positions,
    *,
    depth: tuple[int | None, int | None],
    shared: dict[str, nn.Parameter] | None,
) -> None:
    """Raise SpecError if a layer outside of a model would leave something out without a word."""
    layer, layers = depth
    if size.heads % size.kv_heads:
        raise SpecError(f"kv_heads divides heads {size.heads}; got {size.kv_heads}")
    if layer is not None and layers is not None and not 0 <= layer < layers:
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


def present_tokens(mask: Tensor | None) -> Tensor | None:
    """Return [..., T, 1], True for tokens that see themselves; others are padding. None if nothing is hidden."""
    if mask is None:
        return None
    length = max(mask.shape[-2:])  # a mask that broadcasts along queries or keys has no diagonal of its own
    return mask.expand(*mask.shape[:-2], length, length).diagonal(dim1=-2, dim2=-1)[..., None]


def _in_heads(x: Tensor, channels: int) -> Tensor:
    """Reshape [B, T, H D] to [B, H, T, D]."""
    return x.view(*x.shape[:2], -1, channels).transpose(1, 2)


def _join(x: Tensor, heads: int) -> Tensor:
    """Join every so many heads of [B, H, T, D] to a wider one."""
    return x if heads == 1 else x.reshape(x.shape[0], -1, heads, *x.shape[2:]).transpose(2, 3).flatten(3)


def _part(x: Tensor, heads: int) -> Tensor:
    """Undo `_join`."""
    return x if heads == 1 else x.reshape(*x.shape[:3], heads, -1).transpose(2, 3).flatten(1, 2)


def _shift(x: Tensor, share: Tensor | None) -> Tensor:
    """Mix [B, H, T, D] with the token before, by the sigmoid of `share` [B, H, T]."""
    if share is None:
        return x
    before = F.pad(x[..., :-1, :], (0, 0, 1, 0))
    s = share.to(torch.promote_types(share.dtype, torch.float32)).sigmoid()[..., None]
    return (s * before + (1 - s) * x).to(x.dtype)
