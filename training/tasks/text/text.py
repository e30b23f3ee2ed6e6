"""Language modelling: a model reads text and predicts the next token.

    loss = -mean log p(x_{t+1} | x_1 ... x_t)        nats per token, over t = p ... T

The text is Python's documentation, local files or a dataset. Tokens are bytes, byte pairs learned from the training
part, or those of a tokenizer file. Training reads windows of T + 1 tokens that begin anywhere in the training part;
every document is followed by its end token.

The text may also be a token file (.bin or .npy), which is mapped into memory and never read whole. Its validation part
is a file of its own or its last tokens. Without the text there are no measurements per byte and word.

`packing` treats windows of several documents. "across": a query sees earlier documents too. "documents": a query sees
its own document only, from the end token of the previous one on. Then the first token of a document is predicted from
that end token alone. Positions count through the window in both cases.

`prefix` is paper 004's p: the first p tokens of a window are given, and the loss begins with the next token. With an
operator whose `visible` is a prefix of the same length, these tokens see one another. `intervention` replaces tokens,
and `training_tokens` limits the training text (paper 004, section 5). Prefix and intervention also apply to validation
windows and to sequences for probes.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, final

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from pydantic import PositiveInt, model_validator
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.grid.spec import Added
from ablate.training.tasks.counter_rng import CPU, Draws
from ablate.training.tasks.task import (
    UNSCORED,
    Batch,
    Measurements,
    Predict,
    TokenData,
    over_ratio,
    spread_evenly,
    token_losses,
)
from ablate.training.tasks.text.corpus import Origin, count_repeated, documents_of
from ablate.training.tasks.text.encoder import Encoder
from ablate.training.tasks.text.interventions import Intervention, NoIntervention
from ablate.training.tasks.text.text_source import Stream, Streams, TextTask
from ablate.training.tasks.text.token_files import Dtype, is_token_file, map_tokens, token_file
from ablate.training.tasks.text.tokenizers import TokenIds

_ROWS = 32
"""Windows per forward pass of an evaluation."""


@final
class Text(TextTask):
    """Text as tokens, cut into windows of `context` predictions."""

    units: ClassVar[Mapping[str, str]] = {
        "validation_loss": "nats per token",
        "perplexity": "per token",
        "bits_per_byte": "bits per byte",
        "byte_perplexity": "per byte",
        "word_perplexity": "per word",
    }
    kind: Literal["text"] = "text"
    dtype: Annotated[Dtype, Added()] = "uint16"
    """Type of the ids in .bin files; a .npy file has its own."""
    batch: PositiveInt = 32
    context: PositiveInt = 128
    """Tokens of a window: T."""
    packing: Literal["across", "documents"] = "across"
    """Whether a query sees earlier documents."""
    prefix: PositiveInt = 1
    """Number of given tokens at the beginning of a window: p. With 1, every later token is predicted."""
    intervention: Intervention = NoIntervention()
    """Replacement of tokens in every window."""
    training_tokens: PositiveInt | None = None
    """Number of first tokens of the training part, with documents of a text ordered by hash; None is all."""
    validation_windows: PositiveInt = 256
    """Windows of the validation part, evenly spread, the same for all models and seeds; fewer if they would overlap."""

    @model_validator(mode="after")
    def _something_is_predicted(self) -> Self:
        self.intervention.check(self.tokenizer.size, hides=self.tokenizer.hides)
        replaced = self.intervention.replaced
        if replaced and replaced[-1] > self.context:
            raise ValueError(
                f"the intervention replaces token {replaced[-1]} of a window whose first {self.context} are read; "
                "lengthen context or move it"
            )
        if not self.scored:
            raise ValueError(
                f"the prefix of {self.prefix} and the intervention leave no token of a window of {self.context} to "
                "predict; lengthen context or shorten them"
            )
        if self.prefix > 1 and self.packing == "documents":
            raise ValueError(f"prefix={self.prefix} is seen across documents; use packing='across'")
        if self.training_tokens is not None and self.training_tokens <= self.context:
            raise ValueError(
                f"training_tokens={self.training_tokens} fill no window of {self.context + 1} tokens; raise it"
            )
        return self

    def check_source(self) -> None:
        name = self.tokenizer.label
        if not self.of_tokens and (not self.spelled or self.dtype != "uint16"):
            told = f"tokenizer {name!r}" if not self.spelled else f"dtype={self.dtype!r}"
            raise ValueError(
                f"{told} is for token files, .bin or .npy, and source={self.source!r} is none; leave it out"
            )
        if not self.of_tokens:
            return
        if self.tokenizer.learned:
            raise ValueError(
                f"tokenizer {name!r} is learned from a text, and {self.source} has tokens; state theirs, such as "
                "tokenizer=TokenIds(vocabulary=...)"
            )
        packed = any(path.lower().endswith(".bin") for path in self._paths)
        if self.dtype != "uint16" and not packed:
            raise ValueError(f"dtype={self.dtype!r} is that of .bin files, and {self.source} has its own; leave it out")
        if self.dtype == "uint16" and packed and self.tokenizer.size > 1 << 16:
            raise ValueError(
                f"the tokenizer has {self.tokenizer.size} ids, and uint16 holds those to 65535; set dtype='uint32'"
            )
        if self.packing == "documents" and isinstance(self.tokenizer, TokenIds) and self.tokenizer.end is None:
            raise ValueError("packing='documents' has no id that ends a document; set tokenizer.end")

    @property
    def of_tokens(self) -> bool:
        """True if the source is a token file."""
        return self.source is not None and is_token_file(self.source)

    @property
    def _paths(self) -> tuple[str, ...]:
        return tuple(path for path in (self.source, self.validation) if path is not None)

    @property
    def scored(self) -> tuple[int, ...]:
        """Positions, from 0, whose next token is predicted."""
        left_out = {position - 2 for position in self.intervention.replaced}
        return tuple(at for at in range(self.prefix - 1, self.context) if at not in left_out)

    @property
    def length(self) -> int:
        return self.context

    @property
    def unscored(self) -> int:
        return self.prefix - 1

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        names = ("validation_loss", "perplexity") if self.of_tokens else self.units
        return {name: [{}] for name in names}

    def open(self) -> "TextData":
        self.check_parts()
        return TextData(self)

    def origin(self) -> Origin:
        if not self.of_tokens:
            return super().origin()
        train, *held = (token_file(Path(path), self.dtype) for path in self._paths)
        return train.with_validation(held[0] if held else None)

    def streams(self) -> Streams:
        """Return the text as tokens; those of token files stay on disk. Raises as `encoder`."""
        if not self.of_tokens:
            return super().streams()
        self.require_text()
        parts = [map_tokens(Path(path), self.dtype, self.tokenizer.size) for path in self._paths]
        if self.validation is None:
            (ids,) = parts
            cut = len(ids) - round(self.validation_share * len(ids))
            parts = [ids[:cut], ids[cut:]]
        return Streams(*(Stream(ids, torch.zeros(0, dtype=torch.int64)) for ids in parts))

    def windows(self, length: int, count: int) -> Batch:
        """Return at most `count` validation windows of `length` predictions; SpecError if the text is too short."""
        return self.open().windows(length, count)

    def check_parts(self) -> None:
        """Check tokens of token files, else bytes: a part has no more tokens than bytes."""
        if self.of_tokens:
            for part, stream in self.streams()._asdict().items():
                self.check_part(part, len(stream.ids), "tokens")
            return
        for part, text in self.corpus()._asdict().items():
            self.check_part(part, len(text), "bytes")

    def check_part(self, part: str, size: int, unit: str) -> None:
        if size <= self.context:
            remedy = "shorten context or give more text" if size > 1 else "give more text"
            raise SpecError(
                f"the {part} part of {self.origin().of_part(part).name} has {size} {unit}, and a window "
                f"{self.context + 1} tokens; {remedy}"
            )
        if part == "train" and self.training_tokens is not None and self.training_tokens > size:
            raise SpecError(
                f"training_tokens={self.training_tokens} are more than {self.origin().name} has, {size} {unit}; lower "
                "it, or leave it out for all of them"
            )


@final
class TextData(TokenData):
    def __init__(self, task: Text) -> None:
        self._task, self._origin = task, task.origin()
        self._corpus = None if task.of_tokens else task.corpus()
        self._encoder, self._streams = task.encoder(), task.streams()
        for part, stream in self._streams._asdict().items():
            task.check_part(part, len(stream.ids), "tokens")
        task.intervention.tokens(Draws(0), 1, self._encoder)  # raises if it cannot
        self._train = self._streams.train.ids[: task.training_tokens]
        self._window = torch.arange(task.context + 1)

    @property
    def record(self) -> Mapping[str, Any]:
        streams, of_text = self._streams._asdict(), {}
        if self._corpus is not None:
            of_text = {f"{part}_bytes": len(text) for part, text in self._corpus._asdict().items()}
            of_text |= {f"{part}_documents": len(stream.starts) for part, stream in streams.items()}
            of_text["repeated_documents"] = count_repeated(self._corpus)
        return {
            **self._origin.record,
            **{f"{part}_tokens": len(stream.ids) for part, stream in streams.items()},
            "trained_on_tokens": len(self._train),
            **of_text,
            "tokenizer": dict(self._encoder.record),
        }

    @property
    def constant_loss(self) -> float:
        return math.log(self._encoder.vocabulary)

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """Draw windows of the training text: ids [B, T] and the ids that follow them, int64."""
        at = device
        if self._task.of_tokens:  # mapped anew, so that pages do not pile up and a file that changed is noticed
            at, self._train = CPU, self._task.streams().train.ids[: self._task.training_tokens]
        if self._train.device != at:
            self._train, self._window = self._train.to(at), self._window.to(at)
        places = len(self._train) - len(self._window) + 1
        draws = Draws(seed, "data", step, device=at)
        starts = draws.below(places, self._task.batch, 1)
        return self._as_shown(self._train[starts + self._window], draws).to(device)

    def examples(self, count: int) -> Batch:
        return self._validated.first(count)

    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        """Yield loss and perplexity per token, byte and word; items are windows. Token files have those per token.

        `sizes_at` defines bytes and words. Word perplexity is NaN if no word ends.
        """
        batch = self._validated
        nats = token_losses(predict, batch, _ROWS).sum(1)
        tokens = (batch.targets != UNSCORED).sum(1).double()
        yield over_ratio("validation_loss", nats, tokens)
        yield over_ratio("perplexity", nats, tokens, exponential=True)
        if self._task.of_tokens:
            return
        of_bytes, of_words = _counts(self._task)
        yield over_ratio("bits_per_byte", nats, of_bytes, factor=1 / math.log(2))
        yield over_ratio("byte_perplexity", nats, of_bytes, exponential=True)
        yield over_ratio("word_perplexity", nats, of_words, exponential=True)

    def windows(self, length: int, count: int) -> Batch:
        return self._split(self._streams.validation.ids[self.places(length, count)])

    @cached_property
    def _validated(self) -> Batch:
        places = self.places(self._task.context, self._task.validation_windows)
        return self._as_shown(self._streams.validation.ids[places], Draws(0, "evaluation", "text", "intervention"))

    def places(self, length: int, count: int) -> Int[Tensor, "windows tokens"]:
        """Return the places of validation windows in the stream, int64."""
        tokens = len(self._streams.validation.ids)
        if tokens <= length:
            raise SpecError(
                f"the validation part of {self._origin.of_part('validation').name} has {tokens} tokens, and a window "
                f"{length + 1}; give more text"
            )
        starts = spread_evenly(min(count, (tokens - 1) // length), tokens - length - 1)
        return starts[:, None] + torch.arange(length + 1)

    def _split(self, windows: Integer[Tensor, "windows tokens"]) -> Batch:
        ids = windows.long()
        inputs, targets = ids[:, :-1], ids[:, 1:]
        if self._task.packing == "across":
            return Batch(inputs, targets)
        document = (inputs == self._encoder.end).cumsum(1)
        return Batch(inputs, targets, document[:, :, None] == document[:, None, :])

    def _as_shown(self, windows: Integer[Tensor, "windows tokens"], draws: Draws) -> Batch:
        task, whole = self._task, self._split(windows)
        replaced = task.intervention.replaced
        if not replaced and task.prefix == 1:
            return whole
        inputs, targets = whole.inputs.clone(), whole.targets.clone()
        targets[:, : task.prefix - 1] = UNSCORED
        if replaced:
            tokens = task.intervention.tokens(draws, len(inputs), self._encoder)
            inputs[:, [position - 1 for position in replaced]] = torch.as_tensor(tokens, device=inputs.device)
            targets[:, [position - 2 for position in replaced if position > 1]] = UNSCORED
        return Batch(inputs, targets, whole.visible)


@lru_cache(maxsize=4)  # trials of a grid share the windows
def _counts(task: Text) -> tuple[Float[Tensor, " windows"], Float[Tensor, " windows"]]:
    """Count predicted bytes and words of each validation window, float64."""
    places = task.open().places(task.context, task.validation_windows)[:, 1:][:, list(task.scored)]
    texts = documents_of(task.corpus().validation)
    in_bytes, in_words = sizes_at(task.encoder(), texts, task.streams().validation, places)
    return in_bytes.sum(1).double(), in_words.sum(1).double()


_BLANK = re.compile(r"\s+")


def sizes_at(
    encoder: Encoder, texts: Sequence[str], stream: Stream, places: Int[Tensor, "*places"]
) -> tuple[Int[Tensor, "*places"], Int[Tensor, "*places"]]:
    """Count bytes and words of the tokens at `places` of a stream of documents `texts`, int64 like `places`."""
    starts = stream.starts.numpy()
    total = np.zeros((2, len(stream.ids)), np.int64)
    touched = np.unique(np.searchsorted(starts, places.numpy(), side="right") - 1)
    for number in touched.tolist():
        start = int(starts[number])
        end = int(starts[number + 1]) if number + 1 < len(starts) else len(stream.ids)
        total[:, start:end] = _sizes(encoder, texts[number], end - start)
    sizes = torch.from_numpy(total)
    return sizes[0][places], sizes[1][places]


def _sizes(encoder: Encoder, text: str, tokens: int) -> np.ndarray:
    """Count bytes and words [2, tokens] of a document; one extra token is its end."""
    encoded = encoder.encode(text)
    own = len(encoded.ids)
    sizes = np.zeros((2, own + 1), np.int64)
    sizes[0, :own] = encoder.sizes(text, encoded)
    sizes[0, own] = 1 + len(text.encode()) - sizes[0, :own].sum()
    ends = np.maximum.accumulate(np.array([end for _, end in encoded.spans], np.int64))
    blanks = [match.start() for match in _BLANK.finditer(text)]
    np.add.at(sizes[1], np.searchsorted(ends, blanks, side="right"), 1)
    sizes[1, own] += 1
    return sizes[:, :tokens]
