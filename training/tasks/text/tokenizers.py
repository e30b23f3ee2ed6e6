"""Tokenizers as specs: bytes, byte pairs or a file; and the encoder of the package `tokenizers`."""

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, final

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ablate.grid.errors import SpecError
from ablate.grid.optional_packages import require_package
from ablate.grid.spec import Choice, OutsideKey
from ablate.training.tasks.text.corpus import content_hash, decode
from ablate.training.tasks.text.encoder import ByteEncoder, EncodedText, Encoder, IdEncoder, sizes_of_spans
from ablate.training.tasks.user_files import absolute_path, require_hash, unreadable

Texts = Callable[[], Sequence[str]]
"""Reads the documents of the training part."""

ENDS: Final = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<end>", "[SEP]")
"""Default tokens of a file for the end of a document; the first existing one is used."""
MASKS: Final = ("<mask>", "[MASK]", "<|mask|>")

_BYTE: Final = re.compile("<0x([0-9A-F]{2})>")
"""SentencePiece's form of a byte of a character without a token."""


class Tokenizer(Choice):
    """How text becomes ids. Only the training part of a text may be learned from."""

    learned: ClassVar[bool] = False
    """True if it is learned from the text."""
    spelled: ClassVar[bool] = True
    """False if its ids have no known text."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of ids, special ones included, known without reading a file."""

    @property
    def hides(self) -> bool:
        """True if it has a mask token, known without reading a file."""
        return True

    @abstractmethod
    def encoder(self, training: Texts) -> Encoder:
        """Make the encoder, learned from what `training` reads if need be; SpecError if that fails."""


@final
class Bytes(Tokenizer):
    """Bytes as tokens: vocabulary 256, nothing to learn, every text has them.

    NUL ends a document and SUB stands where something is hidden; no text has them.
    """

    kind: Literal["bytes"] = "bytes"

    @property
    def size(self) -> int:
        return 256

    def encoder(self, training: Texts) -> ByteEncoder:  # noqa: ARG002  (nothing is learned)
        return ByteEncoder()


@final
class TokenIds(Tokenizer):
    """Ids of token files whose tokenizer stays unknown, so nothing can be read as text."""

    spelled: ClassVar[bool] = False

    kind: Literal["token_ids"] = "token_ids"
    vocabulary: PositiveInt
    """Number of ids; no id of the files is as large."""
    end: NonNegativeInt | None = None
    """Id that ends a document, if any."""

    @model_validator(mode="after")
    def _end_is_an_id(self) -> Self:
        if self.end is not None and self.end >= self.vocabulary:
            raise ValueError(f"tokenizer.end={self.end} is no id, 0 to {self.vocabulary - 1}; lower it")
        return self

    @property
    def size(self) -> int:
        return self.vocabulary

    @property
    def hides(self) -> bool:
        return False

    def encoder(self, training: Texts) -> IdEncoder:  # noqa: ARG002  (nothing is learned)
        return IdEncoder(self.vocabulary, self.end, self.data())


@final
class BytePairs(Tokenizer):
    """Byte pairs learned from the training part of the text alone.

    Tokens are joined from bytes, the most frequent pair first. A text is cut into words, numbers, marks and blanks as
    GPT-2 cuts it, and no pair crosses these; every text is some sequence of tokens, and comes back exactly. Ids: 0 ends
    a document, 1 hides a token, then the 256 bytes, then pairs in the order in which they were joined. The same text
    gives the same tokens.

    Source: Sennrich, Haddow and Birch, Neural machine translation of rare words with subword units (2016); on bytes,
    Radford et al., Language models are unsupervised multitask learners (2019). Learned by the package `tokenizers`.
    """

    learned: ClassVar[bool] = True

    kind: Literal["byte_pairs"] = "byte_pairs"
    vocabulary: Annotated[int, Field(ge=258)] = 1024
    """Number of tokens: 2 special ones, 256 bytes, and pairs."""

    @property
    def size(self) -> int:
        return self.vocabulary

    def encoder(self, training: Texts) -> "LibraryEncoder":
        tokenizers = library(self.kind)
        learned = tokenizers.Tokenizer(tokenizers.models.BPE())
        learned.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        learned.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=self.vocabulary,
            special_tokens=["<end>", "<mask>"],
            initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        learned.train_from_iterator(training(), trainer)
        size = learned.get_vocab_size()
        if size < self.vocabulary:
            raise SpecError(f"the training text has pairs for {size} of {self.vocabulary} tokens; lower vocabulary")
        return LibraryEncoder(learned, 0, 1, {"kind": self.kind, "hash": content_hash(learned.to_str())})


@final
class TokenizerFile(Tokenizer):
    """A local `tokenizer.json` of the package `tokenizers`. Missing fields are filled in when the spec is built.

    Its content hash is part of the key, its path is not. Post-processing (a first token, padding, truncation) is off,
    and a text that spells a special token is read as text.
    """

    kind: Literal["tokenizer_file"] = "tokenizer_file"
    path: Annotated[str, OutsideKey()]
    """The file, or a folder with it, as `save_pretrained` writes one."""
    content_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")] = None
    """blake2b-128 of the file."""
    vocabulary: PositiveInt | None = None
    """Number of ids: by default the greatest plus one. It may be larger for a model with more rows than ids (Qwen,
    Pythia); these ids are never drawn."""
    end: str | None = None
    """Token after every document; by default the first existing one of `ENDS`."""
    mask: str | None = None
    """Mask token; by default the first existing one of `MASKS`, else none."""

    @model_validator(mode="after")
    def _is_what_lies_there(self) -> Self:
        """Fill in missing fields; a complete spec does not need the file to be present."""
        path = Path(absolute_path("tokenizer.path", self.path))
        object.__setattr__(self, "path", str(path / "tokenizer.json" if path.is_dir() else path))
        if self.mask is not None and self.mask == self.end:
            raise ValueError(f"tokenizer.end and tokenizer.mask are both {self.end!r}; name two tokens")
        named = None not in {self.content_hash, self.vocabulary, self.end} and "mask" in self.model_fields_set
        if named and not Path(self.path).exists():
            return self
        try:
            actual, tokenizer = self._read()
            filled = {"content_hash": actual, "vocabulary": size_of(tokenizer)}
            for field, names in (("end", ENDS), ("mask", MASKS)):
                filled[field] = next((name for name in names if tokenizer.token_to_id(name) is not None), None)
            self.set_normal_form(**{name: value for name, value in filled.items() if getattr(self, name) is None})
            self._require(actual, tokenizer)
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def size(self) -> int:
        assert self.vocabulary is not None
        return self.vocabulary

    @property
    def hides(self) -> bool:
        return self.mask is not None

    def encoder(self, training: Texts) -> "LibraryEncoder":  # noqa: ARG002  (nothing is learned)
        actual, tokenizer = self._read()
        self._require(actual, tokenizer)
        mask = None if self.mask is None else tokenizer.token_to_id(self.mask)
        record = {"kind": self.kind, "hash": self.content_hash}
        return LibraryEncoder(tokenizer, tokenizer.token_to_id(self.end), mask, record, vocabulary=self.vocabulary)

    def _read(self) -> tuple[str, Any]:
        path = Path(self.path)
        if not path.is_file():
            raise SpecError(f"there is no tokenizer file {path}; give the path of a tokenizer.json, or of its folder")
        try:
            text = decode(path.read_bytes(), path)
        except OSError as error:
            raise unreadable(path, error) from error
        parsed = _try_parse(text)
        if isinstance(parsed, str):
            raise SpecError(
                f"{path} is no tokenizer.json of the package tokenizers: {parsed}; write it with Tokenizer.save"
            )
        return content_hash(text), parsed

    def _require(self, actual: str, tokenizer: Any) -> None:
        require_hash(self.content_hash, actual, self.path, "tokenizer.content_hash")
        if self.size < (least := size_of(tokenizer)):
            raise SpecError(
                f"tokenizer.vocabulary={self.size} is less than the {least} ids of {self.path}; raise it, or leave it "
                "out"
            )
        if self.end is None:
            raise SpecError(f"{self.path} has none of {', '.join(ENDS)}, by which a document ends; set tokenizer.end")
        for field in ("end", "mask"):
            token = getattr(self, field)
            if token is not None and tokenizer.token_to_id(token) is None:
                raise SpecError(f"tokenizer.{field}={token!r} is no token of {self.path}; name one it has")


@lru_cache(maxsize=4)
def _try_parse(text: str) -> Any:
    tokenizers = library("tokenizer_file")
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # noqa: BLE001  (the package raises no other class)
        return str(error)


def library(by: str) -> Any:
    """Import the package `tokenizers` for tokenizer `by`; EnvironmentProblem if it is not installed."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads would not survive a fork
    return require_package("tokenizers", by=f"tokenizer {by!r}", extra="tokenizers")


def size_of(tokenizer: Any) -> int:
    """Count the ids of a `tokenizers.Tokenizer`, holes included."""
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


@final
class LibraryEncoder(Encoder):
    """Ids of a `tokenizers.Tokenizer`, or `vocabulary` if that is more; text is never read as a special token."""

    def __init__(
        self, tokenizer: Any, end: int, mask: int | None, record: Mapping[str, Any], *, vocabulary: int | None = None
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self._tokenizer, self.end, self.mask = tokenizer, end, mask
        self.filled = size_of(tokenizer)
        self.vocabulary = self.filled if vocabulary is None else vocabulary
        self.record = {**record, "vocabulary": self.vocabulary}
        unknown = getattr(tokenizer.model, "unk_token", None)
        added = tokenizer.get_added_tokens_decoder().items()
        named = {number for number, token in added if token.special and token.content != unknown}
        empty = range(self.filled, self.vocabulary)
        self.special = frozenset({*named, end, *empty, *(() if mask is None else (mask,))})

    def encode(self, text: str) -> EncodedText:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return EncodedText(encoding.ids, encoding.offsets)

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(each.ids, np.int64) for each in encodings]

    def sizes(self, text: str, encoded: EncodedText) -> np.ndarray:
        if self._bytes is not None:
            sizes = np.array([len(self._bytes.get(token, b"")) for token in encoded.ids], np.int64)
            if sizes.sum() == len(text.encode()):  # and not where the text was normalised first
                return sizes
        return sizes_of_spans(text, encoded.spans)

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        if self._bytes is not None:
            return [self._bytes.get(token, b"") for token in ids]
        falls_back = bool(getattr(self._tokenizer.model, "byte_fallback", False))  # tokens like <0xE6> are bytes
        pieces, before = [], None
        for token in ids:
            byte = _BYTE.fullmatch(self._tokenizer.id_to_token(token) or "") if falls_back else None
            if byte is not None:
                pieces.append(bytes.fromhex(byte.group(1)))
                before = self._tokenizer.token_to_id("<0x41>") or before  # any whole character
            else:  # blanks and marks of a tokenizer depend on the token before
                known = "" if before is None else self._decode([before])
                both = self._decode([token] if before is None else [before, token])
                pieces.append((both.removeprefix(known) if both.startswith(known) else self._decode([token])).encode())
                before = token
        return pieces

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        ordinary = [token for token in ids if token not in self.special]
        if self._bytes is not None:
            return b"".join(self._bytes.get(token, b"") for token in ordinary).decode(errors="replace")
        return str(self._tokenizer.decode(ordinary))

    @cached_property
    def _bytes(self) -> dict[int, bytes] | None:
        """Bytes of each ordinary token; None if tokens are not strings of bytes."""
        if type(self._tokenizer.decoder).__name__ != "ByteLevel":
            return None
        visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in visible]
        alphabet = {chr(byte): byte for byte in visible} | {chr(256 + at): byte for at, byte in enumerate(others)}
        tokens = self._tokenizer.get_vocab(with_added_tokens=False).items()
        ordinary = {
            number: bytes(map(alphabet.__getitem__, text)) for text, number in tokens if {*text} <= alphabet.keys()
        }
        added = {number: token.content.encode() for number, token in self._tokenizer.get_added_tokens_decoder().items()}
        return {number: what for number, what in (ordinary | added).items() if number not in self.special}
