"""Knock-outs of a trained model: the planned measure once more without parts of the operator, on the same items.

A row `knockout.<stages>.<measure>` holds the change that the removal makes, at the point of the measure. `<stages>` are
joined by +, or "all"; the row of "none" holds the measure itself. `se_items` is the standard error over the items' own
changes. A measure that training logs, such as the loss, is taken on the last `BATCHES` training batches; items are then
sequences.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch

from ablate.runners.evaluations import Evaluation, Judge
from ablate.runners.evaluations.knockout import Knockout, row_name
from ablate.runners.output import say
from ablate.runners.tasks.task import (
    Batch,
    Data,
    ItemMeasurements,
    Items,
    Measurements,
    Predict,
    Task,
    once,
    over_ratio,
)
from ablate.runners.trial import Trial
from ablate.variants import Transformer
from ablate.variants.model.knockout import changed_stages

BATCHES = 4


def knock_out(
    model: Transformer, asked: Knockout, measure: Callable[[], Iterable[Measurements | Items]]
) -> Iterator[Measurements]:
    """Yield the change of the measure for every set, and for all stages; nothing if `measure` does not yield it.

    `measure` measures the model as it is.
    """

    def take() -> Measurements | None:
        return next((row for row in measure() if isinstance(row, Measurements) and asked.fits(row)), None)

    own = take()
    if own is None:
        return
    yield own._replace(name=row_name(["none"], asked.name))
    everything = {stage for block in model.blocks() for stage in changed_stages(block.attention.operator)}
    for stages in asked.sets:
        try:
            with model.knock_out(stages):
                left = take()
        except torch.OutOfMemoryError:  # its path may need more than that of training; the trial itself is done
            say(f"no memory to measure the model without {' and '.join(stages)}")
            continue
        assert left is not None  # the same evaluation has just yielded it
        yield _change(row_name(stages, asked.name), own, left)
        if everything <= set(stages):
            yield _change(row_name(["all"], asked.name), own, left)


def _change(name: str, own: Measurements, left: Measurements) -> Measurements:
    """Return the change, with the standard error of the items' changes; without items, of independent ones."""
    error = None
    if isinstance(own, ItemMeasurements) and isinstance(left, ItemMeasurements):
        items = left.values - own.values
        error = float(items.std(correction=1)) / math.sqrt(len(items)) if len(items) > 1 else None
    elif own.se_items is not None and left.se_items is not None:
        error = math.hypot(own.se_items, left.se_items)
    return Measurements(name, left.value - own.value, dict(own.point), own.items, error)


def measure_again(
    trial: Trial, model: Transformer, data: Data, judges: Sequence[tuple[Evaluation, Judge]], predict: Predict
) -> Iterator[Measurements | Items]:
    """Yield what may hold the planned measure of a trial: its task's evaluation, its evaluations, or logged values."""
    asked = trial.execution.knockout
    assert asked is not None
    name = asked.name
    if _may_yield(trial.task, name):
        yield from data.evaluate(predict)
    for evaluation, judge in judges:
        if name in judge.subjects or _may_yield(evaluation, name):
            with model.use_positions(evaluation.positions(trial.model)):
                yield from judge.evaluate(predict)
    if name in (logged := ["loss", *data.logged]):
        yield _measure_logged(trial, data, predict, logged.index(name), name)


def _may_yield(judge: Task | Evaluation, name: str) -> bool:
    declared = judge.measures()
    return declared is None or name in declared


def _measure_logged(trial: Trial, data: Data, predict: Predict, number: int, name: str) -> Measurements:
    """Measure `data.losses` number `number` of each sequence of the last batches."""
    steps, parts = trial.training.steps, trial.parts
    values, terms = list[float](), list[int]()
    for step in range(max(1, steps - BATCHES + 1), steps + 1):
        for part in data.batch(trial.seed, step).split(parts):
            found, counted = once(predict, partial(_losses, data, predict, part, number))
            values, terms = values + found, terms + counted
    weights = torch.tensor(terms, dtype=torch.float64)
    sums = torch.where(weights > 0, torch.tensor(values, dtype=torch.float64) * weights, 0)
    return over_ratio(name, sums, weights)


def _losses(data: Data, predict: Predict, part: Batch, number: int) -> tuple[list[float], list[int]]:
    """Return the value of each sequence, and the number of terms of which it is a mean."""
    outputs = predict(part.inputs, part.visible)
    batch = data.complete_batch(part.to(outputs.device))
    targets = torch.split(batch.targets, 1)
    pairs = zip(torch.split(outputs, 1), targets, strict=True)
    losses = [data.losses(output, target)[number] for output, target in pairs]
    return torch.stack(losses).double().tolist(), data.terms(targets)
