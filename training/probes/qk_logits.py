"""Mean and spread of the logits over visible pairs.

    z_ij = q_i . k_j / sqrt(d), or the operator's other product, transformed

before positions, forgetting, margin and gate, so that operators are compared by what queries and keys have learned.
"Affine-Scaled Attention", figure 2, does not say whether its logits are divided by sqrt(d); these are.
"""

from typing import ClassVar, Literal

from ablate.training.probes.attention_rows import AttentionRows, by_head, mean
from ablate.training.probes.probe import Found, Probe, ProbeInput, RowInfo
from ablate.variants.attend import qk_logits
from ablate.variants.model.transformer import LayerTrace


class QKLogits(Probe):
    """`qk_logit_mean` and `qk_logit_sd` by head, over visible pairs, sequences and an operator's signals."""

    rows: ClassVar[tuple[RowInfo, ...]] = (RowInfo("qk_logit_mean", "nats"), RowInfo("qk_logit_sd", "nats"))
    cost: ClassVar[str] = "the products of queries and keys once more"

    kind: Literal["qk_logits"] = "qk_logits"

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        z = qk_logits(layer.operator, layer.worked.heads, layer.worked.numbers)
        z = (z if z.dim() == 5 else z[None]).expand(-1, *layer.worked.attended.weights.shape)
        dims, pairs = (0, 1, 3, 4), AttentionRows(layer).seen
        middle, there = mean(z, pairs, dims)
        variance, _ = mean((z - middle[:, None, None]).square(), pairs, dims)
        yield from by_head("qk_logit_mean", layer.layer, (middle, there))
        yield from by_head("qk_logit_sd", layer.layer, (variance.sqrt(), there))
