"""Token losses of a model, shared by evaluations of text: -log p(token | all before it) in nats.

Computed in float64. Sequences of one length go through the model together, without padding: an operator may count the
visible positions.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.training.tasks.task import Batch, Predict, once, predict_next, start_cache, token_losses
from ablate.training.tasks.text.encoder import Encoder
from ablate.variants.model.cache import ModelCache

_NUMBERS = 1 << 24
"""Logits per forward pass."""


def costs(predict: Predict, batch: Batch, vocabulary: int) -> Float[Tensor, "batch tokens"]:
    """Compute the loss of each target in nats, float64 on the CPU; 0 if the target is `UNSCORED`."""
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
    texts = list[str]([""] * len(prompts))

    def goes_on(tokens: list[int]) -> bool:
        return tokens[-1] != encoder.end and not is_over(encoder.decode(tokens))

    for members in groups_by_length([len(each) + room for each in prompts], encoder.vocabulary):
        rows = _extend(predict, [list(prompts[at]) for at in members], room, goes_on)
        for at, tokens in zip(members, rows, strict=True):
            texts[at] = encoder.decode(tokens)
    return texts


def _extend(
    predict: Predict, rows: list[list[int]], room: int, goes_on: Callable[[list[int]], bool]
) -> list[list[int]]:
    """Return what follows each of `rows` of one length, which grow until each is over."""
    start, going = len(rows[0]), list(range(len(rows)))
    cache = start_cache(predict, start)
    for _ in range(room):
        compute = partial(_likeliest, predict, [rows[at] for at in going], cache)
        answer: object = once(predict, compute)
        if not isinstance(answer, tuple) or answer[0] != len(going):  # an earlier release asked in another order
            answer = compute()
        for at, token in zip(going, answer[1], strict=True):
            rows[at].append(token)
        left = [place for place, at in enumerate(going) if goes_on(rows[at][start:])]
        if not left:
            break
        if cache is not None and cache.length and len(left) < len(going):
            cache.select(left)
        going = [going[place] for place in left]
    return [row[start:] for row in rows]


def _likeliest(predict: Predict, rows: list[list[int]], cache: ModelCache | None) -> tuple[int, list[int]]:
    """Return the number of rows and the likeliest token after each."""
    inputs = torch.tensor(rows)
    outputs = predict_next(predict, inputs if cache is None else inputs[:, cache.length :], None, cache)
    return len(rows), outputs[:, -1].argmax(-1).tolist()


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
