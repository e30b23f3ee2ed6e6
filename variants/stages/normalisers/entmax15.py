"""Entmax with alpha = 1.5, half way between softmax and sparsemax: smooth, and exactly 0 far below the best.

    w_ij = max(a_ij / 2 - tau_i, 0)^2          tau_i such that they sum to one;  a = ln f

With two keys and logits (t, 0), |t| < 2, the first has ((t/2 + sqrt(2 - t^2/4)) / 2)^2. Adding a constant to a row
changes nothing.
"""

import math
from typing import ClassVar, Literal

import entmax  # type: ignore[import-untyped]

from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class Entmax15(Normaliser):
    """Weights are squares of what is linear in the logits."""

    source: ClassVar[str] = "Sparse Sequence-to-Sequence Models, eq. 7; Scaled Signed Averaging, table 1"
    needs: ClassVar = "logarithm"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "A key with weight 0 has no gradient: it comes back only when the others let it.",
        "There is no second derivative.",
    )

    kind: Literal["entmax15"] = "entmax15"

    def weights(self, scores: Scores) -> AttentionWeights:
        return AttentionWeights(scores.project(entmax.entmax15), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:  # noqa: ARG002
        a = [math.log(each) if each else -math.inf for each in f]
        low, high = max(a, default=0.0) / 2 - 1, max(a, default=0.0) / 2
        for _ in range(200):  # halves the interval that tau is in
            tau = (low + high) / 2
            too_low = sum(max(each / 2 - tau, 0.0) ** 2 for each in a) > 1
            low, high = (tau, high) if too_low else (low, tau)
        return [max(each / 2 - low, 0.0) ** 2 for each in a], 0.0
