"""T5's relative positions: a learned number per head and bucket of distances, added to the logit.

    z_ij + r_h,bucket(i - j)

Causal models have `count` buckets for the past; encoders half of them for each direction. One table serves all layers
with the same number of heads. It starts at N(0, 0.02) and is under weight decay like every embedding, as in T5: its
neutral point is zero.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from variants.stages.positions.scheme import Bucketed, bucket


class T5(Bucketed):
    """Buckets as in T5's code."""

    source: ClassVar[str] = "Exploring the Limits of Transfer Learning, section 2.1"

    kind: Literal["t5"] = "t5"
    count: Annotated[int, Field(ge=4, multiple_of=4)] = 32

    @property
    def buckets(self) -> int:
        return self.count

    def bias(self, distance: Tensor, heads: int, learned: Tensor | None, *, causal: bool) -> Tensor:  # noqa: ARG002
        assert learned is not None
        if causal:
            found = bucket(distance.clamp(min=0), self.count, self.max_distance)
        else:
            half = self.count // 2
            found = bucket(distance.abs(), half, self.max_distance) + half * (distance < 0)
        return learned[found].permute(2, 0, 1)
