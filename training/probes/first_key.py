"""Norms of the first key and value, and cosines of queries and the first key.

    cos(q_i, k_1) over i > 1      against      cos(q_i, k_j) over 1 < j <= i

"When Attention Sink Emerges", figure 6: the first key is small and points along all queries. Queries and keys are
prepared and turned by positions, without a gate's channels. The cosine belongs to the operator's product, as a mean
over its signals, each with its own slices:

    cos(q_i, k_j) = z_ij / sqrt(z(q_i, q_i) z(k_j, k_j)),   z the product, of a vector and itself at distance 0

For q . k / sqrt(d) this is the cosine of query and key, and for kernels the one of their features. cosFormer's includes
the cosine of the distance. The cosine is 0 if z(q_i, q_i) or z(k_j, k_j) is 0, and NaN if one is negative, which only a
user's product allows. Norms are those of whole keys and values. Pairs are those that the operator shows. The first
token is the first key: in a model with sink tokens, the first of these.
"""

from typing import ClassVar, Literal

from ablate.training.probes.attention_rows import AttentionRows, by_head, mean
from ablate.training.probes.probe import Found, Probe, ProbeInput, RowInfo
from ablate.variants.attend import split_gate
from ablate.variants.axes import Keys, Map, Queries
from ablate.variants.model.transformer import LayerTrace
from ablate.variants.operator import by_stage
from ablate.variants.stages.families import split_signals


class FirstKey(Probe):
    """`key_norm`, `value_norm` and `qk_cosine`, each of the first token and, as `other_...`, of the others; by head."""

    rows: ClassVar[tuple[RowInfo, ...]] = tuple(
        RowInfo(f"{which}_{name}", "-1 to 1" if name == "qk_cosine" else "length of a vector")
        for name in ("key_norm", "value_norm", "qk_cosine")
        for which in ("first", "other")
    )
    cost: ClassVar[str] = "three products of queries and keys in float64"

    kind: Literal["first_key"] = "first_key"

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        rows, heads = AttentionRows(layer), layer.worked.heads
        q, k = (split_gate(layer.operator, each.double())[0] for each in (heads.q, heads.k))
        for name, vectors in (("key_norm", k), ("value_norm", heads.v.double())):
            norms = vectors.norm(dim=-1)
            yield from by_head(f"first_{name}", layer.layer, mean(norms[..., :1], rows.real[..., :1], (0, 2)))
            yield from by_head(f"other_{name}", layer.layer, mean(norms[..., 1:], rows.real[..., 1:], (0, 2)))
        cosines, pairs = _cosines(layer, q, k)[..., 1:, :], rows.seen[..., 1:, :]
        for name, keys in (("first_qk_cosine", slice(0, 1)), ("other_qk_cosine", slice(1, None))):
            yield from by_head(name, layer.layer, mean(cosines[..., keys], pairs[..., keys], (0, 2, 3)))


def _cosines(layer: LayerTrace, q: Queries, k: Keys) -> Map:
    operator, distance = layer.operator, layer.worked.heads.distance
    numbers = by_stage(layer.worked.numbers)["product"]
    signals = [split_signals(x, operator.signals.count) for x in (q, k)]
    z = operator.product.logits(*signals, distance, **numbers)
    own = [operator.product.logits(x, x, distance, **numbers).diagonal(dim1=-2, dim2=-1) for x in signals]
    size = own[0].sqrt()[..., :, None] * own[1].sqrt()[..., None, :]
    cosines = z / size.masked_fill(size == 0, 1)
    return cosines.masked_fill(size == 0, 0).mean(0)
