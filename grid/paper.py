"""Tables and figures of a paper as named grids: at several scales, or with the reason why there is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, final

from ablate.grid.docstrings import docstring
from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.suggestions import suggest_name

if TYPE_CHECKING:
    from ablate.grid.grid import Grid

PaperScale = Literal["paper", "gpu", "cpu"]
SCALES: Final[Sequence[PaperScale]] = ("paper", "gpu", "cpu")
"""The setting of the paper; an hour of one accelerator per table; ten minutes of two cores per table."""


class PaperItem(NamedTuple):
    """A table or figure: a grid at each scale, a view of another item's grid, or the reason why it is neither."""

    name: str
    """ "table1", "figure3"."""
    make: "Callable[[PaperScale], Grid] | None" = None
    of: str = ""
    """The item whose grid has its measurements."""
    reason: str = ""
    scales: Sequence[PaperScale] = SCALES

    @property
    def title(self) -> str:
        """The first line of the docstring of `make`."""
        return (docstring(self.make) if self.make else "").partition("\n")[0].rstrip(".")


@final
@dataclass(frozen=True)
class PaperGrids:
    """All tables and figures of a paper. A spec file that assigns one defines all of its grids.

    Raises SpecError if two items share a name, or an item is not exactly one of a grid, a view of a grid and a reason.
    """

    number: str
    """ "003"."""
    items: Sequence[PaperItem]

    def __post_init__(self) -> None:
        known = {each.name: each for each in self.items}
        if len(known) < len(self.items):
            raise SpecError(f"paper {self.number} repeats a name of its items; rename one")
        for each in self.items:
            of = f"{each.name!r} of paper {self.number} has"
            if (each.make is not None) + bool(each.of) + bool(each.reason) != 1:
                raise SpecError(f"{of} none or several of make, of and reason; give one")
            if each.of and (each.of not in known or known[each.of].make is None):
                raise SpecError(f"{of} of={each.of!r}, which is no item with a grid; name one")

    def item(self, name: str) -> PaperItem:
        """Return an item; raise NotFoundError if there is none of this name."""
        known = {each.name: each for each in self.items}
        if name in known:
            return known[name]
        near = suggest_name(name, list(known))
        raise NotFoundError(f"paper {self.number} has no {name!r}; it has {', '.join(known)}{near}")

    def grid_item(self, name: str) -> PaperItem:
        """Return the item that has the grid of `name`, itself or the one it is a view of, or raise NotFoundError."""
        item = self.item(name)
        if item.reason:
            raise NotFoundError(f"{name} of paper {self.number} is no grid: {item.reason}")
        return self.item(item.of) if item.of else item

    def grid_name(self, name: str, scale: PaperScale) -> str:
        """Return the name of the grid of an item, such as "table1-cpu"; raise NotFoundError if there is none."""
        item = self.grid_item(name)
        if scale not in item.scales:
            scales = ", ".join(item.scales)
            raise NotFoundError(f"{name} of paper {self.number} has no scale {scale!r}; it has {scales}")
        return f"{item.name}-{scale}"

    @cached_property
    def grids(self) -> "Mapping[str, Grid]":
        """Every grid at every scale, by its name."""
        return {
            self.grid_name(each.name, scale): each.make(scale).named(self.grid_name(each.name, scale))
            for each in self.items
            if each.make is not None
            for scale in each.scales
        }
