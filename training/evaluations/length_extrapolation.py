"""Length extrapolation: the loss of a language model in windows longer than those of its training.

    length_extrapolation_loss         mean of -log p(next token) over all positions of windows of n tokens
    length_extrapolation_last_loss    the same over the last `last` positions
    length_extrapolation_bucket_loss  the same over positions p to p + `bucket` - 1

Windows of all lengths end at the same tokens: those of length n are the last n tokens of the longest. So the last
positions are the same predictions at every length. Their loss falls with n if the model uses distant tokens, stays if
it ignores them, and rises if it fails at the distance. Losses of whole windows also differ because a longer window has
fewer positions with little context.

With `scaling`, rotary positions are stretched (YaRN) during the evaluation, and every row has the factor. A
window of grammar that is not the longest begins in the middle of a sentence.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Protocol, Self, final, runtime_checkable

import torch
from jaxtyping import Bool, Float
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.grid.spec import Spec
from ablate.grid.validation import INCREASING
from ablate.training.evaluations.evaluation import Evaluation, Evaluator
from ablate.training.evaluations.likelihood import costs
from ablate.training.tasks.task import UNSCORED, Batch, Items, Measurements, Predict, Task, over_items
from ablate.variants import Positions, Rotary, Tokens, Yarn
from ablate.variants.model.foreign import AnyBackbone


class Stretch(Spec):
    """YaRN, with base and share of the model's own rotary positions (`ablate.variants.stages.positions`)."""

    factor: Annotated[float, Field(gt=1)]
    """Factor by which sequences become longer."""
    original: PositiveInt
    """Length of the training sequences, in tokens."""
    beta_fast: PositiveFloat = 32.0
    """Frequencies with at least this many turns in the original length stay as they are."""
    beta_slow: PositiveFloat = 1.0
    """Frequencies with at most this many turns in the original length are fully interpolated."""


def stretch_positions(model: AnyBackbone, scaling: Stretch | None) -> Positions:
    """Return the positions of `model` under `scaling`; ValueError if its positions are not rotary."""
    own = model.positions
    if scaling is None:
        return own
    if not isinstance(own, Rotary):
        raise ValueError(  # noqa: TRY004  (a rule of the spec)
            f"the model has {own.label!r}, and scaling stretches rotary positions; leave scaling out"
        )
    return Yarn(base=own.base, share=own.share, **scaling.data())


def factor_of(scaling: Stretch | None) -> float:
    """Return the factor of a scaling, 1 without."""
    return 1.0 if scaling is None else scaling.factor


@runtime_checkable
class Lengthens(Protocol):
    """A task of next-token prediction with windows of any length."""

    def windows(self, length: int, count: int) -> Batch:
        """Return at most `count` windows of `length` predictions, none trained on; SpecError if there are none."""


class LengthExtrapolation(Evaluation):
    """The loss by length of the window: of whole windows, of their ends and by position."""

    units: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("length_extrapolation_loss", "length_extrapolation_last_loss", "length_extrapolation_bucket_loss"),
        "nats per token",
    )
    needs: ClassVar[tuple[type, str]] = (Lengthens, "a task of text or grammar")
    kind: Literal["length_extrapolation"] = "length_extrapolation"
    lengths: Annotated[tuple[PositiveInt, ...], Field(min_length=1), INCREASING] = (128, 256, 512, 1024)
    """Predictions per window, rising."""
    count: PositiveInt = 32
    """Windows; fewer if a text would repeat parts of itself."""
    bucket: PositiveInt = 64
    """Positions per bucket of the loss by position. The last bucket of a window may be smaller."""
    last: PositiveInt = 64
    """Positions at the end of each window that are compared across lengths."""
    scaling: Stretch | None = None
    """Stretches rotary positions; None leaves positions as in training."""

    @model_validator(mode="after")
    def _lengths_rise(self) -> Self:
        if self.last > self.lengths[0]:
            raise ValueError(f"last={self.last} is above the shortest length, {self.lengths[0]}; lower last")
        return self

    @property
    def length(self) -> int:
        return self.lengths[-1]

    def check(self, task: Task, model: AnyBackbone) -> None:
        super().check(task, model)
        if not isinstance(task.inputs, Tokens) or task.sees_ahead:
            raise ValueError(
                f"{self.label} cannot evaluate {type(task).__name__}; it needs next-token prediction, leave it out"
            )
        if task.unscored > self.lengths[0] - self.last:
            raise ValueError(
                f"the shortest window has {self.lengths[0]} positions, {task.unscored} unscored; lower last"
            )
        stretch_positions(model, self.scaling)

    def positions(self, model: AnyBackbone) -> Positions:
        return stretch_positions(model, self.scaling)

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        lengths = [self.point(length) for length in self.lengths]
        buckets = [self.point(length, start) for length in self.lengths for start in range(1, length + 1, self.bucket)]
        names = ("length_extrapolation_loss", "length_extrapolation_last_loss")
        return {**dict.fromkeys(names, lengths), "length_extrapolation_bucket_loss": buckets}

    def point(self, length: int, position: int | None = None) -> dict[str, float]:
        place: dict[str, float] = {"length": length, "factor": factor_of(self.scaling)}
        return place if position is None else {**place, "position": position}

    def open(self, task: Task) -> "LengthExtrapolationEvaluator":
        assert isinstance(task, Lengthens)
        assert isinstance(task.inputs, Tokens)
        try:
            windows = task.windows(self.length, self.count)
        except SpecError as error:
            raise SpecError(f"length_extrapolation needs windows of {self.length} predictions: {error}") from error
        return LengthExtrapolationEvaluator(self, windows, task.inputs.vocabulary, task.unscored)


@final
class LengthExtrapolationEvaluator(Evaluator):
    """Shows the ends of windows. The first `unscored` positions may see later tokens."""

    def __init__(self, spec: LengthExtrapolation, windows: Batch, vocabulary: int, unscored: int) -> None:
        self._spec, self._windows, self._vocabulary, self._unscored = spec, windows, vocabulary, unscored

    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        """Yield the three losses, in nats per token; items are windows.

        `length_extrapolation_loss` and `length_extrapolation_last_loss` are at every {length, factor}, the second with
        the values of single windows. `length_extrapolation_bucket_loss` is at every {length, factor, position}.
        """
        spec = self._spec
        for length in spec.lengths:
            point, shown = spec.point(length), _ends(self._windows, length)
            nats = costs(predict, shown, self._vocabulary)
            counted = shown.targets != UNSCORED
            counted[:, : self._unscored] = False
            yield over_items("length_extrapolation_loss", _means(nats, counted), point)
            last = _means(nats[:, -spec.last :], counted[:, -spec.last :])
            yield over_items("length_extrapolation_last_loss", last, point)
            names = [f"window/{number}" for number in range(1, len(last) + 1)]
            yield Items("length_extrapolation_last_loss", point, names, last.tolist())
            parts = zip(torch.split(nats, spec.bucket, 1), torch.split(counted, spec.bucket, 1), strict=True)
            for number, (losses, there) in enumerate(parts):
                if there.any(1).all():
                    place = spec.point(length, number * spec.bucket + 1)
                    yield over_items("length_extrapolation_bucket_loss", _means(losses, there), place)


def _means(nats: Float[Tensor, "windows tokens"], counted: Bool[Tensor, "windows tokens"]) -> Float[Tensor, " windows"]:
    return (nats * counted).sum(1) / counted.sum(1)


def _ends(windows: Batch, length: int) -> Batch:
    visible = windows.visible
    if visible is not None:
        visible = visible[..., -length:] if visible.shape[-2] == 1 else visible[..., -length:, -length:]
    return Batch(windows.inputs[:, -length:], windows.targets[:, -length:], visible)
