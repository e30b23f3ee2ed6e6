"""Markdown: any text as text, and tables as GitHub and most others read them."""

import re
from collections.abc import Sequence
from typing import Final

from ablate.store.export.plain import escape_control

_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPES: Final = str.maketrans({**_ENTITIES, **{sign: f"\\{sign}" for sign in "\\`*_{}[]#+!|~$^=:@"}})
_WWW: Final = re.compile(r"(www)\.", re.IGNORECASE)  # GitHub makes a link of what begins so
_ALONE: Final = re.compile(r"\\(?:(?<!=\\)(=)(?!\\=)|(:)(?= |$))")
"""Escapes of what means something only beside its like or in front of a word: `==marked==`, `http://`."""


def escape(text: str) -> str:
    """`text` as Markdown that shows these characters, whatever they are, in one line of a table."""
    escaped = escape_control(" ".join(text.split())).translate(_ESCAPES)
    return _WWW.sub(r"\1\\.", _ALONE.sub(lambda match: match[1] or match[2], escaped))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    """Cells, already Markdown, as a table; columns that are `numeric` are to the right."""
    rule = ["--:" if right else "---" for right in numeric]
    return "".join(f"| {' | '.join(row)} |\n" for row in (headings, rule, *rows))
