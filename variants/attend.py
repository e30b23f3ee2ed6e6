"""The equation of attention: the definition that every faster path must match.

For one head, query i and its visible keys j, K_i of them:

    z_ij = product(q_i, k_j)                          of each signal; mean over signals; transform
                                                      + what positions add - forgetting
    a_ij = gamma + c_i (z_ij - gamma) - b_ij          margin c, gate b, relevance threshold gamma
    f_ij = score(a_ij)
    w_ij = f_ij / Z_i                                 normaliser; merge of the signals' maps; rescale
    o_i  = sum_j w_ij v_j + w_i0 v_0                  readout; head norm; output gate
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from ablate.grid.errors import SpecError
from ablate.variants.axes import Distances, HeadOutput, Keys, Map, Mask, Queries, Scalar
from ablate.variants.operator import NumberValues, Operator, by_stage, causal, distances, head_shape
from ablate.variants.stages.families import AttentionWeights, split_signals
from ablate.variants.stages.positions import NoPositions, Positions

Keywords = dict[str, dict[str, Tensor]]


class Heads(NamedTuple):
    """Prepared inputs of attention: queries and keys carry their positions already, and have the same heads at last."""

    q: Float[Tensor, "batch heads queries channels"]
    """Semantic channels, then the gate's."""
    k: Float[Tensor, "batch key_heads keys channels"]
    v: Float[Tensor, "batch key_heads keys values"]
    mask: Bool[Tensor, "*#maps #queries #all_keys"] | None = None
    """True = may look; None = causal."""
    bias: Float[Tensor, "*#maps #queries #all_keys"] | None = None
    """Position bias of the logits."""
    dropout: float = 0.0
    """The probability that a normalised weight is dropped; 0 outside training."""

    @property
    def distance(self) -> Distances:
        """i - j."""
        return distances(self.q.shape[-2], self.k.shape[-2], self.q.device)

    @property
    def model_mask(self) -> Bool[Tensor, "*maps queries keys"]:
        """The mask, causal where none was given."""
        shape = self.q.shape[-2], self.k.shape[-2]
        if self.mask is None:
            return causal(*shape, self.q.device)
        return self.mask.expand(*self.mask.shape[:-2], *shape)  # stages sum over its keys


class AttentionOutput(NamedTuple):
    """Output, weights and logits of the heads."""

    output: Float[Tensor, "batch heads queries values"]
    weights: Float[Tensor, "batch heads queries keys"]
    ground: Float[Tensor, "batch heads queries 1"] | None
    """The ground state's or sink's weight."""
    extra: Float[Tensor, "batch heads queries 1"] | None
    """The weight of the learned key."""
    logits: Float[Tensor, "*signals batch heads queries keys"]
    """a, without signals if they merge before the score. Hidden entries are arbitrary."""


PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def attend(  # noqa: PLR0913  (the tensors of one call)
    operator: Operator,
    q: Float[Tensor, "batch heads queries channels"],
    k: Float[Tensor, "batch heads keys channels"],
    v: Float[Tensor, "batch heads keys values"],
    *,
    mask: Mask | None = None,
    numbers: NumberValues | Literal["start"] | None = None,
    head_width: int | None = None,
) -> AttentionOutput:
    """Compute the equation without positions. The last channels of q and k are the gate's.

    `mask` is as in `Heads`. `numbers` are the values of the operator's numbers, or "start" for those at step 0; without
    learned ones they may be left out. `head_width`, the D channels of queries and keys without the gate's, is needed
    where a gate adds channels. SpecError if heads, mask or numbers do not fit.
    """
    heads = Heads(q, k, v, mask)
    _check(operator, heads, head_width)
    numbers = _numbers(operator, heads, numbers)
    q, k = prepare(operator, q, k, NoPositions(), numbers)
    return attention(operator, heads._replace(q=q, k=k), numbers)


def _numbers(operator: Operator, heads: Heads, numbers: NumberValues | Literal["start"] | None) -> NumberValues:
    """Return a value for each number; SpecError if one is missing."""
    known = operator.numbers()
    if numbers is None and (learned := [name for name, number in known.items() if number.trained]):
        raise SpecError(
            f"{operator.label!r} has learned numbers and none were passed: {', '.join(learned)}; pass numbers=, or "
            "numbers='start' for their values at step 0"
        )
    if numbers is None or numbers == "start":
        q, keys = heads.q, heads.k.shape[-2]
        shape = head_shape(operator, heads=q.shape[1], query=q.shape[-1], value=heads.v.shape[-1], width=1)
        try:
            start = operator.at_init(shape)
        except ValueError as error:
            raise SpecError(str(error)) from error
        return {
            name: each.expand(-1, -1, keys, -1) if name in operator.by_key else each for name, each in start.items()
        }
    if numbers.keys() != known.keys():
        raise SpecError(
            f"numbers of {operator.label!r} are {', '.join(known) or 'none'}; got {', '.join(numbers) or 'none'}; pass "
            "each of them, or numbers='start' for those at step 0"
        )
    return numbers


def _check(operator: Operator, heads: Heads, head_width: int | None) -> None:
    """Raise SpecError if types, heads or channels do not fit the operator."""
    for x in heads.q, heads.k, heads.v:
        if x.dtype not in PRECISIONS:
            raise SpecError(f"queries, keys and values are float16, bfloat16, float32 or float64, not {x.dtype}")
    if heads.mask is not None and heads.mask.dtype != torch.bool:
        raise SpecError(f"the mask is {heads.mask.dtype}; give a boolean one, True where a query may look")
    if not heads.q.shape[:2] == heads.k.shape[:2] == heads.v.shape[:2]:
        queries, keys, values = ([*x.shape[:2]] for x in heads[:3])
        raise SpecError(
            f"keys and values have as many sequences and heads [B, H] as queries; got {queries} of queries, {keys} "
            f"of keys and {values} of values; repeat their heads with repeat_interleave"
        )
    channels, added = heads.q.shape[-1], operator.added_channels
    if added and head_width is None:
        raise SpecError(
            f"the gate of {operator.label!r} adds {added} channels to those of queries and keys, {channels} in all; "
            "say with head_width= how many are without it"
        )
    if head_width is not None and head_width + added != channels:
        raise SpecError(
            f"queries and keys have head_width {head_width} and {added} channels of the gate, {head_width + added} in "
            f"all; got {channels}"
        )
    if channels <= added:
        raise SpecError(
            f"the last {added} channels of queries and keys are the gate's, beside those of the logit; got {channels} "
            f"in all; append {added} channels to queries and keys, or use a smaller gate.width"
        )
    try:
        operator.score.check(heads.q.shape[1])
        operator.check_channels(channels - added)
    except ValueError as error:
        raise SpecError(str(error)) from error


class Rotation(Protocol):
    """Turns queries and keys by their positions, as `Positions` does."""

    rotates: bool

    def rotate(
        self, x: Float[Tensor, "batch heads tokens channels"], *, signals: int, start: int = 0
    ) -> Float[Tensor, "batch heads tokens channels"]:
        """Turn queries or keys."""


def prepare(
    operator: Operator,
    q: Queries,
    k: Float[Tensor, "batch key_heads keys channels"],
    positions: Positions | Rotation,
    numbers: NumberValues,
    start: int = 0,
) -> tuple[Queries, Float[Tensor, "batch key_heads keys channels"]]:
    """Prepare the semantic channels and rotate them, from position `start` on; leave gate channels unchanged."""
    (q_own, q_gate), (k_own, k_gate) = split_gate(operator, q), split_gate(operator, k)
    q_own, k_own = operator.preparation.prepare(q_own, k_own, **by_stage(numbers)["preparation"])
    if positions.rotates:
        signals = operator.signals.count if operator.signals.rotary == "per_signal" else 1
        place = {"signals": signals, **({"start": start} if start else {})}  # a user's scheme may not know `start`
        q_own, k_own = positions.rotate(q_own, **place), positions.rotate(k_own, **place)
    if q_gate is None or k_gate is None:
        return q_own, k_own
    return torch.cat((q_own, q_gate), -1), torch.cat((k_own, k_gate), -1)


def split_gate(
    operator: Operator, x: Float[Tensor, "*heads tokens channels"]
) -> tuple[Float[Tensor, "*heads tokens semantic"], Float[Tensor, "*heads tokens gate"] | None]:
    """Split queries or keys into semantic and gate channels. Slicing all channels would copy gradients."""
    own = operator.gate.channels
    return (x[..., :-own], x[..., -own:]) if own else (x, None)


def definition(operator: Operator, heads: Heads, numbers: NumberValues) -> AttentionOutput:
    """Compute `attention` in the precision of its inputs, also under autocast."""
    with without_autocast(heads.q.device.type):
        return attention(operator, heads, numbers)


def without_autocast(device: str) -> AbstractContextManager[object]:
    """Turn autocast off on `device`, so that matrix products keep the precision of their inputs."""
    if device != "meta" and torch.is_autocast_enabled(device):  # "meta" has none, and asking is an error
        return torch.autocast(device, enabled=False)
    return nullcontext()


def attention(operator: Operator, heads: Heads, numbers: NumberValues) -> AttentionOutput:
    """Compute the equation term by term from prepared heads."""
    value, dtype = by_stage(numbers), heads.v.dtype
    working = torch.promote_types(dtype, torch.float32)  # scores, weights and sums are never of lower precision
    heads = heads._replace(q=heads.q.to(working), k=heads.k.to(working), v=heads.v.to(working))
    mask = visible_keys(operator, heads)
    pair = operator.extra.pair(**value["extra"])
    seen = mask if pair is None else F.pad(mask, (1, 0), value=True)
    v = heads.v
    if pair is not None:
        own = torch.zeros_like(v[..., :1, :]) if pair.value is None else pair.value.to(v).expand_as(v[..., :1, :])
        v = torch.cat((own, v), -2)

    a = _logits(operator, heads, mask, pair.key if pair is not None else None, value)
    scores = operator.score.scores(a.masked_fill(~seen, 0), seen, **value["score"])
    weights = operator.normaliser.weights(scores, **value["normaliser"])
    weights = _drop(weights, heads.dropout) if heads.dropout else weights
    if not operator.merge.of_logits:
        weights = operator.merge.merge(weights, **value["merge"])
    weights = operator.rescale.rescale(weights, seen, **value["rescale"])
    output = postprocess(operator, operator.readout.output(weights, v, **value["readout"]), value).to(dtype)
    if pair is None:
        return AttentionOutput(output, weights.keys, weights.ground, None, a)
    return AttentionOutput(output, weights.keys[..., 1:], weights.ground, weights.keys[..., :1], a[..., 1:])


def _drop(weights: AttentionWeights, p: float) -> AttentionWeights:
    """Set every weight of every map to 0 with probability p; divide the others by 1 - p."""
    keys, ground = weights
    return AttentionWeights(F.dropout(keys, p), None if ground is None else F.dropout(ground, p))


def visible_keys(operator: Operator, heads: Heads) -> Bool[Tensor, "*maps queries keys"]:
    """Return the mask of the operator; True = the query sees the key."""
    return operator.visible.restrict(heads.model_mask, heads.distance)


def qk_logits(
    operator: Operator, heads: Heads, numbers: NumberValues
) -> Float[Tensor, "*signals batch heads queries keys"]:
    """Compute z in float32 or more, without signals if they merge before the score.

    z is the scaled, transformed product, before position bias, forgetting, margin and gate. Hidden entries are
    arbitrary.
    """
    working = torch.promote_types(heads.q.dtype, torch.float32)
    (q, _), (k, _) = split_gate(operator, heads.q.to(working)), split_gate(operator, heads.k.to(working))
    with without_autocast(q.device.type):
        return _products(operator, q, k, heads.distance, by_stage(numbers))


def postprocess(operator: Operator, output: HeadOutput, value: Keywords) -> HeadOutput:
    """Apply head norm and output gate."""
    normed = operator.head_norm.normalise(output, **value["head_norm"])
    return operator.output_gate.gate(normed, **value["output_gate"])


def _logits(
    operator: Operator, heads: Heads, mask: Mask, key: Float[Tensor, "1 #heads 1 channels"] | None, value: Keywords
) -> Float[Tensor, "*signals batch heads queries more_keys"]:
    """Compute a, unmasked. The learned key's column, if any, comes first."""
    (q, q_gate), (k, k_gate) = split_gate(operator, heads.q), split_gate(operator, heads.k)
    z = _products(operator, q, k, heads.distance, value)
    z = z if heads.bias is None else z + heads.bias
    if operator.forgetting.label != "none" or operator.margin.label != "none":  # hidden logits get no gradient
        z = z.masked_fill(~mask, 0)
    lowering = operator.forgetting.lowering(z, mask, **value["forgetting"])
    z = z if lowering is None else z - lowering
    if key is not None:
        nowhere = torch.zeros_like(heads.distance[:, :1])
        own = _products(operator, q, key.to(k).expand_as(k[..., :1, :]), nowhere, value)
        z = torch.cat((own, z), -1)

    count = mask.sum(-1, keepdim=True, dtype=q.dtype)  # K_i
    gamma = operator.normaliser.relevance(**value["normaliser"])
    c = operator.margin.factor(count, **value["margin"])
    a = z if c is None else c * z if gamma is None else _amplify(z, c, gamma)
    if q_gate is not None and k_gate is not None:
        b = operator.gate.suppression(q_gate, k_gate, **value["gate"])
        a = a - (b if key is None else F.pad(b, (1, 0)))
    return a


def _amplify(z: Map, c: Float[Tensor, "*#maps queries 1"], gamma: Scalar) -> Map:
    """Compute gamma + c (z - gamma) so that c = 1 loses no bits of z, and z = gamma gives gamma itself."""
    a = c * z + (1 - c) * gamma
    return a + torch.where(z == gamma, gamma - a, 0).detach()


def _products(
    operator: Operator, q: Queries, k: Keys, distance: Distances, value: Keywords
) -> Float[Tensor, "*signals batch heads queries keys"]:
    signals, product = operator.signals.count, operator.product
    if operator.merge.of_logits:
        z = product.mean_logits(q, k, distance, signals, **value["product"])
    else:
        z = product.logits(split_signals(q, signals), split_signals(k, signals), distance, **value["product"])
    return operator.transform.transform(z, **value["transform"])
