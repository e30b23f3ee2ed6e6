"""Errors of one part of a page leave the rest of the page standing."""

from collections.abc import Callable
from typing import TypeVar

from grid.errors import AblateError, NotFoundError

T = TypeVar("T")


class Unknown(NotFoundError):
    """An address names something that does not exist; the text says what exists."""


def catch_user_error(make: Callable[[], T]) -> tuple[T, None] | tuple[None, str]:
    """Return the result of `make`, or the sentence of its `AblateError`. Other errors are bugs and are raised."""
    try:
        return make(), None
    except AblateError as error:
        return None, sentence(error)


def sentence(error: Exception) -> str:
    """Write the text of an error as a sentence."""
    said = str(error).rstrip(".")
    return f"{said[:1].upper()}{said[1:]}."
