"""A mixer and a whole model of a user's own, as a spec file: short causal convolutions, and layers around a stream."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from ablate import (
    AdamW,
    AskedLengths,
    ForeignBackbone,
    Grid,
    Induction,
    Measure,
    Mixer,
    Scalars,
    Tokens,
    Training,
    Trial,
    gpt2,
    make_layer,
    over,
    softmax,
)


class Conv(nn.Module):
    """A depth-wise convolution over a token and those before it, then a projection."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.conv = nn.Conv1d(width, width, size, groups=width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x.transpose(1, 2), (self.size - 1, 0))
        return self.out(self.conv(padded).transpose(1, 2))


class ShortConv(Mixer):
    """A short causal convolution."""

    kind: Literal["tests_short_conv"] = "tests_short_conv"
    size: int = 3

    def build(self, width: int, heads: int, layer: int, layers: int) -> nn.Module:  # noqa: ARG002
        return Conv(width, self.size)


class Stack(nn.Module):
    """Layers around a residual stream."""

    def __init__(self, width: int, operators: tuple, inputs: Tokens | Scalars) -> None:
        super().__init__()
        tokens = isinstance(inputs, Tokens)
        self.read_in = nn.Embedding(inputs.vocabulary, width) if tokens else nn.Linear(inputs.width, width)
        count = len(operators)
        self.layers = nn.ModuleList(
            make_layer(operator, width=width, heads=2, layer=layer, layers=count)
            for layer, operator in enumerate(operators)
        )
        self.read_out = nn.Linear(width, inputs.vocabulary if tokens else inputs.width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.read_in(x)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return self.read_out(hidden)


class Net(ForeignBackbone):
    """A model of its own."""

    kind: Literal["tests_net"] = "tests_net"
    layers: int = 2
    width: int = 8

    def build(self, operators: tuple, inputs: Tokens | Scalars) -> nn.Module:
        return Stack(self.width, operators, inputs)


base = Trial(
    task=Induction(batch=4, context=24, symbols=16, evaluation=AskedLengths(lengths=(24,), sequences=4)),
    model=gpt2(layers=2, heads=2, width=8, max_positions=64),
    operator=softmax(),
    training=Training(steps=8, optimiser=AdamW(lr=1e-2)),
)
grid = Grid(
    name="mixed",
    base=base,
    axes=[over("operator", [softmax(), ShortConv()])],
    seeds=range(2),
    baseline={"operator": "softmax"},
    measure=Measure(name="loss", rope=0.01),
)
net = Grid(
    name="net",
    base=base.changed(model=Net()),
    axes=[over("operator", [softmax(), ShortConv()])],
    seeds=range(2),
    baseline={"operator": "softmax"},
    measure=Measure(name="loss", rope=0.01),
)
