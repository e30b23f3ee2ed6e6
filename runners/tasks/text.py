"""Language modelling: a model reads text and predicts the next token.

    loss = -mean log p(next token)        nats per token, over every position

The text is the documentation inside Python, or files of the user's own; tokens are bytes, byte pairs learned from the
training part, or those of a tokenizer file (`reading`, `tokenizers`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, final

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from grid.errors import SpecError
from runners.tasks.corpus import Corpus, documents_of
from runners.tasks.draws import CPU, Draws
from runners.tasks.ratios import ratio
from runners.tasks.reading import Reading
from runners.tasks.task import Batch, Data, Measured, Predict, in_chunks, spread_evenly
from runners.tasks.text_sizes import sizes_at

MEASURES = ("validation_loss", "perplexity", "bits_per_byte", "byte_perplexity", "word_perplexity")
_ROWS = 32
"""Windows per forward pass of an evaluation."""


@final
class Text(Reading):
    """Text as tokens, cut into windows of `context` predictions."""

    kind: Literal["text"] = "text"
    batch: PositiveInt = 32
    context: PositiveInt = 128
    """Predictions per window."""
    validation_windows: PositiveInt = 256
    """Windows of the validation part, evenly spread, the same for all models and seeds; fewer where they overlap."""

    @property
    def length(self) -> int:
        return self.context

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        return {name: [{}] for name in MEASURES}

    def open(self) -> "TextData":
        self.check_corpus(self.corpus())
        return TextData(self)

    def windows(self, length: int, count: int) -> Batch:
        """At most `count` windows of `length` predictions of the validation text, evenly spread, on the CPU.

        Raises:
            SpecError: the validation text is shorter than that.
        """
        return self.open().windows(length, count)

    def check_corpus(self, corpus: Corpus) -> None:
        """A part has no more tokens than bytes."""
        for part, text in corpus._asdict().items():
            self.check_part(part, len(text), "bytes")

    def check_part(self, part: str, size: int, unit: str) -> None:
        """Raise SpecError where a part of the text is too short for a window."""
        if size <= self.context:
            raise SpecError(
                f"a window is {self.context} predictions and one {unit[:-1]} more; the {part} part of "
                f"{self.origin().name} has {size} {unit}; shorten context or give more text"
            )


@final
class TextData(Data):
    """Windows into a corpus."""

    def __init__(self, task: Text) -> None:
        self._task, self._origin, self._corpus = task, task.origin(), task.corpus()
        self._encoder, self._streams = task.encoder(), task.streams()
        for part, stream in self._streams._asdict().items():
            task.check_part(part, len(stream.ids), "tokens")
        self._train = self._streams.train.ids
        self._window = torch.arange(task.context + 1)

    @property
    def record(self) -> Mapping[str, Any]:
        return {
            "source": self._origin.name,
            "content_hash": self._origin.content_hash,
            "train_bytes": len(self._corpus.train),
            "validation_bytes": len(self._corpus.validation),
            "train_tokens": len(self._streams.train.ids),
            "validation_tokens": len(self._streams.validation.ids),
            "train_documents": len(self._streams.train.starts),
            "validation_documents": len(self._streams.validation.starts),
            "tokenizer": dict(self._encoder.record),
            "files": dict(self._origin.files),
        }

    @property
    def constant_loss(self) -> float:
        """Every token equally likely."""
        return math.log(self._encoder.vocabulary)

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """Windows at random places of the training text: ids [B, T] and the ids that follow them, int64."""
        if self._train.device != device:
            self._train, self._window = self._train.to(device), self._window.to(device)
        places = len(self._train) - len(self._window) + 1
        starts = Draws(seed, "data", step, device=device).below(places, self._task.batch, 1)
        return _predictions(self._train[starts + self._window])

    def examples(self, count: int) -> Batch:
        """The first windows that are validated on."""
        return self._validated().first(count)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Nats per token; outputs [B, T, vocabulary], targets [B, T]."""
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def evaluate(self, predict: Predict) -> Iterator[Measured]:
        """`validation_loss` and `perplexity` per token, `bits_per_byte` and `byte_perplexity`, `word_perplexity`; items
        are windows. What bytes and words are, `text_sizes` says; word perplexity is NaN where no word ends."""
        inputs, targets, _ = self._validated()
        nats = torch.empty(len(inputs), dtype=torch.float64)
        for rows, outputs in in_chunks(predict, inputs, _ROWS):
            wanted = targets[rows].to(outputs.device)
            each = F.cross_entropy(outputs.float().transpose(1, 2), wanted, reduction="none")
            nats[rows] = each.to("cpu", torch.float64).sum(1)
        tokens, of_bytes, of_words = (ratio(nats, count) for count in self._counts)
        yield tokens.measured("validation_loss")
        yield tokens.exponential().measured("perplexity")
        yield of_bytes.times(1 / math.log(2)).measured("bits_per_byte")
        yield of_bytes.exponential().measured("byte_perplexity")
        yield of_words.exponential().measured("word_perplexity")

    @cached_property
    def _counts(self) -> tuple[Tensor, Tensor, Tensor]:
        """What is predicted in each validation window: tokens, bytes and words, float64 [windows]."""
        places = self._places(self._task.context, self._task.validation_windows)[:, 1:]
        texts = documents_of(self._corpus.validation)
        in_bytes, in_words = sizes_at(self._encoder, texts, self._streams.validation, places)
        tokens = torch.full_like(in_bytes, 1)
        return tokens.sum(1).double(), in_bytes.sum(1).double(), in_words.sum(1).double()

    def _validated(self) -> Batch:
        return self.windows(self._task.context, self._task.validation_windows)

    def windows(self, length: int, count: int) -> Batch:
        """As `Text.windows`."""
        return _predictions(self._streams.validation.ids[self._places(length, count)])

    def _places(self, length: int, count: int) -> Tensor:
        """Where the tokens of validation windows are in the stream, int64 [windows, length + 1]."""
        tokens = len(self._streams.validation.ids)
        if tokens <= length:
            raise SpecError(
                f"a window is {length} predictions and one token more; the validation part of {self._origin.name} has "
                f"{tokens} tokens; shorten the window or give more text"
            )
        starts = spread_evenly(min(count, (tokens - 1) // length), tokens - length - 1)
        return starts[:, None] + torch.arange(length + 1)


def _predictions(windows: Tensor) -> Batch:
    ids = windows.long()
    return Batch(ids[:, :-1], ids[:, 1:])
