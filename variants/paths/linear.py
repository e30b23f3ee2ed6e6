"""Linear attention as recurrences over chunks: time and memory linear in the length.

With logits  z_ij = c_i phi(q_i) . psi(k_j)  and the logit as score, a chunk of queries needs its own keys, and these
sums over all keys before it:

    S = sum_j psi(k_j) v_j^T          n = sum_j psi(k_j)

    sum_j z_ij v_j = sum of the chunk's own + c_i phi(q_i) S          sum_j z_ij alike with n

States are float32 or more. In sums over earlier chunks, cosFormer has twice the features, by
cos((i - j) t) = cos(i t) cos(j t) + sin(i t) sin(j t).
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from ablate.variants.attend import Heads, definition, postprocess, without_autocast
from ablate.variants.axes import Keys, Queries
from ablate.variants.operator import NumberValues, Operator, by_stage, causal
from ablate.variants.paths.case import Case, refuse_kinds, row_factor
from ablate.variants.paths.running_sum import sum_in_blocks
from ablate.variants.stages.families import FeatureProduct
from ablate.variants.stages.products import CosFormer, Dot

CHUNK = 64
"""Tokens of a chunk."""

_KINDS = {
    "visible": ("everything",),
    "extra": ("none",),
    "transform": ("none", "temperature"),
    "forgetting": ("none",),
    "margin": ("none", "log_count", "ssmax"),
    "gate": ("none",),
    "score": ("identity",),
    "normaliser": ("total", "none", "clamped", "count"),
    "rescale": ("none", "scale"),
    "readout": ("values", "value_bias"),
}


class Seen(NamedTuple):
    """Which keys queries see."""

    ahead: bool
    """True if later keys are visible."""
    keys: Bool[Tensor, "*maps keys 1"] | None
    """True for keys that are no padding; None for all."""


def cannot(operator: Operator) -> str | None:
    """Return why this path cannot run `operator`, or None if it can."""
    if (reason := refuse_kinds("linear", _KINDS, operator)) is not None:
        return reason
    if operator.signals.count > 1:
        return f"linear computes one signal only, not {operator.signals.count}"
    if not isinstance(operator.product, Dot | CosFormer | FeatureProduct):
        return f"linear computes products of features only, not {operator.product.label!r}"
    return None


def cannot_call(case: Case) -> str | None:
    """Return why this path cannot compute a call, or None if it can."""
    if case.biased:
        return "linear has no logits that positions could add to"
    if case.dropout:
        return "linear has no weights to drop"
    return "linear needs as many queries as keys" if case.queries != case.keys else None


def slower(_operator: Operator, case: Case) -> str | None:
    """Return why the definition is as fast, or None if this path is faster."""
    return f"up to {2 * CHUNK} tokens the definition is as fast" if case.keys <= 2 * CHUNK else None


def run(operator: Operator, heads: Heads, numbers: NumberValues) -> Float[Tensor, "batch heads tokens values"]:
    """Compute the output. Masks other than padding, with or without causality, go by the definition."""
    seen = find_seen(heads)
    if seen is None:
        return definition(operator, heads, numbers).output
    dtype, value = heads.v.dtype, by_stage(numbers)
    working = torch.promote_types(dtype, torch.float32)
    with without_autocast(heads.q.device.type):
        q, k, v = heads.q.to(working), heads.k.to(working), heads.v.to(working)
        q, k = _features(operator, q, k, value["product"])
        if seen.keys is not None:
            k, v = k.masked_fill(~seen.keys, 0), v.masked_fill(~seen.keys, 0)
        count = count_seen(seen, q)
        factor = row_factor(operator, operator.margin.factor(count, **value["margin"]), value)
        q = q if factor is None else q * factor
        if operator.normaliser.shared:
            v = F.pad(v, (0, 1), value=1.0)  # its sum is that of the logits; hidden keys have features of 0
        angles = _angles(operator.product, q) if isinstance(operator.product, CosFormer) else None
        output = _divide(operator, _sums(q, k, v, seen, angles), count)
        if operator.rescale.label == "scale":
            output = output * value["rescale"]["factor"]
        if operator.readout.label == "value_bias":
            output = output + value["readout"]["value_bias"]
        return postprocess(operator, output, value).to(dtype)


def needs_definition(_operator: Operator, heads: Heads) -> bool:
    """Return True for masks other than padding, with or without causality."""
    return find_seen(heads) is None


def find_seen(heads: Heads) -> Seen | None:
    """Recognise masks that are causal or none, with or without hidden keys; None for any other."""
    queries, keys = heads.q.shape[-2], heads.k.shape[-2]
    if heads.mask is None:
        return Seen(ahead=False, keys=None)
    mask = heads.model_mask
    last = mask[..., -1:, :]
    own = last.transpose(-2, -1)
    if mask.is_meta or torch.equal(mask, last & causal(queries, keys, mask.device)):
        return Seen(ahead=False, keys=own)
    return Seen(ahead=True, keys=own) if torch.equal(mask, last.expand_as(mask)) else None


def _features(
    operator: Operator, q: Queries, k: Keys, numbers: dict[str, Tensor]
) -> tuple[Float[Tensor, "batch heads queries features"], Float[Tensor, "batch heads keys features"]]:
    """Return features whose products are the logits without row factors and cosFormer's cosine."""
    product, scale = operator.product, 1 / math.sqrt(q.shape[-1])
    if isinstance(product, CosFormer):
        return q.relu(), k.relu()
    if isinstance(product, FeatureProduct):
        return product.features(q, **numbers) * scale, product.features(k, **numbers)
    return q * scale, k


def count_seen(seen: Seen, q: Float[Tensor, "batch heads tokens channels"]) -> Float[Tensor, "*maps tokens 1"]:
    """Return K_i."""
    length = q.shape[-2]
    there = q.new_ones(length, 1) if seen.keys is None else seen.keys.to(q.dtype)
    return there.sum(-2, keepdim=True).expand_as(there) if seen.ahead else there.cumsum(-2)


def _angles(product: CosFormer, q: Float[Tensor, "batch heads tokens features"]) -> Float[Tensor, " tokens"]:
    """Return i pi / 2 M of each token."""
    length = q.shape[-2]
    return torch.arange(length, dtype=torch.float64, device=q.device) * (math.pi / (2 * product.reach(length)))


def _waves(
    x: Float[Tensor, "batch heads tokens features"], angles: Float[Tensor, " tokens"] | None
) -> Float[Tensor, "batch heads tokens waves"]:
    """Return (x cos a, x sin a), whose products are those of x times cos(a_i - a_j); x without angles."""
    if angles is None:
        return x
    waves = torch.stack((angles.cos(), angles.sin()), -1).to(x)
    return (x.unsqueeze(-2) * waves[..., None]).flatten(-2)


def _sums(
    q: Float[Tensor, "batch heads tokens features"],
    k: Float[Tensor, "batch heads tokens features"],
    v: Float[Tensor, "batch heads tokens values"],
    seen: Seen,
    angles: Float[Tensor, " tokens"] | None,
) -> Float[Tensor, "batch heads tokens values"]:
    if seen.ahead:
        return _waves(q, angles) @ (_waves(k, angles).transpose(-2, -1) @ v)
    front, length = v.shape[:-2], v.shape[-2]
    size = min(CHUNK, length)
    if more := -length % size:
        q, k, v = (F.pad(x, (0, 0, 0, more)) for x in (q, k, v))
    chunks = [x.reshape(-1, size, x.shape[-1]) for x in (q, k, v)]
    own = torch.bmm(chunks[0], chunks[1].mT).tril()
    if angles is not None:
        own = own * (angles[:size, None] - angles[:size]).cos().to(own)
    sums = torch.bmm(own, chunks[2])
    if length > size:
        if angles is not None:
            angles = F.pad(angles, (0, more))
            q, k = _waves(q, angles), _waves(k, angles)
        q, k, v = (x.reshape(-1, size, x.shape[-1]) for x in (q, k, v))
        states = torch.bmm(k.mT, v)
        before = sum_in_blocks(states.reshape(-1, (length + more) // size, states[0].numel()), own=False)
        sums = torch.baddbmm(sums, q, before.reshape(states.shape))
    return sums.reshape(*front, -1, v.shape[-1])[..., :length, :]


def _divide(
    operator: Operator, sums: Float[Tensor, "batch heads tokens sums"], count: Float[Tensor, "*#maps tokens 1"]
) -> Float[Tensor, "batch heads tokens values"]:
    """Divide as the normaliser does; the last channel of `sums` is sum_j z_ij if weights share it."""
    if not operator.normaliser.shared:
        return sums / count.clamp(min=1) if operator.normaliser.label == "count" else sums
    output, total = sums[..., :-1], sums[..., -1:]
    if operator.normaliser.label == "clamped":
        return output / total.abs().clamp(min=1)
    return output / total.masked_fill(total == 0, 1)
