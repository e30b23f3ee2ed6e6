"""Token losses of a model, shared by evaluations of text: -log p(token | all before it) in nats.

Computed in float64. Sequences of one length go through the model together, without padding: an operator may count the
visible positions.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.runners.tasks.task import Batch, Predict, once, token_losses
from ablate.runners.tasks.text.encoder import Encoder

_NUMBERS = 1 << 24
"""Logits per forward pass."""


def costs(predict: Predict, batch: Batch, vocabulary: int) -> Tensor:
    """Compute the loss of each target in nats, float64 [B, T] on the CPU; 0 if the target is `UNSCORED`."""
    rows = max(1, _NUMBERS // max(1, batch.inputs.shape[1] * vocabulary))
    return token_losses(predict, batch, rows, torch.float64)


def groups_by_length(lengths: Sequence[int], vocabulary: int) -> Iterator[list[int]]:
    """Yield indices of sequences of one length that fit one forward pass, shorter ones first."""
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        groups.setdefault(length, []).append(index)
    for length, members in sorted(groups.items()):
        rows = max(1, _NUMBERS // max(1, length * vocabulary))
        yield from (members[start : start + rows] for start in range(0, len(members), rows))


def generate(
    predict: Predict, prompts: Sequence[list[int]], room: int, encoder: Encoder, is_over: Callable[[str], bool]
) -> list[str]:
    """Generate greedily after each prompt, up to a text that `is_over`, the end of a document, or `room` tokens."""
    tokens = [list[int]() for _ in prompts]
    waiting = list(range(len(prompts)))
    for _ in range(room):
        going: list[int] = []
        lengths = [len(prompts[at]) + len(tokens[at]) for at in waiting]
        for members in groups_by_length(lengths, encoder.vocabulary):
            rows = [waiting[each] for each in members]
            inputs = torch.tensor([prompts[at] + tokens[at] for at in rows])
            likeliest = once(predict, partial(_likeliest, predict, inputs))
            for at, token in zip(rows, likeliest, strict=True):
                tokens[at].append(token)
                if token != encoder.end and not is_over(encoder.decode(tokens[at])):
                    going.append(at)
        waiting = going
        if not waiting:
            break
    return [encoder.decode(each) for each in tokens]


def _likeliest(predict: Predict, inputs: Tensor) -> list[int]:
    return predict(inputs)[:, -1].argmax(-1).tolist()


@contextmanager
def encoding(what: str) -> Iterator[None]:
    """Raise SpecError, which names `what` is encoded, if the tokenizer refuses a text."""
    try:
        yield
    except ValueError as error:
        raise SpecError(f"{what} cannot be encoded: {error}; change it") from error


def pair(encoder: Encoder, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """Cut a context and its continuation into tokens, as lm-eval's models do.

    White space at the end of the context belongs to the continuation. Both are encoded as one text. The continuation
    gets the tokens after as many as the context has alone. If a token spans the border, the context keeps its own
    tokens.
    """
    kept = context.rstrip()
    continuation, context = context[len(kept) :] + continuation, kept
    alone, whole = list(encoder.encode(context).ids), list(encoder.encode(context + continuation).ids)
    return alone, whole[len(alone) :]
