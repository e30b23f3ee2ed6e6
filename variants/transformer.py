"""The one host Transformer: any backbone, any operator in any layer, scalars or tokens in and out."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grid.errors import SpecError
from variants.attend import Heads, prepared
from variants.backbone import Backbone
from variants.operator import Operator, head_shape
from variants.parameters import NumberParameters
from variants.paths.choose import PathName, choose
from variants.seeding import generator


class Scalars(NamedTuple):
    """Real vectors in, real vectors out: float [B, T, width]."""

    width: int = 1


class Tokens(NamedTuple):
    """Token ids [B, T] in, logits [B, T, vocabulary] out."""

    vocabulary: int


class Attention(nn.Module):
    """Projections, positions and one operator."""

    def __init__(
        self, backbone: Backbone, operator: Operator, layer: int, shared: dict[str, nn.Parameter], path: PathName
    ) -> None:
        super().__init__()
        width, joined = backbone.width, operator.merge.heads_joined
        self.heads = backbone.heads // joined
        self.operator, self.positions = operator, backbone.positions
        self.path = choose(operator, path)
        self.qkv = nn.Linear(width, 3 * width, bias=backbone.bias)
        self.out = nn.Linear(width, width, bias=backbone.bias)
        added, channels = operator.added_channels, backbone.head_width * joined
        self.gate = nn.Linear(width, 2 * self.heads * added, bias=backbone.bias) if added else None
        shape = head_shape(operator, heads=self.heads, query=channels + added, value=channels, width=width)
        self.numbers = NumberParameters(operator, shape, shared, layer)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] to [B, T, width], causal."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.gate is not None:
            q_gate, k_gate = self.gate(x).view(batch, length, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
            q, k = torch.cat((q, q_gate), -1), torch.cat((k, k_gate), -1)
        numbers = self.numbers.values(q, x)
        q, k = prepared(self.operator, q, k, self.positions, numbers)
        attended = self.path.run(self.operator, Heads(q, k, v), numbers)
        return self.out(attended.transpose(1, 2).reshape(batch, length, width))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """GELU (tanh form, as GPT-2) or SwiGLU."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.kind: Literal["gelu", "swiglu"] = backbone.feedforward
        inner = backbone.feedforward_width
        self.up = nn.Linear(backbone.width, inner, bias=backbone.bias)
        self.gate = nn.Linear(backbone.width, inner, bias=backbone.bias) if self.kind == "swiglu" else None
        self.down = nn.Linear(inner, backbone.width, bias=backbone.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] to [B, T, width]."""
        up = self.up(x)
        inner = F.gelu(up, approximate="tanh") if self.gate is None else F.silu(self.gate(x)) * up
        return self.down(inner)  # type: ignore[no-any-return]


class Block(nn.Module):
    """One pre-norm layer."""

    def __init__(
        self, backbone: Backbone, operator: Operator, layer: int, shared: dict[str, nn.Parameter], path: PathName
    ) -> None:
        super().__init__()
        self.attention_norm = _norm(backbone)
        self.attention = Attention(backbone, operator, layer, shared, path)
        self.feedforward_norm = _norm(backbone)
        self.feedforward = FeedForward(backbone)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] to [B, T, width]."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feedforward(self.feedforward_norm(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A backbone with one operator per layer (bottom first). Weights depend on the seed and their own path only."""

    def __init__(
        self,
        backbone: Backbone,
        operators: Sequence[Operator],
        *,
        inputs: Scalars | Tokens,
        seed: int,
        path: PathName = "auto",
    ) -> None:
        super().__init__()
        if len(operators) != backbone.layers:
            raise SpecError(f"one operator per layer: the backbone has {backbone.layers}, got {len(operators)}")
        self.backbone, self.inputs = backbone, inputs
        width, shared = backbone.width, dict[str, nn.Parameter]()
        if isinstance(inputs, Tokens):
            self.read_in: nn.Module = nn.Embedding(inputs.vocabulary, width)
            self.read_out = nn.Linear(width, inputs.vocabulary, bias=False)
        else:
            self.read_in = nn.Linear(inputs.width, width)
            self.read_out = nn.Linear(width, inputs.width)
        self.position = nn.Embedding(backbone.positions.table, width) if backbone.positions.table else None
        self.layers = nn.ModuleList(
            Block(backbone, operator, layer, shared, path) for layer, operator in enumerate(operators)
        )
        self.norm = _norm(backbone)
        self._initialise(seed)
        if isinstance(inputs, Tokens) and backbone.tied:
            self.read_out.weight = self.read_in.weight

    def forward(self, x: Tensor) -> Tensor:
        """Float [B, T, width] or token ids [B, T], to predictions at every position."""
        hidden = self.read_in(x)
        length = hidden.shape[1]
        if self.position is not None:
            if length > self.backbone.positions.table:
                raise SpecError(
                    f"a sequence of {length} is longer than the {self.backbone.positions.table} learned positions; "
                    "raise max_positions"
                )
            hidden = hidden + self.position.weight[:length]
        for layer in self.layers:
            hidden = layer(hidden)
        return self.read_out(self.norm(hidden))  # type: ignore[no-any-return]

    def number_parameters(self) -> list[nn.Parameter]:
        """The operators' numbers: no weight decay, since their neutral point is not zero."""
        found = {id(p): p for table in self._tables() for p in table.parameters()}
        return list(found.values())

    def operator_parameters(self) -> int:
        """How many parameters the operators add to softmax: numbers and added gate projections."""
        gates = (attention.gate for attention in self._attentions() if attention.gate is not None)
        added = sum(p.numel() for gate in gates for p in gate.parameters())
        return sum(p.numel() for p in self.number_parameters()) + added

    def numbers(self) -> Iterator[tuple[int, int | None, str, float]]:
        """(layer, head or None, name, value) of every learned number; a vector by its norm."""
        for layer, table in enumerate(self._tables()):
            for head, name, value in table.learned():
                yield layer, head, name, value

    def paths(self) -> list[str]:
        """The execution path of every layer, bottom first."""
        return [attention.path.name for attention in self._attentions()]

    def _attentions(self) -> list[Attention]:
        return [cast(Block, layer).attention for layer in self.layers]

    def _tables(self) -> list[NumberParameters]:
        return [attention.numbers for attention in self._attentions()]

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        """GPT-2's scheme: N(0, 0.02), residual projections by 1/sqrt(2 L), biases 0; the scalar read-in by its fan."""
        residual = 0.02 / math.sqrt(2 * self.backbone.layers)
        for name, module in self.named_modules():
            if isinstance(module, NumberParameters):
                module.disturb(seed, name)
            if not isinstance(module, nn.Linear | nn.Embedding):
                continue
            spread = residual if name.endswith(("attention.out", "feedforward.down")) else 0.02
            if name == "read_in" and isinstance(self.inputs, Scalars):
                spread = 1 / math.sqrt(3 * self.inputs.width)  # the spread of PyTorch's default for this fan
            module.weight.normal_(0, spread, generator=generator(seed, name, "weight"))
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.zero_()


def _norm(backbone: Backbone) -> nn.Module:
    make = nn.LayerNorm if backbone.norm == "layer" else nn.RMSNorm
    return make(backbone.width, eps=backbone.norm_eps)
