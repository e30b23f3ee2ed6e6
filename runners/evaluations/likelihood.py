"""What tokens cost a model: the scoring that evaluations of text share.

    cost of a token = -log p(token | all before it)        nats

computed in float64, in as many forward passes as keep outputs near `_NUMBERS` numbers. Sequences of one length go
through the model together, without padding: an operator may count the positions that there are, and then a neighbour's
length would change what a sequence costs.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from runners.tasks.task import Batch, Predict
from runners.tasks.text.encoder import Encoder

UNSCORED = -100
"""The target of a position that costs nothing."""

_NUMBERS = 1 << 24
"""Logits per forward pass."""


def costs(predict: Predict, batch: Batch, vocabulary: int) -> Tensor:
    """Nats per target, float64 [B, T] on the CPU; 0 where the target is `UNSCORED`."""
    found = torch.zeros(batch.targets.shape, dtype=torch.float64)
    for rows in _chunks(len(batch.inputs), batch.inputs.shape[1] * vocabulary):
        visible = None if batch.visible is None else batch.visible[rows]
        logits = predict(batch.inputs[rows]) if visible is None else predict(batch.inputs[rows], visible)
        wanted = batch.targets[rows].to(logits.device)
        each = F.cross_entropy(logits.transpose(1, 2).double(), wanted, ignore_index=UNSCORED, reduction="none")
        found[rows] = each.cpu()
    return found


def costs_of(predict: Predict, sequences: Sequence[Sequence[int]], vocabulary: int) -> list[Tensor]:
    """What each token after the first costs, float64 [len - 1] per sequence, in the order of `sequences`.

    Each has two tokens or more.
    """
    found: list[Tensor] = [torch.empty(0)] * len(sequences)
    for members in by_length([len(each) - 1 for each in sequences]):
        ids = torch.tensor([list(sequences[at]) for at in members])
        for at, each in zip(members, costs(predict, Batch(ids[:, :-1], ids[:, 1:]), vocabulary), strict=True):
            found[at] = each
    return found


def by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The indices of `lengths`, those of one length together, shorter ones first."""
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        groups.setdefault(length, []).append(index)
    for _, members in sorted(groups.items()):
        yield members


def pair(encoder: Encoder, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """The tokens of a context and of what continues it, as lm-eval's models cut them.

    White space at the end of the context belongs to the continuation. Both are encoded as one text; the continuation is
    what is left of its tokens after as many as the context has alone. Where a token spans the border, the context's
    tokens are those it has alone, and their number is what counts.
    """
    kept = context.rstrip()
    continuation, context = context[len(kept) :] + continuation, kept
    alone, whole = list(encoder.encode(context).ids), list(encoder.encode(context + continuation).ids)
    return alone, whole[len(alone) :]


def _chunks(sequences: int, each: int) -> Iterator[slice]:
    """Slices of sequences that have `each` logits."""
    rows = max(1, _NUMBERS // max(1, each))
    for start in range(0, sequences, rows):
        yield slice(start, start + rows)
