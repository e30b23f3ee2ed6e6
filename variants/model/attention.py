"""Attention by any operator as a module: from a layer's input, or from heads that other code has projected."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from ablate.grid.errors import SpecError
from ablate.grid.values import show
from ablate.variants.attend import Heads
from ablate.variants.model.cache import Cache, attempt
from ablate.variants.model.checks import (
    LayerHeads,
    check_layer,
    require_device,
    require_like,
    require_sizes,
    require_tensor,
)
from ablate.variants.model.head_attention import HeadAttention, present_tokens, split_heads
from ablate.variants.operator import Operator
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PathName, choose
from ablate.variants.stages.positions import NoPositions, Positions

_NO_POSITIONS = NoPositions()


class HostOptions(NamedTuple):
    """Options of `Attention` that a model sets, which draws the weights and adds its positions, too."""

    head_outputs: Literal["concatenated", "added"] = "concatenated"
    token_shift: Literal["none", "keys", "values", "both"] = "none"


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
        if host is None:
            require_sizes(width=width, heads=heads, kv_heads=kv_heads)
            if width % heads:
                raise SpecError(f"heads={heads} is no divisor of the width {width}; give one")
            if bias not in ("none", "all", "qkv"):
                raise SpecError(f"bias={show(bias)} is no bias; write 'none', 'all' or 'qkv'")
        size = LayerHeads(heads, kv_heads or heads, width // heads, width)
        if host is None:
            check_layer(operator, size, positions, depth=(layer, layers), shared=shared, dropout=dropout)
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

    def forward(
        self,
        x: Float[Tensor, "batch tokens width"],
        mask: Bool[Tensor, "*#heads #tokens #keys"] | None = None,
        bias: Float[Tensor, "*#heads tokens keys"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """Map the layer's input to its output.

        `mask` has two or four dimensions and the operator's own heads: True = visible, None = causal. `bias` is added
        to the logits. With a `cache`, x are the next tokens, and the last two
        dimensions of `mask` and `bias` are those of x by all tokens so far. A call that raises leaves the cache as it
        was. SpecError if something does not fit; nothing is broadcast but what is said here.
        """
        require_tensor("x", x, "B", "T", self.qkv.in_features)
        require_like("x", x, "the layer's weights", self.qkv.weight)
        self._check_call(x, mask, bias, cache)
        with attempt(cache):
            q, k, v = self._project(x, cache)
            output = self._attend(Heads(q, k, v, mask, self._own_bias(bias, x, cache)), x, cache)
            joined = output.sum(1) if self.added else output.transpose(1, 2).flatten(2)
            return self.out(joined)  # type: ignore[no-any-return]

    def path_name(self, length: int, dtype: torch.dtype | None = None, *, compiled: bool = False) -> str:
        """Name the path of training on `length` tokens; SpecError if a path given by name cannot compute it."""
        device, dtype = self.out.weight.device.type, dtype or self.out.weight.dtype
        if compiled:
            return self._compiled_path(device, dtype).name
        case = Case(length, length, device, dtype, self.positions.adds_bias, self.dropout > 0, channels=self.channels)
        return choose(self.operator, case, self.path).path.name

    def averages(
        self, x: Float[Tensor, "batch tokens width"], mask: Bool[Tensor, "*#heads #tokens #tokens"] | None = None
    ) -> list[Tensor]:
        """Return the batch means that running means would take in if `x` were the whole batch."""
        return self.numbers.averages(self._project(x)[0], x, present_tokens(mask))

    def _project(
        self, x: Float[Tensor, "batch tokens width"], cache: Cache | None = None
    ) -> tuple[
        Float[Tensor, "batch heads tokens channels"],
        Float[Tensor, "batch key_heads tokens channels"],
        Float[Tensor, "batch key_heads tokens values"],
    ]:
        """Project to q, k and v, without positions; keys and values not repeated."""
        queries, keys = self.heads * self.channels, self.key_heads * self.channels
        q, k, v = (split_heads(each, self.channels) for each in self.qkv(x).split((queries, keys, keys), -1))
        if self.shift is not None:
            pairs = (("keys", k), ("values", v))
            shares = dict(zip(self.shifts, self.shift(x).transpose(1, 2).split(self.key_heads, 1), strict=True))
            before = {name: None if cache is None else cache.swap(name, each[..., -1:, :]) for name, each in pairs}
            k, v = (_shift(each, shares.get(name), before[name]) for name, each in pairs)
        return (*self._add_gate(q, k, x), v)


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
        require_sizes(heads=heads, head_width=head_width, width=width, kv_heads=kv_heads)
        size = LayerHeads(heads, kv_heads or heads, head_width, width)
        check_layer(operator, size, positions, depth=(layer, layers), shared=shared, dropout=dropout)
        super().__init__(operator, size, positions=positions, dropout=dropout, path=path)
        self.gate = self._make_gate(width, bias=False)
        self.numbers = self._make_numbers(width, layer or 0, {} if shared is None else shared)
        self._size = size
        _draw(self)

    def forward(  # noqa: PLR0913, PLR0917  (the tensors of one call)
        self,
        q: Float[Tensor, "batch heads tokens channels"],
        k: Float[Tensor, "batch key_heads tokens channels"],
        v: Float[Tensor, "batch key_heads tokens channels"],
        x: Float[Tensor, "batch tokens width"],
        mask: Bool[Tensor, "*#heads_of_maps #tokens #keys"] | None = None,
        bias: Float[Tensor, "*#heads_of_maps tokens keys"] | None = None,
        cache: Cache | None = None,
        rotate: Callable[[Tensor], Tensor] | None = None,
    ) -> Float[Tensor, "batch heads tokens channels"]:
        """Map q, k, v and the layer's input x to the heads' outputs y.

        `mask`, `bias` and `cache` are as in `Attention`; q, k and v are those of the tokens of x. `rotate` turns heads
        [B, heads or kv_heads, T, head_width] by their positions, in place of `positions`.
        """
        self._check_heads(q, k, v, x)
        self._check_call(x, mask, bias, cache)
        joined = self.operator.merge.heads_joined
        q, k, v = (_join(each, joined) for each in (q, k, v))
        q, k = self._add_gate(q, k, x)
        turning = None if rotate is None else _OwnRotation(rotate, joined)
        with attempt(cache):
            return _part(self._attend(Heads(q, k, v, mask, self._own_bias(bias, x, cache)), x, cache, turning), joined)

    def _check_heads(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> None:
        heads, kv_heads, head_width, width = self._size
        require_tensor("q", q, "B", heads, "T", head_width)
        batch, _, length, _ = q.shape
        require_tensor("x", x, batch, length, width)
        for name, each in (("k", k), ("v", v)):
            require_tensor(name, each, batch, kv_heads, length, head_width)
            require_like(name, each, "q", q)
        require_device("x", x, q.device)
        if (own := next(self.parameters(), None)) is not None:
            require_device("q", q, own.device)
        if self.gate is not None:
            require_like("x", x, "the gate's weights", self.gate.weight)


@final
class _OwnRotation:
    """A function that turns a model's heads, for the heads that an operator joins."""

    rotates = True

    def __init__(self, turn: Callable[[Tensor], Tensor], joined: int) -> None:
        self._turn, self._joined = turn, joined

    def rotate(self, x: Tensor, *, signals: int, start: int = 0) -> Tensor:  # noqa: ARG002  (the caller knows both)
        return _join(self._turn(_part(x, self._joined)), self._joined)


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


def _join(x: Float[Tensor, "batch heads tokens channels"], heads: int) -> Float[Tensor, "batch joined tokens wider"]:
    """Join every so many heads to a wider one."""
    return x if heads == 1 else x.reshape(x.shape[0], -1, heads, *x.shape[2:]).transpose(2, 3).flatten(3)


def _part(x: Float[Tensor, "batch joined tokens wider"], heads: int) -> Float[Tensor, "batch heads tokens channels"]:
    """Undo `_join`."""
    return x if heads == 1 else x.reshape(*x.shape[:3], heads, -1).transpose(2, 3).flatten(1, 2)


def _shift(
    x: Float[Tensor, "batch heads tokens channels"],
    share: Float[Tensor, "batch heads tokens"] | None,
    last: Float[Tensor, "batch heads 1 channels"] | None,
) -> Float[Tensor, "batch heads tokens channels"]:
    """Mix with the token before, by the sigmoid of `share`; `last` comes before the first."""
    if share is None:
        return x
    before = F.pad(x[..., :-1, :], (0, 0, 1, 0)) if last is None else torch.cat((last, x[..., :-1, :]), -2)
    s = share.to(torch.promote_types(share.dtype, torch.float32)).sigmoid()[..., None]
    return (s * before + (1 - s) * x).to(x.dtype)
