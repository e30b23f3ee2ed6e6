"""Changes of a row of weights after normalisation."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from ablate.variants.axes import Mask, Scalar
from ablate.variants.number import Number, RunningMean
from ablate.variants.stages.families import AttentionWeights, Rescale


class Affine(Rescale):
    """Affine-scaled weights: scaled down for the query's token, and a uniform share put back for what is missing.

        w_ij' = alpha_i w_ij + (mean - alpha_i) / N          on visible keys
        mean  = running mean of alpha, per head, over batch and positions; starts at 0

    N is K_i, the number of visible keys (n="visible"): every row of weights that summed to 1 then sums to `mean`. Or N
    is the number of keys there are (n="context"), as the paper writes: the row sums to alpha_i + (K_i / N) (mean -
    alpha_i). A learned key counts as one of the keys. The ground state's weight is multiplied by alpha_i and gets no
    share. A query that sees nothing gets 0.

    alpha = mean = 1 is nothing.
    """

    source: ClassVar[str] = "Affine-Scaled Attention, eq. 6 to 9 and 11"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "With n='visible' the sum of a row is the same for all queries of a head, so it cannot adapt to the query.",
        "The mean starts at 0 without bias correction: in the first steps rows sum to little more than 0.",
        "In training the mean is taken over all positions of the batch without padding, later ones too; in evaluations "
        "it is fixed.",
        "At the start alpha is 0.5, and in the long run a row sums to 0.5: it does not start as softmax.",
        "It scales weights and says nothing about the temperature of their softmax.",
        "With n='visible', heads that average, such as those of a part 'uniform' of head groups, sum to the mean with "
        "equal weights: their alpha acts through its running mean only.",
    )

    kind: Literal["affine"] = "affine"
    scale: Number = Number(init=0.5, per="token", link="clipped")
    """alpha, from the layer's input: linear clipping as in the paper, or link="unit" for the sigmoid."""
    mean: RunningMean = RunningMean(of="scale")
    """The running mean of alpha; its momentum rho is 0.9 in the paper."""
    n: Literal["visible", "context"] = "visible"

    @property
    def breaks(self) -> Mapping[str, str]:
        if self.n == "visible":
            return {}
        return {"prefix": "the uniform share is divided by the number of keys there are, which a prefix has fewer of"}

    def rescale(self, weights: AttentionWeights, mask: Mask, *, scale: Scalar, mean: Scalar) -> AttentionWeights:
        keys, ground = weights
        there = mask.sum(-1, keepdim=True).clamp(min=1) if self.n == "visible" else keys.shape[-1]
        return AttentionWeights(
            scale * keys + (mean - scale) / there * mask, None if ground is None else scale * ground
        )

    def oracle(
        self, weights: list[float], ground: float, length: int, *, scale: float, mean: float
    ) -> tuple[list[float], float]:
        n = len(weights) if self.n == "visible" else length
        return [scale * each + (mean - scale) / n for each in weights], scale * ground


class Scale(Rescale):
    """Weights multiplied by a number:  w_ij' = alpha w_ij,  which is the normaliser Z_i / alpha.

    The ground state's weight is multiplied too, so it keeps its share of the row.

    The sum of a row is alpha times what it was; alpha = 1 is nothing.
    """

    source: ClassVar[str] = "When Attention Sink Emerges, appendix D.6 (table 12)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The operator is the unscaled one with an output projection that starts alpha times as large.",
        "Its learning rate then counts alpha^2-fold under SGD and alpha-fold under Adam.",
    )
    only_scales: ClassVar[bool] = True

    kind: Literal["scale"] = "scale"
    factor: Number = Number(init=1.0)
    """alpha; the paper tries 2, 1, 0.2, 0.1 and 0.02."""

    def rescale(self, weights: AttentionWeights, mask: Mask, *, factor: Scalar) -> AttentionWeights:
        return AttentionWeights(factor * weights.keys, None if weights.ground is None else factor * weights.ground)

    def oracle(self, weights: list[float], ground: float, length: int, *, factor: float) -> tuple[list[float], float]:
        return [each * factor for each in weights], ground * factor
