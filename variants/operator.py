"""An attention operator as a spec: one choice per stage of the equation in `variants.attend`.

Every operator is a point in this space; a combination that has no meaning is refused when the spec is built.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Self

import torch
from pydantic import model_validator
from torch import Tensor

from grid.spec import Label, Spec
from variants.number import HeadShape, Number
from variants.stages.families import (
    Extra,
    Forgetting,
    Gate,
    HeadNorm,
    Margin,
    Merge,
    Normaliser,
    OutputGate,
    Preparation,
    Product,
    Readout,
    Rescale,
    Score,
    Transform,
    Visible,
)
from variants.stages.merges.logits import MeanLogits
from variants.stages.neutral import (
    NoExtra,
    NoForgetting,
    NoGate,
    NoHeadNorm,
    NoMargin,
    NoOutputGate,
    NoPreparation,
    NoRescale,
    NoTransform,
)
from variants.stages.normalisers.total import Total
from variants.stages.positions.scheme import Positions
from variants.stages.products.dot import Dot
from variants.stages.readouts.values import Values
from variants.stages.rescales.affine import Affine
from variants.stages.scores.exponential import Exponential
from variants.stages.signals import Signals
from variants.stages.stage import Stage
from variants.stages.visible.everything import Everything

NumberValues = Mapping[str, Tensor]
"""Values of an operator's numbers by "stage.field", shaped to broadcast (see `variants.number`)."""


class Operator(Spec):
    """One attention operator: a choice per stage, in the order of the equation. All defaults together are softmax."""

    name: Label = ""
    visible: Visible = Everything()
    preparation: Preparation = NoPreparation()
    extra: Extra = NoExtra()
    product: Product = Dot()
    signals: Signals = Signals()
    transform: Transform = NoTransform()
    forgetting: Forgetting = NoForgetting()
    margin: Margin = NoMargin()
    gate: Gate = NoGate()
    score: Score = Exponential()
    normaliser: Normaliser = Total()
    merge: Merge = MeanLogits()
    rescale: Rescale = NoRescale()
    readout: Readout = Values()
    head_norm: HeadNorm = NoHeadNorm()
    output_gate: OutputGate = NoOutputGate()

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
        wanted = self.merge.signals
        if wanted is not None and self.signals.count != wanted:
            raise ValueError(
                f"merge {self.merge.label!r} takes {wanted} signals, got {self.signals.count}; "
                f"use signals=Signals(count={wanted})"
            )
        if wanted is None and self.signals.count == 1 and not self.merge.of_logits:
            raise ValueError(
                f"merge {self.merge.label!r} says nothing about one signal; leave it out or raise signals.count"
            )
        return self

    def _check_mass(self) -> None:
        """A normaliser that divides mass needs a score that is mass."""
        score, normaliser = self.score, self.normaliser
        if normaliser.needs == "exponential" and score.label != "exponential":
            raise ValueError(
                f"normaliser {normaliser.label!r} takes the logarithm of a score for its logit and needs score "
                f"'exponential'; got {score.label!r}"
            )
        if normaliser.needs == "logarithm" and score.range != "positive":
            raise ValueError(
                f"normaliser {normaliser.label!r} needs a positive score known by its logarithm, such as 'exponential' "
                f"or 'ssa'; got {score.label!r}"
            )
        never = score.range in ("positive", "nonnegative", "constant")
        if normaliser.needs == "signs" and never:
            raise ValueError(self._no_signs())
        if normaliser.needs == "nonnegative" and not (
            never or (score.range == "as its logit" and self.nonnegative_logits)
        ):
            raise ValueError(
                f"normaliser {normaliser.label!r} needs a score that is not negative, and {score.label!r} can be; "
                "use normaliser 'clamped', 'absolute', 'count' or 'none'"
            )

    def _check_logits_count(self) -> None:
        """Refuse stages that act on logits if the score is constant."""
        if self.score.range != "constant":
            return
        of_logits = ("preparation", "extra", "product", "signals", "transform", "forgetting", "margin", "gate")
        fields = type(self).model_fields
        silent = [stage for stage in of_logits if getattr(self, stage) != fields[stage].default]
        if self.normaliser.has_ground:
            silent.append("normaliser")
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
        return (self.name or self._describe()) + (f" {signals}" if signals else "")

    def relabel(self, before: Self) -> Self:
        """Add the kinds of changed stages to a name that was given before the change."""
        changed = [stage for stage in KINDS if getattr(self, stage).kind != getattr(before, stage).kind]
        if not changed or not self.name or self.name != before.name:
            return self
        kinds = (f"{stage} {kind}" if (kind := getattr(self, stage).kind) == "none" else kind for stage in changed)
        return self.changed(name=" + ".join((self.name, *kinds)))

    def _describe(self) -> str:
        fields = type(self).model_fields
        changed = [stage for stage in KINDS if getattr(self, stage) != fields[stage].default]
        return " + ".join(getattr(self, stage).kind for stage in changed) or "softmax"

    def stages(self) -> dict[str, Stage]:
        """Return every choice by field, in the order of the equation."""
        return {stage: getattr(self, stage) for stage in KINDS}

    def numbers(self) -> dict[str, Number]:
        """Return every number of every stage by "stage.field", in the order of the equation."""
        return dict(_numbers(self))

    def at_init(self, shape: HeadShape, layer: int = 0) -> dict[str, Tensor]:
        """Return the numbers' values at step 0.

        Raises:
            ValueError: one of them starts at random.
        """
        numbers = self.numbers()
        drawn = [name for name, each in numbers.items() if each.trained and (each.random or each.projection_std)]
        if drawn:
            raise ValueError(f"{', '.join(drawn)} of {self.label!r} starts at random; pass numbers=")
        shapes = {name: self.own_shape(name, shape) for name in numbers}
        return {
            name: number.value(number.table(shapes[name], layer), layer)
            if number.trained
            else number.fixed_value(shapes[name], layer)
            for name, number in numbers.items()
        }

    def own_shape(self, name: str, shape: HeadShape) -> HeadShape:
        """Return the shape of the heads that have the number "stage.field"."""
        own = self.heads_of(name, shape.heads)
        return shape._replace(heads=own.stop - own.start)

    @property
    def breaks(self) -> dict[str, str]:
        """Laws that this operator breaks, each with the reason."""
        return {law: reason for stage in self.stages().values() for law, reason in stage.breaks.items()}

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
        """Raise ValueError if a model with these heads and positions does not fit this operator.

        `causal` is True if the model hides later keys; an encoder does not.
        """
        if self.visible.label == "prefix" and not causal:
            raise ValueError(
                "visible 'prefix' shows queries what a causal model hides, and an encoder hides nothing; leave it out"
            )
        joined = self.merge.heads_joined
        for what, number in (("heads", heads), ("kv_heads", kv_heads)):
            if number % joined:
                raise ValueError(
                    f"merge {self.merge.label!r} makes one head of {joined} and needs {what} divisible by {joined}; "
                    f"got {number}, nearest is {max(joined, number - number % joined)}"
                )
        self.score.check(heads // joined)
        self._check_channels(head_width * joined, positions)
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

    def _check_channels(self, channels: int, positions: Positions) -> None:
        semantic = channels - self.split_channels
        if semantic < 1:
            raise ValueError(
                f"the gate takes {self.split_channels} of a head's {channels} channels and leaves none to the "
                f"logit; use gate.width below {channels}, or dims='add'"
            )
        count = self.signals.count
        if semantic % count:
            nearest = self._nearest_count(semantic, positions)
            advice = f"nearest is {nearest}" if nearest else _OTHER_HEADS
            raise ValueError(f"signals.count divides a head's {semantic} channels; got {count}, {advice}")
        if not positions.rotates:
            if self.signals.rotary == "before_split":
                raise ValueError("signals.rotary='before_split' says nothing without rotary positions; leave it out")
            return
        per_signal = self.signals.rotary == "per_signal"
        try:
            positions.check_width(semantic // count if per_signal else semantic)
        except ValueError as error:
            raise ValueError(f"{error}; {self._rotary_advice(semantic, positions)}") from error

    def _nearest_count(self, channels: int, positions: Positions) -> int | None:
        """Find the nearest valid number of signals for heads of `channels`; None if there is none."""
        if self.merge.signals is not None:
            return None
        whole = self.signals.rotary == "before_split"
        counts = range(1 if self.merge.of_logits else 2, channels + 1)
        valid = [s for s in counts if channels % s == 0 and positions.fits(channels if whole else channels // s)]
        return min(valid, key=lambda s: abs(s - self.signals.count), default=None)

    def _rotary_advice(self, channels: int, positions: Positions) -> str:
        """Advise on slices of channels that cannot be rotated."""
        nearest = self._nearest_count(channels, positions)
        whole = self.signals.count > 1 and self.signals.rotary == "per_signal" and positions.fits(channels)
        advice = [f"nearest is signals.count={nearest}"] if nearest else []
        advice += ["use signals.rotary='before_split'"] if whole else []
        return ", or ".join(advice) or _OTHER_HEADS


_OTHER_HEADS = "use other heads or another width of the model"

_LINEAR_READOUTS = ("values", "ground_value")
"""Readouts that are linear in the weights."""

_SUMS_OF_CHANNELS = ("dot", "linear_elu", "relu", "cosformer")
"""Products that sum over channels: the mean over slices is the whole head's product times one number."""

KINDS = tuple(name for name in Operator.model_fields if name not in ("name", "signals"))
"""The stages, in the order of the equation."""


@lru_cache(maxsize=4096)
def _numbers(operator: Operator) -> tuple[tuple[str, Number], ...]:
    return tuple(
        (f"{stage}.{field}", number)
        for stage, choice in operator.stages().items()
        for field, number in choice.numbers().items()
    )


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


@lru_cache(maxsize=32)
def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Return the causal mask [T_q, T_k]; the last query sits at the last key. It is shared: do not write into it."""
    with torch.inference_mode(False):  # noqa: FBT003  (cached, as distances are)
        return distances(queries, keys, device) >= 0


@lru_cache(maxsize=32)
def distances(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Return i - j as integers [T_q, T_k]; the last query sits at the last key. It is shared: do not write into it."""
    with torch.inference_mode(False):  # noqa: FBT003  (cached: the first caller may be an evaluation, the next one trains)
        i = torch.arange(keys - queries, keys, device=device)
        return i[:, None] - torch.arange(keys, device=device)
