"""A global batch in parts: one per micro-batch of every process that trains the trial.

Loss and gradient of the whole are the sums over the parts, each weighed by its share of the terms the loss averages.
"""

from collections.abc import Iterable
from typing import NamedTuple

from runners.tasks.task import Batch, Data


class Part(NamedTuple):
    """Consecutive sequences of a batch."""

    number: int
    """Counted over the whole batch, so that what is drawn in a part does not depend on who computes it."""
    batch: Batch
    terms: float
    """Its share of the terms of the loss."""
    sequences: float
    """Its share of the sequences."""


def parts(data: Data, batch: Batch, count: int, wanted: Iterable[int]) -> list[Part]:
    """The `wanted` ones of `count` parts, whose sizes differ by one sequence at most."""
    if count == 1:
        return [Part(0, batch, 1.0, 1.0)]
    split = batch.split(count)
    terms, sequences = data.terms(batch.targets), len(batch.inputs)
    return [
        Part(number, part, data.terms(part.targets) / terms, len(part.inputs) / sequences)
        for number, part in enumerate(split)
        if number in wanted
    ]
