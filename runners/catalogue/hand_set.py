"""Four heads made by hand, and a model around them: what every picture of a probe looks at.

    head 0, uniform       every visible key alike, w_ij = 1 / i                      z = 0
    head 1, sink          0.8 on the first key, the rest spread over the others      z = 3 for the first key
    head 2, identity      each query on its own key                                  z = 6 for the own key
    head 3, alternating   w_ij = (-1)^(i - j) / i: rows sum to 1 / i or to 0         z = 1, -1, 1, ...

One sequence of 8 tokens, causal. Keys are unit vectors, one per channel, but for the sink's first key, of length 0.5,
and its value, of length 0.2; queries are what gives the logits z.
"""

import math
from functools import cache

import torch
from torch import Tensor

from runners.catalogue.panels import Map
from runners.probes import ProbeInput
from runners.tasks import Batch
from variants import Heads, Operator, Tokens, Transformer, attend, gpt2
from variants.attend import AttentionOutput
from variants.model.block import AttentionTrace
from variants.model.transformer import LayerTrace
from variants.operator import NumberValues

NAMES = ("uniform", "sink", "identity", "alternating")
T = 8
SENTENCE = "It is 7!"
"""The tokens, as bytes."""


def logits() -> Tensor:
    """z, float64 [H, T, T]."""
    z = torch.zeros(len(NAMES), T, T, dtype=torch.float64)
    z[1, :, 0] = 3
    z[2] = 6 * torch.eye(T, dtype=torch.float64)
    z[3] = _signs()
    return z


def weights() -> Tensor:
    """w, float64 [1, H, T, T]."""
    causal = torch.ones(T, T, dtype=torch.float64).tril()
    uniform = causal / causal.sum(-1, keepdim=True)
    sink = causal.clone()
    sink[:, 0] = 0
    sink = 0.2 * sink / sink.sum(-1, keepdim=True).clamp(min=1)
    sink[:, 0] = 1 - sink.sum(-1)
    return torch.stack((uniform, sink, torch.eye(T, dtype=torch.float64), _signs() * uniform))[None]


def _signs() -> Tensor:
    place = torch.arange(T, dtype=torch.float64)
    return 1 - 2 * ((place[:, None] - place) % 2)


def heads() -> Heads:
    """Queries, keys and values [1, H, T, T channels] with these logits."""
    key = torch.eye(T, dtype=torch.float64).repeat(len(NAMES), 1, 1)
    value = key.clone()
    scale = torch.ones(len(NAMES), 1, T, dtype=torch.float64)
    key[1, 0], value[1, 0], scale[1, 0, 0] = 0.5 * key[1, 0], 0.2 * value[1, 0], 2.0
    return Heads((logits() * math.sqrt(T) * scale)[None], key[None], value[None])


def layer(operator: Operator | None = None, numbers: NumberValues | None = None) -> LayerTrace:
    """The four heads at work in layer 0."""
    made, w = heads(), weights()
    attended = AttentionOutput(w @ made.v, w, None, None, logits()[None, None])
    stream = torch.ones(1, T, 4, dtype=torch.float64) / 2
    return LayerTrace(0, operator or Operator(), AttentionTrace(made, numbers or {}, attended), stream, stream)


def computed(operator: Operator, numbers: NumberValues) -> LayerTrace:
    """What an operator makes of the same queries and keys."""
    made = heads()
    attended = attend(operator, made.q, made.k, made.v, numbers=numbers)
    return layer()._replace(operator=operator, worked=AttentionTrace(made, numbers, attended))


@cache
def seen() -> ProbeInput:
    """The sentence in a small model, whose gradient has three norms."""
    model = Transformer(gpt2(layers=1, heads=4, width=16), [Operator()], inputs=Tokens(256), seed=0)
    ids = torch.tensor([list(SENTENCE.encode())])
    return ProbeInput(model, None, Batch(ids, ids), 0, [])  # type: ignore[arg-type]


def maps(shown: Tensor, beside: Tensor | None = None) -> list[Map]:
    """The four heads' [1, H, T, T] as pictures, what no query sees left out."""
    rows = shown[0].double().tril()
    return [
        Map(name, rows[at].tolist(), () if beside is None else beside[0, at, :, 0].tolist())
        for at, name in enumerate(NAMES)
    ]
