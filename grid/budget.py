"""The training budget of cells that are tuned: no nuisance axis may change it."""

from typing import Final, final

from ablate.grid.axis import Scalar
from ablate.grid.columns import Columns
from ablate.grid.enumeration import Cell
from ablate.grid.errors import SpecError
from ablate.grid.path import has, value_at

_STEPS: Final = "training.steps"
"""Runs that differ in it are not compared."""


@final
class Budgets:
    """The budget of each setting: of all cells that differ on nuisance axes alone."""

    def __init__(self, grid: str, columns: Columns) -> None:
        self._grid, self._columns = grid, columns
        self._found: dict[tuple[Scalar, ...], object] = {}

    def add(self, cell: Cell) -> None:
        """Raise `SpecError` if a cell has another budget than the cells of its setting before."""
        if not self._columns.tuned or not has(_STEPS)(cell.trial):
            return
        row, own = self._columns.row(cell.place.part, cell.picks), value_at(cell.trial, _STEPS)
        setting = tuple(value for name, value in row.items() if name not in self._columns.tuned)
        first = self._found.setdefault(setting, own)
        if own != first:
            raise SpecError(
                f"grid {self._grid!r} tunes {', '.join(self._columns.tuned)}, which changes {_STEPS} from {first} to "
                f"{own} at {cell.label!r}; cells are compared at one budget: leave tune=True out, or give all levels "
                "the same steps"
            )
