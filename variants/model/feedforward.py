"""The feedforward part of a layer, with or without a gate of its own.

relu, gelu, gelu_tanh, swish     f(x W1) W2
reglu, geglu, swiglu             (f(x W1) * x W2) W3
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from variants.model.backbone import Backbone, FeedForwardKind

_ACTIVATIONS: Mapping[FeedForwardKind, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swish": F.silu,
    "reglu": F.relu,
    "geglu": F.gelu,
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """Two projections, or three where one gates another."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        kind, inner, bias = backbone.feedforward, backbone.feedforward_width, backbone.bias == "all"
        self._activation = _ACTIVATIONS[kind]
        self.up = nn.Linear(backbone.width, inner, bias=bias)
        self.gate = nn.Linear(backbone.width, inner, bias=bias) if kind.endswith("glu") else None
        self.down = nn.Linear(inner, backbone.width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] to [B, T, width]."""
        up = self.up(x)
        inner = self._activation(up) if self.gate is None else self._activation(self.gate(x)) * up
        return self.down(inner)  # type: ignore[no-any-return]
