"""Claims of the papers: an operator against the baseline of the same table, model, setup and metric."""

import math
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from store.published.tables import PublishedCell, cells

_QUANTILE = 1.959964
"""Two-sided 95 % of the normal distribution."""


class PublishedClaim(NamedTuple):
    """Two cells of one table."""

    cell: PublishedCell
    base: PublishedCell

    @property
    def words(self) -> str:
        """The label of the claim: `SSA against Softmax · 5`."""
        cell, base = self.cell, self.base
        if base.row_label != cell.row_label:
            return f"{cell.row_label} against {base.row_label} · {cell.column_label}"
        return f"{cell.column_label} against {base.column_label} · {cell.row_label}"

    @property
    def difference(self) -> float | None:
        """Cell less baseline in the printed unit, on the log scale of logarithms; None where a number is missing."""
        value, base = self.cell.value, self.base.value
        if value is None or base is None:
            return None
        if self.cell.scale == "linear":
            return value - base
        return math.log(value) - math.log(base) if value > 0 and base > 0 else None

    @property
    def noise(self) -> float | None:
        """Half of a 95 % interval of the difference over test items, unpaired; None where no error is known."""
        errors = [_error(self.cell), _error(self.base)]
        if self.cell.scale == "log" or errors[0] is None or errors[1] is None:
            return None
        return _QUANTILE * math.hypot(errors[0], errors[1])


def claims(chosen: Iterable[PublishedCell]) -> list[PublishedClaim]:
    """The claims of the cells that are `chosen`, in their order."""
    bases = {_place(each): each for each in cells() if each.baseline}
    return [
        PublishedClaim(each, bases[_place(each)])
        for each in chosen
        if each.operator is not None and not each.baseline and _place(each) in bases
    ]


def _place(cell: PublishedCell) -> Hashable:
    """Return the key that two compared cells share."""
    point, setup = tuple(sorted(cell.point.items())), tuple(sorted(cell.setup.items()))
    return cell.paper, cell.paper_table, cell.metric, point, cell.model, setup


def _error(cell: PublishedCell) -> float | None:
    return cell.uncertainty if cell.uncertainty is not None else cell.binomial_se
