"""From scores to weights."""

import math
from typing import Any, ClassVar, Literal

import entmax  # type: ignore[import-untyped]
import torch
from entmax.activations import Entmax15Function  # type: ignore[import-untyped]
from jaxtyping import Float
from torch import Tensor

from ablate.variants.axes import Map, Scalar
from ablate.variants.number import Number
from ablate.variants.score_map import Scores
from ablate.variants.stages.families import AttentionWeights, FloatScore, Normaliser


class Absolute(Normaliser):
    """Divide by the sum of sizes, for scores of both signs.

        w_ij = f_ij / sum_j |f_ij|          a query that sees nothing, or whose scores are all 0, gets 0

    If a score has a size and a sign, as the signed exponential, its size counts also if its sign is 0.

    The sizes of the weights sum to one; no epsilon.
    """

    source: ClassVar[str] = "Integral Transformer, eq. 4 (Cog)"
    needs: ClassVar = "signs"
    scale_free: ClassVar[bool] = True
    averages: ClassVar[bool] = True

    kind: Literal["absolute"] = "absolute"

    def weights(self, scores: Scores) -> AttentionWeights:
        relative = scores.relative()
        total = relative.size.sum(-1, keepdim=True)
        return AttentionWeights(relative.f / total.masked_fill(total == 0, 1), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:
        total = sum(f)
        return [each / total if total else 0.0 for each in f], 0.0


class AgainstCount(Normaliser):
    """Each key against the number of visible keys: the sigmoid of its logit less ln K.

        w_ij = f_ij / (f_ij + K_i)          with f = e^a:  1 / (1 + e^-(a - ln K_i))

    Keys do not compete; K keys of logit 0 have weights that sum to K / (K + 1). A learned key counts as one of the K_i.

    Weights between 0 and 1, not above f / K.
    """

    source: ClassVar[str] = "Sigmoid Self-Attention, section 2 (b = -ln n)"
    needs: ClassVar = "logarithm"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The published bias is -ln n of a fixed length n; here n is what each query sees, so prefixes agree.",
    )
    shared: ClassVar[bool] = False

    kind: Literal["against_count"] = "against_count"

    def weights(self, scores: Scores) -> AttentionWeights:
        return AttentionWeights((scores.visible_log() - scores.visible_count.clamp(min=1).log()).sigmoid(), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:
        return [each / (each + len(f)) for each in f], 0.0


class Clamped(Normaliser):
    """Divide by the size of the sum if it is above one, for scores of both signs.

    w_ij = f_ij / max(|sum_j f_ij|, 1)

    The size of a row's sum is at most 1; single weights may be larger if signs differ.
    """

    source: ClassVar[str] = "When Attention Sink Emerges, section 7.3 (Z = max(|sum|, 1))"
    needs: ClassVar = "any"
    averages: ClassVar[bool] = True

    kind: Literal["clamped"] = "clamped"

    def weights(self, scores: Scores) -> AttentionWeights:
        relative = scores.relative()
        total = relative.f.sum(-1, keepdim=True).abs()
        return AttentionWeights(relative.f / torch.maximum(total, relative.unit()), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:
        total = max(abs(sum(f)), 1.0)
        return [each / total for each in f], 0.0


class Count(Normaliser):
    """Divide by the number of visible keys: weights do not grow with the length, and keys do not compete.

    w_ij = f_ij / K_i          a learned key counts as one of the K_i

    The mean of f v over the visible keys; a query that sees nothing gets 0.
    """

    source: ClassVar[str] = "Replacing softmax with ReLU in Vision Transformers, section 3 (1 / L)"
    needs: ClassVar = "any"
    averages: ClassVar[bool] = True
    shared: ClassVar[bool] = False

    kind: Literal["count"] = "count"

    def weights(self, scores: Scores) -> AttentionWeights:
        return AttentionWeights(scores.values() / scores.visible_count.clamp(min=1), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:
        return [each / len(f) for each in f], 0.0


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


def _project(log: Map) -> Map:
    return _Twice.apply(log, -1, None)  # type: ignore[no-any-return]


class Entmax15(Normaliser):
    """Entmax with alpha = 1.5, half way between softmax and sparsemax: smooth, and exactly 0 far below the best.

        w_ij = max(a_ij / 2 - tau_i, 0)^2          tau_i such that they sum to one;  a = ln f

    With two keys and logits (t, 0), |t| < 2, the first has ((t/2 + sqrt(2 - t^2/4)) / 2)^2. Adding a constant to a row
    changes nothing.

    Weights are squares of what is linear in the logits.
    """

    source: ClassVar[str] = "Sparse Sequence-to-Sequence Models, eq. 7; Scaled Signed Averaging, table 1"
    needs: ClassVar = "logarithm"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "A key with weight 0 has no gradient: it comes back only when the others let it.",
        "The second derivative jumps where a weight becomes 0.",
    )

    kind: Literal["entmax15"] = "entmax15"

    def weights(self, scores: Scores) -> AttentionWeights:
        return AttentionWeights(scores.project(_project), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:
        a = [math.log(each) if each else -math.inf for each in f]
        low, high = max(a, default=0.0) / 2 - 1, max(a, default=0.0) / 2
        for _ in range(200):  # halves the interval that tau is in
            tau = (low + high) / 2
            too_low = sum(max(each / 2 - tau, 0.0) ** 2 for each in a) > 1
            low, high = (tau, high) if too_low else (low, tau)
        return [max(each / 2 - low, 0.0) ** 2 for each in a], 0.0


class Ground(Normaliser):
    """A ground state: it gets the shortfall of keys below the relevance threshold.

        Z_i = sum_j max(f(gamma), f_ij)      w_ij = f_ij / Z_i      w_i0 = sum_j max(0, f(gamma) - f_ij) / Z_i

    over visible keys only: the mask acts after the maximum, else every hidden key would add f(gamma). At a tie a =
    gamma the key counts as relevant. The shortfall is summed directly, because 1 - sum w cancels in low precision. The
    ground state has weight 1 for a query that sees nothing. gamma -> -inf is the plain sum.

    Weights sum to one together with the ground state's.
    """

    source: ClassVar[str] = "Principled Attention, sections 3.1 and 3.2.1"
    needs: ClassVar = "logarithm"
    has_ground: ClassVar[bool] = True
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The products 'linear_elu', 'relu' and 'cosformer' give no logit below 0, so no key falls below the initial "
        "threshold of 0. The ground state is then empty, and it and its value have no gradient.",
    )

    kind: Literal["ground"] = "ground"
    threshold: Number = Number(init=0.0)
    """Relevance threshold gamma; 0 with small logits is close to softmax and its gradients are alive."""

    def relevance(self, *, threshold: Scalar) -> Scalar:
        return threshold

    def weights(self, scores: Scores, *, threshold: Scalar) -> AttentionWeights:
        log_floor = scores.score(threshold)
        visible = scores.visible_log()
        largest = torch.maximum(visible.amax(-1, keepdim=True), log_floor).detach()
        f = (visible - largest).exp()
        floor = (log_floor - largest).exp() * scores.mask
        total = torch.where(visible >= log_floor, f, floor).sum(-1, keepdim=True)
        empty = total == 0
        total = total.masked_fill(empty, 1.0)
        shortfall = (floor - f).relu().sum(-1, keepdim=True)
        return AttentionWeights(f / total, (shortfall / total).masked_fill(empty, 1.0))

    def relevance_oracle(self, *, threshold: float) -> float:
        return threshold

    def oracle(self, f: list[float], score: FloatScore, *, threshold: float) -> tuple[list[float], float]:
        if not f:
            return [], 1.0
        floor = score(threshold)
        total = sum(max(each, floor) for each in f)
        weights = [each / total for each in f]
        return weights, 1 - sum(weights)


class NoNormaliser(Normaliser):
    """Nothing is divided: the scores are the weights.

    w_ij = f_ij          Z_i = 1

    Z = 1: keys do not compete.
    """

    source: ClassVar[str] = "When Attention Sink Emerges, table 4 (Z = 1)"
    needs: ClassVar = "any"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "Outputs grow with the number of visible keys, and with an exponential score without bound.",
    )
    shared: ClassVar[bool] = False

    kind: Literal["none"] = "none"

    def weights(self, scores: Scores) -> AttentionWeights:
        return AttentionWeights(scores.values(), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:
        return f, 0.0


class SelfAdjusted(Normaliser):
    """Self-adjusting softmax: softmax times a factor that grows with the logit.

        w_ij = (a_ij - min(low_i, 0)) / (max(high_i, 0) - min(low_i, 0)) p_ij          p = softmax of a

    low and high are the smallest and largest a of the visible keys. If all are 0, the factor 0 / 0 is 1. Gradients flow
    through both. normalised=False is the plain variant w = a p. Rows do not sum to one: the factor is at most 1.

    A row sums to 0..1; in the plain variant to anything.
    """

    source: ClassVar[str] = "Self-Adjust Softmax (arXiv 2502.18277); Scaled Signed Averaging, table 1"
    needs: ClassVar = "exponential"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "With one visible key the weight is 1 where its logit is above 0 and 0 where it is below.",
        "Where hidden logits are large negative numbers and not left out, they become the smallest of the row and all "
        "factors are nearly 1.",
    )

    kind: Literal["self_adjusted"] = "self_adjusted"
    normalised: bool = True
    """True if the factor lies between 0 and 1."""

    def weights(self, scores: Scores) -> AttentionWeights:
        p = scores.relative().f
        total = p.sum(-1, keepdim=True)
        p = p / total.masked_fill(total == 0, 1)
        visible = scores.visible_log()
        a = visible.masked_fill(~scores.mask, 0)
        if not self.normalised:
            return AttentionWeights(a * p, None)
        low = a.amin(-1, keepdim=True).clamp(max=0)  # hidden entries are 0 and change neither
        high = a.amax(-1, keepdim=True).clamp(min=0)
        zero = high == low
        factor = torch.where(zero, 1, (a - low) / (high - low).masked_fill(zero, 1))
        return AttentionWeights(factor * p, None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:
        a, total = [math.log(each) for each in f], sum(f)
        if not self.normalised:
            return [each * one / total for each, one in zip(a, f, strict=True)], 0.0
        low, high = min([*a, 0.0]), max([*a, 0.0])
        factors = [(each - low) / (high - low) if high > low else 1.0 for each in a]
        return [factor * each / total for factor, each in zip(factors, f, strict=True)], 0.0


class Sink(Normaliser):
    """A sink: one more logit that every query sees and that has no value.

        Z_i = sum_j f_ij + f(s)      w_ij = f_ij / Z_i      w_i0 = f(s) / Z_i

    s is not divided by sqrt(d). A score f(s) below 0 counts as 0. The sink has weight 1 for a query that sees nothing
    or whose scores are all 0. A fixed s = 0 is off by one: it adds e^0 = 1 to the sum, and s = ln n adds n. With the
    exponential, adding c to all logits and to s changes nothing, and s -> -inf is the plain sum.

    Weights sum to one together with the sink's.
    """

    source: ClassVar[str] = "Affine-Scaled Attention, section 2 (off by one, GPT-OSS)"
    has_ground: ClassVar[bool] = True
    pitfalls: ClassVar[tuple[str, ...]] = (
        "Its mass does not grow with the number of keys, as a ground state's does.",
        "Under a score that is 0 for small logits, such as 'relu', a sink of s = 0 is nothing and has no gradient.",
        "Adding n e^-max to a sum of e^(z - max) overflows where all logits are far below 0; s is part of the maximum.",
    )

    version: ClassVar[int] = 2
    kind: Literal["sink"] = "sink"
    logit: Number = Number(init=0.0, per=("layer", "head"))
    """s: learned per head from 0, where it starts as off by one; fixed with per="constant"."""

    def weights(self, scores: Scores, *, logit: Scalar) -> AttentionWeights:
        relative, own = scores.relative_with(logit)
        total = relative.f.sum(-1, keepdim=True) + own
        nothing = total == 0
        total = total.masked_fill(nothing, 1)
        return AttentionWeights(relative.f / total, (own / total).masked_fill(nothing, 1))

    @staticmethod
    def key_share(log_sum: Float[Tensor, "*#rows"], logit: Float[Tensor, "*#rows"]) -> Float[Tensor, "*#rows"]:
        """Return the weight of all keys together, from the logarithm of the sum of their exponential scores."""
        return torch.sigmoid(log_sum - logit)

    def oracle(self, f: list[float], score: FloatScore, *, logit: float) -> tuple[list[float], float]:
        own = max(score(logit), 0.0)
        total = sum(f) + own
        return ([each / total for each in f], own / total) if total else ([0.0] * len(f), 1.0)


class Sparsemax(Normaliser):
    """Sparsemax: the nearest distribution to the logits; keys far enough below the best get exactly 0.

        w_ij = max(a_ij - tau_i, 0)          tau_i such that they sum to one;  a = ln f

    With two keys and logits (t, 0) the first has (t + 1) / 2, within [0, 1]. Adding a constant to a row changes
    nothing.

    Weights are linear in the logits where they are not 0.
    """

    source: ClassVar[str] = "From Softmax to Sparsemax, eq. 2; Scaled Signed Averaging, table 1"
    needs: ClassVar = "logarithm"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "A key with weight 0 has no gradient: it comes back only when the others let it.",
        "The second derivative is 0, or does not exist.",
    )

    kind: Literal["sparsemax"] = "sparsemax"

    def weights(self, scores: Scores) -> AttentionWeights:
        return AttentionWeights(scores.project(entmax.sparsemax), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:
        a = [math.log(each) if each else -math.inf for each in f]
        low, high = max(a, default=0.0) - 1, max(a, default=0.0)
        for _ in range(200):  # halves the interval that tau is in
            tau = (low + high) / 2
            too_low = sum(max(each - tau, 0.0) for each in a) > 1
            low, high = (tau, high) if too_low else (low, tau)
        return [max(each - low, 0.0) for each in a], 0.0


class Total(Normaliser):
    """Divide by the sum over visible keys: weights are a distribution.

    w_ij = f_ij / sum_j f_ij          a query that sees nothing, or whose scores are all 0, gets 0

    Weights sum to one over the visible keys.
    """

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"
    scale_free: ClassVar[bool] = True
    averages: ClassVar[bool] = True

    kind: Literal["total"] = "total"

    def weights(self, scores: Scores) -> AttentionWeights:
        f = scores.relative().f
        total = f.sum(-1, keepdim=True)
        return AttentionWeights(f / total.masked_fill(total == 0, 1), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:
        total = sum(f)
        return [each / total if total else 0.0 for each in f], 0.0
