"""Forgetting: lowers a logit because of the tokens in between."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from ablate.grid.errors import SpecError
from ablate.variants.axes import Map, Mask
from ablate.variants.granularity import Axis, Granularity
from ablate.variants.links import LINKS, Link
from ablate.variants.number import HeadShape, Number, require_link
from ablate.variants.stages.families import Forgetting


class GatedForgetting(Forgetting):
    """Lowers a logit by the sum of -ln f over the later tokens that the query sees."""

    if TYPE_CHECKING:
        gate: Number  # every member has one

    def lowering(
        self, z: Map, mask: Mask, *, gate: Float[Tensor, "#batch #heads #keys 1"]
    ) -> Float[Tensor, "*#maps queries keys"]:
        queries, keys = z.shape[-2:]
        if self.gate.predicted and gate.shape[-2] != keys:
            raise SpecError(
                f"the forget gate has {gate.shape[-2]} values for {keys} keys; pass those of earlier tokens, too"
            )
        log = gate.clamp(min=torch.finfo(gate.dtype).tiny).log().transpose(-2, -1)  # [..., 1, T]: of the token l
        until = torch.ones(queries, keys, dtype=torch.bool, device=z.device).tril(keys - queries)
        seen = log.to(z.dtype) * (mask & until)
        after = F.pad(seen[..., 1:], (0, 1))
        return -after.flip(-1).cumsum(-1).flip(-1)  # from the near end, so that recent keys lose no bits

    def oracle(self, first: list[list[float]], seen: list[list[bool]], i: int, j: int, *, gate: list[float]) -> float:
        return -sum(math.log(gate[l]) for l in range(j + 1, i + 1) if seen[i][l])


class HeadDecay(Number):
    """A share f by head: `init` in the first head, `last` in the last one, log-spaced decay times between them."""

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = (("layer", "head"), ("layer", "head", "token"))
    noun: ClassVar[str] = "share by head"

    last: Annotated[float, Field(gt=0, lt=1)]
    per: Granularity = ("layer", "head")
    link: Link = "unit"

    def table(self, shape: HeadShape, layer: int) -> Float[Tensor, "1 heads 1 1"]:
        first, last = (math.log(-1 / math.log(share)) for share in (self.init, self.last))
        steps = max(shape.heads - 1, 1)
        times = [math.exp(first + (last - first) * head / steps) for head in range(shape.heads)]
        raw = [LINKS[self.link].inverse(math.exp(-1 / time)) for time in times]
        return torch.tensor(raw, dtype=torch.float32).view(1, -1, 1, 1)


class DecayTimes(GatedForgetting):
    """A forget gate whose heads start with different decay times, from short to long.

        z_ij + sum_{l = j+1 .. i} ln f_l          f = e^(-1 / t) at the start

    The decay time t, in tokens, is evenly spaced in logarithm: t_h = t_1 (t_H / t_1)^((h - 1) / (H - 1)) for head h of
    H. Everything else is as in `forget_gate`.
    """

    source: ClassVar[str] = "Forgetting Transformer, data-independent forget gate; its released code"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The released code spreads the bias only if the gate does not depend on the token, hence per='head' here.",
    )

    kind: Literal["decay_times"] = "decay_times"
    gate: Annotated[HeadDecay, require_link("unit")] = HeadDecay(init=0.6, last=0.99)
    """The share f that a token keeps of earlier keys."""


class ForgetGate(GatedForgetting):
    """A forget gate: the logit of a key falls with every later token that forgets.

        z_ij + sum_{l = j+1 .. i} ln f_l          0 < f_l <= 1

    The sum is over the tokens that query i sees. Keys after the query, in an encoder, are not lowered. The Forgetting
    Transformer predicts f from the token. One f per head is a learned linear decay: ALiBi with a trained slope -ln f.
    With f = 1 nothing is forgotten.
    """

    source: ClassVar[str] = "Forgetting Transformer, section 3"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "It starts at f = 0.5, as in the released code: a weight halves with every token until the gate has learned.",
    )

    kind: Literal["forget_gate"] = "forget_gate"
    gate: Annotated[Number, require_link("unit")] = Number(init=0.5, per="token", link="unit")
    """The share f that a token keeps of earlier keys."""

    @model_validator(mode="after")
    def _is_a_share(self) -> Self:
        if self.gate.init == 0:
            raise ValueError("a forget gate of 0 leaves only the query's own key; use visible=Window(size=1)")
        return self


class Selective(Forgetting):
    """Selective attention: keys that earlier queries of the first head attended to count less for later queries.

        F_ij = sum_{l < i, l != j} relu(z_lj of the first head)          z_ij - F_ij  in every head

    A token does not mask itself, and key 0 is never masked. A padding query, whose own key is hidden, masks nothing.
    There are no parameters.
    """

    source: ClassVar[str] = "Selective Attention Improves Transformer, section 3"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The first head's own logits are lowered as well, but F is taken from them as they were before.",
    )

    kind: Literal["selective"] = "selective"

    @property
    def breaks(self) -> Mapping[str, str]:
        return {"heads": "the first head's logits lower those of all heads"}

    @property
    def no_cache(self) -> str:
        return "a logit is lowered by those of all queries before it"

    def lowering(self, z: Map, mask: Mask) -> Float[Tensor, "*#maps queries keys"]:
        queries, keys = z.shape[-2:]
        if queries != keys:
            raise SpecError(f"selective attention has {queries} queries for {keys} keys; give as many")
        chosen = z[..., :1, :, :].relu()
        exempt = torch.eye(keys, dtype=torch.bool, device=z.device)
        exempt[:, 0] = True
        first = mask[..., :1, :, :] if mask.dim() > 2 else mask
        hidden = ~first.diagonal(dim1=-2, dim2=-1)[..., None]  # tokens that are not there, as padding is
        before = F.pad(chosen.masked_fill(exempt | hidden, 0)[..., :-1, :], (0, 0, 1, 0))
        return before.cumsum(-2)

    def oracle(self, first: list[list[float]], seen: list[list[bool]], i: int, j: int) -> float:
        return sum(max(first[l][j], 0.0) for l in range(i) if l != j and seen[l][l]) if j > 0 else 0.0
