"""One layer of the host Transformer: attention by any operator, feedforward, norms and residual connections."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from ablate.variants.axes import Hidden
from ablate.variants.model.attention import Attention, HostOptions
from ablate.variants.model.backbone import Backbone
from ablate.variants.model.cache import Cache
from ablate.variants.model.mixer import Mixer, MixerLayer
from ablate.variants.model.seeding import use_seed
from ablate.variants.operator import Operator
from ablate.variants.paths.choose import PathName


class LayerPosition(NamedTuple):
    """Arguments of a layer besides its backbone and operator."""

    layer: int
    """Counted from 0 at the bottom."""
    shared: dict[str, nn.Parameter]
    """Numbers that several layers have in common."""
    path: PathName
    seed: int = 0
    """Seed of a mixer, which draws its weights itself."""


def attention_of(backbone: Backbone, operator: Operator, place: LayerPosition) -> Attention:
    """Build the attention of a layer; the model draws its weights."""
    return Attention(
        operator,
        width=backbone.width,
        heads=backbone.heads,
        kv_heads=backbone.key_heads,
        layer=place.layer,
        layers=backbone.layers,
        positions=backbone.positions,
        bias=backbone.bias,
        dropout=backbone.attention_dropout,
        shared=place.shared,
        path=place.path,
        host=HostOptions(backbone.head_outputs, backbone.token_shift),
    )


def mixer_of(backbone: Backbone, mixer: Mixer, place: LayerPosition) -> MixerLayer:
    """Build the mixer of a layer, whose weights follow from the seed and the layer."""
    with use_seed(place.seed, f"layers.{place.layer}.attention"):
        return MixerLayer(mixer, width=backbone.width, heads=backbone.heads, layer=place.layer, layers=backbone.layers)


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

    def forward(self, x: Hidden) -> Hidden:
        up = self.up(x)
        inner = self._activation(up) if self.gate is None else self._activation(self.gate(x)) * up
        return self.down(inner)  # type: ignore[no-any-return]


class Block(nn.Module):
    """One layer: attention and feedforward, sequential or parallel, with norms before or after each."""

    def __init__(self, backbone: Backbone, operator: Operator | Mixer, place: LayerPosition) -> None:
        super().__init__()
        self.post, self.parallel = backbone.norm_position == "post", backbone.parallel
        self.dropout = backbone.dropout
        self.attention_norm = normalisation(backbone)
        self.attention = (
            mixer_of(backbone, operator, place)
            if isinstance(operator, Mixer)
            else attention_of(backbone, operator, place)
        )
        self.feedforward_norm, self.feedforward = None, None
        if backbone.feedforward != "none":
            self.feedforward_norm, self.feedforward = normalisation(backbone), FeedForward(backbone)

    def forward(
        self,
        x: Hidden,
        mask: Bool[Tensor, "*#heads #tokens #keys"] | None = None,
        bias: Float[Tensor, "*#heads tokens keys"] | None = None,
        cache: Cache | None = None,
    ) -> Hidden:
        """Compute the layer; `mask`, `bias` and `cache` are as in `Attention`."""
        if self.post:
            x = self.attention_norm(x + self._drop(self.attention(x, mask, bias, cache)))
            if self.feedforward is None or self.feedforward_norm is None:
                return x
            return self.feedforward_norm(x + self._drop(self.feedforward(x)))  # type: ignore[no-any-return]
        attended = x + self._drop(self.attention(self.attention_norm(x), mask, bias, cache))
        if self.feedforward is None or self.feedforward_norm is None:
            return attended
        read = x if self.parallel else attended
        return attended + self._drop(self.feedforward(self.feedforward_norm(read)))

    @property
    def last_norm(self) -> nn.Module:
        return self.attention_norm if self.feedforward_norm is None else self.feedforward_norm

    def averages(self, x: Hidden, mask: Bool[Tensor, "*#heads #tokens #tokens"] | None = None) -> list[Tensor]:
        return self.attention.averages(x if self.post else self.attention_norm(x), mask)

    def _drop(self, x: Hidden) -> Hidden:
        return F.dropout(x, self.dropout, self.training)


def normalisation(backbone: Backbone) -> nn.Module:
    """Build the norm of a backbone, over the last dimension."""
    make = nn.LayerNorm if backbone.norm == "layer" else nn.RMSNorm
    return make(backbone.width, eps=backbone.norm_eps)
