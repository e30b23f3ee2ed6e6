"""The family of probes: measurements inside a model during evaluation.

A probe sees a few fixed sequences of the task, the same for all models and seeds. It changes no number of the training.
CONTRIBUTING.md lists what else a new probe of this package needs, such as its export in `training/__init__.pyi`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, NoReturn, Self

import numpy as np
from pydantic import PositiveInt, model_validator

from ablate.grid.errors import SpecError
from ablate.grid.row_info import RowInfo as RowInfo
from ablate.grid.spec import Choice, Spec
from ablate.training.tasks.task import Batch, Data, Task, row_words
from ablate.variants import Operator
from ablate.variants.model.foreign import AnyBackbone, Model
from ablate.variants.model.transformer import LayerTrace

NOWHERE: Mapping[str, float] = {}


class Probed(NamedTuple):
    """One value. `layer` (from 0 at the bottom) is None for the whole model, `head` for all heads together."""

    name: str
    value: float
    layer: int | None = None
    head: int | None = None
    point: Mapping[str, float] = NOWHERE
    """The coordinates of the value: `{"eps": 0.3, "position": 1}`."""


class ProbeArray(NamedTuple):
    """Arrays for a viewer, which no table holds."""

    name: str
    """The file name: lower-case words joined by `-`."""
    arrays: Mapping[str, np.ndarray]


Found = Iterator[Probed | ProbeArray]


class ProbeInput(NamedTuple):
    """The inputs of a probe beside the traces of layers."""

    model: Model
    task: Task
    batch: Batch
    """The probed sequences, on the model's device."""
    step: int
    norms: Sequence[float]
    """The norm of the gradient at the first `NORMS` steps, before clipping."""


NORMS = 500


class Probe(Choice):
    """One measurement. A subclass overrides `of_layer`, `of_model` or both.

    `layer.worked` describes what a head does at a query: `attended.weights` [B, H, T, T], `attended.logits`, `heads.q`,
    `numbers`. Sink tokens of the model are ordinary keys and queries, and come first. Values of one step differ in
    name, layer, head or point, and files in their name; else the trial fails.
    """

    rows: ClassVar[tuple[RowInfo, ...]] = ()
    """All rows that the probe can record, with their units."""
    cost: ClassVar[str] = ""
    """Its computations beyond those that all probes share."""
    at_divergence: ClassVar[bool] = False
    """True if `of_model` also runs when training diverges. It must make no pass through the model then."""

    def check(self, task: Task, model: AnyBackbone, operators: Sequence[Operator]) -> None:
        """Raise ValueError if the probe has no meaning in this trial."""

    def refuse(self, what: str, operators: Sequence[Operator], use: str) -> NoReturn:
        """Raise ValueError because no operator of the trial has what the probe measures."""
        labels = ", ".join(dict.fromkeys(operator.label for operator in operators)) or "no attention"
        raise ValueError(f"no operator ({labels}) has {what}, which {self.label} measures; drop it or use {use}")

    def records(self) -> Sequence[tuple[str, Mapping[str, float]]]:
        """Return what no other probe of the trial may record: names of rows with parts of their points.

        By default the kind, so that a trial has one probe of a kind.
        """
        return [(self.label, NOWHERE)]

    def tokens(self, model: AnyBackbone) -> int:  # noqa: ARG002  (what a probe overrides)
        """Return the least number of tokens of a sequence that the probe needs."""
        return 1

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002  (what a probe overrides)
        """Measure one layer. Called for every layer from the bottom."""
        yield from ()

    def of_model(self, seen: ProbeInput) -> Found:  # noqa: ARG002
        yield from ()


class Probing(Spec):
    """The probes of a trial and the sequences that they see at every evaluation."""

    probes: tuple[Probe, ...] = ()
    """The probes."""
    sequences: PositiveInt = 8
    """Number of the task's sequences that probes see."""
    length: PositiveInt = 64
    """Sequences are cut to this many positions, since attention shares depend on the length."""

    @model_validator(mode="after")
    def _rows_are_unique(self) -> Self:
        taken: dict[tuple[object, ...], int] = {}
        for number, probe in enumerate(self.probes):
            for name, point in probe.records():
                first = taken.setdefault((name, *sorted(point.items())), number)
                if first != number:
                    both = f"{self.probes[first].label} and {probe.label}"
                    raise ValueError(f"{both} both record {row_words(name, point)}")
        return self

    def check(self, task: Task, model: AnyBackbone, operators: Sequence[Operator]) -> None:
        """Raise ValueError if a probe has no meaning in this trial."""
        for probe in self.probes:
            probe.check(task, model, operators)
            if probe.tokens(model) > min(self.length, task.length):
                raise ValueError(
                    f"probing.length={self.length} and a task of up to {task.length} are too short for {probe.label}, "
                    f"which needs sequences of {probe.tokens(model)} tokens or more; choose earlier positions, or make "
                    "these longer"
                )


def probe_model(data: Data, probing: Probing) -> Batch:
    """Return the sequences that probes see, on the CPU."""
    (inputs, targets, visible), length = data.examples(probing.sequences), probing.length
    return Batch(inputs[:, :length], targets, None if visible is None else visible[:, :length, :length])


def require_long_enough(data: Data, probing: Probing, model: AnyBackbone) -> None:
    """Raise SpecError if a probe needs positions that the task's examples do not have."""
    most, label = max(((probe.tokens(model), probe.label) for probe in probing.probes), default=(1, ""))
    if most == 1:
        return  # draw no examples
    tokens = min(data.examples(1).inputs.shape[1], probing.length)
    if most > tokens:
        raise SpecError(
            f"the probed sequences of the task have {tokens} tokens, and {label} needs {most} or more; choose earlier "
            "positions, or make the task's sequences longer"
        )


def run_probes(probing: Probing, seen: ProbeInput, *, diverged: bool = False) -> Found:
    """Yield the records of all probes, or of those for divergence; SpecError if two records have one place."""
    taken: dict[tuple[object, ...], Probe] = {}

    def require_new(record: Probed | ProbeArray, probe: Probe) -> Probed | ProbeArray:
        place: tuple[object, ...] = (record.name,)
        words, field = f"a file {record.name!r}", "name"
        if isinstance(record, Probed):
            place = (record.name, record.layer, record.head, *sorted(record.point.items()))
            words = f"{row_words(record.name, record.point)} of layer {record.layer}, head {record.head}"
            field = "name, layer, head or point"
        if place in taken:
            both = taken[place] is not probe
            who = f"{taken[place].label} and {probe.label} both recorded" if both else f"{probe.label} recorded twice"
            raise SpecError(f"{who} {words}; give each record another {field}")
        taken[place] = probe
        return record

    at_layers = [probe for probe in probing.probes if type(probe).of_layer is not Probe.of_layer]
    if at_layers and not diverged:
        for layer in seen.model.trace_layers(seen.batch.inputs, seen.batch.visible):
            for probe in at_layers:
                yield from (require_new(record, probe) for record in probe.of_layer(layer, seen))
    for probe in probing.probes:
        if probe.at_divergence or not diverged:
            yield from (require_new(record, probe) for record in probe.of_model(seen))
