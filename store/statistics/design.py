"""The design matrix of a grid: seeds, axes, their interactions, and an intercept for each pattern.

    y(seed, cell) = intercept(pattern) + block(seed) + sum of effect(axis) + sum of interaction(axis, axis) + noise

A pattern is a set of axes that apply to a cell. Effects of a term sum to zero over each of its axes; seeds are blocks.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ablate.grid.errors import SpecError
from ablate.grid.suggestions import suggest_name
from ablate.store.statistics.paired_differences import Floats
from ablate.store.statistics.patterns import Codes, Patterns, find_patterns

CROSS: Final = " × "  # joins the names of the axes of an interaction, and their levels
SEED: Final = "seed"
FINITE: Final = pl.col("value").is_finite().fill_null(value=False)  # whether a run has a finite value
NAMED: Final = 3  # names in a list
ONE_LEVEL: Final = "one level wherever the axis applies, so there is nothing to compare"
_LOST: Final = -2  # the place of a level without any run that has a value


class Factor(NamedTuple):
    """An axis: its levels that have a run with a value, and for each such run the place of its level, -1 for null."""

    name: str
    levels: list[str]
    codes: Codes
    planned: Codes  # the same for each planned cell
    lost: list[str]  # planned levels without any run that has a value

    @property
    def varies(self) -> bool:
        """Whether two levels are planned; if not, the axis does no more than tell patterns apart."""
        return len(self.levels) + len(self.lost) > 1

    @property
    def coding(self) -> Floats:
        """Effect coding [levels + 1, levels - 1]; the last row, of null, has zeros."""
        return np.vstack([contrasts(len(self.levels)), np.zeros((1, max(len(self.levels) - 1, 0)))])


class Term(NamedTuple):
    """Columns of the matrix that belong together; no factors for the seeds and the intercepts."""

    name: str
    factors: tuple[Factor, ...]
    at: tuple[int, ...]  # the places of the factors
    columns: slice

    @property
    def axes(self) -> frozenset[str]:
        return frozenset(factor.name for factor in self.factors)

    @property
    def without_runs(self) -> list[str]:
        """Combinations of levels of an interaction that no run with a value has, as `gate head with sink on`."""
        if len(self.factors) < 2:
            return []
        a, b = self.factors
        present = set(zip(a.codes.tolist(), b.codes.tolist(), strict=True))
        places = [(i, j) for i in range(len(a.levels)) for j in range(len(b.levels)) if (i, j) not in present]
        return [f"{a.name} {a.levels[i]} with {b.name} {b.levels[j]}" for i, j in places]

    def encode(self, codes: Codes) -> Floats:
        """Return the columns of this term for rows of `codes` [rows, factors]."""
        first, *rest = (factor.coding[codes[:, at]] for factor, at in zip(self.factors, self.at, strict=True))
        for each in rest:
            first = (first[:, :, None] * each[:, None, :]).reshape(len(codes), first.shape[1] * each.shape[1])
        return first


class Design(NamedTuple):
    """The matrix [runs, columns], its terms, and sentences on what is left out of it.

    The first term is that of the seeds. The last columns, of no term, are the intercepts.
    """

    matrix: Floats
    terms: list[Term]
    notes: list[str]
    names: list[str]  # one per factor
    codes: Codes  # [runs, factors]
    cells: Codes  # planned cells whose levels all have runs, [cells, factors]
    patterns: Patterns
    merged: tuple[int, ...] = ()  # axes beside which what hangs on them has no intercept of its own

    @property
    def tested(self) -> list[Term]:
        """Main effects and interactions."""
        return self.terms[1:]

    @property
    def intercepts(self) -> slice:
        return slice(self.terms[-1].columns.stop, self.matrix.shape[1])

    def merge_beside(self, term: Term) -> "Design":
        """Return the design in which levels that no pattern has together can be compared, if one hangs on `term`."""
        merged = tuple(each for each in term.at if len(self.patterns.apart(self.cells, each)) > 1)
        if not any(self.patterns.below[each] for each in merged):
            return self
        shared = self.patterns.intercepts(self.codes, merged)
        return self._replace(matrix=np.hstack([self.matrix[:, : self.intercepts.start], shared]), merged=merged)


def check(values: pl.DataFrame, factors: Sequence[str]) -> None:
    """Raise SpecError unless `values` has a column for the seed, the value and each of `factors`."""
    for name in (*factors, SEED, "value"):
        if name not in values.columns:
            known = values.columns
            raise SpecError(f"the column {name!r} of effects is missing; there are {known}{suggest_name(name, known)}")


def usable(values: pl.DataFrame) -> pl.DataFrame:
    """The runs with a finite value."""
    return values.filter(FINITE)


def contrasts(levels: int) -> Floats:
    """Return each level's effect in coefficients of effect coding, [levels, levels - 1]: the last is minus the sum."""
    return np.vstack([np.eye(levels - 1), -np.ones((1, levels - 1))]) if levels else np.zeros((0, 0))


def read_factors(values: pl.DataFrame, factors: Mapping[str, Sequence[str]], kept: pl.DataFrame) -> list[Factor]:
    """The axes among `factors` (name -> levels in order) that tell planned cells apart; `kept` has the runs to fit."""
    planned = values.select(pl.col(*factors).cast(pl.String)).unique(maintain_order=True) if factors else values[:0]
    axes = []
    for name, order in factors.items():
        column = kept[name].cast(pl.String)
        if planned[name].n_unique() < 2:
            continue
        wanted, present = set(planned[name].drop_nulls()), set(column.drop_nulls())
        known = [level for level in order if level in present]
        at: dict[str | None, int] = {level: place for place, level in enumerate(known)} | {None: -1}
        codes, cells = (
            np.array([at.get(level, _LOST) for level in each.to_list()], dtype=np.int64)
            for each in (column, planned[name])
        )
        axes.append(Factor(name, known, codes, cells, [level for level in order if level in wanted - present]))
    return axes


def build(values: pl.DataFrame, factors: Sequence[Factor], *, order: int, kept: pl.DataFrame) -> Design:
    """The design of the runs `kept` of the planned runs `values`; interactions of two axes with `order` 2."""
    seeds = kept[SEED].unique(maintain_order=True).to_list()
    at = {seed: place for place, seed in enumerate(seeds)}
    blocks = contrasts(len(seeds))[[at[seed] for seed in kept[SEED].to_list()]]
    codes, cells = (
        np.column_stack([np.zeros((rows, 0), dtype=np.int64), *columns])
        for rows, columns in (
            (kept.height, [factor.codes for factor in factors]),
            (len(factors[0].planned) if factors else 1, [factor.planned for factor in factors]),
        )
    )
    cells = cells[(cells != _LOST).all(1)]
    cells = cells[((cells >= 0)[:, None] == np.unique(codes >= 0, axis=0)).all(2).any(1)]
    varying = [place for place, factor in enumerate(factors) if factor.varies]
    chosen: list[tuple[int, ...]] = [(place,) for place in varying]
    notes = [
        f"{factor.name} {(*factor.levels, *factor.lost)[0]} left out: {ONE_LEVEL}"
        for factor in factors
        if not factor.varies
    ]
    for a, b in combinations(varying, 2) if order > 1 else ():
        reason = _find_uncrossed(values, factors[a].name, factors[b].name)
        chosen += [(a, b)] if reason is None else []
        notes += [] if reason is None else [reason]
    terms, parts = [Term(SEED, (), (), slice(0, blocks.shape[1]))], [blocks]
    for places in chosen:
        of, start = tuple(factors[place] for place in places), terms[-1].columns.stop
        term = Term(CROSS.join(factor.name for factor in of), of, places, slice(start, start))
        parts.append(term.encode(codes))
        terms.append(term._replace(columns=slice(start, start + parts[-1].shape[1])))
    patterns = find_patterns(cells)
    matrix = np.hstack([*parts, patterns.intercepts(codes, ())])
    return Design(matrix, terms, notes, [factor.name for factor in factors], codes, cells, patterns)


def _find_uncrossed(values: pl.DataFrame, a: str, b: str) -> str | None:
    """Why the plan has nothing to say about the interaction of two axes; None if it has.

    Levels as nodes and planned combinations as edges: interactions are the cycles of this graph.
    """
    both = values.select(a, b).drop_nulls().unique()
    if both.is_empty():
        return f"{a} and {b} never apply together, so they have no interaction"
    for one, other in ((a, b), (b, a)):
        if both[one].n_unique() == 1:
            return f"{other} applies only where {one} is {both[one][0]}, so they have no interaction"
    groups: list[set[tuple[int, str]]] = []
    for one, other in both.rows():
        touched = [group for group in groups if (0, one) in group or (1, other) in group]
        groups = [group for group in groups if group not in touched]
        groups.append({(0, one), (1, other)}.union(*touched))
    if both.height - both[a].n_unique() - both[b].n_unique() + len(groups) == 0:
        return f"the plan varies {a} and {b} one at a time, so their interaction is not in it"
    return None
