"""An operator on projected heads, with the parameters of its numbers."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ablate.grid.errors import SpecError
from ablate.variants.attend import PRECISIONS, AttentionOutput, Heads, Rotation, definition, prepare, split_gate
from ablate.variants.axes import HeadOutput, Hidden, Keys
from ablate.variants.model.cache import Cache
from ablate.variants.model.checks import LayerHeads, check_bias, check_mask
from ablate.variants.model.parameters import NumberParameters
from ablate.variants.operator import NumberValues, Operator, by_stage, distances, head_shape
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PATHS, Path, PathName, choose, devices_of
from ablate.variants.stages.positions import Positions

_COMPILED_LENGTHS = (4096, 4096)
"""A compiled model chooses its path as for so many queries and keys, whatever the true length."""


class AttentionTrace(NamedTuple):
    """Inputs and results of a layer's attention on a batch."""

    heads: Heads
    numbers: NumberValues
    attended: AttentionOutput


class HeadScales(NamedTuple):
    """Factors of the heads of a layer."""

    query: Float[Tensor, "heads 1 1"]
    output: Float[Tensor, "heads 1 1"]


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

    def _attend(
        self, heads: Heads, x: Hidden, cache: Cache | None = None, positions: Rotation | None = None
    ) -> Float[Tensor, "batch heads tokens values"]:
        """Return the heads' outputs from heads without positions, in the operator's own heads."""
        first = 0 if cache is None else self._tokens_before(cache, x.shape[1])
        present = None if first else present_tokens(heads.mask)
        numbers: NumberValues = self.numbers.values(heads.q, x, present)
        if self.adjust is not None:
            numbers = self.adjust(numbers, present)
            whole = (x.shape[0], -1, x.shape[1], -1)  # a mean that stands for a number has no tokens of its own
            numbers = {**numbers, **{name: numbers[name].expand(whole) for name in self.operator.by_key}}
        q, k, v = heads[:3]
        if self.replacement is not None:  # numbers may be projections from a query with its gate channels
            numbers = {name: numbers[name] for name in self.replacement.numbers()}
            if not self.replacement.gate.channels:
                (q, _), (k, _) = split_gate(self.operator, q), split_gate(self.operator, k)
        if cache is None or any(each.shape[1] > 1 for each in by_stage(numbers)["preparation"].values()):
            k = self._repeat(k)
        q, k = prepare(self.computed, q, k, positions or self.positions, numbers, first)
        if cache is not None:
            k, v, by_key = cache.extend(k, v, {name: numbers[name] for name in self.computed.by_key})
            numbers = {**numbers, **by_key}
        k, v, bias = self._repeat(k), self._repeat(v), heads.bias
        if self.uniform:
            q, bias = torch.zeros_like(q), None
        if self.scales is not None:
            q = (q * self.scales.query).to(q.dtype)
        dropout = self.dropout if self.training else 0.0
        output = self._output(Heads(q, k, v, heads.mask, bias, dropout), numbers)
        return output if self.scales is None else (output * self.scales.output).to(output.dtype)

    def _output(self, heads: Heads, numbers: NumberValues) -> HeadOutput:
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

    def _add_gate(
        self,
        q: Float[Tensor, "batch heads tokens channels"],
        k: Float[Tensor, "batch key_heads tokens channels"],
        x: Hidden,
    ) -> tuple[Float[Tensor, "batch heads tokens with_gate"], Float[Tensor, "batch key_heads tokens with_gate"]]:
        """Append the gate's channels, which are projected from the layer's input, to queries and keys."""
        if self.gate is None:
            return q, k
        sizes = (self.heads * self.gate_channels, self.key_heads * self.gate_channels)
        q_gate, k_gate = (split_heads(each, self.gate_channels) for each in self.gate(x).split(sizes, -1))
        return torch.cat((q, q_gate), -1), torch.cat((k, k_gate), -1)

    def _repeat(self, x: Float[Tensor, "batch key_heads keys channels"]) -> Keys:
        """Repeat keys or values of grouped queries for the heads that share them."""
        return x if x.shape[1] == self.heads else x.repeat_interleave(self.heads // x.shape[1], 1)

    def _own_bias(
        self, bias: Float[Tensor, "*#heads tokens keys"] | None, x: Hidden, cache: Cache | None
    ) -> Float[Tensor, "*#heads tokens keys"] | None:
        """Return the bias of the positions if none is passed; a model passes its own to all layers."""
        if bias is not None or not self.positions.adds_bias:
            return bias
        queries, before = x.shape[1], 0 if cache is None else cache.length
        return self.positions.bias(distances(queries, before + queries, x.device), self.heads, None, causal=True)

    def _check_call(self, x: Hidden, mask: object, bias: object, cache: object) -> None:
        """Raise SpecError if a mask, bias or cache does not fit the input x."""
        if cache is not None and not isinstance(cache, Cache):
            raise SpecError(f"cache is a {type(cache).__name__}; give a KeyCache, one for each layer")
        batch, new, _ = x.shape
        sizes = (batch, self.heads, new, new if cache is None else cache.count_keys(new))
        if mask is not None:
            check_mask(mask, x.device, sizes)
        if bias is not None:
            check_bias(bias, x.device, sizes)

    def _tokens_before(self, cache: Cache, new: int) -> int:
        """Return how many tokens the cache has; SpecError if they do not suffice to compute `new` more."""
        operator = self.computed
        if operator.no_cache is not None and cache.length:
            raise SpecError(
                f"{operator.label!r} cannot continue from kept keys and values: {operator.no_cache}; compute the whole "
                "sequence without a cache"
            )
        if not cache.length and new <= operator.visible.ahead:
            raise SpecError(
                f"{operator.label!r} shows its first {operator.visible.ahead + 1} tokens whole, and a cache began with "
                f"{new}; begin with all of them, or compute without a cache"
            )
        return cache.length


def present_tokens(mask: Bool[Tensor, "*maps queries keys"] | None) -> Bool[Tensor, "*maps tokens 1"] | None:
    """Return True for tokens that see themselves; others are padding. None if nothing is hidden."""
    if mask is None:
        return None
    length = max(mask.shape[-2:])  # a mask that broadcasts along queries or keys has no diagonal of its own
    return mask.expand(*mask.shape[:-2], length, length).diagonal(dim1=-2, dim2=-1)[..., None]


def split_heads(
    x: Float[Tensor, "batch tokens heads_times_channels"], channels: int
) -> Float[Tensor, "batch heads tokens channels"]:
    """Give each head its `channels`."""
    return x.view(*x.shape[:2], x.shape[-1] // channels, channels).transpose(1, 2)
