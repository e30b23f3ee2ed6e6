"""Which cells share an intercept: those to which the same axes apply.

Cells to which different axes apply, such as those of two grids of a union, differ by more than by levels. An axis
*hangs on* others if their levels decide where it applies, as `placement` does if it applies only where `operator` is
SSA. No pattern then has both levels of `operator`. So what comes with a level is part of what the level does: beside
`operator`, cells with `placement` and without it share an intercept. Two levels that have each an axis which the other
lacks do not.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.store.statistics.paired_differences import Floats

Codes = NDArray[np.int64]
"""The place of a level, -1 where an axis does not apply; [cells, axes] or [cells]."""


class Patterns(NamedTuple):
    """The sets of axes that apply together, and the axes that hang on each axis."""

    applies: NDArray[np.bool_]  # [patterns, axes]
    below: list[set[int]]

    def groups(self, codes: Codes, beside: Sequence[int]) -> Codes:
        """Return the number of the intercept of each row of `codes` [rows, axes] beside the axes `beside`."""
        if not len(codes):  # and perhaps no pattern
            return np.zeros(0, dtype=np.int64)
        place = ((codes >= 0)[:, None] == self.applies).all(2).argmax(1)
        return np.asarray(self._merge(beside)[place])

    def intercepts(self, codes: Codes, beside: Sequence[int]) -> Floats:
        """Return a column per intercept: 1 for the rows of `codes` that have it."""
        return np.eye(self._merge(beside).max(initial=-1) + 1)[self.groups(codes, beside)]

    def apart(self, cells: Codes, axis: int, beside: Sequence[int] = ()) -> list[tuple[set[int], set[int]]]:
        """Group the levels of `axis` that intercepts beside `beside` let compare, each group with the axes near it."""
        cells = cells[cells[:, axis] >= 0]
        groups, parts = self.groups(cells, beside), list[tuple[set[int], set[int]]]()
        for group in np.unique(groups):
            here = cells[groups == group]
            levels, axes = set(here[:, axis].tolist()), set(np.flatnonzero((here >= 0).any(0)).tolist()) - {axis}
            for part in [part for part in parts if part[0] & levels]:
                parts.remove(part)
                levels, axes = levels | part[0], axes | part[1]
            parts.append((levels, axes))
        return parts

    def _merge(self, axes: Sequence[int]) -> Codes:
        """Number the intercept of each pattern. Without `axes` each has its own.

        Patterns that differ by what hangs on `axes` share one, if one of them has all that the other has.
        """
        free = np.zeros(self.applies.shape[1], dtype=bool)
        free[[each for axis in axes for each in self.below[axis]]] = True
        groups = np.arange(len(self.applies))
        for i, j in combinations(range(len(self.applies)), 2):
            one, other = self.applies[i], self.applies[j]
            nested = (one <= other).all() or (other <= one).all()
            if nested and (one & other)[[*axes]].all() and free[one != other].all():
                groups[groups == groups[j]] = groups[i]
        return np.asarray(np.unique(groups, return_inverse=True)[1])


def find_patterns(cells: Codes) -> Patterns:
    """Find the patterns of `cells` [cells, axes], and what hangs on each axis, also through others."""
    applies, axes = cells >= 0, range(cells.shape[1])
    below = [set[int]() for _ in axes]
    for axis in axes:
        deciding = [each for each in axes if each != axis and applies[applies[:, axis], each].all()]
        near = cells[applies[:, deciding].all(1)]  # which could have the axis
        if not _decide(near, deciding, axis):
            continue
        for each in [*deciding]:
            fewer = [other for other in deciding if other != each]
            deciding = fewer if _decide(near, fewer, axis) else deciding
        for each in deciding:
            below[each].add(axis)
    for _ in axes:
        for of in below:
            of.update(*[below[each] for each in of])
    return Patterns(np.unique(applies, axis=0), below)


def _decide(cells: Codes, axes: Sequence[int], axis: int) -> bool:
    """True if `axis` applies to some of `cells` and not to all, and levels of `axes` tell to which."""
    there = cells[:, axis] >= 0
    if not axes or there.all() or not there.any():
        return False
    levels = np.unique(cells[:, axes], axis=0)
    return len(levels) == len(np.unique(np.column_stack([cells[:, axes], there]), axis=0))
