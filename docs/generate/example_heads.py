"""Four example heads and a model around them, which the pictures of probes show.

    head 0, uniform       every visible key has the same weight, w_ij = 1 / i       z = 0
    head 1, sink          0.8 on the first key, the rest spread over the others      z = 3 for the first key
    head 2, identity      each query sees its own key only                           z = 6 for the own key
    head 3, alternating   w_ij = (-1)^(i - j) / i: rows sum to 1 / i or to 0         z = 1, -1, 1, ...

One causal sequence of 8 tokens. Keys are unit vectors, one per channel. The sink's first key has length 0.5, and its
value 0.2. Queries are chosen to give the logits z.
"""

import math
from functools import cache
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ablate.training.probes import ProbeInput
from ablate.training.tasks import Batch, LinearFunctions
from ablate.variants import Heads, Operator, Tokens, Transformer, attend, gpt2
from ablate.variants.attend import AttentionOutput
from ablate.variants.model.head_attention import AttentionTrace
from ablate.variants.model.transformer import LayerTrace
from ablate.variants.operator import NumberValues

NAMES: Final = ("uniform", "sink", "identity", "alternating")
T: Final = 8
SENTENCE: Final = "It is 7!"
"""The tokens, as bytes."""


def make_logits() -> Tensor:
    """Make z, float64 [H, T, T]."""
    z = torch.zeros(len(NAMES), T, T, dtype=torch.float64)
    z[1, :, 0] = 3
    z[2] = 6 * torch.eye(T, dtype=torch.float64)
    z[3] = _alternating_signs()
    return z


def make_weights() -> Tensor:
    """Make w, float64 [1, H, T, T]."""
    causal = torch.ones(T, T, dtype=torch.float64).tril()
    uniform = causal / causal.sum(-1, keepdim=True)
    sink = causal.clone()
    sink[:, 0] = 0
    sink = 0.2 * sink / sink.sum(-1, keepdim=True).clamp(min=1)
    sink[:, 0] = 1 - sink.sum(-1)
    return torch.stack((uniform, sink, torch.eye(T, dtype=torch.float64), _alternating_signs() * uniform))[None]


def _alternating_signs() -> Tensor:
    place = torch.arange(T, dtype=torch.float64)
    return 1 - 2 * ((place[:, None] - place) % 2)


def make_heads() -> Heads:
    """Make queries, keys and values [1, H, T, T channels] with these logits."""
    key = torch.eye(T, dtype=torch.float64).repeat(len(NAMES), 1, 1)
    value = key.clone()
    scale = torch.ones(len(NAMES), 1, T, dtype=torch.float64)
    key[1, 0], value[1, 0], scale[1, 0, 0] = 0.5 * key[1, 0], 0.2 * value[1, 0], 2.0
    return Heads((make_logits() * math.sqrt(T) * scale)[None], key[None], value[None])


def make_layer(operator: Operator | None = None, numbers: NumberValues | None = None) -> LayerTrace:
    """Make the trace of layer 0 with the four heads."""
    heads, weights = make_heads(), make_weights()
    attended = AttentionOutput(weights @ heads.v, weights, None, None, make_logits()[None, None])
    stream = torch.ones(1, T, 4, dtype=torch.float64) / 2
    return LayerTrace(0, operator or Operator(), AttentionTrace(heads, numbers or {}, attended), stream, stream)


def compute_layer(operator: Operator, numbers: NumberValues) -> LayerTrace:
    """Make the trace of an operator that computes its weights from the same queries and keys."""
    heads = make_heads()
    attended = attend(operator, heads.q, heads.k, heads.v, numbers=numbers)
    return make_layer()._replace(operator=operator, worked=AttentionTrace(heads, numbers, attended))


@cache
def make_probe_input() -> ProbeInput:
    """Make the input of probes: the sentence in a small model."""
    model = Transformer(gpt2(layers=1, heads=4, width=16), [Operator()], inputs=Tokens(256), seed=0)
    ids = torch.tensor([list(SENTENCE.encode())])
    return ProbeInput(model, LinearFunctions(), Batch(ids, ids), 0, [])


def as_maps(values: Tensor, ground: Tensor | None = None) -> dict[str, np.ndarray]:
    """Convert [1, H, T, T] to causal maps by the name of the head, with the ground state as an extra left column."""
    maps = {name: values[0, head].double().tril().numpy() for head, name in enumerate(NAMES)}
    if ground is None:
        return maps
    gap = np.full((T, 1), np.nan)
    return {name: np.hstack((ground[0, head].double().numpy(), gap, maps[name])) for head, name in enumerate(NAMES)}
