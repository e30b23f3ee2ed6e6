"""Names and numbers that a campaign can hold: one rule for specs, logged runs, tasks, evaluations and probes.

Scalars and arrays of numpy, torch and the like count as Python's own. They are known by their `dtype`.
"""

import operator
import unicodedata
from functools import lru_cache
from reprlib import Repr
from typing import Any, Final

from ablate.grid.errors import SpecError

MOST_NAME: Final = 150
"""Characters of a name. A file of this name has an ending of up to 99 bytes while it is written, and 255 in all."""

MOST_LABEL: Final = 1000
"""Characters of a label, which may join those of several values, and of the name of an item."""

_short: Final = Repr()
_short.maxstring = _short.maxother = 60

END: Final = 2**63
"""Whole numbers in tables, such as steps and seeds, are below this."""


def text_fault(text: object, most: int = MOST_NAME) -> str | None:
    """Return what makes a text unfit as a name, or None: it could be taken for another, or breaks a line."""
    return _fault(text, most) if isinstance(text, str) else f"is no text but {show(text)}"


@lru_cache(maxsize=8192)  # the same names come at every step
def _fault(text: str, most: int) -> str | None:
    if not text.strip():
        return "is blank" if text else "is empty"
    if len(text) > most:
        return f"has {len(text)} characters, and may have {most}"
    if not text.isprintable():
        strange = next(letter for letter in text if not letter.isprintable())
        return f"has the character {strange!a}, which cannot be printed"
    if text != text.strip():
        return "begins or ends with a blank"
    return None if unicodedata.is_normalized("NFC", text) else f"is not in Unicode's form NFC ({text[:60]!a})"


def require_text(text: object, what: str, most: int = MOST_NAME) -> str:
    """Return `text` if it is fit as a name; else raise `SpecError`, in which `what` stands for it."""
    if isinstance(text, str) and _fault(text, most) is None:
        return str(text)
    shown = f"{show(text)} " if isinstance(text, str) else ""
    raise SpecError(f"{what} {shown}{text_fault(text, most)}; write it otherwise")


def require_number(value: object, what: str) -> float:
    """Return a number as a float; NaN and infinity are numbers. Raises `SpecError`, in which `what` stands for it."""
    if type(value) is float:
        return value
    try:
        number = _unbox(value)
        if not isinstance(number, str | bytes | bytearray):
            return float(number)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        pass
    raise SpecError(f"{what} is {show(value)}; it takes one number that is no larger than 1.8e308")


def require_whole(value: object, what: str, least: int = 0, end: int = END) -> int:
    """Return a whole number from `least` to below `end`. Raises `SpecError`, in which `what` stands for it."""
    if type(value) is int and least <= value < end:
        return value
    try:
        plain = _unbox(value)
        if not isinstance(plain, bool) and least <= (number := operator.index(plain)) < end:
            return number
    except (TypeError, ValueError, RuntimeError):
        pass
    raise SpecError(f"{what} is {show(value)}; it takes a whole number from {least} to below 2^{end.bit_length() - 1}")


def unbox(value: Any) -> Any:
    """Return a scalar or an array of numpy or torch as numbers and lists; other values as they are."""
    boxed = hasattr(value, "dtype") and hasattr(value, "tolist") and not isinstance(value, type)
    return value.tolist() if boxed else value


def _unbox(value: Any) -> Any:
    """Return the only number of an array, whatever its shape."""
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value


def show(value: object) -> str:
    """Write a value that was refused in few characters."""
    try:
        return _short.repr(value)
    except ValueError:  # Python refuses to write thousands of digits
        return f"a number of the class {type(value).__name__} with very many digits"
