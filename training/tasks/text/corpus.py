"""Corpora: documents, ordered by content hash, and their split into a training and a validation part.

A zero byte ends every document; documents contain no zero byte and no SUB.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ablate.grid.errors import SpecError


class Origin(NamedTuple):
    """A source of text: `files` are name -> content hash, `documents` reads them."""

    name: str
    files: Mapping[str, str]
    documents: Callable[[], Iterable[bytes]]
    validation: "Origin | None" = None
    """Text for validation only; None is a part of this one."""

    @property
    def content_hash(self) -> str:
        """blake2b-128 over the files' hashes, independent of their names."""
        own = content_hash(*sorted(self.files.values()))
        return own if self.validation is None else content_hash(own, self.validation.content_hash)

    def with_validation(self, validation: "Origin | None") -> "Origin":
        """Return this text with `validation` beside it; SpecError if they share a file."""
        if validation is not None:
            trained = set(self.files.values())
            for name in (name for name, held in validation.files.items() if held in trained):
                raise SpecError(
                    f"{name} of {validation.name} is also in {self.name}, and validation is text that is not trained "
                    "on; give another file, or leave validation out for a part of the text"
                )
        return self._replace(validation=validation)

    def of_part(self, part: str) -> "Origin":
        """Return the source of the part "train" or "validation"."""
        return self.validation if part == "validation" and self.validation is not None else self

    @property
    def record(self) -> Mapping[str, Any]:
        """Describe the files for an attempt."""
        held = self.validation
        apart = {} if held is None else {"validation_source": held.name, "validation_files": dict(held.files)}
        return {"source": self.name, "content_hash": self.content_hash, "files": dict(self.files), **apart}


class Corpus(NamedTuple):
    """UTF-8 bytes, split between documents if these are small enough, and never inside a character."""

    train: bytes
    validation: bytes


def documents_of(part: bytes) -> list[str]:
    """Return the documents of a part; the text after the last zero byte, possibly empty, is one more."""
    return part.decode().split("\0")


def content_hash(*parts: str | bytes) -> str:
    """Hash the parts and their lengths by blake2b-128, as 32 hexadecimal digits."""
    digest = blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def decode(data: bytes, path: Path) -> str:
    """Decode the UTF-8 of a file without its byte order mark, or raise SpecError."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not UTF-8, at byte {error.start}; convert it") from error


def parse_object(line: str, where: str) -> dict[str, Any]:
    """Parse a line of a .jsonl file, or raise SpecError."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{where} is no JSON object: {error}; correct it") from error
    if not isinstance(fields, dict):
        raise SpecError(f"{where} has {line[:60]!r}, and each line of a .jsonl file is one JSON object; correct it")
    return fields


def split(documents: Iterable[bytes], share: float) -> Corpus:
    """Split off about `share` of the bytes for validation: whole documents, equal ones together, if possible."""
    ordered = sorted((document for document in documents if document.strip()), key=content_hash)
    wanted = share * sum(map(len, ordered))
    train: list[bytes] = []
    validation: list[bytes] = []
    size = 0
    for _, equals in groupby(ordered):
        same = list(equals)
        more = sum(map(len, same))
        fits = size + more <= wanted
        (validation if fits else train).extend(same)
        size += more if fits else 0
    if 2 * size >= wanted:
        return Corpus(_join(train), _join(validation))
    text = _join(ordered)
    cut = _beside_equals(ordered, len(text) - round(share * len(text)))
    while 0 < cut < len(text) and text[cut] & 0xC0 == 0x80:
        cut -= 1
    return Corpus(text[:cut], text[cut:])


def _beside_equals(ordered: Sequence[bytes], cut: int) -> int:
    """Return the place to cut the joined documents: `cut`, or the nearer end of equal documents around it."""
    begin, size = 0, sum(len(document) + 1 for document in ordered)
    for document, equals in groupby(ordered):
        count = sum(1 for _ in equals)
        end = begin + count * (len(document) + 1)
        if begin < cut < end and count > 1:
            ends = [place for place in (begin, end) if 0 < place < size]
            return min(ends, key=lambda place: abs(place - cut), default=cut)
        begin = end
    return cut


def count_repeated(corpus: Corpus) -> int:
    """Count the documents that equal an earlier one."""
    documents = [document for part in corpus for document in part.split(b"\0") if document]
    return len(documents) - len(set(documents))


def _join(documents: Iterable[bytes]) -> bytes:
    return b"".join(document + b"\0" for document in documents)
