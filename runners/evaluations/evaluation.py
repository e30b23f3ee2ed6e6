"""The family of evaluations: what a trained model is judged by beside what its task measures.

An evaluation reads files or draws items of its own, so one model can be judged by many and one of them can judge models
of several tasks. Items are kept apart from seeds: `se_items` is the standard error over items of one model.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from grid.errors import SpecError
from grid.spec import Choice
from runners.tasks.task import Items, Measurements, Predict, Task
from variants import Backbone
from variants.stages.positions.scheme import Positions


class Judge(ABC):
    """An evaluation with whatever it had to read."""

    @property
    def record(self) -> Mapping[str, Any] | None:
        """What was read: files and hashes, or None where nothing was."""
        return None

    @property
    def subjects(self) -> Mapping[str, Mapping[str, float]]:
        """What its rows are about and at which point, where its spec does not say so (`Evaluation.measures`)."""
        return {}

    @abstractmethod
    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        """Everything it measures of a model; the values of single items where models will be compared item by item."""


class Evaluation(Choice):
    """What is measured of a model of tokens or scalars, at every evaluation of the training or at the end only."""

    units: ClassVar[Mapping[str, str]] = {}
    """The unit of each measurement, by its name without a reference predictor or set."""

    at_end: bool = True
    """Whether it waits for the end of the training."""

    @property
    @abstractmethod
    def length(self) -> int:
        """The longest sequence that it shows to a model."""

    def length_on(self, task: Task) -> int:  # noqa: ARG002
        """The longest sequence that it shows to a model of `task`; by default `length`, whatever the task."""
        return self.length

    def check(self, task: Task, model: Backbone) -> None:
        """Refuse a trial that it cannot judge.

        Raises:
            ValueError: the rule, what came, and what to do.
        """

    def positions(self, model: Backbone) -> Positions:
        """How a trained model knows order while it is judged; by default as in training."""
        return model.positions

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]] | None:
        """As `Task.measures`."""
        return None

    @abstractmethod
    def open(self, task: Task) -> Judge:
        """Read or draw what it needs; cheap after the first time in a process.

        Raises:
            SpecError: files it names are missing or are not what the spec says.
        """


def opened(task: Task, evaluations: Sequence[Evaluation]) -> list[tuple[Evaluation, Judge]]:
    """Each of `evaluations` with its judge.

    Raises:
        SpecError: two of them are about the same thing at the same point; else as `Evaluation.open`.
    """
    found = [(each, each.open(task)) for each in evaluations]
    taken: dict[tuple[object, ...], Evaluation] = {}
    for spec, judge in found:
        for subject, point in judge.subjects.items():
            if taken.setdefault((subject, *sorted(point.items())), spec) is not spec:
                at = ", ".join(f"{coordinate}={value:g}" for coordinate, value in point.items())
                raise SpecError(
                    f"a measure has one value at a point; two evaluations {spec.label} are about {subject}"
                    f"{at and f' at {at}'}: leave one out, or change where it is taken"
                )
    return found
