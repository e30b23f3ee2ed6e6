"""A tokenizer in a file: a local `tokenizer.json` of the package `tokenizers`.

Its content hash is part of the key, its path is not. Post-processing (a first token, padding, truncation) is off, and a
text that spells a special token is read as text.
"""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, final

from pydantic import Field, PositiveInt, model_validator

from grid.errors import SpecError
from grid.spec import OutsideKey
from runners.tasks.text.corpus import content_hash, decode
from runners.tasks.text.tokenizers.library_encoder import LibraryEncoder, Special, library, size_of
from runners.tasks.text.tokenizers.tokenizer import Texts, Tokenizer
from runners.tasks.user_files import absolute_path, require_hash, unreadable

ENDS: Final = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<end>", "[SEP]")
"""Default tokens for the end of a document; the first existing one is used."""
MASKS: Final = ("<mask>", "[MASK]", "<|mask|>")


@final
class TokenizerFile(Tokenizer):
    """A `tokenizer.json`. Missing fields are filled in from the file when the spec is built."""

    kind: Literal["tokenizer_file"] = "tokenizer_file"
    path: Annotated[str, OutsideKey()]
    """The file."""
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
        object.__setattr__(self, "path", absolute_path("tokenizer.path", self.path))
        if self.mask is not None and self.mask == self.end:
            raise ValueError(f"tokenizer.end and tokenizer.mask are two tokens; got {self.end!r} as both")
        named = None not in {self.content_hash, self.vocabulary, self.end} and "mask" in self.model_fields_set
        if named and not Path(self.path).exists():
            return self
        try:
            text = _read(Path(self.path))
            tokenizer = _parse(self.path, text)
            found = {
                "content_hash": content_hash(text),
                "vocabulary": size_of(tokenizer),
                "end": _first_token(tokenizer, ENDS),
                "mask": _first_token(tokenizer, MASKS),
            }
            self.set_normal_form(**{name: value for name, value in found.items() if getattr(self, name) is None})
            require_hash(self.content_hash, found["content_hash"], self.path, "tokenizer.content_hash")
            self._require(tokenizer)
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

    def encoder(self, training: Texts) -> LibraryEncoder:  # noqa: ARG002  (nothing is learned)
        text = _read(Path(self.path))
        require_hash(self.content_hash, content_hash(text), self.path, "tokenizer.content_hash")
        tokenizer = _parse(self.path, text)
        self._require(tokenizer)
        mask = None if self.mask is None else tokenizer.token_to_id(self.mask)
        special = Special(tokenizer.token_to_id(self.end), mask)
        record = {"kind": self.kind, "hash": self.content_hash}
        return LibraryEncoder(tokenizer, special, record, vocabulary=self.vocabulary)

    def _require(self, tokenizer: Any) -> None:
        if self.size < (least := size_of(tokenizer)):
            raise SpecError(
                f"tokenizer.vocabulary is the number of ids of the file, or more; it is {self.size} and {self.path} "
                f"has {least}; raise it, or leave it out"
            )
        if self.end is None:
            raise SpecError(
                f"a token ends every document; {self.path} has none of {', '.join(ENDS)}; set tokenizer.end"
            )
        for field in ("end", "mask"):
            token = getattr(self, field)
            if token is not None and tokenizer.token_to_id(token) is None:
                raise SpecError(f"tokenizer.{field} is a token of {self.path}; it has no {token!r}; name one it has")


def _first_token(tokenizer: Any, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if tokenizer.token_to_id(name) is not None), None)


def _read(path: Path) -> str:
    if not path.is_file():
        raise SpecError(f"there is no tokenizer file {path}; give the path of a tokenizer.json")
    try:
        return decode(path.read_bytes(), path)
    except OSError as error:
        raise unreadable(path, error) from error


def _parse(path: str, text: str) -> Any:
    found = _try_parse(text)
    if isinstance(found, str):
        raise SpecError(
            f"a tokenizer file is a tokenizer.json of the package tokenizers; {path} is not: {found}; write it with "
            "Tokenizer.save"
        )
    return found


@lru_cache(maxsize=4)
def _try_parse(text: str) -> Any:
    tokenizers = library("tokenizer_file")
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # noqa: BLE001  (the package raises no other class)
        return str(error)
