"""Names, texts and other values as they are written inside SQL."""

import math
import re
from typing import Any


def identifier(name: str) -> str:
    """`name` as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """`value` as a text literal."""
    return "'" + value.replace("'", "''") + "'"


def pattern(path: str) -> str:
    """`path` where the engine takes a pattern of paths, so that it means this one alone."""
    return re.sub(r"([*?[])", r"[\1]", path)


def member(name: str) -> str:
    """The JSON path of an object's member `name`."""
    return '$."' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def literal(value: Any) -> str:
    """`value` (None, a boolean, a number, a text, or a list of these) as a literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value!r}::DOUBLE" if math.isfinite(value) else f"'{value}'::DOUBLE"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    return text(str(value))
