"""What cannot be computed does not take the rest of a page with it: in its place stands why."""

from collections.abc import Callable
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class Actionable(Protocol):
    """An error that the user can act on: its class carries an exit code, its text says what to do."""

    exit_code: int


class Unknown(Exception):
    """An address names what is not there, or what a page does not know; the text says what there is."""

    exit_code: ClassVar[int] = 3


class Unreachable(Exception):
    """The machine lacks what is needed to be seen, such as a free port; the text says what to do."""

    exit_code: ClassVar[int] = 5


def tried(make: Callable[[], T]) -> tuple[T, None] | tuple[None, str]:
    """What `make` returns, or the sentence of an error that the user can act on. Any other error is a bug and rises."""
    try:
        return make(), None
    except Exception as error:
        if not isinstance(error, Actionable):
            raise
        return None, sentence(error)


def sentence(error: Exception) -> str:
    """The text of an error as a sentence."""
    said = str(error).rstrip(".")
    return f"{said[:1].upper()}{said[1:]}."
