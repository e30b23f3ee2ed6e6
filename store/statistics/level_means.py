"""Means of levels in coefficients of a design, and the levels that it cannot compare."""

from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from ablate.grid.names import some
from ablate.store.statistics.design import NAMED, Design, Term
from ablate.store.statistics.paired_differences import Floats

EQUAL: Final = 1e-9  # coefficients that differ by less are equal


class LevelMean(NamedTuple):
    """The mean at a level of an axis, or at levels of two axes, in coefficients."""

    places: tuple[int, ...]
    runs: int
    row: Floats  # with other axes as in the planned cells, and with all seeds
    own: Floats  # the mean of its runs; zeros without any

    @property
    def adjusted(self) -> bool:
        """Whether its own runs have another mean."""
        return bool(self.runs and np.abs(self.row - self.own).max(initial=0) > EQUAL)


def level_means(design: Design, term: Term) -> Iterator[LevelMean]:
    """The mean at each combination of levels of `term`; `design` is that beside it.

    Other axes are as in all planned cells whose intercept levels share, but an axis that hangs on the term as in the
    planned cells of the combination. Empty if no planned cell with runs has levels of all axes of the term.
    """
    cells, at = design.cells, [*term.at]
    groups, here = design.patterns.groups(cells, design.merged), (cells[:, at] >= 0).all(1)
    several = [g for g in set(groups[here]) if all(len({*cells[groups == g, each]}) > 1 for each in at)]
    inside = here & np.isin(groups, several) if several else here
    if not here.any():
        return
    hanging = set().union(*(design.patterns.below[each] for each in design.merged))
    intercepts = design.patterns.intercepts(cells, design.merged)[inside].mean(0)
    alike = {
        each.name: each.encode(cells[inside]).mean(0)
        for each in design.tested
        if not {*at, *hanging}.intersection(each.at)
    }
    for places in product(*(range(len(factor.levels)) for factor in term.factors)):
        own = inside & (cells[:, at] == places).all(1)
        row = np.zeros(design.matrix.shape[1])
        row[design.intercepts] = intercepts
        for each in design.tested:
            if each.name in alike:
                row[each.columns] = alike[each.name]
                continue
            among = cells[own if own.any() and hanging.intersection(each.at) else inside]
            among = among[:1] if each.at == term.at else among  # its rows become alike
            among[:, at] = places
            row[each.columns] = each.encode(among).mean(0)
        runs = (design.codes[:, at] == places).all(1)
        mean = design.matrix[runs].mean(0) if runs.any() else np.zeros_like(row)
        yield LevelMean(places, int(runs.sum()), row, mean)


def name_levels(term: Term, places: tuple[int, ...]) -> list[str]:
    """The names of the levels of a combination."""
    return [factor.levels[place] for factor, place in zip(term.factors, places, strict=True)]


def name_own_axes(design: Design, term: Term) -> list[str]:
    """Say which levels of an axis have axes of their own, over which they are averaged; empty if none has any."""
    told = []
    for at, factor in zip(term.at, term.factors, strict=True) if term.at == design.merged else ():
        for place, level in enumerate(factor.levels):
            there = (design.cells[design.cells[:, at] == place] >= 0).any(0)
            own = [design.names[each] for each in sorted(design.patterns.below[at]) if there[each]]
            told += [f"{level} over {' and '.join(own)}"] if own else []
    return [f"averaged over axes of its own: {some(told, NAMED)}"] if told else []


def name_apart(design: Design, term: Term) -> list[str]:
    """Say which levels of an axis cannot be compared, as they apply beside different axes; empty if all can."""
    if len(term.at) > 1:
        return []
    ((at,), (factor,)) = term.at, term.factors
    parts = design.patterns.apart(design.cells, at, design.merged)
    if len(parts) < 2:
        return []
    told = [
        f"{' and '.join(factor.levels[each] for each in sorted(levels))} beside "
        f"{' and '.join(design.names[each] for each in sorted(axes)) or 'none'}"
        for levels, axes in parts
    ]
    return [
        f"levels beside different axes are not compared: {some(told, NAMED)}; give them the same axes to compare them"
    ]
