"""Controls of a page and columns of its tables."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import polars as pl

from dashboards.data.result_table import align_numbers


class Control(NamedTuple):
    """An input for one field of the address."""

    field: str
    """A field of the page's `Address`; "numbers:beta" is the entry "beta=..." of a field with entries name=value."""
    label: str
    kind: Literal["choice", "choices", "switch", "text", "number", "slider", "code", "hidden"]
    """`code` is text of several lines that a button runs; `hidden` is set by clicks on a figure."""
    options: Mapping[str, str] = MappingProxyType({})
    """Labels by value."""
    hint: str = ""
    usual: Any = None
    """The value if the address gives none."""
    span: tuple[float, float, float] | None = None
    """Least, greatest and step of a slider."""
    resets: Sequence[str] | None = None
    """Fields that go back to their defaults if this one changes. Unless None, the page is made anew then."""


def options(names: Iterable[str]) -> dict[str, str]:
    """Choices that are called as they are written."""
    return {name: name for name in names}


WRAP: Final[dict[str, Any]] = {"flex": 1, "minWidth": 240, "wrapText": True, "autoHeight": True}
"""A column of long texts."""
WIDE: Final = {**WRAP, "flex": 2}


def link(page: str, names: str, **more: Any) -> dict[str, Any]:
    """A column whose cells lead to `page` with the field `names` set to the cell's text."""
    return {"cellRenderer": "AblateLink", "cellRendererParams": {"page": page, "names": names}, **more}


def fold_column() -> dict[str, Any]:
    """A column of long texts, each of which opens on a click."""
    return {"cellRenderer": "AblateFold", "wrapText": True, "autoHeight": True, "minWidth": 110, "flex": 3}


def in_order_of_size() -> dict[str, Any]:
    """A column of numbers that are written as texts, such as '−23 %' or '× 4.2'."""
    return {"type": "rightAligned", "comparator": {"function": "ablateOrder"}}


def columns(data: pl.DataFrame, own: Mapping[str, Mapping[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Column definitions of AG Grid: numbers to the right, with few digits; `own` are further parts by name."""
    return [{"field": name, **align_numbers(data[name].dtype), **(own or {}).get(name, {})} for name in data.columns]


class Pick(NamedTuple):
    """Where rows that a reader selects in a table can be taken to."""

    label: str
    page: str
    names: str
    """The field of that page's state that gets `column` of every selected row."""
    column: str = "trial"
    least: int = 1
    """So many rows at least."""
