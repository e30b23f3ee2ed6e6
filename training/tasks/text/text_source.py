"""Base of text tasks: source, split and tokenizer of the text, read and encoded once per process.

The content hash of the text is part of the key, its path is not.
"""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Int, Integer
from pydantic import Field, model_validator
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.grid.spec import Added, OutsideKey
from ablate.training.tasks.task import Task
from ablate.training.tasks.text.corpus import Corpus, Origin, documents_of, split
from ablate.training.tasks.text.encoder import Encoder
from ablate.training.tasks.text.hub import HubText, hub_text
from ablate.training.tasks.text.local_files import COLUMN, TABLES, local_files, python_documentation
from ablate.training.tasks.text.tokenizers import Bytes, Tokenizer
from ablate.training.tasks.user_files import absolute_path, require_hash
from ablate.variants import Tokens


class TextTask(Task):
    """A task that reads text."""

    source: Annotated[str | None, OutsideKey()] = None
    """A .txt, .jsonl or .parquet file or a folder of these, for task `text` also a .bin or .npy file of tokens; None is
    Python's own documentation."""
    hub: Annotated[HubText | None, OutsideKey()] = None
    """A dataset of the Hugging Face hub, instead of `source`."""
    content_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")] = None
    """blake2b-128 of the text; filled in by default."""
    validation: Annotated[str | None, OutsideKey()] = None
    """Files like `source` for validation only; None is a part of the text. Part of `content_hash`."""
    column: Annotated[str, Field(min_length=1), Added()] = COLUMN
    """Field of .jsonl and column of .parquet files with the documents."""
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Approximate share of the bytes, in whole documents, that is used for validation only; of a file of tokens, of its
    last tokens."""
    tokenizer: Tokenizer = Bytes()
    """Tokenizer of the text."""

    @model_validator(mode="after")
    def _is_what_lies_there(self) -> Self:
        """Fill in the hash; a spec with a hash does not need the text to be present."""
        if self.source is not None and self.hub is not None:
            raise ValueError(f"source={self.source!r} and hub={self.hub.name!r} are two texts; drop one")
        if self.validation is not None and self.validation_share != type(self).model_fields["validation_share"].default:
            raise ValueError(
                f"validation_share={self.validation_share} splits a text that has no validation, and "
                f"validation={self.validation!r}; drop one"
            )
        for field in ("source", "validation"):
            if (path := getattr(self, field)) is not None:
                object.__setattr__(self, field, absolute_path(field, path))
        self.check_source()
        places = [Path(path) for path in (self.source, self.validation) if path is not None]
        places += [] if self.hub is None else [self.hub.cached]
        if self.content_hash is not None and not all(place.exists() for place in places):
            return self
        try:
            if self.content_hash is None:
                self.set_normal_form(content_hash=self.origin().content_hash)
            self.require_text()
            if places:
                self.check_parts()
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def inputs(self) -> Tokens:
        return Tokens(self.tokenizer.size)

    @property
    def spelled(self) -> bool:
        """True if its tokens are text; False for ids of a file whose tokenizer is not known."""
        return self.tokenizer.spelled

    def origin(self) -> Origin:
        return _origin(self._place)

    def corpus(self) -> Corpus:
        """Return the training and the validation part; SpecError if the text is missing or has another hash."""
        self.require_text()
        return _corpus(self._place)

    def encoder(self) -> Encoder:
        """Read the tokenizer, or learn it from the training part; SpecError as for both."""
        if not self.tokenizer.learned:
            return _encoder(self.tokenizer, None)
        try:
            self.require_text()
        except SpecError as error:
            raise SpecError(
                f"{error}; the text has to be where it was, since tokenizer {self.tokenizer.label!r} is learned from "
                "it anew"
            ) from error
        return _encoder(self.tokenizer, self._place)

    def streams(self) -> "Streams":
        """Return the text as tokens; cheap after the first time in a process. Raises as `encoder`."""
        self.require_text()
        return _streams(self._place, self.encoder())

    def check_source(self) -> None:
        """Raise ValueError for fields that do not fit one another, before a file is read."""

    def check_parts(self) -> None:
        """Raise SpecError if a part has too little text."""

    @property
    def _place(self) -> "_TextPosition":
        return _TextPosition(
            self.source, self.hub, self.validation, self.column, str(self.content_hash), self.validation_share
        )

    def require_text(self) -> None:
        """Raise SpecError if the text is missing, has another hash, or has no `column`."""
        origin = self.origin()
        held = origin.validation.files if origin.validation is not None else ()
        names = [*(() if self.hub is not None else origin.files), *held]
        if self.column != COLUMN and not any(name.lower().endswith(TABLES) for name in names):
            rule = "column names a field of .jsonl and .parquet files"
            raise SpecError(
                f"{rule if self.hub is None else 'the column of a dataset is hub.column'}; got {self.column!r} for "
                f"{origin.name}; leave it out"
            )
        require_hash(self.content_hash, origin.content_hash, origin.name)


class Stream(NamedTuple):
    """A part of the text as tokens."""

    ids: Integer[Tensor, " tokens"]
    """In uint8 for up to 256 ids, else int32; every document ends with the encoder's `end`."""
    starts: Int[Tensor, " documents"]
    """First token of each document, int64; empty if they are not known."""


class Streams(NamedTuple):
    """The parts of the text as tokens."""

    train: Stream
    validation: Stream


class _TextPosition(NamedTuple):
    """A text and its split: key of the caches. Changed content is another entry."""

    source: str | None
    hub: HubText | None
    validation: str | None
    column: str
    content_hash: str
    share: float


def _origin(place: _TextPosition) -> Origin:
    source, validation = (None if path is None else Path(path) for path in (place.source, place.validation))
    if place.hub is not None:
        origin = hub_text(place.hub)
    else:
        origin = python_documentation() if source is None else local_files(source, place.column)
    return origin.with_validation(None if validation is None else local_files(validation, place.column))


@lru_cache(maxsize=2)
def _corpus(place: _TextPosition) -> Corpus:
    origin = _origin(place)
    if origin.validation is None:
        return split(origin.documents(), place.share)
    return Corpus(*(split(each.documents(), 0).train for each in (origin, origin.validation)))


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
