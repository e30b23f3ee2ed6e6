"""Divide by the sum over visible keys: weights are a distribution.

w_ij = f_ij / sum_j f_ij          a query that sees nothing gets 0
"""

from collections.abc import Callable
from typing import ClassVar, Literal

from variants.scored import Scores
from variants.stages import Normaliser, Weights


class Total(Normaliser):
    """Weights sum to one over the visible keys."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["total"] = "total"

    def weights(self, scores: Scores) -> Weights:
        f = scores.relative().f
        return Weights(f / f.sum(-1, keepdim=True).clamp(min=1e-30), None)

    def oracle(self, f: list[float], score: Callable[[float], float]) -> tuple[list[float], float]:  # noqa: ARG002
        total = sum(f)
        return [each / total if total else 0.0 for each in f], 0.0
