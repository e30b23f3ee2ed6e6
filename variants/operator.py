"""An attention operator as a spec, and `attend`, the equation it stands for.

    z_ij = mean over signals of q_i . k_j, scaled once
    a_ij = gamma + c_i (z_ij - gamma) - b_ij          margin c, gate b, relevance threshold gamma
    f_ij = score(a_ij)
    w_ij = f_ij / Z_i                                 normaliser, over visible keys
    o_i  = sum_j w_ij v_j + w_i0 v_0                  readout

Every operator is a point in this space; a combination that has no meaning is refused when the spec is built.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, Self

import torch
from pydantic import model_validator
from torch import Tensor

from grid.spec import Label, Spec
from variants.logits.gate import NoGate
from variants.logits.margin import NoMargin
from variants.logits.signals import Signals
from variants.normalisers.total import Total
from variants.number import Number
from variants.readouts.values import Values
from variants.scores.exponential import Exponential
from variants.stages import Gate, Margin, Normaliser, Readout, Score

NumberValues = Mapping[str, Tensor]
"""Values of an operator's numbers by "stage.field", shaped to broadcast (see `variants.number`)."""


class Operator(Spec):
    """One attention operator: a choice per stage. All defaults together are softmax."""

    name: Label = ""
    signals: Signals = Signals()
    margin: Margin = NoMargin()
    gate: Gate = NoGate()
    score: Score = Exponential()
    normaliser: Normaliser = Total()
    readout: Readout = Values()

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        if self.readout.needs_ground and not self.normaliser.has_ground:
            raise ValueError(
                f"readout {self.readout.label!r} needs a normaliser with a ground state and {self.normaliser.label!r} "
                "has none; use normaliser=Ground(), or forbid the combination"
            )
        return self

    @property
    def label(self) -> str:
        """For tables and charts: the name, or the stages that differ from softmax; and the number of signals."""
        signals = self.signals.label
        return (self.name or self._described()) + (f" {signals}" if signals else "")

    def renamed(self, before: Self) -> Self:
        """The name it was given says what it was; a stage of another kind is added to it."""
        changed = [stage for stage in _KINDS if getattr(self, stage).kind != getattr(before, stage).kind]
        if not changed or not self.name or self.name != before.name:
            return self
        kinds = (f"{stage} {kind}" if (kind := getattr(self, stage).kind) == "none" else kind for stage in changed)
        return self.changed(name=" + ".join((self.name, *kinds)))

    def _described(self) -> str:
        fields = type(self).model_fields
        changed = [stage for stage in _KINDS if getattr(self, stage) != fields[stage].default]
        return " + ".join(getattr(self, stage).kind for stage in changed) or "softmax"

    def numbers(self) -> dict[str, Number]:
        """Every number of every stage by "stage.field", in the order of the equation."""
        return {
            f"{stage}.{field}": value
            for stage in _STAGES
            for field in type(getattr(self, stage)).model_fields
            if isinstance(value := getattr(getattr(self, stage), field), Number)
        }

    def at_init(self) -> dict[str, Tensor]:
        """The numbers' values at step 0, as scalars that broadcast against anything."""
        return {name: torch.tensor(number.init) for name, number in self.numbers().items()}

    def check(self, *, head_width: int, rotary: bool) -> None:
        """Raise ValueError when a head of `head_width` channels cannot carry this operator."""
        semantic = head_width - self.split_channels
        if semantic < 1:
            raise ValueError(
                f"the gate takes {self.split_channels} of a head's {head_width} channels and leaves none to the "
                f"logit; use gate.width below {head_width}, or dims='add'"
            )
        count, width = self.signals.count, semantic // self.signals.count
        if semantic % count:
            valid = [s for s in range(1, semantic + 1) if semantic % s == 0]
            nearest = min(valid, key=lambda s: abs(s - count))
            raise ValueError(f"signals.count divides a head's {semantic} channels; got {count}, nearest is {nearest}")
        if not rotary and self.signals.rotary == "before_split":
            raise ValueError("signals.rotary='before_split' says nothing without rotary positions; leave it out")
        if rotary and self.signals.rotary == "per_signal" and width % 2:
            raise ValueError(
                f"rotary positions need an even number of channels per signal; got {width} = {semantic}/{count}; "
                "use fewer signals or signals.rotary='before_split'"
            )

    @property
    def split_channels(self) -> int:
        """How many of a head's own channels the gate takes."""
        return self.gate.channels if self.gate.takes_channels else 0

    @property
    def added_channels(self) -> int:
        """How many channels the gate adds to a head's query and key."""
        return self.gate.channels - self.split_channels


_KINDS = ("margin", "gate", "score", "normaliser", "readout")
_STAGES = ("signals", *_KINDS)


class Attended(NamedTuple):
    """What a head computed: output [B, H, T, D], weights [B, H, T, T], the ground state's weight [B, H, T, 1]."""

    output: Tensor
    weights: Tensor
    ground: Tensor | None


def attend(
    operator: Operator,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    numbers: NumberValues | None = None,
) -> Attended:
    """The equation, term by term. The definition every faster path is held to.

    `q`, `k` are [B, H, T, D + G]: D semantic channels, then the gate's G. `v` is [B, H, T, D_v]. `mask` is boolean and
    broadcasts to [B, H, T, T]; True = may look; None = causal. `numbers` defaults to their values at step 0.
    """
    mask = causal(q.shape[-2], k.shape[-2], q.device) if mask is None else mask
    value = _by_stage(operator.at_init() if numbers is None else numbers)
    semantic = q.shape[-1] - operator.gate.channels
    count = mask.sum(-1, keepdim=True, dtype=torch.promote_types(q.dtype, torch.float32))  # K_i

    z = operator.signals.logits(q[..., :semantic], k[..., :semantic]).masked_fill(~mask, 0)
    gamma = operator.normaliser.relevance(**value["normaliser"])
    c = operator.margin.factor(count, **value["margin"])
    a = z if c is None else c * z if gamma is None else c * z + (1 - c) * gamma
    if operator.gate.channels:
        a = a - operator.gate.suppression(q[..., semantic:], k[..., semantic:], **value["gate"])

    def log_score(logits: Tensor) -> Tensor:
        return operator.score.log_score(logits, **value["score"])

    weights = operator.normaliser.weights(log_score(a), mask, log_score, **value["normaliser"])
    output = operator.readout.output(weights, v, **value["readout"])
    return Attended(output, weights.keys, weights.ground)


@lru_cache(maxsize=32)
def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Boolean [T_q, T_k]: query i, aligned to the last keys, sees key j when j <= i. Shared: do not write into it."""
    with torch.inference_mode(mode=False):  # cached: the first caller may be an evaluation, the next one trains
        return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def _by_stage(numbers: NumberValues) -> dict[str, dict[str, Tensor]]:
    stages: dict[str, dict[str, Tensor]] = {stage: {} for stage in _STAGES}
    for name, value in numbers.items():
        stage, field = name.split(".")
        stages[stage][field] = value
    return stages
