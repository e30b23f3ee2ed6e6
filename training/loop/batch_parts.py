"""Parts of a batch, for micro-batches and ranks."""

from collections.abc import Iterable
from typing import NamedTuple

from ablate.grid.errors import SpecError
from ablate.training.tasks.task import Batch, Data


class BatchPart(NamedTuple):
    """Consecutive sequences of a batch."""

    number: int
    """Index in the whole batch. Random numbers of a part follow from it, so they do not depend on the rank."""
    batch: Batch
    terms: float
    """Its share of the terms of the loss."""
    sequences: float
    """Its share of the sequences."""


def require_finite(batch: Batch) -> None:
    """Raise SpecError if the inputs of the first batch hold NaN or infinity; later the loss shows it."""
    if not batch.inputs.is_floating_point() or bool(batch.inputs.isfinite().all()):
        return
    place = tuple(batch.inputs.isfinite().logical_not().nonzero()[0].tolist())
    raise SpecError(
        f"the task's first batch has {batch.inputs[place].item()} in sequence {place[0]} at position {place[1]}; clean "
        "the data before training"
    )


def parts(data: Data, batch: Batch, count: int, wanted: Iterable[int]) -> list[BatchPart]:
    """Split a batch into `count` parts and return the `wanted` ones. Sizes differ by at most one sequence."""
    if count == 1:
        return [BatchPart(0, batch, 1.0, 1.0)]
    split = batch.split(count)
    terms, sequences = data.terms([part.targets for part in split]), len(batch.inputs)
    whole = sum(terms)
    return [
        BatchPart(number, part, terms[number] / whole, len(part.inputs) / sequences)
        for number, part in enumerate(split)
        if number in wanted
    ]
