"""Base of query tasks: questions about earlier tokens at some positions, with one right token each.

    loss               -mean log p(answer)                nats per asked token
    accuracy           share of asked tokens whose answer is likelier than every other token
    sequence_accuracy  share of sequences whose every answer is right

Targets hold the answer at asked positions and -100 elsewhere, which the loss leaves out. All sequences of a draw ask
equally often, so the mean over sequences is the mean over asked tokens. Items are sequences, since the answers of one
sequence are not independent. A tie or a NaN among the logits is a wrong answer.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Self, final

import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from torch import Tensor
from torch.nn import functional as F

from ablate.grid.spec import Spec
from ablate.grid.validation import INCREASING
from ablate.training.tasks.counter_rng import CPU, Draws
from ablate.training.tasks.task import UNSCORED, Batch, Measurements, Predict, Task, TokenData, in_chunks, over_items
from ablate.variants import Tokens
from ablate.variants.axes import Ids

_TOKENS = 1 << 14
"""Tokens per forward pass of an evaluation."""

Point = Mapping[str, float]


class AskedLengths(Spec):
    """Evaluation on sequences of each of `lengths` tokens, the same for all models and seeds."""

    lengths: Annotated[tuple[PositiveInt, ...], Field(min_length=1), INCREASING] = (64, 128, 256)
    """Tokens of a sequence, which may be longer than in training; each length is a point."""
    sequences: PositiveInt = 256
    """Sequences per point."""
    sample: NonNegativeInt = 0
    """Selects another draw."""


class QueryTask(Task):
    """A task whose sequences contain the answers. A point says what to draw; `{}` is the training distribution."""

    units: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("accuracy", "sequence_accuracy"), "share of 1"),
        "validation_loss": "nats per token",
    }

    batch: PositiveInt = 64
    context: PositiveInt = 64
    """Tokens of a training sequence."""
    evaluation: AskedLengths = AskedLengths()
    """Lengths and number of sequences of the evaluation."""

    @model_validator(mode="after")
    def _every_sequence_can_be_drawn(self) -> Self:
        for point in ({}, *self.points()):
            self.check(point)
        return self

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Number of tokens."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """Number of tokens that may be an answer; all are equally likely."""

    @abstractmethod
    def check(self, point: Point) -> None:
        """Raise ValueError if no sequence fits `point`."""

    @abstractmethod
    def draw(self, draws: Draws, sequences: int, point: Point) -> Batch:
        """Draw token ids [B, T] and targets [B, T], int64, on the device of `draws`."""

    def points(self) -> Sequence[Point]:
        """Return the points of the evaluation; by default one per length."""
        return [{"length": length} for length in self.evaluation.lengths]

    def guesses(self, point: Point) -> Mapping[str, float]:
        """Return the accuracy of guessers by name; `chance` knows the possible answers only."""
        del point
        return {"chance": 1 / self.answers}

    def tokens(self, point: Point) -> int:
        return int(point.get("length", self.context))

    @property
    def inputs(self) -> Tokens:
        return Tokens(self.vocabulary)

    @property
    def length(self) -> int:
        return max(self.context, *self.evaluation.lengths)

    @property
    def trained_length(self) -> int:
        return self.context

    def measures(self) -> Mapping[str, Sequence[Point]]:
        points = self.points()
        guessed = [f"{name}.accuracy" for name in self.guesses(points[0])]
        return dict.fromkeys(("accuracy", "sequence_accuracy", "validation_loss", *guessed), points)

    def open(self) -> "AskedData":
        return AskedData(self)


@final
class AskedData(TokenData):
    """Draws sequences and counts right answers."""

    def __init__(self, task: QueryTask) -> None:
        self._task = task

    @property
    def constant_loss(self) -> float:
        """Loss if all possible answers are equally likely."""
        return math.log(self._task.answers)

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        return self._task.draw(Draws(seed, "data", step, device=device), self._task.batch, {})

    def examples(self, count: int) -> Batch:
        return self._task.draw(Draws(0, "data", 0), count, {})

    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        """Yield the three measures at every point, and the exact `<guesser>.accuracy`."""
        task = self._task
        for point in task.points():
            place = ("evaluation", task.label, *(part for item in sorted(point.items()) for part in item))
            sample = task.draw(Draws(task.evaluation.sample, *place), task.evaluation.sequences, point)
            answered = score_answers(predict, sample, max(1, _TOKENS // sample.inputs.shape[1]))
            right, loss = (each.view(len(sample.inputs), -1) for each in answered)
            yield over_items("accuracy", right.mean(1), point)
            yield over_items("sequence_accuracy", right.amin(1), point)
            yield over_items("validation_loss", loss.mean(1), point)
            for name, accuracy in task.guesses(point).items():
                yield Measurements(f"{name}.accuracy", accuracy, dict(point), task.evaluation.sequences, None)


def asking(inputs: Ids, places: Int[Tensor, "batch answers"], answers: Int[Tensor, "batch answers"]) -> Batch:
    """Make a batch of `inputs` that asks for `answers` at `places`."""
    return Batch(inputs, torch.full_like(inputs, UNSCORED).scatter_(1, places, answers))


def score_answers(
    predict: Predict, sample: Batch, rows: int
) -> tuple[Float[Tensor, " targets"], Float[Tensor, " targets"]]:
    """Return correctness and loss (nats) at all scored targets, float64 on the CPU; a tie or a NaN is wrong."""

    def reduce(chunk: slice, outputs: Tensor) -> tuple[Tensor, Tensor]:
        wanted = sample.targets[chunk].to(outputs.device)
        asked = wanted != UNSCORED
        logits, answers = outputs[asked].float(), wanted[asked]
        as_likely = (logits >= logits.gather(1, answers[:, None])) | logits.isnan()
        loss = F.cross_entropy(logits, answers, reduction="none")
        return (as_likely.sum(1) == 1).to("cpu", torch.float64), loss.to("cpu", torch.float64)

    chunks = in_chunks(predict, sample.inputs, rows, reduce, sample.visible)
    right, loss = zip(*(scores for _, scores in chunks), strict=True)
    return torch.cat(right), torch.cat(loss)


class KeyValues(QueryTask):
    """Tokens are keys, then values, then filler."""

    keys: PositiveInt = 64
    """Number of keys."""
    values: PositiveInt = 64
    """Number of values."""
    filler: PositiveInt = 16
    """Number of filler tokens."""

    @abstractmethod
    def pairs_at(self, point: Point) -> int:
        """Return the number of pairs of a sequence."""

    @property
    def vocabulary(self) -> int:
        return self.keys + self.values + self.filler

    @property
    def answers(self) -> int:
        return self.values

    def guesses(self, point: Point) -> dict[str, float]:
        return {"chance": 1 / self.answers, "shown": 1 / self.pairs_at(point)}  # shown: a value of the sequence

    def check(self, point: Point) -> None:
        pairs = self.pairs_at(point)
        for name, there in (("keys", self.keys), ("values", self.values)):
            if pairs > there:
                raise ValueError(f"{pairs} pairs need {pairs} different {name}, and {there} exist; raise {name}")

    def draw_pairs(
        self, draws: Draws, sequences: int, point: Point
    ) -> tuple[Int[Tensor, "sequences pairs"], Int[Tensor, "sequences pairs"], Int[Tensor, "sequences tokens"]]:
        """Draw distinct keys and values, and sequences of filler."""
        pairs, length = self.pairs_at(point), self.tokens(point)
        keys = draws.order(self.keys, sequences)[:, :pairs]
        values = self.keys + draws.order(self.values, sequences)[:, :pairs]
        return keys, values, (self.keys + self.values + draws.below(self.filler, sequences, length))
