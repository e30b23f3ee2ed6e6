"""Errors of one part of a page leave the rest of the page standing."""

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from ablate.dashboards.data.formatting import capitalise
from ablate.grid.errors import AblateError, NotFoundError

T = TypeVar("T")


class Unknown(NotFoundError):
    """An address names something that does not exist; the text says what exists."""


_SHOWN = 12  # names in a sentence about another one


def require(where: str, what: str, wanted: T, known: Collection[T]) -> T:
    """`wanted` if it is known. Raises Unknown with what is."""
    if wanted in known:
        return wanted
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    listed = ", ".join(map(str, [*known][:_SHOWN])) or "none"
    raise Unknown(f"{where} has no {what} {wanted!r}; it has {listed}{more}")


def catch_user_error(make: Callable[[], T]) -> tuple[T, None] | tuple[None, str]:
    """Return the result of `make`, or the sentence of its `AblateError`. Other errors are bugs and are raised."""
    try:
        return make(), None
    except AblateError as error:
        return None, sentence(error)


def sentence(text: object) -> str:
    """Write a text, or that of an error, as a sentence."""
    words = capitalise(str(text).rstrip("."))
    return words if words.endswith("?") else f"{words}."


def join_sentences(notes: Iterable[str]) -> str:
    """Write notes as sentences, each behind a blank."""
    return "".join(f" {sentence(note)}" for note in notes)
