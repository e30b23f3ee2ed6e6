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


PATHS = (Path("sdpa", sdpa.cannot, sdpa.run), Path("reference", reference.cannot, reference.run))
"""Fastest first."""


def choose(operator: Operator, name: PathName = "auto") -> Path:
    """The path for `operator`. SpecError when the one named cannot run it or does not exist."""
    if name == "auto":
        return next(path for path in PATHS if path.cannot(operator) is None)
    for path in PATHS:
        if path.name == name:
            reason = path.cannot(operator)
            if reason is not None:
                raise SpecError(f"path {name!r} cannot run {operator.label!r}: {reason}; use path='auto'")
            return path
    raise SpecError(f"there is no path {name!r}; there are auto, {', '.join(path.name for path in PATHS)}")
