"""The baseline of a grid, or of each of its cells."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ablate.grid.axis import Scalar
from ablate.grid.columns import Columns
from ablate.grid.errors import SpecError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name


class Agreement(NamedTuple):
    """How far a cell agrees with the baseline that a grid names."""

    agrees: int
    """Axes of the baseline on which it agrees."""
    label: str
    cell: str
    others: tuple[Scalar, ...]
    """Its levels on the other axes that are not tuned; None if an axis does not apply."""
    tuned: tuple[Scalar, ...]
    """Its levels on the nuisance axes."""

    def fits(self, baseline: "Agreement") -> bool:
        """Return True if both have the same level on every axis that applies to both."""
        pairs = zip(self.others, baseline.others, strict=True)
        return all(mine is None or its is None or mine == its for mine, its in pairs)


def find_baselines(
    grid: str, wanted: Mapping[str, object], columns: Columns, agreed: Sequence[Agreement]
) -> tuple[str, dict[str, str]]:
    """Return the first cell that has every wanted level, and the baseline of each cell if there are several."""
    best = max(one.agrees for one in agreed)
    nearest = [one for one in agreed if one.agrees == best]
    nearby = some([repr(one.label) for one in nearest], 3)
    told = ", ".join(f"{name}={getattr(value, 'label', value)!r}" for name, value in wanted.items())
    if best < len(wanted):
        near = "".join(
            suggest_name(str(value), columns.labels(name))
            for name, value in wanted.items()
            if isinstance(value, str) and value not in columns.labels(name)
        )
        raise SpecError(f"grid {grid!r} has no cell {told} for its baseline; near: {nearby}{near}")
    if len(nearest) == 1:
        return nearest[0].cell, {}
    exact = {(one.others, one.tuned): one.cell for one in nearest}
    matched = {}
    for one in agreed:
        if one.agrees < best:
            own = exact.get((one.others, one.tuned))
            fitting = [own] if own else [*{each.others: each.cell for each in nearest if one.fits(each)}.values()]
            if len(fitting) != 1:
                raise SpecError(
                    f"the baseline of grid {grid!r}, {told}, selects {nearby}, of which {len(fitting)} fit the cell "
                    f"{one.label!r}; name more axes"
                )
            matched[one.cell] = fitting[0]
    return nearest[0].cell, matched
