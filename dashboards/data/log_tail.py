"""The end of an attempt's log as text that can be shown: bounded, and without characters that do something."""

import os
import re
import unicodedata
from typing import Final, NamedTuple

from dashboards.data.user_errors import Unknown
from store.files.layout import Layout

LINES: Final = 200
_BYTES: Final = 256 * 1024
"""So much of the end is read at most."""
_LONGEST: Final = 2000
"""Letters of a line; the rest is cut."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


class LogTail(NamedTuple):
    """The last lines of a log."""

    text: str
    told: str
    """Says how much of the log is shown, or why there is none."""


def log_tail(layout: Layout, key: str, attempt: int, lines: int = LINES) -> LogTail:
    """The last `lines` lines of the log of an attempt.

    Only a plain file inside the campaign is read. Colours are left out; every other control character, and those that
    change the direction of writing, stand as visible signs.

    Raises:
        StoreError: the log lies outside the campaign or is no plain file.
        Unknown: it cannot be read.
    """
    try:
        with layout.open_inside(layout.log(key, attempt)) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - _BYTES, 0))
            held = file.read(_BYTES)
    except FileNotFoundError:
        return LogTail("", f"Attempt {attempt} has no log.")
    except OSError as error:
        raise Unknown(f"the log of attempt {attempt} cannot be read: {error.strerror}") from error
    if not held.strip():
        return LogTail("", f"The log of attempt {attempt} is empty.")
    whole = held.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    if size > len(held):
        whole = whole[1:] or whole  # the first line is cut somewhere
    shown = [visible(line[:_LONGEST]) + ("…" if len(line) > _LONGEST else "") for line in whole[-lines:]]
    every = size == len(held) and len(shown) == len(whole)
    told = f"All of {len(shown)}" if every else f"The last {len(shown)}"
    return LogTail("\n".join(shown), f"{told} line{'s' * (len(shown) != 1)} of {size:,} bytes.")


def visible(line: str) -> str:
    """A line of text in which every character is seen, and none acts."""
    return "".join(map(_sign, _COLOUR.sub("", line)))


def _sign(letter: str) -> str:
    if letter == "\t" or letter.isprintable():
        return letter
    return " " if unicodedata.category(letter) == "Zs" else f"<U+{ord(letter):04X}>"
