"""The definition itself: `attend` in plain tensor operations. Runs everything, everywhere."""

from torch import Tensor

from variants.operator import NumberValues, Operator, attend


def cannot(operator: Operator) -> str | None:  # noqa: ARG001  (every path answers the same question)
    """Why this path cannot run `operator`: never."""
    return None


def run(operator: Operator, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, numbers: NumberValues) -> Tensor:
    """Output [B, H, T, D]."""
    return attend(operator, q, k, v, mask=mask, numbers=numbers).output
