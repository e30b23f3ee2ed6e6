"""Entropy of attention in nats, by the definitions of two papers.

    entropy       mean over queries of  -sum_j p_ij ln p_ij,  p_ij = |w_ij| / sum_j |w_ij|
    entropy_last  the same of  (a_j - min a) / sum_j (a_j - min a)  at the last position, over its visible keys

The first is the one of "Affine-Scaled Attention" (figure 6). There, weights beside a sink are divided by 1 - S, the sum
that is left for keys. The second is the one of "Integral Transformer" (figure 4). The paper uses it for signed weights
only; here it applies to all operators, since it also changes the entropy of softmax. A row of N equal weights has ln N.
Rows of zeros are left out by the first definition and are equal weights by the second.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ablate.training.probes.attention_rows import AttentionRows, by_head, entropy, mean, shares
from ablate.training.probes.probe import Found, Probe, Probed, ProbeInput, RowInfo
from ablate.variants.model.transformer import LayerTrace


class AttentionEntropy(Probe):
    """`entropy` by head, over queries and sequences, and `entropy_last` by head, over sequences.

    `entropy_last_sd`, without a head, is the standard deviation over sequences (n - 1) of the mean over heads: the band
    of the paper's figure. One sequence has none.
    """

    rows: ClassVar[tuple[RowInfo, ...]] = (
        RowInfo("entropy", "nats"),
        RowInfo("entropy_last", "nats"),
        RowInfo("entropy_last_sd", "nats", "layer"),
    )

    kind: Literal["attention_entropy"] = "attention_entropy"

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        rows = AttentionRows(layer)
        whole = entropy(shares(rows.weights.abs()))
        yield from by_head("entropy", layer.layer, mean(whole, rows.real & (rows.of_keys != 0), (0, 2)))
        last = _last_token(rows.real)
        at = last[..., None, None].expand(*last.shape, 1, rows.weights.shape[-1])
        weights, visible = rows.weights.gather(2, at).squeeze(2), rows.seen.gather(2, at).squeeze(2)
        entropies, there = _entropy_above_least(weights, visible), visible.any(-1)
        yield from by_head("entropy_last", layer.layer, mean(entropies, there, (0,)))
        of_sequences, any_head = mean(entropies, there, (1,))
        if any_head.sum() > 1:
            yield Probed("entropy_last_sd", of_sequences[any_head].std().item(), layer.layer)


def _last_token(real: Bool[Tensor, "batch heads tokens"]) -> Int[Tensor, "batch heads"]:
    """Find the place of the last token that is no padding."""
    backwards = real.flip(-1).to(torch.uint8).argmax(-1)
    return real.shape[-1] - 1 - backwards


def _entropy_above_least(
    weights: Float[Tensor, "batch heads keys"], visible: Bool[Tensor, "batch heads keys"]
) -> Float[Tensor, "batch heads"]:
    """Compute the entropy of the visible weights minus the least of them."""
    least = weights.masked_fill(~visible, torch.inf).amin(-1, keepdim=True)
    above = (weights - least).masked_fill(~visible, 0)
    equal = above.sum(-1) == 0
    count = visible.sum(-1).clamp(min=1).to(weights.dtype)
    return torch.where(equal, count.log(), entropy(shares(above)))
