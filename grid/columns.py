"""Columns and labels of a grid's cells: one column per axis, one label per cell."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, final

from ablate.grid.axis import Axis, Bundle, Scalar
from ablate.grid.builder import NOT_APPLICABLE
from ablate.grid.errors import SpecError
from ablate.grid.names import axis_names
from ablate.grid.part import Part
from ablate.grid.spec import Spec

BETWEEN = " · "


@final
class Columns:
    """The axes of all parts of a grid: axes with the same path and name are one column.

    A cell's label joins the labels of the axes that vary. If one of an axis is a number, or a label of another axis,
    too, all labels of that axis are written `name=label`.
    Zipped axes that always have the same label appear once.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        groups: dict[tuple[str, str | None], list[tuple[int, Axis]]] = {}
        for number, part in enumerate(parts):
            for axis in part.axes:
                uses = groups.setdefault((axis.path, axis.name), [])
                if uses and uses[-1][0] == number:
                    raise SpecError(f"axis {axis.path!r} comes twice in one grid; give one another name=")
                uses.append((number, axis))
        self.names = tuple(axis_names(list(groups)))
        self._paths = tuple(path for path, _ in groups)
        tune = [{axis.tune for _, axis in uses} for uses in groups.values()]
        if mixed := [name for name, kinds in zip(self.names, tune, strict=True) if len(kinds) > 1]:
            raise SpecError(f"axis {mixed[0]!r} is tuned in some grids of the union and not in others; add tune=True")
        self.tuned = tuple(name for name, kinds in zip(self.names, tune, strict=True) if True in kinds)
        """Names of the nuisance axes."""
        self._labels = [
            list(dict.fromkeys(label for _, axis in uses for label in axis.labels)) for uses in groups.values()
        ]
        echoes = {id(axis) for part in parts for axis in _echoes(part)}
        varying = [
            (len(labels) > 1 or len(uses) < len(parts)) and not all(id(axis) in echoes for _, axis in uses)
            for labels, uses in zip(self._labels, groups.values(), strict=True)
        ]
        every = Counter(
            label for labels, varies in zip(self._labels, varying, strict=True) if varies for label in labels
        )
        shared = {label for label, count in every.items() if count > 1}
        place = {identity: at for at, identity in enumerate(groups)}
        bare = [all(_is_plain(axis, shared) for _, axis in uses) for uses in groups.values()]
        self._cells = [
            [
                (self.names[at], axis, _texts(axis, "" if bare[at] else f"{self.names[at]}=") if varying[at] else None)
                for axis in part.axes
                for at in (place[axis.path, axis.name],)
            ]
            for part in parts
        ]

    def label(self, part: int, picks: Sequence[int]) -> str:
        """Return the name of a cell within the grid; empty if nothing varies."""
        pairs = zip(self._cells[part], picks, strict=True)
        return BETWEEN.join([texts[pick] for (_, _, texts), pick in pairs if texts and pick != NOT_APPLICABLE])

    def row(self, part: int, picks: Sequence[int]) -> dict[str, Scalar]:
        """Return a cell's value in each column; None if an axis does not apply."""
        row: dict[str, Scalar] = dict.fromkeys(self.names)
        for (name, axis, _), pick in zip(self._cells[part], picks, strict=True):
            if pick != NOT_APPLICABLE:
                row[name] = axis.scalars[pick]
        return row

    def equals(self, part: int, picks: Sequence[int], name: str, wanted: object) -> bool:
        """Return True if a cell has the label or value `wanted` in column `name`; None means that it does not apply."""
        for (column, axis, _), pick in zip(self._cells[part], picks, strict=True):
            if column == name and pick != NOT_APPLICABLE:
                return wanted in (axis.labels[pick], axis.values[pick], axis.scalars[pick])
        return wanted is None

    def labels(self, name: str) -> list[str]:
        """Return every label of a column, in order of declaration."""
        return self._labels[self.names.index(name)]

    def header(self) -> list[dict[str, Any]]:
        """Return the `axes` of a grid's header."""
        zipped = zip(self._paths, self.names, self._labels, strict=True)
        return [
            {"path": path, "name": name, "labels": labels, **({"tune": True} if name in self.tuned else {})}
            for path, name, labels in zipped
        ]


def _echoes(part: Part) -> Iterator[Axis]:
    """Yield zipped axes that have the label of the first axis in every choice."""
    for bundle in part.dimensions:
        if isinstance(bundle, Bundle):
            first, *others = bundle.axes
            for place, axis in enumerate(others, start=1):
                if all(axis.labels[choice[place]] == first.labels[choice[0]] for choice in bundle.choices):
                    yield axis


def _is_plain(axis: Axis, shared: set[str]) -> bool:
    """True if the labels of an axis say what they are without its name."""
    speak = axis.named or all(isinstance(value, str | tuple | Spec) for value in axis.values)
    return speak and shared.isdisjoint(axis.labels)


def _texts(axis: Axis, before: str) -> tuple[str, ...]:
    return tuple(before + label for label in axis.labels)
