"""Names of the tokens that a model was given, as a reader sees them: every one visible, none of them empty."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dashboards.words import number

_VISIBLE: Final = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "\0": "␀", "\x1a": "␚"}


def token_names(inputs: npt.NDArray[Any], task: Mapping[str, Any], length: int) -> list[str]:
    """The names of the `length` tokens of a map, of which the last are `inputs`; those before are the model's own.

    Args:
        inputs: of one sequence: ids [T], or vectors [T, width].
        task: spec of the task; where its tokens are bytes they are letters, other ids stand as numbers.
        length: of the map; a model's sink tokens come first.
    """
    own = length - len(inputs)
    names = [f"sink {i + 1}" if own > 1 else "sink" for i in range(own)]
    kind = (task.get("tokenizer") or {}).get("kind")
    if inputs.ndim > 1:
        return names + [", ".join(number(float(value), 2) for value in row[:3]) for row in inputs]
    if not np.issubdtype(inputs.dtype, np.integer):
        return names + [number(float(value), 2) for value in inputs]
    return names + (byte_names(inputs.tolist()) if kind == "bytes" else [str(each) for each in inputs.tolist()])


def byte_names(ids: Sequence[int]) -> list[str]:
    """Bytes as letters; a letter of several bytes stands at its first, and dots at the others."""
    names: list[str] = []
    at = 0
    while at < len(ids):
        size = next((n for n in (1, 2, 3, 4) if _letter(ids[at : at + n])), 0)
        letter = _letter(ids[at : at + size]) if size else ""
        names += [_visible(letter), *["…"] * (size - 1)] if size else [f"\\x{ids[at]:02x}"]
        at += max(size, 1)
    return names


def _letter(ids: Sequence[int]) -> str:
    """The letter that these bytes are; empty where they are none, or several."""
    try:
        found = bytes(ids).decode("utf-8")
    except ValueError:  # no byte, or no letter
        return ""
    return found if len(found) == 1 else ""


def _visible(letter: str) -> str:
    return _VISIBLE.get(letter) or (letter if letter.isprintable() else f"\\u{ord(letter):04x}")
