"""Questions about what came before, with one right token each: what tasks share that ask at some positions only.

    loss               -mean log p(answer)                nats per asked token
    accuracy           share of asked tokens whose answer is likelier than every other token
    sequence_accuracy  share of sequences whose every answer is right

Targets hold the answer where something is asked and -100 elsewhere, which the loss leaves out. All sequences of a draw
ask equally often, so the mean over sequences is the mean over asked tokens; items are sequences, since the answers of
one sequence are not independent. A tie is no answer: a model whose logits are all equal has accuracy 0. NaN among the
logits is none either, and its loss is NaN.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, NamedTuple, Self, final

import torch
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from torch import Tensor
from torch.nn import functional as F

from grid.spec import Spec
from grid.validation import require_increasing
from runners.tasks.counter_rng import CPU, Draws
from runners.tasks.task import Batch, Data, Measurements, Predict, Task, in_chunks, over_items
from variants import Tokens

UNASKED = -100
"""The target of a position where nothing is asked: what cross entropy leaves out."""

_TOKENS = 1 << 14
"""Tokens per forward pass of an evaluation."""

Point = Mapping[str, float]


class AskedLengths(Spec):
    """Evaluation on sequences of each of `lengths` tokens, longer than any in training if so wished.

    `sequences` are drawn once per point and shared by all models and seeds; `sample` chooses another draw.
    """

    lengths: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (64, 128, 256)
    """Tokens of a sequence; each length is a point."""
    sequences: PositiveInt = 256
    """Sequences per point."""
    sample: NonNegativeInt = 0
    """Chooses another draw."""

    @model_validator(mode="after")
    def _lengths_are_told_apart(self) -> Self:
        require_increasing("lengths", self.lengths)
        return self


class QueryTask(Task):
    """A task whose sequences hold what is asked for; a point of its evaluation says what to draw, `{}` as in training.

    `context` is the number of tokens of a training sequence.
    """

    units: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("accuracy", "sequence_accuracy"), "share of 1"),
        "validation_loss": "nats per token",
    }

    batch: PositiveInt = 64
    context: PositiveInt = 64
    """Tokens of a training sequence."""
    evaluation: AskedLengths = AskedLengths()
    """At which lengths it is evaluated, and on how many sequences."""

    @model_validator(mode="after")
    def _every_sequence_can_be_drawn(self) -> Self:
        for point in ({}, *self.points()):
            self.check(point)
        return self

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """How many tokens there are."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """How many of them may be an answer; over all sequences, each is one equally often."""

    @abstractmethod
    def check(self, point: Point) -> None:
        """Raise ValueError where no sequence is what `point` says."""

    @abstractmethod
    def draw(self, draws: Draws, sequences: int, point: Point) -> Batch:
        """Token ids [B, T] and targets [B, T], int64, on the device of `draws`."""

    def points(self) -> Sequence[Point]:
        """Where it is evaluated; by default at each length."""
        return [{"length": length} for length in self.evaluation.lengths]

    def guesses(self, point: Point) -> Mapping[str, float]:
        """The accuracy of guessers, by name: `chance` knows which tokens may be answers and nothing else."""
        del point
        return {"chance": 1 / self.answers}

    def tokens(self, point: Point) -> int:
        """How many tokens a sequence has."""
        return int(point.get("length", self.context))

    @property
    def inputs(self) -> Tokens:
        return Tokens(self.vocabulary)

    @property
    def length(self) -> int:
        return max(self.context, *self.evaluation.lengths)

    def measures(self) -> Mapping[str, Sequence[Point]]:
        points = self.points()
        guessed = [f"{name}.accuracy" for name in self.guesses(points[0])]
        return dict.fromkeys(("accuracy", "sequence_accuracy", "validation_loss", *guessed), points)

    def open(self) -> "AskedData":
        return AskedData(self)


@final
class AskedData(Data):
    """Draws sequences that ask, and counts right answers."""

    def __init__(self, task: QueryTask) -> None:
        self._task = task

    @property
    def constant_loss(self) -> float:
        """Every token that may be an answer equally likely."""
        return math.log(self._task.answers)

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """Sequences of the training distribution."""
        return self._task.draw(Draws(seed, "data", step, device=device), self._task.batch, {})

    def examples(self, count: int) -> Batch:
        """Sequences of the training distribution that nobody trains on, whatever `batch` is."""
        return self._task.draw(Draws(0, "data", 0), count, {})

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Nats per asked token; outputs [B, T, vocabulary], targets [B, T]."""
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=UNASKED)

    def terms(self, targets: Tensor) -> int:
        return int((targets != UNASKED).sum())

    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        """The three measures at every point, and `<guesser>.accuracy`, which is exact and has no error."""
        task = self._task
        for point in task.points():
            place = ("evaluation", task.label, *(part for item in sorted(point.items()) for part in item))
            sample = task.draw(Draws(task.evaluation.sample, *place), task.evaluation.sequences, point)
            found = score_answers(predict, sample)
            yield over_items("accuracy", found.right.double().mean(1), point)
            yield over_items("sequence_accuracy", found.right.all(1).double(), point)
            yield over_items("validation_loss", found.loss.mean(1), point)
            for name, accuracy in task.guesses(point).items():
                yield Measurements(f"{name}.accuracy", accuracy, dict(point), task.evaluation.sequences, None)


class Answered(NamedTuple):
    """By sequence and question [N, asked]: whether the answer is right, and what it costs (nats, float64)."""

    right: Tensor
    loss: Tensor


def score_answers(predict: Predict, sample: Batch) -> Answered:
    """What a model answers; on the CPU."""
    shape = len(sample.inputs), -1
    right, loss = [], []
    for rows, outputs in in_chunks(predict, sample.inputs, max(1, _TOKENS // sample.inputs.shape[1])):
        wanted = sample.targets[rows].to(outputs.device)
        asked = wanted != UNASKED
        logits, answers = outputs[asked].float(), wanted[asked]
        as_likely = (logits >= logits.gather(1, answers[:, None])) | logits.isnan()  # with a NaN, none is right
        right.append((as_likely.sum(1) == 1).cpu())
        loss.append(F.cross_entropy(logits, answers, reduction="none").to("cpu", torch.float64))
    return Answered(torch.cat(right).view(shape), torch.cat(loss).view(shape))


def asking(inputs: Tensor, places: Tensor, answers: Tensor) -> Batch:
    """`inputs` [B, T] where `answers` [B, n] are asked for at `places` [B, n]."""
    return Batch(inputs, torch.full_like(inputs, UNASKED).scatter_(1, places, answers))
