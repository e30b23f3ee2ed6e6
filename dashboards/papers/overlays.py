"""Printed values as marks on a figure of one's own results."""

from typing import Final

import polars as pl

from dashboards.data.grid_context import GridContext
from dashboards.papers.item import Item
from dashboards.papers.paper_tables import beside, printed_table

_SCHEMA: Final = {
    **dict.fromkeys(("key", "series"), pl.String),
    **dict.fromkeys(("x", "value"), pl.Float64),
    **dict.fromkeys(("printed", "color"), pl.String),
}


def overlaid(about: GridContext, item: Item) -> pl.DataFrame:
    """Return printed values for the drawn cells: key (the cell), series, x, value, printed, color.

    `value` has the unit of the measurement here. Values that the paper itself contradicts are left out, and so are
    values of cells that the grid has and that are not drawn.
    """
    if item.printed is None:
        return pl.DataFrame(schema=_SCHEMA)
    rows = []
    for cell, own, *_ in beside(about, printed_table(item.paper, item.printed.number)):
        if own is None or own.cell not in about.drawn or cell.value is None or cell.unusable:
            continue
        if item.printed.x in cell.point:
            name, color = about.look.names[own.cell], about.look.styles[own.cell].color
            rows.append((own.cell, name, cell.point[item.printed.x], cell.value * cell.factor, cell.printed, color))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
