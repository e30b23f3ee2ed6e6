"""Paper 004's relative positions: the index of T5's bucket itself is added to the logit; nothing is learned.

    z_ij + bucket(|i - j|)

The index grows with distance, so far keys are preferred, and the paper's loss of 5.45 says nothing about T5, which
learns a number per bucket (kind "t5"). The buckets are those of the paper's code; eq. 7 as printed rounds down before
it multiplies, which leaves one bucket for all distances from half the buckets to `max_distance`.
"""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.positions.scheme import Bucketed, bucket


class Bucket(Bucketed):
    """The bucket's index as a bias; an encoder uses the absolute distance."""

    source: ClassVar[str] = "When Attention Sink Emerges, eq. 7, and its code"

    kind: Literal["bucket"] = "bucket"

    def bias(self, distance: Tensor, heads: int, learned: Tensor | None, *, causal: bool) -> Tensor:  # noqa: ARG002
        return bucket(distance.abs(), self.count, self.max_distance).float()[None]
