"""Entmax with alpha = 1.5, half way between softmax and sparsemax: smooth, and exactly 0 far below the best.

    w_ij = max(a_ij / 2 - tau_i, 0)^2          tau_i such that they sum to one;  a = ln f

With two keys and logits (t, 0), |t| < 2, the first has ((t/2 + sqrt(2 - t^2/4)) / 2)^2. Adding a constant to a row
changes nothing.
"""

import math
from typing import Any, ClassVar, Literal

import torch
from entmax.activations import Entmax15Function  # type: ignore[import-untyped]
from torch import Tensor

from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class _Twice(Entmax15Function):  # type: ignore[misc]
    """Entmax whose second derivative is finite: the package's root of a weight of 0 has an infinite slope."""

    @classmethod
    def backward(cls, ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        if not torch.is_grad_enabled():
            return super().backward(ctx, slope)  # type: ignore[no-any-return]
        (w,) = ctx.saved_tensors
        root = w.masked_fill(w == 0, 1).sqrt().masked_fill(w == 0, 0)
        mean = (slope * root).sum(ctx.dim, keepdim=True) / root.sum(ctx.dim, keepdim=True)
        return (slope - mean) * root, None, None


def _project(log: Tensor) -> Tensor:
    return _Twice.apply(log, -1, None)  # type: ignore[no-any-return]


class Entmax15(Normaliser):
    """Weights are squares of what is linear in the logits."""

    source: ClassVar[str] = "Sparse Sequence-to-Sequence Models, eq. 7; Scaled Signed Averaging, table 1"
    needs: ClassVar = "logarithm"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "A key with weight 0 has no gradient: it comes back only when the others let it.",
        "The second derivative jumps where a weight becomes 0.",
    )

    kind: Literal["entmax15"] = "entmax15"

    def weights(self, scores: Scores) -> AttentionWeights:
        return AttentionWeights(scores.project(_project), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:  # noqa: ARG002
        a = [math.log(each) if each else -math.inf for each in f]
        low, high = max(a, default=0.0) / 2 - 1, max(a, default=0.0) / 2
        for _ in range(200):  # halves the interval that tau is in
            tau = (low + high) / 2
            too_low = sum(max(each / 2 - tau, 0.0) ** 2 for each in a) > 1
            low, high = (tau, high) if too_low else (low, tau)
        return [max(each / 2 - low, 0.0) ** 2 for each in a], 0.0
