"""The cells of a grid, one after the other: built, asked against the rules, told apart."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, final

from grid.columns import Columns
from grid.errors import SpecError
from grid.part import NOT_APPLICABLE, Address, Part
from grid.spec import Spec, cell_key


class Place(NamedTuple):
    """Where a cell is: small enough to keep one for every cell of a grid."""

    part: int
    address: Address


class Built(NamedTuple):
    """A cell as enumeration comes to it."""

    place: Place
    trial: Spec
    key: str


@final
class Cells:
    """Enumerates and builds the cells of the grid called `name`; `seed` stands in wherever a cell needs one."""

    def __init__(self, name: str, parts: tuple[Part, ...], columns: Columns, seed: int) -> None:
        self._name, self._parts, self._columns, self._seed = name, parts, columns, seed

    def all(self, pruned: Counter[tuple[int, int]]) -> Iterator[Built]:
        """Every cell once, lazily, in order of declaration; `pruned` counts by (part, rule).

        Raises `SpecError` at a cell that cannot be built, at the second of two equal cells of a part or of two cells
        with one label, at a rule or condition that cannot be asked, and in the end when there was no cell or an axis
        never applied.
        """
        seen: dict[bytes, Place] = {}
        labels: dict[str, Place] = {}
        for number, part in enumerate(self._parts):
            applied: set[int] = set()
            for address in part.addresses():
                place = Place(number, address)
                applied.update(at for at, choice in enumerate(address) if choice != NOT_APPLICABLE)
                trial = self._kept(place, pruned)
                if trial is None:
                    continue
                key = cell_key(trial)
                if self._is_new(seen, bytes.fromhex(key), place):
                    self._require_own_label(labels, place)
                    yield Built(place, trial, key)
            self._require_use(part, applied)
        if not seen:
            raise SpecError(f"a grid has at least one cell; grid {self._name!r} has none{self._why(pruned)}")

    def build(self, place: Place, seed: int) -> Spec:
        """The trial of the cell at `place` with `seed`, validated; raises `SpecError` naming the cell."""
        part = self._parts[place.part]
        try:
            return part.builder.trial(part.chosen(part.picks(place.address)), seed)
        except SpecError as error:
            raise SpecError(f"{self._told(place)} cannot be built: {error}") from error

    def label(self, place: Place) -> str:
        """The cell's name within the grid; empty when nothing varies."""
        return self._columns.label(place.part, self._parts[place.part].picks(place.address))

    def _kept(self, place: Place, pruned: Counter[tuple[int, int]]) -> Spec | None:
        try:
            trial = self.build(place, self._seed)
        except SpecError:
            if not self._forbidden_unbuilt(place, pruned):
                raise
            return None
        try:
            rule = self._parts[place.part].forbidden_by(trial)
        except SpecError as error:
            raise SpecError(f"{self._told(place)}: {error}") from error
        if rule is not None:
            pruned[place.part, rule] += 1
        return trial if rule is None else None

    def _forbidden_unbuilt(self, place: Place, pruned: Counter[tuple[int, int]]) -> bool:
        part = self._parts[place.part]
        try:
            rule = part.forbidden_by(part.builder.draft(part.chosen(part.picks(place.address)), self._seed))
        except SpecError:  # the rules cannot be asked about it either: why it cannot be built is what to tell
            return False
        if rule is not None:
            pruned[place.part, rule] += 1
        return rule is not None

    def _is_new(self, seen: dict[bytes, Place], key: bytes, place: Place) -> bool:
        known = seen.setdefault(key, place)
        if known is not place and known.part == place.part:
            raise SpecError(
                f"every cell is another trial; {self._told(known)} and {self.label(place)!r} are the same, drop one "
                "or give the axis that makes no difference a condition, when=..."
            )
        return known is place

    def _require_own_label(self, labels: dict[str, Place], place: Place) -> None:
        label = self.label(place)
        if labels.setdefault(label, place) is not place:
            raise SpecError(
                f"every cell has a label of its own; grid {self._name!r} has two different cells called {label!r}, "
                "tell them apart with labels=[...] or one more axis"
            )

    def _require_use(self, part: Part, applied: set[int]) -> None:
        for at, path in part.conditional():
            if at not in applied:
                raise SpecError(
                    f"an axis applies to some cell; the condition of {path!r} in grid {self._name!r} never held"
                )

    def _why(self, pruned: Counter[tuple[int, int]]) -> str:
        told = [f"{self._parts[p].rules[r].reason!r} forbids {count}" for (p, r), count in pruned.most_common(3)]
        return f": {', '.join(told)}; loosen a rule" if told else ""

    def _told(self, place: Place) -> str:
        label = self.label(place)
        return f"cell {label!r} of grid {self._name!r}" if label else f"the only cell of grid {self._name!r}"
