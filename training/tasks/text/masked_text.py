"""Masked language modelling: some tokens of a sentence are hidden, and a model that sees all others predicts them.

    <end> w1 <mask> w3 ... wn <end>       loss = -mean log p(hidden token)      nats per hidden token

Source: BabyBERTa (Huebner et al. 2021), the encoder of Scaled Signed Averaging (paper 003), table 3; every default is
its released code's. A line of a document is a sentence, without white space at its ends, and each is an input of its
own: at most `context` positions with both ends; longer lines are dropped and counted in the record. The mask replaces
nine of ten hidden tokens, a random token the others.

In the released code one epoch shows each sentence once with each pattern, and short sentences have fewer patterns. Here
a batch draws sentences and patterns with replacement. Our patterns depend on the trial's seed and the sentence only.
Inputs are padded to a multiple of 16, or to `context`. Padding is no visible key.

    P(pattern) = prod_i p^(h_i) (1 - p)^(1 - h_i) / (1 - (1 - p)^n)      h in {0, 1}^n, not all 0

Each of the n tokens is hidden with probability p; patterns that hide nothing are excluded. BabyBERTa draws again until
one hides something. Here the i-th token, from 0, is hidden with probability p / (1 - (1 - p)^(n - i)) while no earlier
one is, and with p after that. This is the same distribution from one number per token.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.training.tasks.counter_rng import CPU, Draws, map_below, unit
from ablate.training.tasks.synthetic.query_task import score_answers
from ablate.training.tasks.task import (
    UNSCORED,
    Batch,
    Measurements,
    Predict,
    TokenData,
    move,
    over_ratio,
    spread_evenly,
)
from ablate.training.tasks.text.corpus import Corpus, count_repeated, documents_of
from ablate.training.tasks.text.encoder import Encoder
from ablate.training.tasks.text.text_source import TextTask

_TOKENS = 1 << 13
"""Tokens per forward pass of an evaluation."""
_STEP = 16
"""Batches are padded to a multiple of this, so that they have few shapes."""

Share = Annotated[float, Field(ge=0, le=1)]


@final
class MaskedText(TextTask):
    """Sentences of a text with hidden tokens; the model is an encoder (`causal=False`)."""

    units: ClassVar[Mapping[str, str]] = {"validation_loss": "nats per token", "masked_accuracy": "share of 1"}
    kind: Literal["masked_text"] = "masked_text"
    batch: PositiveInt = 16
    context: Annotated[int, Field(ge=3)] = 128
    """Most positions of a sentence, its two ends included."""
    mask_rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Probability that a token is hidden; every pattern hides at least one."""
    random_rate: Share = 0.1
    """Share of hidden tokens replaced by a random ordinary token instead of the mask."""
    patterns: PositiveInt = 10
    """Patterns of hidden tokens that each sentence has."""
    validation_sentences: PositiveInt = 512
    """Sentences of the validation part, evenly spread, with one pattern each, the same for all models and seeds."""

    @model_validator(mode="after")
    def _tokens_can_be_hidden(self) -> Self:
        if not self.tokenizer.hides:
            raise ValueError(f"tokenizer {self.tokenizer.label!r} has no mask token, which masked_text needs; name one")
        return self

    @property
    def length(self) -> int:
        return self.context

    @property
    def sees_ahead(self) -> bool:
        return True

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        names = ("validation_loss", "masked_accuracy")
        return {name: [{}] for name in (*names, *(f"unigram.{each}" for each in names))}

    def open(self) -> "MaskedTextData":
        self.check_parts()
        return MaskedTextData(self)

    def check_parts(self) -> None:
        for part, text in self.corpus()._asdict().items():
            if not text.replace(b"\0", b"").strip():
                place = self.origin().of_part(part).name
                raise SpecError(
                    f"the {part} part of {place} has no line of text, each of which is a sentence; give more text"
                )


@lru_cache(maxsize=4)
def _parts(encoder: Encoder, corpus: Corpus, context: int) -> "dict[str, tuple[Sentences, int]]":
    """Return the sentences of each part of the text, and the number of lines that are too long."""
    parts = {}
    for name, text in corpus._asdict().items():
        lines = [line.strip() for document in documents_of(text) for line in document.split("\n")]
        sentences = [ids for ids in encoder.ids([line for line in lines if line]) if len(ids)]
        kept = [ids for ids in sentences if len(ids) + 2 <= context]
        parts[name] = Sentences(kept), len(sentences) - len(kept)
    return parts


@final
class MaskedTextData(TokenData):
    def __init__(self, task: MaskedText) -> None:
        self._task, self._origin, self._encoder = task, task.origin(), task.encoder()
        self._parts = _parts(self._encoder, task.corpus(), task.context)
        for name, (sentences, dropped) in self._parts.items():
            if not len(sentences):
                place = self._origin.of_part(name).name
                raise SpecError(
                    f"no line of the {name} part of {place} has at most task.context={task.context} tokens with ends; "
                    f"{dropped} are longer; raise context or give more text"
                )
        self._masking = Masking(
            self._encoder, task.context - 2, masked=task.mask_rate, random=task.random_rate, patterns=task.patterns
        )

    @property
    def record(self) -> Mapping[str, Any]:
        return {
            **self._origin.record,
            "repeated_documents": count_repeated(self._task.corpus()),
            **{f"{name}_sentences": len(sentences) for name, (sentences, _) in self._parts.items()},
            **{f"{name}_dropped": dropped for name, (_, dropped) in self._parts.items()},
            **{f"{name}_tokens": len(sentences.ids) for name, (sentences, _) in self._parts.items()},
            "tokenizer": dict(self._encoder.record),
        }

    @property
    def constant_loss(self) -> float:
        """Loss if every token is as likely as in the training text."""
        costs, there = self._unigram, self._counts > 0
        return float((costs * self._counts)[there].sum() / self._counts.sum())

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """Sentences with hidden tokens: ids [B, T], targets [B, T] and visible keys [B, 1, T]."""
        (sentences, _), draws = self._parts["train"], Draws(seed, "data", step)
        sentences.to(device)
        which = draws.below(len(sentences), self._task.batch)
        patterns = draws.below(self._task.patterns, self._task.batch)
        return self._masking.batch(sentences, which, patterns, Draws(seed, "masks", "train"))

    def examples(self, count: int) -> Batch:
        return self._validation_batch(count)

    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        """Yield `validation_loss` (nats per hidden token) and `masked_accuracy`, and both of the `unigram.` predictor.

        Accuracy is the share of hidden tokens that are likelier than every other token. The unigram predictor knows the
        training frequencies of tokens only. Items are sentences; every hidden token counts the same.
        """
        sample = self._validation_batch(self._task.validation_sentences)
        hidden = sample.targets != UNSCORED
        nats, right = (torch.zeros(hidden.shape, dtype=torch.float64) for _ in range(2))
        right[hidden], nats[hidden] = score_answers(predict, sample, max(1, _TOKENS // hidden.shape[1]))
        count, tokens = hidden.sum(1).double(), sample.targets.clamp(min=0)
        yield over_ratio("validation_loss", nats.sum(1), count)
        yield over_ratio("masked_accuracy", right.sum(1), count)
        cheapest = tokens == self._unigram.argmin()
        guessed = torch.where(hidden, self._unigram[tokens], 0).sum(1)
        yield over_ratio("unigram.validation_loss", guessed, count)
        yield over_ratio("unigram.masked_accuracy", (cheapest & hidden).sum(1).double(), count)

    def _validation_batch(self, count: int) -> Batch:
        sentences, _ = self._parts["validation"]
        which = spread_evenly(min(self._task.validation_sentences, len(sentences)), len(sentences) - 1)[:count]
        return self._masking.batch(sentences, which, torch.zeros_like(which), Draws(0, "masks", "validation"))

    @cached_property
    def _counts(self) -> Tensor:
        return torch.bincount(self._parts["train"][0].ids.cpu(), minlength=self._encoder.vocabulary).double()

    @cached_property
    def _unigram(self) -> Float[Tensor, " vocabulary"]:
        """Nats of each token by frequency, float64; one is added to each count but special ones."""
        counts = self._counts + 1
        counts[sorted(self._encoder.special)] = 0
        return math.log(float(counts.sum())) - counts.log()


@final
class Sentences:
    """Sentences as token ids, one after another."""

    def __init__(self, sentences: Sequence[np.ndarray]) -> None:
        self.sizes = torch.tensor([len(each) for each in sentences], dtype=torch.int64)
        self._starts = self.sizes.cumsum(0) - self.sizes
        self.ids = torch.from_numpy(np.concatenate([np.zeros(0, np.int32), *sentences], dtype=np.int32))

    def __len__(self) -> int:
        return len(self.sizes)

    def to(self, device: torch.device) -> None:
        """Keep ids where batches are made; which sentences a batch has is decided on the CPU."""
        if self.ids.device != device:
            self.ids = self.ids.to(device)

    def frame(
        self, chosen: Int[Tensor, " batch"], end: int, widest: int
    ) -> tuple[Int[Tensor, "batch tokens"], Int[Tensor, "batch 1"]]:
        """Return sentences between two `end`, padded to a multiple of `_STEP` or `widest`, and their sizes."""
        device = self.ids.device
        of_each = self.sizes[chosen]
        width = min(-(-(int(of_each.max()) + 2) // _STEP) * _STEP, widest)
        sizes, starts = move(of_each[:, None], device), move(self._starts[chosen][:, None], device)
        column = torch.arange(width, device=device)
        place = (starts + column - 1).clamp(0, len(self.ids) - 1)
        return torch.where(inside(column, sizes), self.ids[place].long(), end), sizes


def inside(column: Int[Tensor, " tokens"], sizes: Int[Tensor, "batch 1"]) -> Bool[Tensor, "batch tokens"]:
    """Return True if a column of a framed sentence is one of its own tokens."""
    return (column > 0) & (column <= sizes)


@final
class Masking:
    """Hides tokens of sentences of at most `longest` tokens; a pattern follows from a seed, a sentence and a number."""

    def __init__(self, encoder: Encoder, longest: int, *, masked: float, random: float, patterns: int) -> None:
        """Hide each token with probability `masked`; a share `random` of these is replaced by a random token."""
        assert encoder.mask is not None
        self._masked, self._random, self._patterns = masked, random, patterns
        self._mask, self._end, self._longest = encoder.mask, encoder.end, longest
        self._ordinary = torch.tensor([token for token in range(encoder.vocabulary) if token not in encoder.special])
        left = torch.arange(longest + 1, dtype=torch.float64)
        self._next = masked / -torch.expm1(left * math.log1p(-masked))
        self._next[:2] = 1.0  # the last token has to be hidden where no other is, whatever the rounding

    def batch(
        self, sentences: Sentences, chosen: Int[Tensor, " batch"], pattern: Int[Tensor, " batch"], draws: Draws
    ) -> Batch:
        """Return ids, targets (-100 if not hidden) [B, T] and visible keys [B, 1, T] of the `chosen` sentences.

        A sentence's number and its `pattern`, int64 on the CPU, decide which words of `draws` are used.
        """
        ids, sizes = sentences.frame(chosen, self._end, self._longest + 2)
        self._ordinary, self._next = self._ordinary.to(ids.device), self._next.to(ids.device)
        column = torch.arange(ids.shape[1], device=ids.device)
        number = move((chosen * self._patterns + pattern)[:, None], ids.device)
        places = 3 * (number * (self._longest + 1) + column)
        which, how, other = draws.words_at(torch.stack((places, places + 1, places + 2)))
        own, left = inside(column, sizes), sizes - column + 1  # tokens from here to the end of the sentence
        begins = own & (unit(which) < self._next[left.clamp(0, self._longest)])
        hidden = (begins & (begins.cumsum(1) == 1)) | (own & (unit(which) < self._masked))
        swapped = self._ordinary[map_below(other, len(self._ordinary))]
        instead = torch.where(unit(how) < self._random, swapped, self._mask)
        inputs, targets = torch.where(hidden, instead, ids), torch.where(hidden, ids, UNSCORED)
        return Batch(inputs, targets, (column < sizes + 2)[:, None])
