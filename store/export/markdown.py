"""Markdown: any text as text, and tables as GitHub and most others read them."""

import re
from collections.abc import Sequence
from typing import Final

from store.export.escape_control import escape_control

_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_PUNCTUATION: Final = frozenset("\\`*_{}[]()#+!|~$^=:@")
_WWW: Final = re.compile(r"(www)\.", re.IGNORECASE)
"""GitHub makes a link of what begins so."""
_ALONE: Final = re.compile(r"\\(?:(?<!=\\)(=)(?!\\=)|(:)(?= |$))")
"""Escapes of what means something only beside its like or in front of a word: `==marked==`, `http://`."""


def escape(text: str) -> str:
    """`text` as Markdown that shows these characters, whatever they are, in one line of a table."""
    escaped = "".join(map(_escape, escape_control(" ".join(text.split()))))
    return _WWW.sub(r"\1\\.", _ALONE.sub(lambda found: found[1] or found[2], escaped))


def _escape(character: str) -> str:
    if character in _ENTITIES:
        return _ENTITIES[character]
    return f"\\{character}" if character in _PUNCTUATION else character


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    """Texts as a table; columns that are `numeric` are to the right."""
    return align([escape(each) for each in headings], [[escape(each) for each in row] for row in rows], numeric)


def align(headings: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    """Cells, already Markdown, as a table whose columns are aligned in the text, too."""
    every = [list(headings), *map(list, rows)]
    widths = [max(3, *(len(row[at]) for row in every)) for at in range(len(headings))]
    lines = [_line(row, widths, numeric) for row in every]
    rule = [f"{'-' * (width - 1)}{':' if right else '-'}" for width, right in zip(widths, numeric, strict=True)]
    return "\n".join([lines[0], f"| {' | '.join(rule)} |", *lines[1:]]) + "\n"


def _line(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(row, widths, numeric, strict=True)
    ]
    return f"| {' | '.join(padded)} |"
