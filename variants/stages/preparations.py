"""Changes of queries and keys before positions."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor

from ablate.variants.number import KeyVector
from ablate.variants.stages.families import Preparation


class RMSNorm(Preparation):
    """Query-key normalisation: the root mean square of a head's query and key is made 1 before positions turn them.

        q' = g_q q / sqrt(mean(q^2) + eps)          k' = g_k k / sqrt(mean(k^2) + eps)

    over the head's channels without the gate's; g_q and g_k are gains per channel. Later stages are unchanged, so with
    gains of 1 the logit is  sqrt(d) cos(q, k)  and cannot leave [-sqrt(d), sqrt(d)].

    Normalising to length 1 has no kind of its own: up to eps, it is this stage with fixed gains of 1 and transform
    "temperature". A learned factor g of cos(q, k) is tau = sqrt(d) / g.
    """

    source: ClassVar[str] = (
        "Scaling Vision Transformers to 22 Billion Parameters, section 2 (LayerNorm there); Qwen3, section 2"
    )
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The gains are shared by a layer's heads in most released code; per='head' gives each head its own.",
        "Without rotary positions only the product of the two gains counts.",
    )

    kind: Literal["rms_norm"] = "rms_norm"
    query_gain: KeyVector = KeyVector(init=1.0, per=("layer",))
    """Gain g_q of each channel of a query."""
    key_gain: KeyVector = KeyVector(init=1.0, per=("layer",))
    """Gain g_k of each channel of a key."""
    eps: PositiveFloat = 1e-6
    """Keeps a zero vector from a division by 0; 1e-6 in released code."""

    def prepare(
        self,
        q: Float[Tensor, "*heads queries channels"],
        k: Float[Tensor, "*key_heads keys channels"],
        *,
        query_gain: Float[Tensor, "1 #heads 1 channels"],
        key_gain: Float[Tensor, "1 #heads 1 channels"],
    ) -> tuple[Float[Tensor, "*heads queries channels"], Float[Tensor, "*key_heads keys channels"]]:
        q, k = self._normalise(q), self._normalise(k)
        return q * query_gain.to(q), k * key_gain.to(k)

    def _normalise(self, x: Float[Tensor, "*heads tokens channels"]) -> Float[Tensor, "*heads tokens channels"]:
        """In float32 or more, and left there: rounded again, large logits would move."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()

    def oracle(
        self, q: list[float], k: list[float], *, query_gain: list[float], key_gain: list[float]
    ) -> tuple[list[float], list[float]]:
        normalised = []
        for x, gain in ((q, query_gain), (k, key_gain)):
            size = (sum(each * each for each in x) / len(x) + self.eps) ** 0.5
            normalised.append([g * each / size for g, each in zip(gain, x, strict=True)])
        return normalised[0], normalised[1]
