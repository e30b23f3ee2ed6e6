"""The weighted sum of values:  o_i = sum_j w_ij v_j.  A ground state, if any, contributes nothing."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import AttentionWeights, Readout


class Values(Readout):
    """o = sum w v."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["values"] = "values"

    def output(self, weights: AttentionWeights, v: Tensor) -> Tensor:
        return weights.keys @ v

    def oracle(self, weights: list[float], ground: float, v: list[list[float]]) -> list[float]:  # noqa: ARG002
        return [sum(w * row[d] for w, row in zip(weights, v, strict=True)) for d in range(len(v[0]))]
