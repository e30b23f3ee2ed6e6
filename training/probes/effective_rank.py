"""Effective rank of an attention matrix: the exponential of the entropy of its singular values.

    erank = exp(-sum_k p_k ln p_k),   p_k = sigma_k / sum sigma          (Roy and Vetterli 2007)

in float64. "Integral Transformer" (table 5) reports the rank. But every causal softmax matrix has rank N, since it is
triangular with a positive diagonal; the effective rank is what its numbers can mean. The paper's share of sequences
with a higher rank than another operator follows from pairs of `effective_rank_median` by sequence: docs/sql.md has the
query. Rows of padding are 0. A matrix of zeros has no rank.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.training.probes.attention_rows import AttentionRows, by_head, entropy, mean, shares
from ablate.training.probes.probe import Found, Probe, Probed, ProbeInput, RowInfo
from ablate.variants.model.transformer import LayerTrace


class EffectiveRank(Probe):
    """`effective_rank` by head, over sequences, and `effective_rank_median`, over heads, at {"sequence": 1...}."""

    rows: ClassVar[tuple[RowInfo, ...]] = (
        RowInfo("effective_rank", "directions, 1 to T"),
        RowInfo("effective_rank_median", "directions, 1 to T", "layer", ("sequence",)),
    )
    cost: ClassVar[str] = "the singular values of every map in float64, O(T^3) each"

    kind: Literal["effective_rank"] = "effective_rank"

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        rows = AttentionRows(layer)
        maps = rows.weights * rows.real[..., None]
        there = (maps != 0).any(-1).any(-1)
        ranks = effective_rank(maps)
        yield from by_head("effective_rank", layer.layer, mean(ranks, there, (0,)))
        for sequence, (of_heads, are_there) in enumerate(zip(ranks, there, strict=True), start=1):
            if are_there.any():
                value = of_heads[are_there].quantile(0.5).item()
                yield Probed("effective_rank_median", value, layer.layer, point={"sequence": sequence})


def effective_rank(maps: Float[Tensor, "*maps queries keys"]) -> Float[Tensor, "*maps"]:
    """Compute it for matrices: NaN if an entry is not finite, 1 for zeros."""
    wrong = ~maps.isfinite().all(-1).all(-1)
    singular = torch.linalg.svdvals(maps.double().masked_fill(wrong[..., None, None], 0))
    return entropy(shares(singular)).exp().masked_fill(wrong, torch.nan)
