"""Which path computes an operator: the fastest that can, or the one asked for by name, or an error that says why."""

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
    """Whether it drops weights, as `Heads.dropout` says."""

    def refuses(self, operator: Operator, dropout: float) -> str | None:
        """Why it cannot compute `operator` with weights dropped at this rate, or None when it can."""
        if dropout and not self.drops:
            return "it computes attention without dropout only"
        return self.cannot(operator)


PATHS = (
    Path("sdpa", sdpa.cannot, sdpa.run, drops=True),
    Path("reference", reference.cannot, reference.run, drops=True),
)
"""Fastest first."""


def choose(operator: Operator, name: PathName = "auto", *, dropout: float = 0.0) -> Path:
    """The path for `operator` with weights dropped at this rate in training.

    Raises:
        SpecError: the one named cannot run it or does not exist.
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
