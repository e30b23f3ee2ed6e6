"""A global batch in parts: one per micro-batch of every process that trains the trial.

Loss and gradient of the whole are the sums over the parts, each weighed by its share of the terms the loss averages.
"""

from collections.abc import Iterable
from typing import NamedTuple

from grid.errors import SpecError
from runners.tasks.task import Batch, Data


class BatchPart(NamedTuple):
    """Consecutive sequences of a batch."""

    number: int
    """Counted over the whole batch, so that what is drawn in a part does not depend on who computes it."""
    batch: Batch
    terms: float
    """Its share of the terms of the loss."""
    sequences: float
    """Its share of the sequences."""


def require_finite(batch: Batch) -> None:
    """Raise SpecError where a model would read a number that is none; token ids always are.

    Later in training such a batch shows itself as a loss that is no number, which counts as a divergence.
    """
    if not batch.inputs.is_floating_point() or bool(batch.inputs.isfinite().all()):
        return
    place = tuple(batch.inputs.isfinite().logical_not().nonzero()[0].tolist())
    raise SpecError(
        f"what a model reads is finite numbers; the task's first batch has {batch.inputs[place].item()} in sequence "
        f"{place[0]} at position {place[1]}; clean the data before training"
    )


def parts(data: Data, batch: Batch, count: int, wanted: Iterable[int]) -> list[BatchPart]:
    """The `wanted` ones of `count` parts, whose sizes differ by one sequence at most."""
    if count == 1:
        return [BatchPart(0, batch, 1.0, 1.0)]
    split = batch.split(count)
    terms, sequences = data.terms(batch.targets), len(batch.inputs)
    return [
        BatchPart(number, part, data.terms(part.targets) / terms, len(part.inputs) / sequences)
        for number, part in enumerate(split)
        if number in wanted
    ]
