"""Which cells the figures of a page show: those that a reader chose, or those that are worth drawing."""

from collections.abc import Sequence

from dashboards.app.page import Control, View, grid_of, options
from dashboards.problems import Unknown
from dashboards.sections.charts import chosen
from dashboards.subject import Look
from dashboards.theme import REST, cell_styles
from dashboards.words import listed

_SHOWN = 8
"""So many names stand in a sentence about one that is not there."""


def cells_control(view: View) -> Control:
    """What sets the field `cells` of an address: names of cells."""
    about = grid_of(view)
    names = [about.look.names[cell.cell] for cell in about.cells]
    return Control("cells", "Cells", "choices", options(names), "Nothing chosen: the baseline and the best")


def chosen_cells(view: View) -> tuple[Sequence[str], Look]:
    """The keys of the cells that the address names, in the grid's order, and a look that tells them apart.

    Raises:
        Unknown: it names a cell that the grid does not have.
    """
    about = grid_of(view)
    if not view.address.cells:
        return about.drawn, about.look
    known = {about.look.names[cell.cell]: cell for cell in about.cells}
    for name in view.address.cells:
        if name not in known:
            there = [*known][:_SHOWN]
            more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
            raise Unknown(f"grid {about.grid!r} has no cell {name!r}; it has {', '.join(there)}{more}")
    cells = [cell for name, cell in known.items() if name in view.address.cells]
    styles = cell_styles(cells, view.operators, about.baseline)
    look = Look(about.look.names, {cell.cell: styles.get(cell.cell, REST) for cell in about.cells})
    return [cell.cell for cell in cells], look


def chosen_words(view: View) -> str:
    """A sentence that says which cells are shown, where it is not all of them."""
    about = grid_of(view)
    cells, look = chosen_cells(view)
    if not view.address.cells:
        return chosen(about, cells)
    return f" Shown: {listed([look.names[cell] for cell in cells])}, as chosen, of {len(about.cells)} cells."
