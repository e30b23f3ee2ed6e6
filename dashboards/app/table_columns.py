"""Columns of tables, as AG Grid takes them."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from ablate.dashboards.data.result_table import align_numbers

WRAP: Final[dict[str, Any]] = {"flex": 1, "minWidth": 240, "wrapText": True, "autoHeight": True}
"""A column of long texts."""
WIDE: Final = {**WRAP, "flex": 2}
FOLD: Final = {"cellRenderer": "AblateFold", "wrapText": True, "autoHeight": True, "width": 110}
"""A column of long texts, each of which opens on a click, over the width of the table."""
BY_SIZE: Final = {"type": "rightAligned", "comparator": {"function": "ablateOrder"}}
"""A column of numbers that are written as texts, such as '−23 %' or '× 4.2'."""


def link(page: str, names: str, *, under: str = "", **more: Any) -> dict[str, Any]:
    """Define a column whose cells lead to `page` with the field `names` set to the cell's text.

    On a phone, the column `under` stands below the text.
    """
    to = {"page": page, "names": names, "under": under}
    return {"cellRenderer": "AblateLink", "cellRendererParams": to, **more}


def on_phone(**parts: Any) -> dict[str, Any]:
    """Return parts of a column that hold in a window of at most 600 pixels; `place` is its rank among the others."""
    return {"place": parts.pop("place", 99), "narrow": parts}


def columns(data: pl.DataFrame, own: Mapping[str, Mapping[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Define columns for AG Grid: numbers to the right, with few digits; `own` are further parts by name."""
    return [{"field": name, **align_numbers(data[name].dtype), **(own or {}).get(name, {})} for name in data.columns]
