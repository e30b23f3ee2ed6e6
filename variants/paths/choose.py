"""Choice of the execution path of an operator: the fastest that can compute it, or the path given by name."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from torch import Tensor

from grid.errors import SpecError
from variants.attend import Heads
from variants.operator import NumberValues, Operator
from variants.paths import reference, sdpa

PathName = Literal["auto", "reference", "sdpa"]


class Path(NamedTuple):
    """A way to compute an operator."""

    name: str
    cannot: Callable[[Operator], str | None]
    run: Callable[[Operator, Heads, NumberValues], Tensor]
    drops: bool
    """True if it supports dropout of weights (`Heads.dropout`)."""

    def refuses(self, operator: Operator, dropout: float) -> str | None:
        """Return why it cannot compute `operator` at this rate of dropout, or None if it can."""
        if dropout and not self.drops:
            return "it computes attention without dropout only"
        return self.cannot(operator)


PATHS = (
    Path("sdpa", sdpa.cannot, sdpa.run, drops=True),
    Path("reference", reference.cannot, reference.run, drops=True),
)
"""Fastest first."""


def choose(operator: Operator, name: PathName = "auto", *, dropout: float = 0.0) -> Path:
    """Choose the path for `operator` at this rate of dropout in training.

    Raises:
        SpecError: the named path cannot run it or does not exist.
    """
    if name == "auto":
        return next(path for path in PATHS if path.refuses(operator, dropout) is None)
    for path in PATHS:
        if path.name == name:
            reason = path.refuses(operator, dropout)
            if reason is not None:
                raise SpecError(f"path {name!r} cannot run {operator.label!r}: {reason}; use path='auto'")
            return path
    raise SpecError(f"there is no path {name!r}; there are auto, {', '.join(path.name for path in PATHS)}")
