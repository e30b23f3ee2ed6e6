"""Choice of the execution path of an operator: the fastest that can compute it, or the path given by name."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from torch import Tensor

from grid.errors import SpecError
from variants.attend import Heads, definition
from variants.operator import NumberValues, Operator
from variants.paths import linear, sdpa

PathName = Literal["auto", "reference", "sdpa", "linear"]


class Path(NamedTuple):
    """A way to compute an operator."""

    name: str
    cannot: Callable[[Operator], str | None]
    """Return why it cannot compute an operator, or None if it can."""
    run: Callable[[Operator, Heads, NumberValues], Tensor]


def _run_definition(operator: Operator, heads: Heads, numbers: NumberValues) -> Tensor:
    return definition(operator, heads, numbers).output


PATHS = (
    Path("sdpa", sdpa.cannot, sdpa.run),
    Path("linear", linear.cannot, linear.run),
    Path("reference", lambda _: None, _run_definition),
)
"""Fastest first. The last is the definition in plain tensor operations, which runs every operator."""


def choose(operator: Operator, name: PathName = "auto") -> Path:
    """Choose the path for `operator`.

    Raises:
        SpecError: the named path cannot run it or does not exist.
    """
    if name == "auto":
        return next(path for path in PATHS if path.cannot(operator) is None)
    for path in PATHS:
        if path.name == name:
            reason = path.cannot(operator)
            if reason is not None:
                raise SpecError(f"path {name!r} cannot run {operator.label!r}: {reason}; use path='auto'")
            return path
    raise SpecError(f"there is no path {name!r}; there are auto, {', '.join(path.name for path in PATHS)}")
