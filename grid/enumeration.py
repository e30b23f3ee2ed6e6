"""Enumeration of a grid's cells: build each, apply the rules, and check that all differ."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, final

from ablate.grid.builder import NOT_APPLICABLE
from ablate.grid.columns import Columns
from ablate.grid.errors import SpecError
from ablate.grid.experiment import Experiment
from ablate.grid.part import Address, Part, Picks
from ablate.grid.spec import cell_key


class CellPosition(NamedTuple):
    """Part and address of a cell: small enough to keep one for every cell."""

    part: int
    address: Address


class Cell(NamedTuple):
    """A cell: position, index of each axis's value, label, first trial and key."""

    place: CellPosition
    picks: Picks
    label: str
    trial: Experiment
    key: str


Pruned = Counter[tuple[int, int]]
"""Number of cells that each rule forbade, by (part, rule)."""


@final
class CellEnumerator:
    """Enumerates and builds the cells of grid `name`, with `seed` in the first trials."""

    def __init__(self, name: str, parts: tuple[Part, ...], columns: Columns, seed: int) -> None:
        self._name, self._parts, self._columns, self._seed = name, parts, columns, seed

    def all(self, pruned: Pruned) -> Iterator[Cell]:
        """Yield every cell once, in order of declaration; count forbidden cells in `pruned`.

        Raises `SpecError` if a cell cannot be built, two cells of a part are equal, two cells share a label, or a rule
        or condition fails. It also raises if there is no cell or an axis never applies.
        """
        seen: dict[bytes, CellPosition] = {}
        labels: set[str] = set()
        for number, part in enumerate(self._parts):
            applied: set[int] = set()
            for address in part.addresses():
                applied.update(at for at in part.conditional if address[at] != NOT_APPLICABLE)
                cell = self._cell(CellPosition(number, address), pruned)
                if cell is None or not self._is_new(seen, cell):
                    continue
                if cell.label in labels:
                    raise SpecError(
                        f"grid {self._name!r} has two different cells called {cell.label!r}; tell them apart with "
                        "labels=[...] or one more axis"
                    )
                labels.add(cell.label)
                yield cell
            for at, path in part.conditional.items():
                if at not in applied:
                    raise SpecError(
                        f"the condition of {path!r} in grid {self._name!r} never held; correct its when= or drop the "
                        "axis"
                    )
        if not seen:
            told = [f"{self._parts[p].rules[r].reason!r} forbids {count}" for (p, r), count in pruned.most_common(3)]
            why = f": {', '.join(told)}; loosen a rule" if told else ""
            raise SpecError(f"grid {self._name!r} has no cell{why}")

    def build(self, part: int, picks: Picks, seed: int) -> Experiment:
        """Build the trial of a cell with `seed`; raise `SpecError` with the cell's name."""
        try:
            return self._parts[part].builder.trial(picks, seed)
        except SpecError as error:
            raise SpecError(f"{self._describe(part, picks)} cannot be built: {error}") from error

    def _cell(self, place: CellPosition, pruned: Pruned) -> Cell | None:
        number, part = place.part, self._parts[place.part]
        picks = part.picks(place.address)
        try:
            trial = self.build(number, picks, self._seed)
        except SpecError:
            rule = None
            with suppress(SpecError):  # no rule applies: it is reported why the trial cannot be built
                rule = part.forbidden_by(part.builder.draft(picks, self._seed))
            if rule is None:
                raise
        else:
            try:
                rule = part.forbidden_by(trial)
            except SpecError as error:
                raise SpecError(f"{self._describe(number, picks)}: {error}") from error
        if rule is not None:
            pruned[number, rule] += 1
            return None
        return Cell(place, picks, self._columns.label(number, picks), trial, cell_key(trial))

    def _is_new(self, seen: dict[bytes, CellPosition], cell: Cell) -> bool:
        known = seen.setdefault(bytes.fromhex(cell.key), cell.place)
        if known is not cell.place and known.part == cell.place.part:
            first = self._describe(known.part, self._parts[known.part].picks(known.address))
            raise SpecError(
                f"{first} and {cell.label!r} are the same trial; drop one or give the axis that makes no difference a "
                "condition, when=..."
            )
        return known is cell.place

    def _describe(self, part: int, picks: Picks) -> str:
        label = self._columns.label(part, picks)
        return f"cell {label!r} of grid {self._name!r}" if label else f"the only cell of grid {self._name!r}"
