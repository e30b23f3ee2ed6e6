"""Masked language modelling: some tokens of a sentence are hidden, and a model that sees all others predicts them.

    <end> w1 <mask> w3 ... wn <end>       loss = -mean log p(hidden token)      nats per hidden token

Source: BabyBERTa (Huebner et al. 2021), the encoder of Scaled Signed Averaging (paper 003), table 3; every default is
its released code's. A line of a document is a sentence, without white space at its ends, and each is an input of its
own: at most `context` positions with both ends; longer lines are dropped and counted in the record. The mask replaces
nine of ten hidden tokens (`masking`), a random token the others.

In the released code one epoch shows each sentence once with each pattern, and short sentences have fewer patterns. Here
a batch draws sentences and patterns with replacement. Our patterns depend on the trial's seed and the sentence only.
Inputs are padded to a multiple of 16, and padding is hidden as a key.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self, final

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from grid.errors import SpecError
from runners.tasks.counter_rng import CPU, Draws
from runners.tasks.synthetic.query_task import score_answers
from runners.tasks.task import UNSCORED, Batch, Measurements, Predict, TokenData, ratio, spread_evenly
from runners.tasks.text.corpus import Corpus, count_repeated, documents_of
from runners.tasks.text.encoder import Encoder
from runners.tasks.text.masking import Masking, Sentences
from runners.tasks.text.text_source import TextTask

_TOKENS = 1 << 13
"""Tokens per forward pass of an evaluation."""

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
            raise ValueError(f"masked_text needs a mask token; tokenizer {self.tokenizer.label!r} has none; name one")
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
        self.check_corpus(self.corpus())
        return MaskedTextData(self)

    def check_corpus(self, corpus: Corpus) -> None:
        for part, text in corpus._asdict().items():
            if not text.replace(b"\0", b"").strip():
                raise SpecError(
                    f"a sentence is a line of text; the {part} part of {self.origin().name} has none; give more text"
                )


MaskedPart = tuple[Sentences, int]
"""The sentences of a part of the text, and the number of lines that are too long."""


@lru_cache(maxsize=4)
def _parts(encoder: Encoder, corpus: Corpus, context: int) -> tuple[MaskedPart, MaskedPart]:
    return _part(encoder, corpus.train, context), _part(encoder, corpus.validation, context)


def _part(encoder: Encoder, text: bytes, context: int) -> MaskedPart:
    lines = [line.strip() for document in documents_of(text) for line in document.split("\n")]
    found = [ids for ids in encoder.ids([line for line in lines if line]) if len(ids)]
    kept = [ids for ids in found if len(ids) + 2 <= context]
    return Sentences(kept), len(found) - len(kept)


@final
class MaskedTextData(TokenData):
    """Sentences and what is hidden of them."""

    def __init__(self, task: MaskedText) -> None:
        self._task, self._origin, self._encoder = task, task.origin(), task.encoder()
        self._parts = _parts(self._encoder, task.corpus(), task.context)
        for name, (sentences, dropped) in zip(("train", "validation"), self._parts, strict=True):
            if not len(sentences):
                raise SpecError(
                    f"no line of the {name} part of {self._origin.name} has at most task.context={task.context} tokens "
                    f"with ends; {dropped} are longer; raise context or give more text"
                )
        rates = {"masked": task.mask_rate, "random": task.random_rate}
        self._masking = Masking(self._encoder, task.context - 2, **rates, patterns=task.patterns)

    @property
    def record(self) -> Mapping[str, Any]:
        parts = dict(zip(("train", "validation"), self._parts, strict=True))
        return {
            "source": self._origin.name,
            "content_hash": self._origin.content_hash,
            "repeated_documents": count_repeated(self._task.corpus()),
            **{f"{name}_sentences": len(sentences) for name, (sentences, _) in parts.items()},
            **{f"{name}_dropped": dropped for name, (_, dropped) in parts.items()},
            **{f"{name}_tokens": len(sentences.ids) for name, (sentences, _) in parts.items()},
            "tokenizer": dict(self._encoder.record),
            "files": dict(self._origin.files),
        }

    @property
    def constant_loss(self) -> float:
        """Every token as likely as it is in training."""
        costs, there = self._unigram, self._counts > 0
        return float((costs * self._counts)[there].sum() / self._counts.sum())

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """Sentences with hidden tokens: ids [B, T], targets [B, T] and visible keys [B, 1, T]."""
        sentences, draws = self._parts[0][0], Draws(seed, "data", step)
        sentences.to(device)
        which = draws.below(len(sentences), self._task.batch)
        patterns = draws.below(self._task.patterns, self._task.batch)
        return self._masking.batch(sentences, which, patterns, Draws(seed, "masks", "train"))

    def examples(self, count: int) -> Batch:
        """The first sentences that are validated on."""
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
        yield ratio(nats.sum(1), count).to_measurement("validation_loss")
        yield ratio(right.sum(1), count).to_measurement("masked_accuracy")
        cheapest = tokens == self._unigram.argmin()
        guessed = torch.where(hidden, self._unigram[tokens], 0).sum(1)
        yield ratio(guessed, count).to_measurement("unigram.validation_loss")
        yield ratio((cheapest & hidden).sum(1).double(), count).to_measurement("unigram.masked_accuracy")

    def _validation_batch(self, count: int) -> Batch:
        sentences = self._parts[1][0]
        which = spread_evenly(min(self._task.validation_sentences, len(sentences)), len(sentences) - 1)[:count]
        return self._masking.batch(sentences, which, torch.zeros_like(which), Draws(0, "masks", "validation"))

    @cached_property
    def _counts(self) -> Tensor:
        return torch.bincount(self._parts[0][0].ids.cpu(), minlength=self._encoder.vocabulary).double()

    @cached_property
    def _unigram(self) -> Tensor:
        """Nats of each token by frequency, float64 [vocabulary]; one is added to each count but special ones."""
        counts = self._counts + 1
        counts[sorted(self._encoder.special)] = 0
        return math.log(float(counts.sum())) - counts.log()
