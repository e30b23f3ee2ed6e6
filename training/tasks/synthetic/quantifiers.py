"""Quantifiers in context: a model reads numbers and says, at each, whether every (or some) number so far is positive.

    every: y_i = 1[x_1 > 0 and ... and x_i > 0]        some: y_i = 1[x_1 > 0 or ... or x_i > 0]        x ~ N(0, sigma^2)
    loss = 1/k sum_i BCE(logit_i, y_i)                 nats, over all positions; 0 is not positive

Source: Scaled Signed Averaging (paper 003), section 3, appendix A.1. As in its released code the prompt is x1, y1, x2,
y2, ..., with true labels -1 and 1: y_i then follows from y_{i-1} and x_i alone. `labels="hidden"` asks for the
quantifier itself: the prompt is x1, x2, ..., and every number counts.

A sequence is wrong if any prediction (logit > 0) from the fourth on is. Nearly all random sequences end alike: with
`every` the fourth label is true on 1/16 of them, so always saying "false" errs on 1/16. With `some`, the same holds for
"true". An error rate is therefore nearly blind to one of the two mistakes; `balanced_accuracy` is not, and constants
are recorded for both. The paper evaluates 6,400 sequences for each length and sigma, whose inputs repeat in its code
(670 distinct values of 2,560); ours are independent. NaN is never right.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Annotated, ClassVar, Literal, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ablate.grid.spec import Spec
from ablate.grid.validation import INCREASING
from ablate.training.tasks.counter_rng import CPU, Draws
from ablate.training.tasks.synthetic.in_context import SCORED_FROM, InContext, Sigmas, prompt
from ablate.training.tasks.task import Batch, Data, Measurements, Predict, in_chunks, over_items

Quantifier = Literal["every", "some"]

_TOKENS = 25_600
"""Tokens per forward pass of an evaluation."""


class LengthGrid(Spec):
    """Evaluation on longer sequences and wider numbers than in training: the heat maps of paper 003, figures 4 and 5.

    Sequences are drawn once and shared by all models and seeds; a sigma only scales them and a length cuts them. The
    released code stops at sigma 29. Each length is shown by itself, since what some
    operators say of a number depends on how many follow: the default grid takes ten times the tokens of its longest.
    """

    lengths: Annotated[tuple[Annotated[int, Field(gt=SCORED_FROM)], ...], Field(min_length=1), INCREASING] = (
        *range(10, 201, 10),
    )
    """Numbers of a sequence, rising."""
    sigma: Sigmas = tuple(map(float, range(1, 31)))
    """Spreads of the numbers, rising."""
    sequences: PositiveInt = 6400
    """Sequences per point."""
    sample: NonNegativeInt = 0
    """Chooses another draw."""

    def points(self) -> list[dict[str, float]]:
        return [_at(length, sigma) for sigma, length in product(self.sigma, self.lengths)]


def _at(length: int, sigma: float) -> dict[str, float]:
    return {"length": length, "sigma": sigma}


class Quantifiers(InContext):
    """Paper 003's task; every default is the paper's, without its curriculum (`curriculum=Curriculum()`)."""

    units: ClassVar[Mapping[str, str]] = dict.fromkeys(("error_rate", "balanced_accuracy"), "share of 1")
    kind: Literal["quantifiers"] = "quantifiers"
    quantifier: Quantifier = "every"
    """Whether all numbers so far, or at least one of them, have to be positive."""
    labels: Literal["shown", "hidden"] = "shown"
    """Whether the prompt holds the true label after every number, as in the released code."""
    sigma: PositiveFloat = 1.0
    """Spread of the numbers in training; the labels do not depend on it."""
    evaluation: LengthGrid = LengthGrid()
    """The lengths and spreads it is evaluated at."""

    @property
    def length(self) -> int:
        return self.tokens(max(self.points, *self.evaluation.lengths))

    @property
    def trained_length(self) -> int:
        return self.tokens(self.points)

    def measured_length(self, point: Mapping[str, float]) -> int:
        return self.tokens(int(point.get("length", 0)))

    def tokens(self, numbers: int) -> int:
        """Return the positions of a prompt of `numbers` numbers."""
        return 2 * numbers - 1 if self.labels == "shown" else numbers

    def prompt(self, x: Float[Tensor, "batch numbers"]) -> Batch:
        """Make prompts [B, T, 1] of numbers x, and the labels [B, n] as 0 and 1."""
        y = running(self.quantifier, x).to(x.dtype)
        return Batch(prompt(x, 2 * y - 1) if self.labels == "shown" else x[..., None], y)

    def logits(self, outputs: Float[Tensor, "batch tokens 1"]) -> Float[Tensor, "batch numbers"]:
        """Return the logits at every number."""
        return outputs[:, ::2, 0] if self.labels == "shown" else outputs[..., 0]

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        names = ("error_rate", "balanced_accuracy", "always_true.error_rate", "always_false.error_rate")
        return dict.fromkeys(names, self.evaluation.points())

    def open(self) -> "QuantifiersData":
        return QuantifiersData(self)


def running(quantifier: Quantifier, x: Float[Tensor, "*batch numbers"]) -> Bool[Tensor, "*batch numbers"]:
    """Return True if every (some) number up to a position is positive."""
    positive = x > 0
    return positive.cummin(-1).values if quantifier == "every" else positive.cummax(-1).values


@final
class QuantifiersData(Data):
    def __init__(self, task: Quantifiers) -> None:
        self._task = task

    @property
    def constant_loss(self) -> float:
        share = (1 - 2.0**-self._task.points) / self._task.points
        return -share * math.log(share) - (1 - share) * math.log1p(-share)

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """Draw prompts [B, T, 1] and labels [B, n], 0 or 1; a shorter n has the same first numbers."""
        task = self._task
        x = task.sigma * Draws(seed, "data", step, device=device).normal(task.batch, task.points)
        return task.prompt(x[:, : task.points_at(step)])

    def examples(self, count: int) -> Batch:
        task = self._task
        return task.prompt(task.sigma * evaluation_draws(task.evaluation.sample, count, task.points))

    def loss(
        self, outputs: Float[Tensor, "batch tokens 1"], targets: Float[Tensor, "batch numbers"]
    ) -> Float[Tensor, ""]:
        """Compute binary cross entropy in nats over all positions."""
        return binary_cross_entropy_with_logits(self._task.logits(outputs), targets)

    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        """`error_rate` and `balanced_accuracy` at every {length, sigma}; items are sequences.

        Each length is a separate pass: a causal model sees no later number, but its weights may depend on the length
        (cosFormer's angle, an affine offset of 1/n).
        """
        task, grid = self._task, self._task.evaluation
        x = evaluation_draws(grid.sample, grid.sequences, max(grid.lengths))
        truth = running(task.quantifier, x)
        for sigma in grid.sigma:
            for length in grid.lengths:
                labels, point = truth[:, SCORED_FROM:length], _at(length, sigma)
                logits = logits_of(predict, task, sigma * x[:, :length])
                answers = answers_of(logits[:, SCORED_FROM:], labels)
                yield over_items("error_rate", (answers != labels).any(-1).double(), point)
                yield balanced_accuracy(answers, labels, point)
                yield over_items("always_true.error_rate", (~labels).any(-1).double(), point)
                yield over_items("always_false.error_rate", labels.any(-1).double(), point)


def logits_of(predict: Predict, task: Quantifiers, x: Float[Tensor, "batch numbers"]) -> Float[Tensor, "batch numbers"]:
    """Return the logit of "true" at each of the numbers x, in float64 on the CPU."""
    inputs = task.prompt(x).inputs

    def reduce(_: slice, outputs: Tensor) -> Tensor:
        return task.logits(outputs).to("cpu", torch.float64)

    return torch.cat([each for _, each in in_chunks(predict, inputs, max(1, _TOKENS // inputs.shape[1]), reduce)])


def answers_of(logits: Float[Tensor, "*answers"], labels: Bool[Tensor, "*answers"]) -> Bool[Tensor, "*answers"]:
    """Return True if a model says "true"; NaN gives the wrong answer."""
    return torch.where(logits.isnan(), ~labels, logits > 0)


def balanced_accuracy(
    answers: Bool[Tensor, "sequences numbers"], labels: Bool[Tensor, "sequences numbers"], point: Mapping[str, float]
) -> Measurements:
    """Compute the mean of two shares of right answers: on true and on false labels, over all scored positions.

    A constant gets 1/2; NaN where one of the classes does not occur. Sequences are the items of the standard error, to
    first order in their deviations.
    """
    accuracy, effects = 0.0, torch.zeros(len(labels), dtype=torch.float64)
    for of_class in (labels, ~labels):
        there, right = of_class.sum(-1).double(), (of_class & (answers == labels)).sum(-1).double()
        share = float(right.sum() / there.sum())
        accuracy += share / 2
        effects += (right - share * there) / there.mean() / 2
    items = len(labels)
    se = float(effects.std(correction=1)) / math.sqrt(items) if items > 1 else None
    return Measurements("balanced_accuracy", accuracy, dict(point), items, se)


@lru_cache(maxsize=4)
def evaluation_draws(sample: int, sequences: int, length: int) -> Float[Tensor, "sequences length"]:
    """Draw standard normal [sequences, length]; larger sizes keep the numbers of smaller ones."""
    with torch.inference_mode(mode=False):
        rows = torch.arange(sequences)
        columns = [Draws(sample, "evaluation", "numbers", place).normal_at(rows) for place in range(length)]
        return torch.stack(columns, 1)
