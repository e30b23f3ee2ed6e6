"""Texts of exceptions as records keep them: of any exception, as valid Unicode, and not too long."""

import traceback
from typing import Final

MOST_MESSAGE: Final = 10_000
"""Characters of a message that a record keeps."""
MOST_TRACEBACK: Final = 100_000
"""The same of a traceback."""

_NOTE: Final = 60
"""Room for the words about what was cut."""


def limit_text(text: str, most: int) -> str:
    """Return `text` as valid Unicode; of more than `most` characters the middle is cut, which the text then says."""
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= most:
        return text
    end = (most - _NOTE) // 2
    return f"{text[:end]} [... {len(text) - 2 * end} characters cut ...] {text[-end:]}"


def message_of(error: BaseException, *, named: bool = True) -> str:
    """Return the text of an exception, after the name of its class; this works also if its own `__str__` fails."""
    name = f"{type(error).__name__}: " if named else ""
    try:
        return limit_text(f"{name}{error}".removesuffix(": "), MOST_MESSAGE)
    except Exception as fault:  # noqa: BLE001  # that it was raised matters more than what it says
        return f"{name}its text cannot be read, since str() of it raised {type(fault).__name__}"


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception, also if a part of it cannot be read."""
    try:
        return limit_text("".join(traceback.format_exception(error)), MOST_TRACEBACK)
    except Exception as fault:  # noqa: BLE001  # as above
        return f"its traceback cannot be read, since formatting it raised {type(fault).__name__}"
