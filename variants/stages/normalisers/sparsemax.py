"""Sparsemax: the nearest distribution to the logits; keys far enough below the best get exactly 0.

    w_ij = max(a_ij - tau_i, 0)          tau_i such that they sum to one;  a = ln f

With two keys and logits (t, 0) the first has (t + 1) / 2, within [0, 1]. Adding a constant to a row changes nothing.
"""

import math
from typing import ClassVar, Literal

import entmax  # type: ignore[import-untyped]

from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class Sparsemax(Normaliser):
    """Weights are linear in the logits where they are not 0."""

    source: ClassVar[str] = "From Softmax to Sparsemax, eq. 2; Scaled Signed Averaging, table 1"
    needs: ClassVar = "logarithm"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "A key with weight 0 has no gradient: it comes back only when the others let it.",
        "The second derivative is 0, or does not exist.",
    )

    kind: Literal["sparsemax"] = "sparsemax"

    def weights(self, scores: Scores) -> AttentionWeights:
        return AttentionWeights(scores.project(entmax.sparsemax), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:  # noqa: ARG002
        a = [math.log(each) if each else -math.inf for each in f]
        low, high = max(a, default=0.0) - 1, max(a, default=0.0)
        for _ in range(200):  # halves the interval that tau is in
            tau = (low + high) / 2
            too_low = sum(max(each - tau, 0.0) for each in a) > 1
            low, high = (tau, high) if too_low else (low, tau)
        return [max(each - low, 0.0) for each in a], 0.0
