"""The baseline: the cell of a grid that the others are compared with."""

from collections.abc import Callable, Mapping
from typing import final

from grid.errors import SpecError

SHOWN = 3


@final
class Baseline:
    """Finds the cell with every wanted label or value, and keeps the nearest cells for the error."""

    def __init__(self, wanted: Mapping[str, object]) -> None:
        self._wanted = wanted
        self._best = 0
        self._keys: list[str] = []
        self._labels: list[str] = []

    def offer(self, key: str, label: str, has: Callable[[str, object], bool]) -> None:
        """Consider a cell; `has(axis name, wanted)` is True if it agrees on this axis."""
        agreed = sum(has(name, wanted) for name, wanted in self._wanted.items())
        if agreed > self._best:
            self._best, self._keys, self._labels = agreed, [], []
        if agreed == self._best and len(self._keys) <= SHOWN:
            self._keys.append(key)
            self._labels.append(label)

    def key(self, grid: str) -> str:
        """Return the cell's key; raise `SpecError` with the nearest cells unless exactly one fits."""
        some = ", ".join(map(repr, self._labels[:SHOWN])) + (", ..." if len(self._labels) > SHOWN else "")
        if self._best < len(self._wanted):
            raise SpecError(
                f"the baseline of grid {grid!r} is one of its cells; no cell has {self._describe()}, near: {some}"
            )
        if len(self._keys) > 1:
            raise SpecError(
                f"the baseline of grid {grid!r} is one cell; {self._describe()} selects {some}, name more axes"
            )
        return self._keys[0]

    def _describe(self) -> str:
        return ", ".join(f"{name}={getattr(value, 'label', value)!r}" for name, value in self._wanted.items())
