"""How widely a head looks, in nats, by the definitions of two papers.

    entropy       mean over queries of  -sum_j p_ij ln p_ij,  p_ij = |w_ij| / sum_j |w_ij|
    entropy_last  the same of  (a_j - min a) / sum_j (a_j - min a)  at the last position, over its visible keys

The first is that of "Affine-Scaled Attention" (figure 6), where weights beside a sink are divided by 1 - S, the sum
that is left for keys. The second is that of "Integral Transformer" (figure 4); the paper does so for signed weights
alone, here all operators are treated alike, since it changes the entropy of softmax, too. A row whose weights are equal
has ln N. By the first definition rows of zeros are left out, by the second they are equal weights.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from runners.probes.attention_rows import AttentionRows, by_head, entropy, mean, shares
from runners.probes.probe import Found, Probe, Probed, ProbeInput, RowInfo
from variants.model.transformer import LayerTrace


class AttentionEntropy(Probe):
    """`entropy` by head, over queries and sequences, and `entropy_last` by head, over sequences.

    `entropy_last_sd`, without a head, is the standard deviation over sequences (n - 1) of the mean over heads: the band
    of the paper's figure. A single sequence has none.
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
        last = _last(rows.real)
        at = last[..., None, None].expand(*last.shape, 1, rows.weights.shape[-1])
        weights, visible = rows.weights.gather(2, at).squeeze(2), rows.seen.gather(2, at).squeeze(2)
        found, there = _above_least(weights, visible), visible.any(-1)
        yield from by_head("entropy_last", layer.layer, mean(found, there, (0,)))
        of_sequences, any_head = mean(found, there, (1,))
        if any_head.sum() > 1:
            yield Probed("entropy_last_sd", of_sequences[any_head].std().item(), layer.layer)


def _last(real: Tensor) -> Tensor:
    """[B, H]: the place of the last token that is not padding."""
    backwards = real.flip(-1).to(torch.uint8).argmax(-1)
    return real.shape[-1] - 1 - backwards


def _above_least(weights: Tensor, visible: Tensor) -> Tensor:
    """The entropy [B, H] of what visible weights [B, H, T] are above the least of them."""
    least = weights.masked_fill(~visible, torch.inf).amin(-1, keepdim=True)
    above = (weights - least).masked_fill(~visible, 0)
    equal = above.sum(-1) == 0
    count = visible.sum(-1).clamp(min=1).to(weights.dtype)
    return torch.where(equal, count.log(), entropy(shares(above)))
