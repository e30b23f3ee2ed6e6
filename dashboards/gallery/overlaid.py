"""Printed values as marks on a figure of one's own results."""

from typing import Final

import polars as pl

from dashboards.gallery.item import Item
from dashboards.subject import Subject
from store.published.reading import cells

_SCHEMA: Final = {
    **dict.fromkeys(("key", "series"), pl.String),
    **dict.fromkeys(("x", "value"), pl.Float64),
    **dict.fromkeys(("printed", "color"), pl.String),
}


def overlaid(about: Subject, item: Item) -> pl.DataFrame:
    """What the papers print of the operators that are drawn: key (the cell), series, x, value, printed, color.

    `value` is in the unit of the measurement here. Values that the paper itself contradicts are left out, and with
    several cells of an operator only the first has marks.
    """
    if item.printed is None:
        return pl.DataFrame(schema=_SCHEMA)
    found = about.store.sql(
        "SELECT DISTINCT o.cell, o.operator, to_json(o.arguments)::VARCHAR AS arguments FROM v_published_operator o "
        "JOIN grid_trial g USING (cell) WHERE g.grid = $grid",
        {"grid": about.grid},
    )
    place = {cell: i for i, cell in enumerate(about.drawn)}
    first: dict[tuple[str, str], str] = {}
    for cell, operator, arguments in sorted(found.iter_rows(), key=lambda row: place.get(row[0], len(place))):
        if cell in place:
            first.setdefault((operator, arguments), cell)
    rows = []
    for each in cells():
        here = (each.paper, each.paper_table) == (item.paper, item.printed.table) and each.measurement is not None
        if not here or each.value is None or each.unusable or item.printed.x not in each.point:
            continue
        arguments = "{" + ",".join(f'"{name}":"{value}"' for name, value in sorted(each.arguments.items())) + "}"
        cell = first.get((str(each.operator), arguments))
        if cell is not None:
            name, color = about.look.names[cell], about.look.styles[cell].color
            rows.append((cell, name, each.point[item.printed.x], each.value * each.factor, each.printed, color))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
