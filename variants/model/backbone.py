"""The host Transformer as a spec, and the families it comes in.

Any operator goes into any backbone. Sizes are free; a function only fixes what makes the family. The papers' models,
with their sizes, are in `ablate.variants.model.named_backbones`.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from ablate.grid.spec import Added, Label, Spec
from ablate.variants.operator import Operator
from ablate.variants.stages.positions import Learned, Positions, Rotary

FeedForwardKind = Literal["relu", "gelu", "gelu_tanh", "swish", "reglu", "geglu", "swiglu", "none"]

Initialisation = Literal["gpt2", "gpt2_scalars", "normal", "pytorch", "fan_in"]


class Backbone(Spec):
    """Layers of attention and feedforward, each with a residual connection, between embedding and read-out."""

    name: Label = ""
    layers: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt | None = None
    """Heads of keys and values, each shared by equally many query heads; None for as many as query heads."""
    width: PositiveInt
    feedforward_width: NonNegativeInt
    feedforward: FeedForwardKind
    """f(x W1) W2, or (f(x W1) * x W2) W3 for the kinds that end in glu; "gelu_tanh" is GPT-2's form of "gelu".

    "none" is an attention-only model: layers have no feedforward and no norm for it, and feedforward_width is 0."""
    norm: Literal["layer", "rms"]
    """LayerNorm with gain and bias, or RMSNorm with a gain."""
    norm_eps: PositiveFloat = 1e-5
    """Added to the variance before the root."""
    norm_position: Literal["pre", "post"] = "pre"
    """x + f(norm(x)) with a norm before the read-out, or norm(x + f(x)) without one."""
    parallel: bool = False
    """x + attention(norm1(x)) + feedforward(norm2(x)) instead of one after the other."""
    bias: Literal["none", "all", "qkv"]
    """Which projections inside the layers have one; "qkv" are those of queries, keys, values and gate channels."""
    head_outputs: Literal["concatenated", "added"] = "concatenated"
    """Input of the output projection: all heads side by side, or their sum."""
    token_shift: Annotated[Literal["none", "keys", "values", "both"], Added()] = "none"
    """Keys or values that are mixed with those of the token before: s x_(t-1) + (1 - s) x_t (Forgetting Transformer,
    Pro). The share is s = sigmoid(w . input) per head and token. Normalisation and positions come later."""
    positions: Positions
    """How the model knows order."""
    causal: bool = True
    """True if a query sees no later key; False for an encoder."""
    sink_tokens: NonNegativeInt = 0
    """Number of learned embeddings before the sequence. They have positions, pass all layers and are not read out."""
    embedding_norm: bool = False
    """A norm on the embeddings, before the first layer (RoBERTa)."""
    token_types: Annotated[NonNegativeInt, Added()] = 0
    """Number of learned token-type vectors (RoBERTa has 2); the first is added to every embedding."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout rate of the embeddings and of each residual branch, in training."""
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """In training, a normalised weight is 0 with this probability p, else divided by 1 - p, before merge and rescale.
    Weights of a sink, a ground state or a learned key are dropped too."""
    read_out: Literal["linear", "mlm"] = "linear"
    """Head that turns the last layer into predictions; "mlm" is RoBERTa's: dense, gelu, norm, linear with bias."""
    tied: bool = True
    """True if token embedding and read-out share their weights."""
    initialisation: Initialisation = "gpt2"
    """Standard deviation of initial weights; biases are 0.

    "gpt2": 0.02, times 1/sqrt(2 L) for the last projection of each residual branch. A read-in of scalars depends on
    its fan. "gpt2_scalars" (paper 003, in context): the same, with PyTorch's start of a read-in and read-out of
    scalars: weights and biases uniform within 1/sqrt(fan_in). "normal" (Hugging Face's Llama, Qwen2, GPT-NeoX and
    RoBERTa): 0.02 everywhere. "pytorch": each layer's own start, uniform within 1/sqrt(fan_in) with biases, N(0, 1) for
    embeddings.
    "fan_in" (paper 004): sqrt(0.4 / fan_in), with the width as fan of embeddings, and 1 / (L sqrt(fan_in))
    for the feedforward's last projection. Position bias tables have 0.02 in all."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        _require_divisor("heads", self.heads, "width", self.width)
        if self.kv_heads is not None:
            _require_divisor("kv_heads", self.kv_heads, "heads", self.heads)
        return self

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if (self.feedforward == "none") != (self.feedforward_width == 0):
            raise ValueError(
                "feedforward='none' has feedforward_width=0, and every other kind a width above 0; got "
                f"feedforward={self.feedforward!r} and feedforward_width={self.feedforward_width}"
            )
        if self.feedforward == "none" and self.parallel:
            raise ValueError("parallel=True says nothing without a feedforward; leave it out")
        if self.parallel and self.norm_position == "post":
            raise ValueError("parallel=True is about norms before attention and feedforward; use norm_position='pre'")
        if self.kv_heads == self.heads:
            self.set_normal_form(kv_heads=None)
        if self.heads == 1:
            self.set_normal_form(head_outputs="concatenated")  # one head is its own sum
        return self

    def check(self, operator: Operator) -> None:
        """Raise ValueError if `operator` has no meaning in this model."""
        operator.check(
            heads=self.heads,
            kv_heads=self.key_heads,
            head_width=self.head_width,
            positions=self.positions,
            causal=self.causal,
        )

    @property
    def label(self) -> str:
        return f"{self.name or self.norm} {self.layers}L {self.heads}H {self.width}"

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def key_heads(self) -> int:
        return self.kv_heads or self.heads


def _require_divisor(what: str, number: int, whole: str, size: int) -> None:
    if size % number:
        valid = [n for n in range(1, size + 1) if size % n == 0]
        nearest = min(valid, key=lambda n: abs(n - number))
        raise ValueError(f"{what} divides {whole} {size}; got {number}, nearest is {nearest}")


def gpt2(*, layers: int, heads: int, width: int, max_positions: int = 512) -> Backbone:
    """GPT-2: LayerNorm, GELU, biases, learned positions. gpt2(layers=12, heads=8, width=256) is the paper 003 model."""
    return Backbone(
        name="gpt2",
        layers=layers,
        heads=heads,
        width=width,
        feedforward_width=4 * width,
        feedforward="gelu_tanh",
        norm="layer",
        bias="all",
        positions=Learned(count=max_positions),
    )


def llama2(*, layers: int, heads: int, width: int, feedforward_width: int) -> Backbone:
    """Llama-2: RMSNorm, SwiGLU, rotary positions, no biases, tied embeddings."""
    return Backbone(
        name="llama2",
        layers=layers,
        heads=heads,
        width=width,
        feedforward_width=feedforward_width,
        feedforward="swiglu",
        norm="rms",
        bias="none",
        positions=Rotary(),
        initialisation="normal",
    )


def llama3(*, layers: int, heads: int, kv_heads: int, width: int, feedforward_width: int) -> Backbone:
    """Llama-3: Llama-2 with grouped queries and a rotary base of 500 000; no scaling of frequencies."""
    return llama2(layers=layers, heads=heads, width=width, feedforward_width=feedforward_width).changed(
        name="llama3", kv_heads=kv_heads, positions=Rotary(base=500_000.0)
    )


def qwen2(*, layers: int, heads: int, width: int, feedforward_width: int, kv_heads: int | None = None) -> Backbone:
    """Qwen: Llama-2 with biases on queries, keys and values, eps 1e-6 and a rotary base of a million."""
    return llama2(layers=layers, heads=heads, width=width, feedforward_width=feedforward_width).changed(
        name="qwen2", kv_heads=kv_heads, bias="qkv", norm_eps=1e-6, positions=Rotary(base=1_000_000.0)
    )


def pythia(*, layers: int, heads: int, width: int, feedforward_width: int) -> Backbone:
    """Pythia: parallel residual, LayerNorm, GELU, biases, a quarter of the channels rotary, untied embeddings."""
    return gpt2(layers=layers, heads=heads, width=width).changed(
        name="pythia",
        feedforward_width=feedforward_width,
        feedforward="gelu",
        parallel=True,
        positions=Rotary(share=0.25),
        tied=False,
        initialisation="normal",
    )


def babyberta(*, layers: int, heads: int, width: int, feedforward_width: int, max_positions: int = 130) -> Backbone:
    """BabyBERTa: a RoBERTa encoder with norms after each part; every token has the first of its two types.

    The released model's configuration drops attention weights, too, which is RoBERTa's default.
    """
    return gpt2(layers=layers, heads=heads, width=width, max_positions=max_positions).changed(
        name="babyberta",
        feedforward_width=feedforward_width,
        feedforward="gelu",
        norm_position="post",
        causal=False,
        embedding_norm=True,
        dropout=0.1,
        attention_dropout=0.1,
        read_out="mlm",
        token_types=2,
        initialisation="normal",
    )
