"""The config and the levels of a logged run, as plain data."""

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from ablate.grid.errors import SpecError
from ablate.grid.names import require_name
from ablate.grid.spec import Spec
from ablate.grid.values import MOST_LABEL, require_number, require_text, show, unbox

DEEPEST = 100
"""Levels of a config; one that holds itself has no end."""


def plain_data(data: Any, place: str) -> Any:
    """Return `data` as JSON data; SpecError with the place of the first entry that cannot be written.

    A path is its text, an array its numbers, and a spec what is in its key.
    """
    try:
        data = unbox(os.fspath(data) if isinstance(data, os.PathLike) else data)
    except (TypeError, ValueError, RuntimeError) as error:  # such as a sparse tensor
        raise SpecError(f"{place} is {type(data).__name__}, which has no plain numbers: {error}") from error
    if place.count("[") > DEEPEST:
        raise SpecError(f"{place[:60]}... lies {DEEPEST} levels deep; does an entry hold itself?")
    if isinstance(data, Spec):
        return json.loads(data.canonical)
    if isinstance(data, Mapping):
        if strange := [name for name in data if not isinstance(name, str)]:
            raise SpecError(f"{place} has an entry named {show(strange[0])}; name it by a text")
        return {name: plain_data(each, f"{place}[{name!r}]") for name, each in data.items()}
    if isinstance(data, list | tuple):
        return [plain_data(each, f"{place}[{at}]") for at, each in enumerate(data)]
    if isinstance(data, str):
        if any("\ud800" <= letter <= "\udfff" for letter in data):
            raise SpecError(f"{place} is {data[:60]!a}, which has half a character; write Unicode text")
        return data
    if data is None or isinstance(data, bool) or (isinstance(data, int | float) and _is_finite(data, place)):
        return data
    raise SpecError(
        f"{place} is {show(data)}; it takes plain data: write a number, a text, a list or a mapping of these"
    )


def plain_levels(axes: Any) -> dict[str, str | float | bool | None]:
    """Return the levels of a variant by axis. Raises SpecError: a name that no column can have, or no single value."""
    if not isinstance(axes, Mapping):
        raise SpecError(f"axes={show(axes)} are no levels by the name of an axis; write such as {{'width': 8}}")
    plain: dict[str, str | float | bool | None] = {}
    for name, value in axes.items():
        level, place = plain_data(value, f"axes[{name!r}]"), require_name(name)
        if isinstance(level, list | dict):
            raise SpecError(f"the axis {name!r} has the level {show(value)}; give a number, a text or a truth value")
        plain[place] = require_text(level, f"axis {name!r}: the level", MOST_LABEL) if isinstance(level, str) else level
    require_apart(plain)
    return plain


def require_apart(names: Any) -> None:
    """Raise SpecError if two axes are one column: SQL ignores case."""
    spelt: dict[str, str] = {}
    for name in names:
        if spelt.setdefault(name.lower(), name) != name:
            raise SpecError(
                f"{spelt[name.lower()]!r} and {name!r} are one column in SQL, which ignores case; rename one axis"
            )


def _is_finite(data: float, place: str) -> bool:
    if not math.isfinite(require_number(data, place)):
        raise SpecError(f"{place} is {data}; it takes finite numbers, write None or a text")
    return True
