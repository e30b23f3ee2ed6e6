"""An attention operator as a spec: one choice per stage of the equation in `ablate.variants.attend`.

Every operator is a point in this space; a combination that has no meaning is refused when the spec is built.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Self

import torch
from jaxtyping import Bool, Float
from pydantic import model_validator
from torch import Tensor

from ablate.grid.spec import Label, Spec
from ablate.variants.axes import Distances
from ablate.variants.number import HeadShape, Number
from ablate.variants.path_versions import path_versions
from ablate.variants.shared_tensors import shared_tensor
from ablate.variants.stages import families, neutral
from ablate.variants.stages.merges import MeanLogits
from ablate.variants.stages.normalisers import Total
from ablate.variants.stages.positions import Positions
from ablate.variants.stages.products import Dot
from ablate.variants.stages.readouts import Values
from ablate.variants.stages.rescales import Affine
from ablate.variants.stages.scores import Exponential
from ablate.variants.stages.signals import Signals
from ablate.variants.stages.stage import Stage
from ablate.variants.stages.visible import Everything

NumberValues = Mapping[str, Tensor]
"""Values of an operator's numbers by "stage.field", shaped to broadcast (see `ablate.variants.number`)."""


class Operator(Spec):
    """One attention operator: a choice per stage, in the order of the equation. All defaults together are softmax."""

    name: Label = ""
    visible: families.Visible = Everything()
    preparation: families.Preparation = neutral.NoPreparation()
    extra: families.Extra = neutral.NoExtra()
    product: families.Product = Dot()
    signals: Signals = Signals()
    transform: families.Transform = neutral.NoTransform()
    forgetting: families.Forgetting = neutral.NoForgetting()
    margin: families.Margin = neutral.NoMargin()
    gate: families.Gate = neutral.NoGate()
    score: families.Score = Exponential()
    normaliser: families.Normaliser = Total()
    merge: families.Merge = MeanLogits()
    rescale: families.Rescale = neutral.NoRescale()
    readout: families.Readout = Values()
    head_norm: families.HeadNorm = neutral.NoHeadNorm()
    output_gate: families.OutputGate = neutral.NoOutputGate()

    def other_versions(self) -> Mapping[str, str]:
        """Return the versions of all paths."""
        return path_versions()

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        if self.readout.needs_ground and not self.normaliser.has_ground:
            raise ValueError(
                f"readout {self.readout.label!r} needs a normaliser with a ground state and {self.normaliser.label!r} "
                "has none; use normaliser=Ground(), or forbid the combination"
            )
        self._check_mass()
        self._check_logits_count()
        self._check_sizes()
        if self.extra.label != "none" and not self.extra.has_value and not self.normaliser.shared:
            raise ValueError(
                f"extra {self.extra.label!r} has no value and acts through a sum of scores, and normaliser "
                f"{self.normaliser.label!r} has none; use extra 'key_value_bias', or normaliser 'total'"
            )
        wanted, count = self.merge.signals, self.signals.count
        if wanted is not None and count != wanted:
            use = f"use signals=Signals(count={wanted})"
            raise ValueError(f"merge {self.merge.label!r} takes {wanted} signals, got {count}; {use}")
        if wanted is None and count == 1 and not self.merge.of_logits:
            raise ValueError(f"merge {self.merge.label!r} says nothing about one signal; raise signals.count")
        return self

    def _check_mass(self) -> None:
        """A normaliser that divides mass needs a score that is mass."""
        score, needs = self.score, self.normaliser.needs
        never = score.range in ("positive", "nonnegative", "constant")
        nonnegative = never or (score.range == "as its logit" and self.nonnegative_logits)
        rule = ""
        if needs == "exponential" and score.label != "exponential":
            rule = f"takes the logarithm of a score for its logit and needs score 'exponential'; got {score.label!r}"
        elif needs == "logarithm" and score.range != "positive":
            known = "a positive score known by its logarithm, such as 'exponential' or 'ssa'"
            rule = f"needs {known}; got {score.label!r}"
        elif needs == "signs" and never:
            raise ValueError(self._no_signs())
        elif needs == "nonnegative" and not nonnegative:
            others = "'clamped', 'absolute', 'count' or 'none'"
            rule = f"needs a score that is not negative, and {score.label!r} can be; use normaliser {others}"
        if rule:
            raise ValueError(f"normaliser {self.normaliser.label!r} {rule}")

    def _check_logits_count(self) -> None:
        """Refuse stages that act on logits if the score is constant."""
        if self.score.range != "constant":
            return
        of_logits = ("preparation", "extra", "product", "signals", "transform", "forgetting", "margin", "gate")
        silent = [stage for stage in of_logits if getattr(self, stage) != type(self).model_fields[stage].default]
        silent += ["normaliser"] if self.normaliser.has_ground else []
        if silent:
            raise ValueError(
                f"score {self.score.label!r} is the same whatever the logit, so {' and '.join(silent)} would say "
                "nothing; leave them out or choose another score"
            )

    def _no_signs(self) -> str:
        return (
            f"normaliser {self.normaliser.label!r} is for scores of both signs, and {self.score.label!r} is never "
            "negative here, which makes it 'total' under another name; use normaliser 'total'"
        )

    def _check_sizes(self) -> None:
        """Refuse a stage whose factor a later stage divides out again."""
        if self._divides_out and self.margin.label != "none" and self.gate.label == "none":
            raise ValueError(self._divided_out(f"margin {self.margin.label!r}"))
        if self.rescale.only_scales and self.head_norm.ignores_size and self.readout.label in _LINEAR_READOUTS:
            raise ValueError(
                f"rescale {self.rescale.label!r} multiplies the output of a head by one number, and head_norm "
                f"{self.head_norm.label!r} divides it out again; leave one of them out"
            )
        averages = self.score.range == "constant" and self.normaliser.averages
        if averages and isinstance(self.rescale, Affine) and self.rescale.n == "visible":
            raise ValueError(
                f"score {self.score.label!r} under normaliser {self.normaliser.label!r} gives each of K visible keys "
                "the weight 1 / K, on which rescale 'affine' with n='visible' puts mean / K whatever alpha is; use "
                "n='context', or leave it out"
            )

    @property
    def _divides_out(self) -> bool:
        """True if a positive factor on all logits of a row leaves the weights unchanged."""
        return self.score.homogeneous and self.normaliser.scale_free

    def _divided_out(self, what: str) -> str:
        return (
            f"{what} multiplies all logits of a query by one number, which score {self.score.label!r} under normaliser "
            f"{self.normaliser.label!r} divides out again; leave it out, or use score 'exponential'"
        )

    @property
    def nonnegative_logits(self) -> bool:
        """True if no logit can be below 0."""
        quiet = (self.transform, self.forgetting, self.margin, self.gate)
        return self.product.nonnegative and all(stage.label == "none" for stage in quiet)

    @property
    def label(self) -> str:
        """For tables and charts: the name, or the stages that differ from softmax; and the number of signals."""
        signals = self.signals.label if self.merge.signals is None else ""
        changed = [stage for stage in KINDS if getattr(self, stage) != type(self).model_fields[stage].default]
        name = self.name or " + ".join(getattr(self, stage).kind for stage in changed) or "softmax"
        return name + (f" {signals}" if signals else "")

    def relabel(self, before: Self) -> Self:
        """Add the kinds of changed stages to a name that was given before the change."""
        changed = [stage for stage in KINDS if getattr(self, stage).kind != getattr(before, stage).kind]
        if not changed or not self.name or self.name != before.name:
            return self
        kinds = (f"{stage} {kind}" if (kind := getattr(self, stage).kind) == "none" else kind for stage in changed)
        return self.changed(name=" + ".join((self.name, *kinds)))

    def stages(self) -> dict[str, Stage]:
        """Return every choice by field, in the order of the equation."""
        return {stage: getattr(self, stage) for stage in KINDS}

    def numbers(self) -> dict[str, Number]:
        """Return every number of every stage by "stage.field", in the order of the equation."""
        return dict(self._numbers)

    @cached_property
    def _numbers(self) -> dict[str, Number]:
        return {
            f"{stage}.{field}": number
            for stage, choice in self.stages().items()
            for field, number in choice.numbers().items()
        }

    @property
    def by_key(self) -> frozenset[str]:
        """Numbers with a value of their own at every key: what forgetting predicts."""
        return frozenset(
            name for name, each in self._numbers.items() if name.startswith("forgetting.") and each.predicted
        )

    def at_init(self, shape: HeadShape, layer: int = 0) -> dict[str, Float[Tensor, " 1 #heads rows columns"]]:
        """Return the numbers' values at step 0; raise ValueError if one of them starts at random."""
        numbers = self.numbers()
        drawn = [name for name, each in numbers.items() if each.trained and (each.random or each.projection_std)]
        if drawn:
            raise ValueError(f"{', '.join(drawn)} of {self.label!r} starts at random; pass numbers=")
        values = {}
        for name, number in numbers.items():
            own = self.own_shape(name, shape)
            values[name] = (
                number.value(number.table(own, layer), layer) if number.trained else number.fixed_value(own, layer)
            )
        return values

    def own_shape(self, name: str, shape: HeadShape) -> HeadShape:
        """Return the shape of the heads that have the number "stage.field"."""
        own = self.heads_of(name, shape.heads)
        return shape._replace(heads=own.stop - own.start)

    @property
    def breaks(self) -> dict[str, str]:
        """Laws that this operator breaks, each with the reason."""
        return {law: reason for stage in self.stages().values() for law, reason in stage.breaks.items()}

    @property
    def no_cache(self) -> str | None:
        """Why kept keys and values of earlier tokens do not suffice to compute the next; None if they do."""
        reasons = ((f"{name} {stage.label!r}", stage.no_cache) for name, stage in self.stages().items())
        return next((f"in {where} {reason}" for where, reason in reasons if reason), None)

    def check_length(self, length: int) -> None:
        """Raise ValueError if a sequence of `length` is too long for a stage."""
        for stage, choice in self.stages().items():
            if choice.longest is not None and length > choice.longest:
                raise ValueError(
                    f"{stage} {choice.label!r} is defined for sequences of up to {choice.longest} tokens, and the "
                    f"task's have up to {length}; raise it, or shorten the task"
                )

    @property
    def split_channels(self) -> int:
        """Number of a head's own channels that the gate takes."""
        return self.gate.channels if self.gate.takes_channels else 0

    @property
    def added_channels(self) -> int:
        """Number of channels that the gate adds to a head's query and key."""
        return self.gate.channels - self.split_channels

    def heads_of(self, name: str, heads: int) -> slice:
        """Return which of `heads` heads have the number "stage.field": all, or a block of a score that groups heads."""
        stage, _, field = name.partition(".")
        return self.score.heads_of(field, heads) if stage == "score" else slice(0, heads)

    def check(self, *, heads: int, kv_heads: int, head_width: int, positions: Positions, causal: bool = True) -> None:
        """Raise ValueError if a model with these heads and positions, `causal` or an encoder, does not fit."""
        if self.visible.label == "prefix" and not causal:
            raise ValueError("visible 'prefix' shows queries what a causal model hides; leave it out of an encoder")
        joined = self.merge.heads_joined
        for what, number in (("heads", heads), ("kv_heads", kv_heads)):
            if number % joined:
                raise ValueError(
                    f"merge {self.merge.label!r} makes one head of {joined} and needs {what} divisible by {joined}; "
                    f"got {number}, nearest is {max(joined, number - number % joined)}"
                )
        self.score.check(heads // joined)
        self.check_channels(head_width * joined)
        self._check_rotated(head_width * joined, positions)
        self._check_positions(positions)

    def _check_positions(self, positions: Positions) -> None:
        """Refuse stages that the positions leave without effect or meaning."""
        if not positions.adds_bias:
            if self.normaliser.needs == "signs" and self.score.range == "as its logit" and self.nonnegative_logits:
                raise ValueError(self._no_signs())
            if self._divides_out and self.forgetting.label == "none" and self.gate.label == "none":
                self._check_scale(positions)
        if positions.adds_bias and self.score.range == "as its logit" and self.normaliser.needs == "nonnegative":
            raise ValueError(
                f"positions {positions.label!r} add to the logits, which score {self.score.label!r} then takes below "
                f"zero under normaliser {self.normaliser.label!r}; use rotary, learned or no positions"
            )

    def _check_scale(self, positions: Positions) -> None:
        if self.transform.label == "temperature":
            raise ValueError(self._divided_out("transform 'temperature'"))
        turned = positions.rotates and self.signals.rotary == "per_signal"
        slices = self.signals.count > 1 and self.merge.of_logits and self.transform.label == "none"
        if slices and not turned and self.product.label in _SUMS_OF_CHANNELS:
            what = f"without rotary positions per signal, signals.count={self.signals.count}"
            raise ValueError(self._divided_out(what).replace("leave it out", "use signals.count=1"))

    def check_channels(self, channels: int) -> None:
        """Raise ValueError if heads of `channels`, beside those that the gate adds, do not fit."""
        semantic, count = channels - self.split_channels, self.signals.count
        if semantic < 1:
            raise ValueError(
                f"the gate takes {self.split_channels} of a head's {channels} channels and leaves none to the "
                f"logit; use gate.width below {channels}, or dims='add'"
            )
        if semantic % count:
            raise ValueError(f"signals.count divides a head's {semantic} channels; got {count}, {_OTHER_HEADS}")

    def _check_rotated(self, channels: int, positions: Positions) -> None:
        semantic, signals = channels - self.split_channels, self.signals
        if not positions.rotates and signals.rotary == "before_split":
            raise ValueError("signals.rotary='before_split' says nothing without rotary positions; leave it out")
        try:
            positions.check_width(semantic // signals.count if signals.rotary == "per_signal" else semantic)
        except ValueError as error:
            advice = "use fewer signals, signals.rotary='before_split', or other heads"
            raise ValueError(f"{error}; {advice if signals.count > 1 else _OTHER_HEADS}") from error


_OTHER_HEADS = "use other heads or another width of the model"

_LINEAR_READOUTS = ("values", "ground_value")
"""Readouts that are linear in the weights."""

_SUMS_OF_CHANNELS = ("dot", "linear_elu", "relu", "cosformer")
"""Products that sum over channels: the mean over slices is the whole head's product times one number."""

KINDS = tuple(name for name in Operator.model_fields if name not in ("name", "signals"))
"""The stages, in the order of the equation."""


def head_shape(operator: Operator, *, heads: int, query: int, value: int, width: int) -> HeadShape:
    """Return the shape of heads with `query` channels of q (gate included) and `value` of v, in a layer of `width`."""
    semantic = query - operator.gate.channels
    return HeadShape(heads, query, semantic, semantic // operator.signals.count, value, width)


def by_stage(numbers: NumberValues) -> dict[str, dict[str, Tensor]]:
    """Group numbers by "stage.field" into keywords per stage."""
    stages: dict[str, dict[str, Tensor]] = {stage: {} for stage in KINDS}
    for name, value in numbers.items():
        stage, _, field = name.partition(".")
        stages[stage][field] = value
    return stages


@shared_tensor
def causal(queries: int, keys: int, device: torch.device | None = None) -> Bool[Tensor, "queries keys"]:
    """Return the causal mask; the last query sits at the last key."""
    return distances(queries, keys, device) >= 0


@shared_tensor
def distances(queries: int, keys: int, device: torch.device | None = None) -> Distances:
    """Return i - j; the last query sits at the last key."""
    i = torch.arange(keys - queries, keys, device=device)
    return i[:, None] - torch.arange(keys, device=device)
