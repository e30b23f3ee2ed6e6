"""The family of probes: what is looked at inside a model while it is judged.

A probe sees a few fixed sequences of the task, the same for all models and seeds, on their way through the layers; what
it finds are rows of a long table: probe, layer, head, point, value. It changes no number of the training.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import PositiveInt, model_validator

from grid.spec import Choice, Spec
from runners.tasks.task import Batch, Task
from variants import Backbone, Operator, Transformer
from variants.model.transformer import LayerTrace

NOWHERE: Mapping[str, float] = {}


class Probed(NamedTuple):
    """One value; `layer` (from 0 at the bottom) is None for the whole model, `head` for what all heads share."""

    name: str
    value: float
    layer: int | None = None
    head: int | None = None
    point: Mapping[str, float] = NOWHERE
    """Where on its own grid it was taken: `{"eps": 0.3, "position": 1}`."""


class RowInfo(NamedTuple):
    """Describes the rows of one name that a probe records."""

    name: str
    """Capital words stand for parts that vary, as in `number.STAGE.FIELD`."""
    unit: str
    per: Literal["layer and head", "layer", "model", "file"] = "layer and head"
    point: tuple[str, ...] = ()
    """The coordinates of `Probed.point`."""


class ProbeArray(NamedTuple):
    """Arrays that a viewer shows and no table holds."""

    name: str
    """Of the file: lower-case words joined by `-`."""
    arrays: Mapping[str, np.ndarray]


Found = Iterator[Probed | ProbeArray]


class ProbeInput(NamedTuple):
    """What there is to see of a model beside its layers at work."""

    model: Transformer
    task: Task
    batch: Batch
    """The sequences it is looked at with, on its device."""
    step: int
    norms: Sequence[float]
    """The norm of the gradient at the first `NORMS` steps, before clipping."""


NORMS = 500


class Probe(Choice):
    """What one looks for. It overrides `of_layer`, `of_model` or both.

    What a head does at a query is in `layer.worked`: `attended.weights` [B, H, T, T], `attended.logits`, `heads.q`,
    `numbers`; sink tokens of the model are keys and queries like any other, and come first. What it finds at one step
    differs in name, layer, head or point, and a file in its name; else the trial fails.
    """

    rows: ClassVar[tuple[RowInfo, ...]] = ()
    """All rows that the probe can record, with their units."""
    cost: ClassVar[str] = ""
    """What it computes beyond what all probes share."""
    at_divergence: ClassVar[bool] = False
    """Whether `of_model` is asked, too, at the step at which training has diverged. It makes no pass through the model
    then."""

    def check(self, task: Task, model: Backbone, operators: Sequence[Operator]) -> None:
        """Refuse a trial in which the probe has no meaning.

        Raises:
            ValueError: the rule, what came, and what to do.
        """

    def records(self) -> Sequence[tuple[str, Mapping[str, float]]]:
        """What no two probes of a trial may both record: names of rows, each with what fields say of its point.

        By default the kind, so that a trial has one of it; a probe that a trial may have twice says its rows.
        """
        return [(self.label, NOWHERE)]

    def tokens(self, model: Backbone) -> int:  # noqa: ARG002  (what a probe overrides)
        """How many tokens a sequence has at least in which there is what the probe looks for."""
        return 1

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002  (what a probe overrides)
        """What one layer shows, called for every layer from the bottom; nothing of it is kept."""
        yield from ()

    def of_model(self, seen: ProbeInput) -> Found:  # noqa: ARG002
        """What the model as a whole shows."""
        yield from ()


class Probing(Spec):
    """Which probes, on how many of the task's sequences, at every evaluation."""

    probes: tuple[Probe, ...] = ()
    """What is looked for."""
    sequences: PositiveInt = 8
    """How many of the task's sequences are looked at."""
    length: PositiveInt = 64
    """Sequences are cut to so many positions: attention shares depend on the length, and are compared at one length."""

    @model_validator(mode="after")
    def _rows_are_told_apart(self) -> Self:
        taken: dict[tuple[object, ...], int] = {}
        for number, probe in enumerate(self.probes):
            for name, point in probe.records():
                first = taken.setdefault((name, *sorted(point.items())), number)
                if first != number:
                    at = ", ".join(f"{coordinate}={value:g}" for coordinate, value in point.items())
                    raise ValueError(
                        f"what probes record has one value at a point; {self.probes[first].label} and "
                        f"{probe.label} both record {name}{at and f' at {at}'}; leave one out, or make them one probe"
                    )
        return self

    def check(self, task: Task, model: Backbone, operators: Sequence[Operator]) -> None:
        """Refuse a trial in which a probe has no meaning.

        Raises:
            ValueError: the rule, what came, and what to do.
        """
        for probe in self.probes:
            probe.check(task, model, operators)
            if probe.tokens(model) > min(self.length, task.length):
                raise ValueError(
                    f"{probe.label} looks into sequences of {probe.tokens(model)} tokens or more; got "
                    f"probing.length={self.length} and a task of up to {task.length}; have it look at earlier "
                    "positions, or make these longer"
                )
