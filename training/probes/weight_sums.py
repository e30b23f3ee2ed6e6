"""Sums of the weights of a row, without learned key, ground state and sink.

    s_i = sum_j w_ij

By head, over queries and sequences: the head totals of "Affine-Scaled Attention", figure 5. The figure scales them to 0
to 1 and divides those beside a sink by 1 - S; here they are unscaled. And per query, as the mean over heads: the
histogram of figure 3 with its mean and median. Softmax has 1 everywhere. Padding is left out. A query whose weights are
all 0 counts with 0.
"""

from collections import Counter
from typing import ClassVar, Literal, Self

import torch
from pydantic import PositiveFloat, model_validator

from ablate.training.probes.attention_rows import AttentionRows, by_head, mean
from ablate.training.probes.probe import Found, Probe, Probed, ProbeInput, RowInfo
from ablate.variants.model.transformer import LayerTrace

_MOST_BINS = 100_000
"""Most bins on either side of 0."""


class WeightSums(Probe):
    """`weight_sum` by head; by layer `weight_sum_mean`, `weight_sum_median` and `weight_sum_count` per bin.

    A bin has the name of its middle, {"sum": 1.0}, and the width `bin`; empty bins have no row. Sums beyond `limit` on
    either side count in the last bin there.
    """

    rows: ClassVar[tuple[RowInfo, ...]] = (
        RowInfo("weight_sum", "weight, signed"),
        RowInfo("weight_sum_mean", "weight, signed", "layer"),
        RowInfo("weight_sum_median", "weight, signed", "layer"),
        RowInfo("weight_sum_count", "queries", "layer", ("sum",)),
    )

    kind: Literal["weight_sums"] = "weight_sums"
    bin: PositiveFloat = 0.05
    """Width of a bin of the histogram; the middles are multiples of it."""
    limit: PositiveFloat = 2.0
    """Largest sum with its own bin."""

    @model_validator(mode="after")
    def _has_bins(self) -> Self:
        if not self.bin <= self.limit <= _MOST_BINS * self.bin:
            raise ValueError(
                f"bin={self.bin} is not between limit / {_MOST_BINS:,} and limit={self.limit}; change one of them"
            )
        return self

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        rows = AttentionRows(layer)
        sums, counted = rows.weights.sum(-1), rows.real
        yield from by_head("weight_sum", layer.layer, mean(sums, counted, (0, 2)))
        head_means, there = mean(sums, counted, (1,))
        queries = head_means[there]
        if not len(queries):
            return
        yield Probed("weight_sum_mean", queries.mean().item(), layer.layer)
        ordered = queries.sort().values
        middle = torch.stack((ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]))
        yield Probed("weight_sum_median", middle.mean().item(), layer.layer)
        finite = queries[queries.isfinite()]
        most = round(self.limit / self.bin)
        middles = (finite / self.bin).round().clamp(-most, most).to(torch.int64).tolist()
        for middle, count in sorted(Counter(middles).items()):
            yield Probed("weight_sum_count", count, layer.layer, point={"sum": round(middle * self.bin, 9)})
