"""The definition itself: the equation in plain tensor operations. Runs everything, everywhere."""

from torch import Tensor

from variants.attend import Heads, definition
from variants.operator import NumberValues, Operator


def cannot(operator: Operator) -> str | None:  # noqa: ARG001  (every path answers the same question)
    """Why this path cannot run `operator`: never."""
    return None


def run(operator: Operator, heads: Heads, numbers: NumberValues) -> Tensor:
    """Output [B, H, T, D]."""
    return definition(operator, heads, numbers).output
