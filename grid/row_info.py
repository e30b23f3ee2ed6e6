"""The description of the values that tasks, evaluations and probes record."""

import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from ablate.grid.errors import SpecError
from ablate.grid.values import MOST_LABEL, require_number, require_text


class RowInfo(NamedTuple):
    """Describes the values of one name. Pages, reports and commands show its title and unit."""

    name: str
    """Capital words stand for parts that vary, as in `number.STAGE.FIELD`."""
    unit: str
    per: Literal["layer and head", "layer", "model", "file"] = "layer and head"
    point: tuple[str, ...] = ()
    """The coordinates of `Probed.point`."""
    title: str = ""
    """The name in words; empty: the name itself."""
    least: float | None = None
    """The lower bound of the values; intervals on pages end there."""


def header_rows(infos: Iterable[RowInfo]) -> dict[str, dict[str, Any]]:
    """Return the `rows` of a grid's header by name, of several with one name the first. Raises `SpecError`."""
    rows: dict[str, dict[str, Any]] = {}
    for name, unit, _, _, title, least in infos:
        for what, text in (("name", name), ("unit", unit or "-"), ("title", title or "-")):
            require_text(text, f"the {what} of the recorded row {name!r}", MOST_LABEL)
        if least is not None and not math.isfinite(require_number(least, f"the least value of {name!r}")):
            raise SpecError(f"the least value of {name!r} is {least}; give a finite number or None")
        rows.setdefault(name, {"title": title or name, "unit": unit, "least": least})
    return rows
