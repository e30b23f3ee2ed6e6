"""The family of evaluations: measurements of a trained model beside those of its task.

`se_items` is the standard error over items of one model; seeds are separate.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from math import hypot
from typing import Any, ClassVar, final

from ablate.grid.errors import SpecError
from ablate.grid.row_info import RowInfo
from ablate.grid.spec import Choice
from ablate.runners.replacements import REPLACEMENTS
from ablate.training.tasks.task import Items, Measurements, Predict, Task, row_words
from ablate.variants.model.foreign import AnyBackbone
from ablate.variants.stages.positions import Positions


class Evaluator(ABC):
    """An evaluation with the data that it has read."""

    @property
    def record(self) -> Mapping[str, Any] | None:
        """The files that were read, with hashes, or None without files."""
        return None

    @property
    def subjects(self) -> Mapping[str, Mapping[str, float]]:
        """Names of rows with their points, if the spec does not know them (`Evaluation.measures`)."""
        return {}

    @abstractmethod
    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        """Measure a model. Yield also the values of single items if models will be compared item by item."""


class Evaluation(Choice):
    """Measurements of a model of tokens or scalars, at every evaluation of the training or at its end only."""

    replacements: ClassVar[Mapping[str, str]] = REPLACEMENTS
    units: ClassVar[Mapping[str, str]] = {}
    """The unit of each measurement, by its name without a reference predictor or set."""
    rows: ClassVar[tuple[RowInfo, ...]] = ()
    """Title and lower bound of measurements where they are not as known."""

    needs: ClassVar[tuple[type, str]] = (Task, "a task")
    """The class or protocol of the tasks that it evaluates, and its name in an error."""
    causal_only: ClassVar[bool] = False
    """True if it cannot evaluate an encoder."""

    at_end: bool = True
    """True if it runs only at the end of the training."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Length of the longest sequence that it shows to a model."""

    def row_infos(self) -> tuple[RowInfo, ...]:
        """Return what it says about the values that it records."""
        return (*self.rows, *starmap(RowInfo, self.units.items()))

    def length_on(self, task: Task) -> int:  # noqa: ARG002
        """Return `length` if it depends on the task."""
        return self.length

    def check(self, task: Task, model: AnyBackbone) -> None:
        """Raise ValueError if it cannot evaluate this trial."""
        kind, name = self.needs
        if not isinstance(task, kind):
            raise ValueError(  # noqa: TRY004  (a rule of the spec)
                f"{self.label} cannot evaluate {type(task).__name__}; it needs {name}, leave it out of evaluations"
            )
        if self.causal_only and not model.causal:
            raise ValueError(
                f"{self.label} cannot evaluate an encoder, which sees the next token; leave it out of evaluations"
            )

    def positions(self, model: AnyBackbone) -> Positions:
        """Return the positions of the model during the evaluation; by default those of the training."""
        return model.positions

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]] | None:
        """Return names and points of measurements, as `Task.measures` does."""
        return None

    def open(self, task: Task) -> Evaluator:
        """Read or draw its items, once per process; SpecError if files are missing or differ from the spec.

        An evaluation without items of its own overrides `measure` instead.
        """
        if type(self).measure is Evaluation.measure:
            raise SpecError(f"{type(self).__name__} has neither open nor measure; an evaluation overrides one, add it")
        return _PlainEvaluator(self, task)

    def measure(self, predict: Predict, task: Any) -> Iterator[Measurements]:
        """Measure a model of `task`."""
        raise NotImplementedError


@final
class _PlainEvaluator(Evaluator):
    def __init__(self, evaluation: Evaluation, task: Task) -> None:
        self._evaluation, self._task = evaluation, task

    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        return self._evaluation.measure(predict, self._task)


def slug(name: str) -> str:
    """Return `name` for rows: lower case, `_` for all but letters and digits; "" if it has none."""
    return re.sub(r"[\W_]+", "_", name.lower()).strip("_")


def over_sets(name: str, rows: Sequence[Measurements]) -> Measurements:
    """Return the mean over sets, each with the same weight, with its standard error."""
    errors = [row.se_items for row in rows if row.se_items is not None]
    se = hypot(*errors) / len(rows) if len(errors) == len(rows) else None
    value = sum(row.value for row in rows) / len(rows)
    return Measurements(name, value, rows[0].point, sum(row.items for row in rows), se)


def open_evaluations(task: Task, evaluations: Sequence[Evaluation]) -> list[tuple[Evaluation, Evaluator]]:
    """Open evaluations, each with its evaluator; SpecError if two of them measure one name at one point."""
    pairs = [(each, each.open(task)) for each in evaluations]
    taken: dict[tuple[object, ...], Evaluation] = {}
    for spec, evaluator in pairs:
        for subject, point in evaluator.subjects.items():
            if taken.setdefault((subject, *sorted(point.items())), spec) is not spec:
                raise SpecError(f"two evaluations {spec.label} both measure {row_words(subject, point)}; leave one out")
    return pairs
