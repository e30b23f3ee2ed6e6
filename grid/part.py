"""A part of a grid: one base with its axes and rules, the addresses of its cells, and their trials.

An address is one choice per dimension, -1 if a dimension does not apply. Dimensions without a condition come first, so
that conditions see all of them.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import final

from ablate.grid.axis import Dimension
from ablate.grid.builder import NOT_APPLICABLE, Builder
from ablate.grid.errors import SpecError
from ablate.grid.experiment import Experiment
from ablate.grid.path import value_at
from ablate.grid.rule import CellRule, verdict

Address = tuple[int, ...]
"""One choice per dimension, those without a condition first."""

Picks = Sequence[int]
"""The index of the value of each axis, in order of declaration, or NOT_APPLICABLE."""


@final
class Part:
    """A product of dimensions over one base trial; a grid is one part, a union of grids several."""

    def __init__(self, base: Experiment, dimensions: tuple[Dimension, ...], rules: tuple[CellRule, ...]) -> None:
        self.base, self.dimensions, self.rules = base, dimensions, rules
        self.axes = tuple(chain.from_iterable(dimension.axes for dimension in dimensions))
        """Every axis, in order of declaration."""
        self.builder = Builder(base, self.axes)
        self._order = sorted(range(len(dimensions)), key=lambda at: dimensions[at].when is not None)
        self._starts = list(accumulate((len(dimension.axes) for dimension in dimensions), initial=0))
        ordered = [dimensions[at] for at in self._order]
        self.conditional = {at: each.axes[0].path for at, each in enumerate(ordered) if each.when is not None}
        """Conditional dimensions: place in an address -> path of the first axis."""

    def check(self) -> None:
        """Raise `SpecError` for the path "seed", and for an unconditional path that does not exist.

        Conditional paths, and those inside a field that another axis replaces, are checked when a cell is built.
        """
        free = [axis.path for dimension in self.dimensions if dimension.when is None for axis in dimension.axes]
        for axis in self.axes:
            if axis.path == "seed":
                raise SpecError(
                    "axis 'seed' varies the seeds, which are replicates of a cell; give them as Grid(seeds=...)"
                )
        for path in free:
            if not any(path.startswith(f"{other}.") for other in free):
                value_at(self.base, path)

    def addresses(self, begun: Address = ()) -> Iterator[Address]:
        """Yield every address from `begun` on whose conditions hold; the last dimension varies fastest."""
        if len(begun) == len(self._order):
            yield begun
            return
        dimension = self.dimensions[self._order[len(begun)]]
        count = len(dimension.choices) if self._applies(dimension, begun) else 0
        for choice in range(count) if count else (NOT_APPLICABLE,):
            yield from self.addresses((*begun, choice))

    def picks(self, address: Address) -> Picks:
        """Return the index of each axis's value, or NOT_APPLICABLE."""
        places = [NOT_APPLICABLE] * len(self.axes)
        for at, choice in zip(self._order, address, strict=False):
            if choice != NOT_APPLICABLE:
                start, dimension = self._starts[at], self.dimensions[at]
                places[start : start + len(dimension.axes)] = dimension.choices[choice]
        return places

    def forbidden_by(self, trial: Experiment) -> int | None:
        """Return the index of the first rule that forbids `trial`; raise `SpecError` if a predicate fails."""
        for at, rule in enumerate(self.rules):
            if verdict(rule.predicate, trial, f"rule {rule.reason!r}"):
                return at
        return None

    def _applies(self, dimension: Dimension, address: Address) -> bool:
        if dimension.when is None:
            return True
        picks = self.picks(address)
        try:
            return verdict(dimension.when, self.builder.draft(picks, 0), "it")
        except SpecError as error:
            pairs = zip(self.axes, picks, strict=True)
            cell = ", ".join(f"{axis.path}={axis.labels[pick]}" for axis, pick in pairs if pick != NOT_APPLICABLE)
            where = f"the condition of axis {dimension.axes[0].path!r} at cell {cell!r}"
            raise SpecError(f"{where}: {error}") from error
