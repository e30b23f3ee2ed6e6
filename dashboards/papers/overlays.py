"""Printed values as marks on a figure of one's own results."""

from typing import Final

import polars as pl

from dashboards.data.grid_context import GridContext
from dashboards.papers.item import Item
from dashboards.papers.paper_tables import pair_with_own, printed_table

_SCHEMA: Final = {
    **dict.fromkeys(("key", "series"), pl.String),
    **dict.fromkeys(("x", "value"), pl.Float64),
    **dict.fromkeys(("printed", "color"), pl.String),
}


def overlaid(about: GridContext, item: Item) -> pl.DataFrame:
    """Return the printed values of the drawn cells: key (the cell), series, x, value, printed, color.

    `value` is in the unit of the measurement here. Values that the paper itself contradicts are left out, and so is
    what is printed where the grid has a cell that is not drawn.
    """
    if item.printed is None:
        return pl.DataFrame(schema=_SCHEMA)
    rows = []
    for cell, own, *_ in pair_with_own(about, printed_table(item.paper, item.printed.number)):
        if own is None or own.cell not in about.drawn or cell.value is None or cell.unusable:
            continue
        if item.printed.x in cell.point:
            name, color = about.look.names[own.cell], about.look.styles[own.cell].color
            rows.append((own.cell, name, cell.point[item.printed.x], cell.value * cell.factor, cell.printed, color))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
