"""The family of tasks: training data, loss and evaluation.

Training data depend on the trial's seed and the step alone: all operators of one seed see the same batches on every
device. Evaluation data depend on the task alone, so all models and seeds are evaluated on the same sample.
CONTRIBUTING.md lists what else a new task of this package needs, such as its export in `training/__init__.pyi`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import torch
from jaxtyping import Float, Int, Shaped
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from ablate.grid.row_info import RowInfo
from ablate.grid.spec import Choice
from ablate.training.tasks.counter_rng import CPU
from ablate.variants import Backbone, Scalars, Tokens
from ablate.variants.axes import Inputs, Outputs, Visibility
from ablate.variants.model.cache import ModelCache, NoCache
from ablate.variants.model.mixer import Layers

T = TypeVar("T")


class Predict(Protocol):
    """A model in inference mode."""

    def __call__(self, inputs: Inputs, visible: Visibility | None = None, /) -> Outputs:
        """Map inputs and visibility as in `Batch` to outputs."""


def start_cache(predict: Predict, tokens: int) -> ModelCache | None:
    """Begin a cache of sequences whose first `tokens` come at once; None if the model can keep nothing."""
    start: Callable[[int], ModelCache] | None = getattr(predict, "start_cache", None)
    try:
        return None if start is None else start(tokens)
    except NoCache:
        return None


def predict_next(predict: Predict, inputs: Inputs, visible: Visibility | None, cache: ModelCache | None) -> Outputs:
    """Call `predict`, on the next tokens if there is a `cache`, which `start_cache` made."""
    caching: Callable[..., Tensor] = predict
    return predict(inputs, visible) if cache is None else caching(inputs, visible, cache)


def once(predict: Predict, compute: Callable[[], T]) -> T:
    """Return the result of `compute`, small tensors on the CPU or plain data; a resumed evaluation recalls it."""
    recall: Callable[[Callable[[], T]], T] | None = getattr(predict, "once", None)
    return compute() if recall is None else recall(compute)


DIVERGED = 1000.0
"""A loss of this many times the best constant prediction's counts as diverged."""


UNSCORED = -100
"""Target of a position without a loss."""

_SMALL = 16_384
"""Largest small batch: sequences, times the length or the number of tokens of the vocabulary."""


def move(values: Shaped[Tensor, "..."], device: torch.device) -> Shaped[Tensor, "..."]:
    """Move a tensor to a device; the host does not wait for a copy to a GPU."""
    if device.type != "cuda" or values.is_cuda:
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


class Batch(NamedTuple):
    """Inputs, scalars or token ids, and the targets that `Data.loss` compares outputs with."""

    inputs: Inputs
    targets: Shaped[Tensor, "batch ..."]
    visible: Visibility | None = None
    """True = query i may see key j if the model allows it. None hides nothing."""

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        visible = None if self.visible is None else move(self.visible, device)
        return Batch(move(self.inputs, device), move(self.targets, device), visible)

    def first(self, count: int) -> "Batch":
        return Batch(self.inputs[:count], self.targets[:count], None if self.visible is None else self.visible[:count])

    def split(self, count: int) -> "list[Batch]":
        """Split into `count` parts of consecutive sequences; sizes differ by at most one."""
        visible = [None] * count if self.visible is None else self.visible.tensor_split(count)
        parts = zip(self.inputs.tensor_split(count), self.targets.tensor_split(count), visible, strict=True)
        return list(starmap(Batch, parts))


class Measurements(NamedTuple):
    """One value of an evaluation at one point; `se_items` is the standard error over its items."""

    name: str
    value: float
    point: Mapping[str, float]
    items: int
    se_items: float | None


class ItemMeasurements(Measurements):
    """A value with those of its items, float64 [items], whose mean it is; for a ratio, to first order."""

    values: Float[Tensor, " items"]

    @classmethod
    def of(cls, measured: Measurements, values: Float[Tensor, " items"]) -> "ItemMeasurements":
        measurements = cls(*measured)
        measurements.values = values
        return measurements


class Items(NamedTuple):
    """The items' values behind a `Measurements` of the same name and point, for comparisons by item."""

    name: str
    point: Mapping[str, float]
    items: Sequence[str]
    """Names of the items, the same for all models."""
    values: Sequence[float]


class Data(ABC):
    """The data of a task, on the CPU."""

    @property
    def record(self) -> Mapping[str, Any] | None:
        """Files and hashes that were read, or None."""
        return None

    @property
    @abstractmethod
    def constant_loss(self) -> float:
        """Loss of the best prediction that ignores its input."""

    @abstractmethod
    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """Draw the batch of training step `step`, counted from 1, on `device`; it is the same on every device."""

    def examples(self, count: int) -> Batch:
        """Return at most `count` sequences for probes, on the CPU; by default none that a trial trains on."""
        parts = [self.batch(0, 0)]
        while sum(len(part.inputs) for part in parts) < count:
            parts.append(self.batch(len(parts), 0))
        inputs, targets = (torch.cat([part[index] for part in parts]) for index in (0, 1))  # type: ignore[misc]
        visible = [part.visible for part in parts if part.visible is not None]
        return Batch(inputs, targets, torch.cat(visible) if visible else None).first(count)

    def complete_batch(self, part: Batch) -> Batch:
        """Compute the targets of a part of a batch on its device; by default unchanged."""
        return part

    @abstractmethod
    def loss(self, outputs: Outputs, targets: Shaped[Tensor, "batch ..."]) -> Float[Tensor, ""]:
        """Compute the training loss, a mean over terms. It is compiled with the model."""

    @property
    def logged(self) -> Sequence[str]:
        """Names of the values logged per step besides the loss."""
        return ()

    def losses(self, outputs: Outputs, targets: Shaped[Tensor, "batch ..."]) -> Sequence[Float[Tensor, ""]]:
        """Compute `loss` and, for each name of `logged`, a mean over the same terms."""
        return (self.loss(outputs, targets),)

    def terms(self, targets: Sequence[Shaped[Tensor, "_ ..."]]) -> list[int]:
        """Count the terms of `loss`, which weigh a part of a batch, by part; by default one per target."""
        return [each.numel() for each in targets]

    @abstractmethod
    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        """Yield every measurement of a model."""


class TokenData(Data):
    """Data whose loss is the mean of -log p(target), in nats, over targets that are not `UNSCORED`."""

    def loss(
        self, outputs: Float[Tensor, "batch tokens vocabulary"], targets: Int[Tensor, "batch tokens"]
    ) -> Float[Tensor, ""]:
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=UNSCORED)

    def terms(self, targets: Sequence[Int[Tensor, "_ tokens"]]) -> list[int]:
        counts: list[int] = torch.stack([(each != UNSCORED).sum() for each in targets]).tolist()  # the host waits once
        return counts


class Task(Choice):
    """A task that a model learns."""

    units: ClassVar[Mapping[str, str]] = {}
    """The unit of each measurement, by its name without a reference predictor."""
    rows: ClassVar[tuple[RowInfo, ...]] = ()
    """Title and lower bound of measurements, and of training metrics, where they are not as known."""

    batch: PositiveInt
    """Sequences per training step."""

    @property
    @abstractmethod
    def inputs(self) -> Scalars | Tokens:
        """Format of the model's inputs and outputs."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Longest sequence in training and evaluation."""

    @property
    def trained_length(self) -> int:
        """Longest sequence in training."""
        return self.length

    def measured_length(self, point: Mapping[str, float]) -> int:
        """Return the longest sequence at a point of an evaluation; 0 if it is not known to be another."""
        return int(point.get("length", 0))

    @property
    def sees_ahead(self) -> bool:
        """True if the model is an encoder and reads later positions; False if it is causal."""
        return False

    @property
    def unscored(self) -> int:
        """Number of first positions that the loss leaves out; a prefix may be visible one position further."""
        return 0

    def drawn_on(self, device: torch.device) -> torch.device:
        """Return the device that draws batches for training on `device`: the CPU if they are small.

        To draw takes up to 200 kernels; a CPU computes small ones in less time than a GPU needs to start them.
        """
        vocabulary = self.inputs.vocabulary if isinstance(self.inputs, Tokens) else 1
        return CPU if self.batch * max(self.length, vocabulary) <= _SMALL else device

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]] | None:
        """Return the points of every evaluation by name; `{}` is the point of one without a grid.

        A grid's measure is checked against it before training. None, the default, means unknown until it has run.
        """
        return None

    def row_infos(self) -> tuple[RowInfo, ...]:
        """Return what it says about the values that it records."""
        return (*self.rows, *starmap(RowInfo, self.units.items()))

    def teachers(self) -> Sequence[tuple[Backbone, Layers]]:
        """Return models that predict every batch before it is trained on, with the operator of each layer."""
        return ()

    def check_steps(self, steps: int) -> None:
        """Raise ValueError if `steps` training steps are too few for the task."""

    @abstractmethod
    def open(self) -> Data:
        """Read or draw the data, once per process; SpecError if files are missing or differ from the spec."""


def row_words(name: str, point: Mapping[str, float]) -> str:
    """Write the name of a row with its point, for errors."""
    at = ", ".join(f"{coordinate}={value:g}" for coordinate, value in point.items())
    return f"{name} at {at}" if at else name


def over_items(name: str, values: Float[Tensor, " items"], point: Mapping[str, float] | None = None) -> Measurements:
    """Measure the mean and standard error of one value per item, float64 [items]."""
    items = len(values)
    se = float(values.std(correction=1)) / math.sqrt(items) if items > 1 else None
    return ItemMeasurements.of(Measurements(name, float(values.mean()), dict(point or {}), items, se), values)


def in_chunks(
    predict: Predict, inputs: Inputs, rows: int, reduce: Callable[[slice, Tensor], T], visible: Visibility | None = None
) -> Iterator[tuple[slice, T]]:
    """Yield what `reduce` makes of the outputs for `rows` sequences at a time: small results, as for `once`."""

    def compute(chunk: slice) -> T:
        outputs = predict(inputs[chunk]) if visible is None else predict(inputs[chunk], visible[chunk])
        return reduce(chunk, outputs)

    for start in range(0, len(inputs), rows):
        chunk = slice(start, start + rows)
        yield chunk, once(predict, partial(compute, chunk))


def token_losses(
    predict: Predict, batch: Batch, rows: int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "batch tokens"]:
    """Compute the nats of each target, float64 on the CPU, in `dtype`; 0 if the target is `UNSCORED`."""

    def reduce(chunk: slice, outputs: Tensor) -> Tensor:
        wanted = batch.targets[chunk].to(outputs.device)
        each = F.cross_entropy(outputs.to(dtype).transpose(1, 2), wanted, ignore_index=UNSCORED, reduction="none")
        return each.to("cpu", torch.float64)

    losses = torch.zeros(batch.targets.shape, dtype=torch.float64)
    for chunk, each in in_chunks(predict, batch.inputs, rows, reduce, batch.visible):
        losses[chunk] = each
    return losses


def spread_evenly(count: int, span: int) -> Int[Tensor, " count"]:
    """Return `count` whole numbers from 0 to `span`, evenly spread, both ends included (int64)."""
    steps = max(count - 1, 1)
    return torch.tensor([index * span // steps for index in range(count)])


def over_ratio(
    name: str, x: Float[Tensor, " items"], n: Float[Tensor, " items"], *, factor: float = 1.0, exponential: bool = False
) -> Measurements:
    """Measure a ratio of sums over items, such as nats per token if items differ in their number of tokens.

        r = sum x / sum n,     se(r)^2 = m / (m - 1)  sum (x - r n)^2 / (sum n)^2        over m items (delta method)

    `x` and `n` are float64 [items]. With equal n, r is the mean of x / n with its standard error, None for one item. It
    is NaN if all n are 0. `factor` converts to another unit; `exponential` measures e^r, infinite if it overflows.
    """
    items, total = len(x), float(n.sum())
    value, se = float(x.sum()) / total if total else math.nan, None
    apart = (x - value * n) * (items / total) if total else x
    if items > 1 and total:
        spread = float((x - value * n).square().sum()) * items / (items - 1)
        se = math.sqrt(spread) / total
    if exponential:
        try:
            size = math.exp(value)
        except OverflowError:
            size = math.inf
        value, se, apart = size, None if se is None else se * size, apart * size
    measured = Measurements(name, value * factor, {}, items, None if se is None else se * factor)
    return ItemMeasurements.of(measured, (value + apart) * factor)
