"""Knock-outs of a trained model: the planned measure once more without parts of the operator, on the same items.

A row `knockout.<change>.<measure>` holds the change of the measure, at its point. `se_items` is the standard error over
the items' own changes. The changes are

    none             nothing: the row holds the measure itself
    <stages>         these stages, joined by +, are at their default choice
    all              every changed stage is
    uniform          every stage is, and all visible keys have one weight
    mean-<stage>-<level>
                     the numbers of the stage are replaced by their mean over the axes that `Knockout.means` leaves out
    refit            as for all, then a temperature and an output size of every head are fitted (`refit.py`)
    refit-<stages>   the same after these stages, if it is asked for

A measure that training logs, such as the loss, is taken on the last training batches; items are then sequences.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import NamedTuple, TypeVar, final

import torch

from ablate.grid.values import MOST_NAME
from ablate.runners.output import say
from ablate.training.evaluations import Evaluation, Evaluator
from ablate.training.evaluations.knockout import Knockout, row_name
from ablate.training.loop.number_means import use_means
from ablate.training.loop.refit import fit_scales, last_batches
from ablate.training.tasks.task import (
    Batch,
    Data,
    ItemMeasurements,
    Items,
    Measurements,
    Predict,
    Task,
    once,
    over_ratio,
    predict_next,
    start_cache,
)
from ablate.training.trial import Trial
from ablate.variants import Transformer
from ablate.variants.axes import Inputs, Outputs, Visibility
from ablate.variants.model.cache import ModelCache
from ablate.variants.model.knockout import changed_stages

T = TypeVar("T")


class Subject(NamedTuple):
    """A trained model with what measures it."""

    trial: Trial
    model: Transformer
    data: Data
    evaluators: Sequence[tuple[Evaluation, Evaluator]]
    predict: Predict


class _NotFinite(Exception):
    """A changed model has an output that is not finite; no measure of it counts."""


@final
class _FinitePredict(Predict):
    def __init__(self, predict: Predict) -> None:
        self._predict = predict

    def __call__(
        self, inputs: Inputs, visible: Visibility | None = None, cache: ModelCache | None = None, /
    ) -> Outputs:
        outputs = predict_next(self._predict, inputs, visible, cache)
        if not bool(outputs.isfinite().all()):
            raise _NotFinite
        return outputs

    def start_cache(self, tokens: int) -> ModelCache | None:
        return start_cache(self._predict, tokens)

    def once(self, compute: Callable[[], T]) -> T:
        return once(self._predict, compute)


def knock_out(subject: Subject, refitted: Callable[[float], None]) -> Iterator[Measurements]:
    """Yield the rows of the planned knock-outs; none if nothing yields the measure. NaN if an output is not finite.

    `refitted` gets the seconds of the refit.
    """
    asked = subject.trial.execution.knockout
    assert asked is not None
    own = _measure(subject, asked)
    if own is None:
        return
    if not asked.refit and len(name := row_name(["none"], asked.name)) <= MOST_NAME:
        yield own._replace(name=name)
    checked = subject._replace(predict=_FinitePredict(subject.predict))
    for changes, changed in _changes(checked, refitted):
        names = [name for each in changes if len(name := row_name([each], asked.name)) <= MOST_NAME]
        if not names:
            continue
        try:
            with changed:
                left = _measure(checked, asked)
        except _NotFinite:
            left = Measurements(asked.name, math.nan, own.point, own.items, None)
        except torch.OutOfMemoryError:  # its path may need more than that of training; the trial itself is done
            say(f"no memory to measure {names[0]}")
            continue
        assert left is not None  # the same evaluation has just yielded it
        yield from (_change(name, own, left) for name in names)


def _measure(subject: Subject, asked: Knockout) -> Measurements | None:
    rows = measure_again(subject)
    return next((row for row in rows if isinstance(row, Measurements) and asked.fits(row)), None)


def _changes(
    subject: Subject, refitted: Callable[[float], None]
) -> Iterator[tuple[Sequence[str], AbstractContextManager[None]]]:
    """Yield what changes the model, with the names of the change."""
    model, asked = subject.model, subject.trial.execution.knockout
    assert asked is not None
    if asked.refit:
        for stages in asked.sets:
            yield [f"refit-{'+'.join(stages)}"], _refit(subject, stages, refitted)
        return
    everything = [stage for each in model.attentions() for stage in changed_stages(each.operator)]
    for stages in asked.sets:
        yield ["+".join(stages), *(["all"] if {*everything} <= {*stages} else [])], model.knock_out(stages)
    yield ["uniform"], model.attend_uniformly()
    for level, means in asked.means_by_level().items():
        yield [f"mean-{level}"], use_means(subject.trial, model, subject.data, subject.predict, means)
    if everything:
        yield ["refit"], _refit(subject, everything, refitted)


@contextmanager
def _refit(subject: Subject, stages: Sequence[str], refitted: Callable[[float], None]) -> Iterator[None]:
    trial, model, data, _, predict = subject
    with model.knock_out(stages):
        began = time.perf_counter()
        try:
            scales = fit_scales(trial, model, data, predict)
        finally:
            refitted(time.perf_counter() - began)
        with model.scale_heads(scales):
            yield


def _change(name: str, own: Measurements, left: Measurements) -> Measurements:
    """Return the change, with the standard error of the items' changes; without items, of independent ones."""
    error = None
    if isinstance(own, ItemMeasurements) and isinstance(left, ItemMeasurements):
        items = left.values - own.values
        error = float(items.std(correction=1)) / math.sqrt(len(items)) if len(items) > 1 else None
    elif own.se_items is not None and left.se_items is not None:
        error = math.hypot(own.se_items, left.se_items)
    return Measurements(name, left.value - own.value, dict(own.point), own.items, error)


def measure_again(subject: Subject) -> Iterator[Measurements | Items]:
    """Yield what may hold the planned measure of a trial: its task's evaluation, its evaluations, or logged values."""
    trial, model, data, evaluators, predict = subject
    asked = trial.execution.knockout
    assert asked is not None
    name = asked.name
    if _may_yield(trial.task, name):
        yield from data.evaluate(predict)
    for evaluation, evaluator in evaluators:
        if name in evaluator.subjects or _may_yield(evaluation, name):
            with model.use_positions(evaluation.positions(trial.model)):
                yield from evaluator.evaluate(predict)
    if name in (logged := ["loss", *data.logged]):
        yield _measure_logged(subject, logged.index(name), name)


def _may_yield(source: Task | Evaluation, name: str) -> bool:
    declared = source.measures()
    return declared is None or name in declared


def _measure_logged(subject: Subject, number: int, name: str) -> Measurements:
    """Measure `data.losses` number `number` of each sequence of the last batches."""
    trial, _, data, _, predict = subject
    values, terms = list[float](), list[int]()
    for part in last_batches(trial, data):
        losses, counted = once(predict, partial(_losses, data, predict, part.batch, number))
        values, terms = values + losses, terms + counted
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
