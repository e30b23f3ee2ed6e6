"""One layer of the host Transformer: attention by any operator, feedforward, norms and residual connections."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ablate.grid.errors import SpecError
from ablate.variants.attend import PRECISIONS, AttentionOutput, Heads, definition, prepare, split_gate
from ablate.variants.model.backbone import Backbone
from ablate.variants.model.parameters import NumberParameters
from ablate.variants.operator import NumberValues, Operator, head_shape
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PATHS, Path, PathName, choose, devices_of

_COMPILED_LENGTHS = (4096, 4096)
"""A compiled model chooses its path as for so many queries and keys, whatever the true length."""


class LayerPosition(NamedTuple):
    """Arguments of a layer besides its backbone and operator."""

    layer: int
    """Counted from 0 at the bottom."""
    shared: dict[str, nn.Parameter]
    """Numbers that several layers have in common."""
    path: PathName


class AttentionTrace(NamedTuple):
    """Inputs and results of a layer's attention on a batch."""

    heads: Heads
    numbers: NumberValues
    attended: AttentionOutput


class HeadScales(NamedTuple):
    """Factors of the heads of a layer, [H, 1, 1] each."""

    query: Tensor
    output: Tensor


class Attention(nn.Module):
    """Projections, positions and one operator. Keys and values of grouped queries are repeated for their heads."""

    def __init__(self, backbone: Backbone, operator: Operator, place: LayerPosition) -> None:
        super().__init__()
        self.watched: list[AttentionTrace] | None = None
        """If set to a list, attention is computed by the definition and its trace is appended."""
        joined, width = operator.merge.heads_joined, backbone.width
        self.heads, self.key_heads = backbone.heads // joined, backbone.key_heads // joined
        self.operator, self.positions = operator, backbone.positions
        self.replacement: Operator | None = None
        """If set, the operator that computes instead, with some stages at their default choice (`knockout.py`)."""
        self.uniform = False
        """True if all logits are zero."""
        self.scales: HeadScales | None = None
        """If set, prepared queries and the output are multiplied by it."""
        self.adjust: Callable[[NumberValues, Tensor | None], NumberValues] | None = None
        """If set, it returns the numbers that are used, from their values and the tokens that are present."""
        self.dropout = backbone.attention_dropout
        self.path = place.path
        self.added = backbone.head_outputs == "added"
        self.channels, self.gate_channels = backbone.head_width * joined, operator.added_channels
        biased, dropout = backbone.positions.adds_bias, self.dropout > 0
        compiled_case = Case(*_COMPILED_LENGTHS, biased=biased, dropout=dropout, compiled=True, channels=self.channels)
        self._compiled = {
            (device, dtype): choose(operator, compiled_case._replace(device=device, dtype=dtype), place.path).path
            for device in devices_of(place.path)
            for dtype in (PRECISIONS if place.path == "auto" else (torch.float32,))
        }
        bias = backbone.bias != "none"
        self.qkv = nn.Linear(width, (self.heads + 2 * self.key_heads) * self.channels, bias=bias)
        self.out = nn.Linear(self.channels * (1 if self.added else self.heads), width, bias=backbone.bias == "all")
        gates = (self.heads + self.key_heads) * self.gate_channels
        self.gate = nn.Linear(width, gates, bias=bias) if gates else None
        self.shifts = tuple(each for each in ("keys", "values") if backbone.token_shift in (each, "both"))
        self.shift = nn.Linear(width, len(self.shifts) * self.key_heads, bias=False) if self.shifts else None
        query = self.channels + self.gate_channels
        shape = head_shape(operator, heads=self.heads, query=query, value=self.channels, width=width)
        self.numbers = NumberParameters(operator, shape, place.shared, place.layer)

    def forward(self, x: Tensor, mask: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """Map [B, T, width] to [B, T, width].

        `mask` is boolean and broadcasts to [B, H, T, T]: True = visible, None = causal. `bias` [H or 1, T, T] is added
        to the logits.
        """
        q, k, v = self._project(x)
        present = present_tokens(mask)
        numbers: NumberValues = self.numbers.values(q, x, present)
        numbers = numbers if self.adjust is None else self.adjust(numbers, present)
        if self.replacement is not None:  # numbers may be projections from a query with its gate channels
            numbers = {name: numbers[name] for name in self.replacement.numbers()}
            if not self.replacement.gate.channels:
                (q, _), (k, _) = split_gate(self.operator, q), split_gate(self.operator, k)
        q, k = prepare(self.computed, q, k, self.positions, numbers)
        if self.uniform:
            q, bias = torch.zeros_like(q), None
        if self.scales is not None:
            q = (q * self.scales.query).to(q.dtype)
        dropout = self.dropout if self.training else 0.0
        output = self._output(Heads(q, k, v, mask, bias, dropout), numbers)
        if self.scales is not None:
            output = (output * self.scales.output).to(output.dtype)
        joined = output.sum(1) if self.added else output.transpose(1, 2).flatten(2)
        return self.out(joined)  # type: ignore[no-any-return]

    @property
    def computed(self) -> Operator:
        """The operator that computes: its own, or what a knock-out leaves of it."""
        return self.operator if self.replacement is None else self.replacement

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

    def path_name(self, length: int, dtype: torch.dtype | None = None, *, compiled: bool = False) -> str:
        """Name the path of training on `length` tokens; SpecError if a path given by name cannot compute it."""
        device, dtype = self.out.weight.device.type, dtype or self.out.weight.dtype
        if compiled:
            return self._compiled_path(device, dtype).name
        case = Case(length, length, device, dtype, self.positions.adds_bias, self.dropout > 0, channels=self.channels)
        return choose(self.operator, case, self.path).path.name

    def _compiled_path(self, device: str, dtype: torch.dtype) -> Path:
        named = self.path != "auto"
        path = self._compiled.get((device, torch.float32 if named else dtype))
        if path is None and named:
            raise SpecError(f"path {self.path!r} does not compute on {device}; use path='auto'")
        return path or PATHS[-1]

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
        if self.gate is not None:
            sizes = (self.heads * self.gate_channels, self.key_heads * self.gate_channels)
            q_gate, k_gate = (_in_heads(each, self.gate_channels) for each in self.gate(x).split(sizes, -1))
            q, k = torch.cat((q, q_gate), -1), torch.cat((k, k_gate), -1)
        if self.key_heads < self.heads:
            group = self.heads // self.key_heads
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        return q, k, v


def present_tokens(mask: Tensor | None) -> Tensor | None:
    """Return [..., T, 1], True for tokens that see themselves; others are padding. None if nothing is hidden."""
    if mask is None:
        return None
    length = max(mask.shape[-2:])  # a mask that broadcasts along queries or keys has no diagonal of its own
    return mask.expand(*mask.shape[:-2], length, length).diagonal(dim1=-2, dim2=-1)[..., None]


def _in_heads(x: Tensor, channels: int) -> Tensor:
    """Reshape [B, T, H D] to [B, H, T, D]."""
    return x.view(*x.shape[:2], -1, channels).transpose(1, 2)


def _shift(x: Tensor, share: Tensor | None) -> Tensor:
    """Mix [B, H, T, D] with the token before, by the sigmoid of `share` [B, H, T]."""
    if share is None:
        return x
    before = F.pad(x[..., :-1, :], (0, 0, 1, 0))
    s = share.to(torch.promote_types(share.dtype, torch.float32)).sigmoid()[..., None]
    return (s * before + (1 - s) * x).to(x.dtype)


_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swish": F.silu,
    "reglu": F.relu,
    "geglu": F.gelu,
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """f(x W1) W2, or (f(x W1) * x W2) W3 for the kinds that end in glu."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        kind, inner, bias = backbone.feedforward, backbone.feedforward_width, backbone.bias == "all"
        self._activation = _ACTIVATIONS[kind]
        self.up = nn.Linear(backbone.width, inner, bias=bias)
        self.gate = nn.Linear(backbone.width, inner, bias=bias) if kind.endswith("glu") else None
        self.down = nn.Linear(inner, backbone.width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up(x)
        inner = self._activation(up) if self.gate is None else self._activation(self.gate(x)) * up
        return self.down(inner)  # type: ignore[no-any-return]


class Block(nn.Module):
    """One layer: attention and feedforward, sequential or parallel, with norms before or after each."""

    def __init__(self, backbone: Backbone, operator: Operator, place: LayerPosition) -> None:
        super().__init__()
        self.post, self.parallel = backbone.norm_position == "post", backbone.parallel
        self.dropout = backbone.dropout
        self.attention_norm = normalisation(backbone)
        self.attention = Attention(backbone, operator, place)
        self.feedforward_norm, self.feedforward = None, None
        if backbone.feedforward != "none":
            self.feedforward_norm, self.feedforward = normalisation(backbone), FeedForward(backbone)

    def forward(self, x: Tensor, mask: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """Map [B, T, width] to [B, T, width]; `mask` and `bias` are as in `Attention`."""
        if self.post:
            x = self.attention_norm(x + self._drop(self.attention(x, mask, bias)))
            if self.feedforward is None or self.feedforward_norm is None:
                return x
            return self.feedforward_norm(x + self._drop(self.feedforward(x)))  # type: ignore[no-any-return]
        attended = x + self._drop(self.attention(self.attention_norm(x), mask, bias))
        if self.feedforward is None or self.feedforward_norm is None:
            return attended
        read = x if self.parallel else attended
        return attended + self._drop(self.feedforward(self.feedforward_norm(read)))

    @property
    def last_norm(self) -> nn.Module:
        return self.attention_norm if self.feedforward_norm is None else self.feedforward_norm

    def averages(self, x: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        return self.attention.averages(x if self.post else self.attention_norm(x), mask)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


def normalisation(backbone: Backbone) -> nn.Module:
    """Build the norm of a backbone, over the last dimension."""
    make = nn.LayerNorm if backbone.norm == "layer" else nn.RMSNorm
    return make(backbone.width, eps=backbone.norm_eps)
