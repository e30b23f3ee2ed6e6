"""Columns of a table, and where its selected rows can be taken."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import polars as pl

from dashboards.data.result_table import align_numbers

WRAP: Final[dict[str, Any]] = {"flex": 1, "minWidth": 240, "wrapText": True, "autoHeight": True}
"""A column of long texts."""
WIDE: Final = {**WRAP, "flex": 2}


def link(page: str, names: str, **more: Any) -> dict[str, Any]:
    """A column whose cells lead to `page` with the field `names` set to the cell's text."""
    return {"cellRenderer": "AblateLink", "cellRendererParams": {"page": page, "names": names}, **more}


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
