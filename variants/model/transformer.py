"""The host Transformer: any backbone, any operator in any layer, scalars or tokens in and out."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ablate.grid.errors import SpecError
from ablate.variants.axes import Hidden, Ids, Inputs, Mask, Outputs, Visibility
from ablate.variants.model.attention import Attention
from ablate.variants.model.backbone import Backbone
from ablate.variants.model.block import Block, LayerPosition, normalisation
from ablate.variants.model.cache import ModelCache, NoCache, attempt
from ablate.variants.model.head_attention import AttentionTrace, HeadScales
from ablate.variants.model.knockout import without
from ablate.variants.model.mixer import Mixer, MixerLayer, refuse_mask
from ablate.variants.model.parameters import NumberParameters, undecayed_parameters
from ablate.variants.model.seeding import generator
from ablate.variants.model.shapes import shapes_only
from ablate.variants.operator import NumberValues, Operator, causal, distances
from ablate.variants.paths.choose import PathName
from ablate.variants.stages.positions import Positions


class Scalars(NamedTuple):
    """Real vectors in, real vectors out: float [B, T, width]."""

    width: int = 1


class Tokens(NamedTuple):
    """Token ids [B, T] in, logits [B, T, vocabulary] out."""

    vocabulary: int


class LayerTrace(NamedTuple):
    """Inputs and outputs of one layer on a batch."""

    layer: int
    """Counted from 0 at the bottom."""
    operator: Operator
    worked: AttentionTrace
    entering: Hidden
    """The residual stream before the layer, sink tokens first."""
    leaving: Hidden
    """The same after it."""
    unnormed: Hidden | None = None
    """Input of the layer's last norm, whose output is `leaving`; only in a post-norm model."""


class Predictor(nn.Module):
    """RoBERTa's head before the read-out: dense, GELU, norm."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.dense = nn.Linear(backbone.width, backbone.width)
        self.norm = normalisation(backbone)

    def forward(self, x: Hidden) -> Hidden:
        return self.norm(F.gelu(self.dense(x)))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A backbone with an operator or mixer per layer (bottom first). Weights depend on the seed and their path only."""

    def __init__(
        self,
        backbone: Backbone,
        operators: Sequence[Operator | Mixer],
        *,
        inputs: Scalars | Tokens,
        seed: int,
        path: PathName = "auto",
    ) -> None:
        super().__init__()
        if len(operators) != backbone.layers:
            raise SpecError(f"{len(operators)} operators for {backbone.layers} layers; give one per layer")
        self.backbone, self.inputs = backbone, inputs
        width, shared = backbone.width, dict[str, nn.Parameter]()
        masked = backbone.read_out == "mlm"
        if isinstance(inputs, Tokens):
            self.read_in: nn.Module = nn.Embedding(inputs.vocabulary, width)
            self.read_out = nn.Linear(width, inputs.vocabulary, bias=masked)
        elif masked:
            raise SpecError("read_out='mlm' predicts tokens and the model reads scalars; use read_out='linear'")
        else:
            self.read_in = nn.Linear(inputs.width, width)
            self.read_out = nn.Linear(width, inputs.width)
        positions = backbone.positions
        self.sink = nn.Embedding(backbone.sink_tokens, width) if backbone.sink_tokens else None
        self.position = nn.Embedding(positions.table, width) if positions.table else None
        self.token_type = nn.Embedding(backbone.token_types, width) if backbone.token_types else None
        self.embedding_norm = normalisation(backbone) if backbone.embedding_norm else None
        self.layers = nn.ModuleList(
            Block(backbone, operator, LayerPosition(layer, shared, path, seed))
            for layer, operator in enumerate(operators)
        )
        heads = sorted({attention.heads for attention in self.attentions()})
        learned = {str(count): nn.Embedding(positions.buckets, count) for count in heads if positions.buckets}
        self.position_bias = nn.ModuleDict(learned) if learned else None  # a table for all layers of so many heads
        self.norm = normalisation(backbone) if backbone.norm_position == "pre" else None
        self.predictor = Predictor(backbone) if masked else None
        self._initialise(seed)
        if isinstance(inputs, Tokens) and backbone.tied:
            self.read_out.weight = self.read_in.weight

    def forward(self, x: Inputs, visible: Visibility | None = None, cache: ModelCache | None = None) -> Outputs:
        """Map vectors or token ids to predictions at every position.

        In `visible`, True = query i may see key j if the model allows it. With a `cache`, x are the next tokens of its
        sequences, which have no padding. SpecError if a sequence with its sink tokens exceeds the learned positions.
        """
        before = 0 if cache is None else cache.layers[0].length
        hidden = self.embed(x, before) if before else self.embed(x)
        with attempt(cache):
            for layer in self.bind_layers(hidden.shape[1], hidden.device, visible, cache):
                hidden = layer(hidden)
            if self.sink is not None and not before:
                hidden = hidden[:, self.backbone.sink_tokens :]
            for last in (self.norm, self.predictor):
                hidden = hidden if last is None else last(hidden)
            return self.read_out(hidden)  # type: ignore[no-any-return]

    def start_cache(self, tokens: int) -> ModelCache:
        """Begin to keep keys and values of sequences whose first `tokens` come at once; SpecError if they do not do."""
        reasons = ["a query of an encoder sees later keys"] if not self.backbone.causal else []
        reasons += [f"mixer {each.operator.label!r} keeps no keys" for each in self.mixers()]
        for operator in {attention.computed for attention in self.attentions()}:
            if operator.no_cache is not None:
                reasons.append(f"{operator.label!r} needs more than kept keys and values {operator.no_cache}")
            if tokens + self.backbone.sink_tokens <= operator.visible.ahead:
                reasons.append(f"{operator.label!r} shows its first {operator.visible.ahead + 1} tokens whole")
        if reasons:
            raise NoCache(f"no cache computes this model token by token: {reasons[0]}; compute it without a cache")
        return ModelCache(len(self.layers), self.backbone.sink_tokens)

    @torch.no_grad()
    def generate(self, tokens: Ids, count: int, *, cache: bool = True) -> Int[Tensor, "batch all_tokens"]:
        """Append `count` more token ids, each the likeliest after those before it.

        With `cache` each token is computed once; SpecError if an operator needs later tokens. Without, the sequence is
        computed anew at every token.
        """
        training, kept = self.training, self.start_cache(tokens.shape[1]) if cache else None
        self.eval()
        try:
            for _ in range(count):
                new = tokens if kept is None else tokens[:, kept.length :]
                likeliest = self(new, None, kept)[:, -1:].argmax(-1)
                tokens = torch.cat((tokens, likeliest), 1)
        finally:
            self.train(training)
        return tokens

    def trace_layers(self, x: Inputs, visible: Visibility | None = None) -> Iterator[LayerTrace]:
        """Yield a trace of every layer with attention on `x`, bottom first; it is computed by the definition."""
        hidden = self.embed(x)
        layers = self.bind_layers(hidden.shape[1], hidden.device, visible)
        for number, (block, layer) in enumerate(zip(self.blocks(), layers, strict=True)):
            if isinstance(block.attention, MixerLayer):
                hidden = layer(hidden)
                continue
            worked, leaving, unnormed = _at_work(block, layer, hidden)
            yield LayerTrace(number, block.attention.computed, worked, hidden, leaving, unnormed)
            hidden = leaving

    @contextmanager
    def use_positions(self, positions: Positions) -> Iterator[None]:
        """Use other positions with the same weights; SpecError if they have learned parameters of their own."""
        own = self.backbone.positions
        if positions == own:
            yield
            return
        if (positions.table, positions.buckets) != (own.table, own.buckets):
            raise SpecError(
                f"positions {positions.label!r} and {own.label!r} differ in learned parameters; give others"
            )
        before = self.backbone
        self._place(before.changed(positions=positions))
        try:
            yield
        finally:
            self._place(before)

    @contextmanager
    def knock_out(self, stages: Collection[str]) -> Iterator[None]:
        """Put the components that have one of `stages` at their default choice in every layer, with all weights as are.

        Numbers are computed first, those of these components dropped, and gate channels sliced off. Path is "auto".
        """
        operators = [each.operator for each in self.attentions()]
        left = [without(each, stages) for each in operators]
        with self._set("replacement", [None if new is own else new for new, own in zip(left, operators, strict=True)]):
            yield

    @contextmanager
    def attend_uniformly(self) -> Iterator[None]:
        """Give all visible keys one weight in every layer: softmax of queries that are zero, without position bias."""
        layers = len(self.attentions())
        with self._set("replacement", [Operator()] * layers), self._set("uniform", [True] * layers):
            yield

    @contextmanager
    def scale_heads(self, scales: Sequence[HeadScales]) -> Iterator[None]:
        """Multiply queries, those of a gate too, and output of every head, by layer, bottom first."""
        with self._set("scales", scales):
            yield

    @contextmanager
    def adjust_numbers(self, adjust: Callable[[int, NumberValues, Tensor | None], NumberValues]) -> Iterator[None]:
        """Compute with what `adjust` returns for the layer, the values of its numbers and the tokens that are present.

        Tokens are as for `NumberParameters.values`.
        """
        with self._set("adjust", [partial(adjust, each.numbers.layer) for each in self.attentions()]):
            yield

    @contextmanager
    def _set(self, name: str, values: Sequence[object]) -> Iterator[None]:
        """Set an attribute of the attention of each layer; the values before come back."""
        attentions = self.attentions()
        before = [getattr(attention, name) for attention in attentions]
        for attention, value in zip(attentions, values, strict=True):
            setattr(attention, name, value)
        try:
            yield
        finally:
            for attention, value in zip(attentions, before, strict=True):
                setattr(attention, name, value)

    def _place(self, backbone: Backbone) -> None:
        self.backbone = backbone
        for attention in self.attentions():
            attention.positions = backbone.positions

    def bind_layers(
        self, length: int, device: torch.device, visible: Visibility | None = None, cache: ModelCache | None = None
    ) -> list[Callable[[Tensor], Tensor]]:
        """Return every layer, bottom first, as a function of its input alone; arguments as in `forward`."""
        if visible is not None and (mixers := self.mixers()):
            refuse_mask(f"mixer {mixers[0].operator.label!r}")
        mask = self.mask(length, device, visible)
        layers = [None] * len(self.layers) if cache is None else cache.layers
        biases = self._position_biases(length, device, 0 if cache is None else cache.layers[0].length)
        return [
            partial(block, mask=mask, bias=biases.get(block.attention.heads), cache=each)
            for block, each in zip(self.blocks(), layers, strict=True)
        ]

    def mask(self, length: int, device: torch.device, visible: Visibility | None) -> Mask | None:
        """Return the mask, of two or four dimensions, or None for the causal one."""
        if visible is None:
            return None if self.backbone.causal else torch.ones(length, length, dtype=torch.bool, device=device)
        before = self.backbone.sink_tokens
        seen = visible.expand(*visible.shape[:-2], length - before, length - before)
        seen = F.pad(seen, (before, 0, before, 0), value=True) if before else seen
        seen = seen & causal(length, length, device) if self.backbone.causal else seen
        return seen if seen.dim() == 2 else seen.unsqueeze(-3)

    def embed(self, x: Inputs, before: int = 0) -> Float[Tensor, "batch length width"]:
        """Compute the input of the first layer, sink tokens first; without them after `before`."""
        hidden = self.read_in(x)
        if self.sink is not None and not before:
            hidden = torch.cat((self.sink.weight.expand(len(hidden), -1, -1), hidden), 1)
        length, positions = before + hidden.shape[1], self.backbone.positions
        if self.position is not None:
            if length > positions.table:
                rule = f"a sequence of {length} is longer than the {positions.table} learned positions"
                raise SpecError(f"{rule}; raise max_positions")
            hidden = hidden + self.position.weight[before:length]
        fixed = positions.embedding(length, self.backbone.width, hidden.device)
        hidden = hidden if fixed is None else hidden + fixed[before:]
        hidden = hidden if self.token_type is None else hidden + self.token_type.weight[0]
        hidden = hidden if self.embedding_norm is None else self.embedding_norm(hidden)
        return F.dropout(hidden, self.backbone.dropout, self.training)

    def _position_biases(self, length: int, device: torch.device, before: int = 0) -> dict[int, Tensor]:
        positions = self.backbone.positions
        if not positions.adds_bias:
            return {}
        distance, biases = distances(length, before + length, device), {}
        for heads in {attention.heads for attention in self.attentions()}:
            table = None if self.position_bias is None else self.position_bias[str(heads)].weight
            bias = positions.bias(distance, heads, cast(Tensor | None, table), causal=self.backbone.causal)
            assert bias is not None
            biases[heads] = bias
        return biases

    def number_parameters(self) -> list[nn.Parameter]:
        """List the parameters of the operators' numbers, each once."""
        return list(dict.fromkeys(p for table in self._tables() for p in table.parameters()))

    def undecayed_parameters(self) -> list[nn.Parameter]:
        """List the parameters without weight decay: numbers, but for matrices and projections from the input."""
        return undecayed_parameters(self)

    def operator_parameters(self) -> int:
        """Count the parameters beyond those of the same backbone with softmax in every layer."""
        return _count(self) - _softmax_parameters(self.backbone, self.inputs)

    def numbers(self) -> Iterator[tuple[int, int | None, str, float]]:
        """Yield (layer, head or None, name, value) of every learned number; a vector by its norm."""
        for layer, table in enumerate(self._tables()):
            for head, name, value in table.learned_values():
                yield layer, head, name, value

    def paths(self, length: int, dtype: torch.dtype | None = None, *, compiled: bool = False) -> list[str]:
        """Name the path of every layer, bottom first, in training on `length` tokens under autocast to `dtype`.

        `dtype` is None without autocast. SpecError if a path given by name cannot compute it.
        """
        return [each.attention.path_name(length, dtype, compiled=compiled) for each in self.blocks()]

    def blocks(self) -> list[Block]:
        return [cast(Block, layer) for layer in self.layers]

    def attentions(self) -> list[Attention]:
        """List the attention of the layers that have one, bottom first."""
        return [block.attention for block in self.blocks() if isinstance(block.attention, Attention)]

    def mixers(self) -> list[MixerLayer]:
        """List the mixers of the others."""
        return [block.attention for block in self.blocks() if isinstance(block.attention, MixerLayer)]

    def _tables(self) -> list[NumberParameters]:
        return [block.attention.numbers for block in self.blocks()]

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        """Draw every weight from the seed and its own path, as the backbone's initialisation says."""
        own = {id(each) for mixer in self.mixers() for each in mixer.modules()}
        for name, module in self.named_modules():
            if id(module) in own:
                continue
            if isinstance(module, NumberParameters):
                module.draw(seed, name)
            if not isinstance(module, nn.Linear | nn.Embedding):
                continue
            bound = self._bound(name, module)
            made, bias = generator(seed, name, "weight"), module.bias if isinstance(module, nn.Linear) else None
            if bound is None:
                module.weight.normal_(0, self._spread(name, module.weight), generator=made)
            else:
                module.weight.uniform_(-bound, bound, generator=made)
            if bias is not None:
                bias.zero_() if bound is None else bias.uniform_(-bound, bound, generator=generator(seed, name, "bias"))

    def _bound(self, name: str, module: nn.Linear | nn.Embedding) -> float | None:
        """Return the bound of PyTorch's own start of a linear layer; None if weights are drawn by `_spread`."""
        scheme, ends = self.backbone.initialisation, name in ("read_in", "read_out")
        own = scheme == "pytorch" or (scheme == "gpt2_scalars" and ends and isinstance(self.inputs, Scalars))
        return 1 / math.sqrt(module.in_features) if own and isinstance(module, nn.Linear) else None

    def _spread(self, name: str, weight: Tensor) -> float:
        """Return the standard deviation of an initial weight [out, fan in] or embedding [entries, width]."""
        scheme, layers, fan = self.backbone.initialisation, self.backbone.layers, weight.shape[1]
        if name.startswith("position_bias"):
            return 0.02  # a table of logits has no fan
        if scheme == "fan_in":
            return 1 / (layers * math.sqrt(fan)) if name.endswith("feedforward.down") else math.sqrt(0.4 / fan)
        if name == "read_in" and isinstance(self.inputs, Scalars):
            return 1 / math.sqrt(3 * self.inputs.width)  # the spread of PyTorch's default for this fan
        if scheme == "pytorch":
            return 1.0  # an embedding
        by_depth = scheme != "normal" and name.endswith(("attention.out", "feedforward.down"))
        return 0.02 / math.sqrt(2 * layers) if by_depth else 0.02


def _at_work(
    block: Block, layer: Callable[[Tensor], Tensor], entering: Hidden
) -> tuple[AttentionTrace, Hidden, Hidden | None]:
    """Run `layer` and return its attention trace, its output, and the input of its last norm in a post-norm model."""
    before_norm: list[Tensor] = []
    hook = block.last_norm.register_forward_pre_hook(lambda _, inputs: before_norm.append(inputs[0]))
    block.attention.watched = []
    try:
        leaving = layer(entering)
        (worked,) = block.attention.watched
    finally:
        block.attention.watched = None
        hook.remove()
    return worked, leaving, before_norm[0] if block.post else None


def _count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@lru_cache(maxsize=256)
def _softmax_parameters(backbone: Backbone, inputs: Scalars | Tokens) -> int:
    with shapes_only():
        return _count(Transformer(backbone, [Operator()] * backbone.layers, inputs=inputs, seed=0))
