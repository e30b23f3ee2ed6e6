"""How the maps of several signals become one."""

from typing import ClassVar, Literal

from ablate.variants.axes import Scalar
from ablate.variants.number import Contrast
from ablate.variants.stages.families import AttentionWeights, Merge


class Difference(Merge):
    """The difference of two maps: weight that both signals give cancels.

        w_ij = w_ij^1 - lambda w_ij^2          the ground state's weight alike
        lambda = lambda_init(l) + e^(q1 . k1) - e^(q2 . k2)
        lambda_init(l) = 0.8 - 0.6 e^(-0.3 l)  l counts layers from 0: 0.2, 0.36, 0.47, 0.56, ...

    Under the plain sum a row sums to 1 - lambda. q1, k1, q2, k2 have as many channels as one signal; lambda may leave
    [0, 1]. With heads="halved", as in the paper, two heads of the model become one of twice the width, so that each
    signal is as wide as a model head. With "kept", every head is cut into two signals of half its width.
    """

    source: ClassVar[str] = "Differential Transformer, eq. 1 and 2; Integral Transformer, eq. 5"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The paper of Differential writes 0.3 (l - 1) and counts layers from 1; here they count from 0.",
        "The layer is counted in the whole model, also where only the top layers have this operator.",
        "A query that sees one key has weight 1 - lambda on it, which is negative once lambda is above 1.",
    )
    signals: ClassVar[int | None] = 2

    kind: Literal["difference"] = "difference"
    factor: Contrast = Contrast(init=0.2, deep=0.8)
    """lambda: what the second map is multiplied by."""
    heads: Literal["halved", "kept"] = "halved"

    @property
    def heads_joined(self) -> int:
        return 2 if self.heads == "halved" else 1

    def merge(self, weights: AttentionWeights, *, factor: Scalar) -> AttentionWeights:
        keys, ground = weights
        return AttentionWeights(keys[0] - factor * keys[1], None if ground is None else ground[0] - factor * ground[1])

    def oracle(self, maps: list[list[float]], grounds: list[float], *, factor: float) -> tuple[list[float], float]:
        first, second = maps
        return [a - factor * b for a, b in zip(first, second, strict=True)], grounds[0] - factor * grounds[1]


class MeanLogits(Merge):
    """The mean of the signals' logits, taken before the score, so that there is one map.

    z_ij = (1/S) sum_s z_ij^s

    Logits are averaged; one signal is the ordinary product.
    """

    source: ClassVar[str] = "Integral Transformer, section 3"
    of_logits: ClassVar[bool] = True

    kind: Literal["logits"] = "logits"

    def merge(self, weights: AttentionWeights) -> AttentionWeights:
        raise NotImplementedError("logits are merged before the score; attend() has one map already")

    def oracle(self, maps: list[list[float]], grounds: list[float]) -> tuple[list[float], float]:
        raise NotImplementedError("logits are merged before the score")


class MeanWeights(Merge):
    """The mean of the signals' maps, taken after the normaliser.

        w_ij = (1/S) sum_s w_ij^s          the ground state's weight alike

    Signals that are all equal give the map of one. The mean has the row sum of the maps if all maps have the same.
    """

    source: ClassVar[str] = "Integral Transformer, appendix B, table 8 (softmax output)"

    kind: Literal["mean"] = "mean"

    def merge(self, weights: AttentionWeights) -> AttentionWeights:
        return AttentionWeights(weights.keys.mean(0), None if weights.ground is None else weights.ground.mean(0))

    def oracle(self, maps: list[list[float]], grounds: list[float]) -> tuple[list[float], float]:
        return [sum(each) / len(maps) for each in zip(*maps, strict=True)], sum(grounds) / len(grounds)
