"""The family of tasks: what training draws, what it minimises, and what evaluation measures.

A task is a spec; `open()` gives its data. Training data follow from the trial's seed and the step alone, so all
operators of one seed see the same batches on whatever device, and a resumed run needs no cursor. Evaluation data follow
from the task alone: all models and all seeds are judged on the same sample.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from pydantic import PositiveInt
from torch import Tensor

from grid.spec import Choice
from runners.tasks.counter_rng import CPU
from variants import Scalars, Tokens


class Predict(Protocol):
    """A model without its training; called in inference mode."""

    def __call__(self, inputs: Tensor, visible: Tensor | None = None, /) -> Tensor:
        """Inputs and what is visible as in `Batch`, to outputs [B, T, out]."""


DIVERGED = 1000.0
"""A loss this many times that of the best constant prediction counts as diverged."""


class Batch(NamedTuple):
    """Inputs, float [B, T, 1] or token ids [B, T], and the targets [B, ...] `Data.loss` compares outputs with."""

    inputs: Tensor
    targets: Tensor
    visible: Tensor | None = None
    """Boolean, [B, T, T] or [B, 1, T]: True = query i may see key j as far as the model lets it. None hides nothing."""

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        visible = None if self.visible is None else self.visible.to(device)
        return Batch(self.inputs.to(device), self.targets.to(device), visible)

    def first(self, count: int) -> "Batch":
        """Its first `count` sequences."""
        return Batch(self.inputs[:count], self.targets[:count], None if self.visible is None else self.visible[:count])

    def split(self, count: int) -> "list[Batch]":
        """Consecutive sequences, `count` parts whose sizes differ by one at most."""
        visible = [None] * count if self.visible is None else self.visible.tensor_split(count)
        parts = zip(self.inputs.tensor_split(count), self.targets.tensor_split(count), visible, strict=True)
        return list(starmap(Batch, parts))


class Measurements(NamedTuple):
    """One value of an evaluation at one point of its grid; `se_items` is the standard error over its items."""

    name: str
    value: float
    point: Mapping[str, float]
    items: int
    se_items: float | None


class Items(NamedTuple):
    """The values that a `Measurements` of the same name and point is the mean of, for comparisons item by item."""

    name: str
    point: Mapping[str, float]
    items: Sequence[str]
    """What tells them apart, the same for all models."""
    values: Sequence[float]


class Data(ABC):
    """A task with whatever it had to read or draw, on the CPU."""

    @property
    def record(self) -> Mapping[str, Any] | None:
        """What was read: files and hashes, or None where nothing was."""
        return None

    @property
    @abstractmethod
    def constant_loss(self) -> float:
        """The loss of the best prediction that ignores its input."""

    @abstractmethod
    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """The batch of training step `step`, counted from 1: the same on every device, drawn there with `Draws`."""

    def examples(self, count: int) -> Batch:
        """`count` sequences for probes to look into models with, the same for all models and seeds, on the CPU; fewer
        only where there are not so many. By default those of batches that nobody trains on, as many as it takes."""
        parts = [self.batch(0, 0)]
        while sum(len(part.inputs) for part in parts) < count:
            parts.append(self.batch(len(parts), 0))
        return join_batches(parts).first(count)

    def complete_batch(self, part: Batch) -> Batch:
        """A part of a batch with the targets that `loss` takes, where these are computed and not drawn; called on the
        part's device right before the model sees it. By default as it was drawn."""
        return part

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The scalar that training minimises, a mean over terms; outputs [B, T, out]."""

    @property
    def logged(self) -> Sequence[str]:
        """What is logged of a step beside the loss, by name."""
        return ()

    def losses(self, outputs: Tensor, targets: Tensor) -> Sequence[Tensor]:
        """`loss`, and for each name of `logged` a scalar that is a mean over the same terms."""
        return (self.loss(outputs, targets),)

    def terms(self, targets: Tensor) -> int:
        """How many terms `loss` is the mean of: what weighs a part of a batch. By default, one per target."""
        return targets.numel()

    @abstractmethod
    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        """Everything a model is judged by."""


class Task(Choice):
    """What a model learns. `batch` is the number of sequences per training step."""

    units: ClassVar[Mapping[str, str]] = {}
    """The unit of each measurement, by its name without a reference predictor."""

    batch: PositiveInt
    """Sequences per training step."""

    @property
    @abstractmethod
    def inputs(self) -> Scalars | Tokens:
        """What the model reads and writes."""

    @property
    @abstractmethod
    def length(self) -> int:
        """The longest sequence the model sees, in training or in evaluation."""

    @property
    def sees_ahead(self) -> bool:
        """Whether the model reads what comes after a position, too: it is then an encoder, and else causal."""
        return False

    @property
    def unscored(self) -> int:
        """How many positions at the beginning the loss leaves out; a prefix may be visible one position further."""
        return 0

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]] | None:
        """The name of every evaluation, with every point it is taken at; `{}` is the point of one without a grid.

        A grid's measure is held against it before anything is trained. None, the default: known when it has run.
        """
        return None

    def check_steps(self, steps: int) -> None:
        """Raise ValueError where `steps` steps of training end before what the task says they come to."""

    @abstractmethod
    def open(self) -> Data:
        """Read or draw what the task needs; cheap after the first time in a process.

        Raises:
            SpecError: files it names are missing or are not what the spec says.
        """


def join_batches(parts: Sequence[Batch]) -> Batch:
    """The sequences of all parts, which are equally long and hide keys all or none."""
    inputs, targets = (torch.cat([part[index] for part in parts]) for index in (0, 1))  # type: ignore[misc]
    visible = [part.visible for part in parts if part.visible is not None]
    return Batch(inputs, targets, torch.cat(visible) if visible else None)


def over_items(name: str, values: Tensor, point: Mapping[str, float] | None = None) -> Measurements:
    """The mean of one value per item, float64 [items], with the standard error over them."""
    items = len(values)
    se = float(values.std(correction=1)) / math.sqrt(items) if items > 1 else None
    return Measurements(name, float(values.mean()), dict(point or {}), items, se)


def in_chunks(predict: Predict, inputs: Tensor, rows: int) -> Iterator[tuple[slice, Tensor]]:
    """Outputs for `rows` sequences at a time, so that temporaries stay in the cache and fit the memory."""
    for start in range(0, len(inputs), rows):
        chunk = slice(start, start + rows)
        yield chunk, predict(inputs[chunk])


def spread_evenly(count: int, span: int) -> Tensor:
    """`count` whole numbers from 0 to `span`, both included, evenly spread (int64)."""
    steps = max(count - 1, 1)
    return torch.tensor([index * span // steps for index in range(count)])
