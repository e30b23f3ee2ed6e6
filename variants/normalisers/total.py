"""Divide by the sum over visible keys: weights are a distribution.

w_ij = f_ij / sum_j f_ij          a query that sees nothing gets 0
"""

from collections.abc import Callable
from typing import ClassVar, Literal

from torch import Tensor

from variants.stages import Normaliser, Rescore, Weights


class Total(Normaliser):
    """Weights sum to one over the visible keys."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["total"] = "total"

    def weights(self, log_f: Tensor, mask: Tensor, log_score: Rescore) -> Weights:  # noqa: ARG002
        visible = log_f.masked_fill(~mask, -float("inf"))
        largest = visible.amax(-1, keepdim=True).detach()
        f = (visible - largest.clamp(min=-1e30)).exp()  # the clamp keeps rows that see nothing finite
        return Weights(f / f.sum(-1, keepdim=True).clamp(min=1e-30), None)

    def oracle(self, f: list[float], score: Callable[[float], float]) -> tuple[list[float], float]:  # noqa: ARG002
        return [each / sum(f) for each in f], 0.0
