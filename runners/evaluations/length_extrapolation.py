"""Length extrapolation: what a language model's predictions cost in windows longer than those it was trained on.

    length_extrapolation_loss         mean of -log p(next token) over all positions of windows of n tokens
    length_extrapolation_last_loss    the same over the last `last` positions
    length_extrapolation_bucket_loss  the same over positions p to p + `bucket` - 1

Windows of all lengths end at the same tokens: those of length n are the last n of each of the longest. So the last
positions are the same predictions at every length, and their loss falls with n as far as a model makes use of what is
far away, stays where it does not look there, and rises where it cannot bear the distance. Losses of whole windows also
differ because a longer window has fewer positions with little context.

With `scaling`, rotary positions are stretched (YaRN) while the model is judged; every row says by which factor. A
window of grammar that is not the longest begins in the middle of a sentence.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Protocol, Self, final, runtime_checkable

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from grid.errors import SpecError
from grid.validation import require_increasing
from runners.evaluations.evaluation import Evaluation, Judge
from runners.evaluations.likelihood import UNSCORED, costs
from runners.evaluations.rope_scaling import Stretch, factor_of, stretched
from runners.tasks.task import Batch, Items, Measurements, Predict, Task, over_items
from variants import Backbone, Positions, Tokens


@runtime_checkable
class Lengthens(Protocol):
    """A task of predicting what comes next whose windows can have any length."""

    def windows(self, length: int, count: int) -> Batch:
        """At most `count` windows of `length` predictions that it does not train on, on the CPU.

        Raises:
            SpecError: there is not so much to show.
        """


class LengthExtrapolation(Evaluation):
    """The loss at each of `lengths`, of whole windows, of their ends and by position."""

    units: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "length_extrapolation_loss",
            "length_extrapolation_last_loss",
            "length_extrapolation_bucket_loss",
        ),
        "nats per token",
    )
    kind: Literal["length_extrapolation"] = "length_extrapolation"
    lengths: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (128, 256, 512, 1024)
    """Predictions per window, rising."""
    count: PositiveInt = 32
    """Windows, fewer where a text would have to show parts of it twice."""
    bucket: PositiveInt = 64
    """Positions whose losses are averaged for the loss by position; the last bucket of a window may be smaller."""
    last: PositiveInt = 64
    """Positions at the end of each window that are compared across lengths."""
    scaling: Stretch | None = None
    """How rotary positions are stretched; None leaves positions as they were in training."""

    @model_validator(mode="after")
    def _lengths_are_told_apart(self) -> Self:
        require_increasing("lengths", self.lengths)
        if self.last > self.lengths[0]:
            raise ValueError(
                f"the last positions of a window are part of it; got last={self.last} and lengths from "
                f"{self.lengths[0]} on; lower last"
            )
        return self

    @property
    def length(self) -> int:
        return self.lengths[-1]

    def check(self, task: Task, model: Backbone) -> None:
        if not isinstance(task, Lengthens) or not isinstance(task.inputs, Tokens) or task.sees_ahead:
            raise ValueError(
                f"length_extrapolation lengthens windows of text or grammar; the task is {type(task).__name__}: leave "
                "it out of evaluations"
            )
        if task.unscored > self.lengths[0] - self.last:
            raise ValueError(
                f"the last {self.last} positions of a window come after the {task.unscored} that the task leaves out "
                f"of its loss; the shortest window has {self.lengths[0]}; lengthen it or lower last"
            )
        stretched(model, self.scaling)

    def positions(self, model: Backbone) -> Positions:
        return stretched(model, self.scaling)

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        lengths = [self.point(length) for length in self.lengths]
        buckets = [self.point(length, start) for length in self.lengths for start in range(1, length + 1, self.bucket)]
        names = ("length_extrapolation_loss", "length_extrapolation_last_loss")
        return {**dict.fromkeys(names, lengths), "length_extrapolation_bucket_loss": buckets}

    def point(self, length: int, position: int | None = None) -> dict[str, float]:
        """Where a row is taken: {length, factor}, and the first position of a bucket, counted from 1."""
        place: dict[str, float] = {"length": length, "factor": factor_of(self.scaling)}
        return place if position is None else {**place, "position": position}

    def open(self, task: Task) -> "LengthExtrapolationJudge":
        assert isinstance(task, Lengthens)
        assert isinstance(task.inputs, Tokens)
        try:
            windows = task.windows(self.length, self.count)
        except SpecError as error:
            raise SpecError(f"length_extrapolation shows windows of {self.length} predictions: {error}") from error
        return LengthExtrapolationJudge(self, windows, task.inputs.vocabulary, task.unscored)


@final
class LengthExtrapolationJudge(Judge):
    """Shows the ends of windows; `unscored` is how many positions at the beginning may see what follows them."""

    def __init__(self, spec: LengthExtrapolation, windows: Batch, vocabulary: int, unscored: int) -> None:
        self._spec, self._windows, self._vocabulary, self._unscored = spec, windows, vocabulary, unscored

    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        """`length_extrapolation_loss` and `length_extrapolation_last_loss` at every {length, factor}, the second with
        the values of single windows, and `length_extrapolation_bucket_loss` at every {length, factor, position}; in
        nats per token, items are windows.
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


def _means(nats: Tensor, counted: Tensor) -> Tensor:
    """The mean of what counts in each window, [windows]."""
    return (nats * counted).sum(1) / counted.sum(1)


def _ends(windows: Batch, length: int) -> Batch:
    """The last `length` positions of each."""
    visible = windows.visible
    if visible is not None:
        visible = visible[..., -length:] if visible.shape[-2] == 1 else visible[..., -length:, -length:]
    return Batch(windows.inputs[:, -length:], windows.targets[:, -length:], visible)
