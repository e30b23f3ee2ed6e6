"""What makes the first key one: the sizes of keys and values, and how queries point to them.

    cos(q_i, k_1) over i > 1      against      cos(q_i, k_j) over 1 < j <= i

"When Attention Sink Emerges", figure 6: the first key is small and points along all queries. Queries and keys as the
logit takes them, prepared and turned by positions, without a gate's channels; vectors of 0 have the cosine 0. Pairs are
those the operator lets see. The first token is the first key: in a model with sink tokens, the first of these.
"""

from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from runners.probes.probe import Found, Probe, Seen
from runners.probes.rows import Rows, by_head, mean
from variants.attend import semantic_channels
from variants.transformer import Watched


class FirstKey(Probe):
    """`key_norm`, `value_norm` and `qk_cosine`, each of the first token and, as `other_...`, of the others; by head."""

    kind: Literal["first_key"] = "first_key"

    def of_layer(self, layer: Watched, seen: Seen) -> Found:  # noqa: ARG002
        rows, heads = Rows(layer), layer.worked.heads
        q, k = (semantic_channels(layer.operator, each.float()) for each in (heads.q, heads.k))
        for name, vectors in (("key_norm", k), ("value_norm", heads.v.float())):
            norms = vectors.norm(dim=-1)
            yield from by_head(f"first_{name}", layer.layer, mean(norms[..., :1], rows.real[..., :1], (0, 2)))
            yield from by_head(f"other_{name}", layer.layer, mean(norms[..., 1:], rows.real[..., 1:], (0, 2)))
        cosines, pairs = _cosines(q, k)[..., 1:, :], rows.seen[..., 1:, :]
        first, others = (slice(0, 1), slice(1, None))
        for name, keys in (("first_qk_cosine", first), ("other_qk_cosine", others)):
            yield from by_head(name, layer.layer, mean(cosines[..., keys], pairs[..., keys], (0, 2, 3)))


def _cosines(q: Tensor, k: Tensor) -> Tensor:
    """[B, H, T_q, T_k], whatever the precision of other products."""
    q, k = F.normalize(q.double(), dim=-1), F.normalize(k.double(), dim=-1)
    return q @ k.transpose(-2, -1)
