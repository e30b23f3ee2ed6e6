"""Base of text tasks: source, split and tokenizer of the text, read and encoded once per process.

The content hash of the text is part of the key, its path is not.
"""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.grid.spec import OutsideKey
from ablate.training.tasks.task import Task
from ablate.training.tasks.text.corpus import Corpus, Origin, documents_of, split
from ablate.training.tasks.text.encoder import Encoder
from ablate.training.tasks.text.hub import HubText, hub_text
from ablate.training.tasks.text.local_files import local_files, python_documentation
from ablate.training.tasks.text.tokenizers import Bytes, Tokenizer
from ablate.training.tasks.user_files import absolute_path, require_hash
from ablate.variants import Tokens


class TextTask(Task):
    """A task that reads text."""

    source: Annotated[str | None, OutsideKey()] = None
    """A .txt, .jsonl or .parquet file or a folder of these; None is Python's own documentation."""
    hub: Annotated[HubText | None, OutsideKey()] = None
    """A dataset of the Hugging Face hub, instead of `source`."""
    content_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")] = None
    """blake2b-128 of the text; filled in by default."""
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Approximate share of the bytes, in whole documents, that is used for validation only."""
    tokenizer: Tokenizer = Bytes()
    """Tokenizer of the text."""

    @model_validator(mode="after")
    def _is_what_lies_there(self) -> Self:
        """Fill in the hash; a spec with a hash does not need the text to be present."""
        if self.source is not None and self.hub is not None:
            raise ValueError(f"a text is in one place; got source={self.source!r}, hub={self.hub.name!r}; drop one")
        if self.source is not None:
            object.__setattr__(self, "source", absolute_path("source", self.source))
        where = self.hub.cached if self.hub is not None else None if self.source is None else Path(self.source)
        if self.content_hash is not None and where is not None and not where.exists():
            return self
        try:
            if self.content_hash is None:
                self.set_normal_form(content_hash=self.origin().content_hash)
            self._require_text()
            if where is not None:
                self.check_corpus(self.corpus())
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def inputs(self) -> Tokens:
        return Tokens(self.tokenizer.size)

    def origin(self) -> Origin:
        return _origin(self.source, self.hub)

    def corpus(self) -> Corpus:
        """Return the training and the validation part; SpecError if the text is missing or has another hash."""
        self._require_text()
        return _corpus(self._place)

    def encoder(self) -> Encoder:
        """Read the tokenizer, or learn it from the training part; SpecError as for both."""
        if not self.tokenizer.learned:
            return _encoder(self.tokenizer, None)
        try:
            self._require_text()
        except SpecError as error:
            raise SpecError(
                f"tokenizer {self.tokenizer.label!r} is learned from the text anew wherever a model of it is used, so "
                f"the text has to be where it was; {error}"
            ) from error
        return _encoder(self.tokenizer, self._place)

    def streams(self) -> "Streams":
        """Return the text as tokens; cheap after the first time in a process. Raises as `encoder`."""
        self._require_text()
        return _streams(self._place, self.encoder())

    def check_corpus(self, corpus: Corpus) -> None:
        """Raise SpecError if there is too little text."""

    @property
    def _place(self) -> "_TextPosition":
        return _TextPosition(self.source, self.hub, str(self.content_hash), self.validation_share)

    def _require_text(self) -> None:
        require_hash(self.content_hash, self.origin().content_hash, self.origin().name)


class Stream(NamedTuple):
    """A part of the text as tokens."""

    ids: Tensor
    """[tokens], uint8 for up to 256 ids, else int32; every document ends with the encoder's `end`."""
    starts: Tensor
    """First token of each document, int64 [documents]."""


class Streams(NamedTuple):
    """The parts of the text as tokens."""

    train: Stream
    validation: Stream


class _TextPosition(NamedTuple):
    """A text and its split: key of the caches. Changed content is another entry."""

    source: str | None
    hub: HubText | None
    content_hash: str
    share: float


def _origin(source: str | None, hub: HubText | None) -> Origin:
    if hub is not None:
        return hub_text(hub)
    return python_documentation() if source is None else local_files(Path(source))


@lru_cache(maxsize=2)
def _corpus(place: _TextPosition) -> Corpus:
    return split(_origin(place.source, place.hub).documents(), place.share)


@lru_cache(maxsize=4)
def _encoder(tokenizer: Tokenizer, place: _TextPosition | None) -> Encoder:
    return tokenizer.encoder(lambda: [text for text in documents_of(_corpus(place).train) if text] if place else [])


@lru_cache(maxsize=4)
def _streams(place: _TextPosition, encoder: Encoder) -> Streams:
    return Streams(*(_stream(encoder, part) for part in _corpus(place)))


def _stream(encoder: Encoder, part: bytes) -> Stream:
    """Encode a part. If the split cut a document, only its second half gets an end token."""
    *whole, cut = documents_of(part)
    encoded = encoder.ids([*whole, cut] if cut else whole)
    ends = np.cumsum([len(ids) + 1 for ids in encoded])
    total = int(ends[-1]) if encoded else 0
    ids = np.full(total, encoder.end, np.uint8 if encoder.vocabulary <= 256 else np.int32)
    starts = ends - [len(ids) + 1 for ids in encoded] if encoded else np.zeros(0, np.int64)
    for start, each in zip(starts, encoded, strict=True):
        ids[start : start + len(each)] = each
    return Stream(torch.from_numpy(ids[:-1] if cut else ids), torch.from_numpy(starts.astype(np.int64)))
