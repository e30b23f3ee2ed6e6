"""What is known about a task, an evaluation or a probe, collected from the code itself."""

import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple

from pydantic import ValidationError

import runners
from grid.errors import NotFoundError, SpecError
from grid.spec import Choice, Spec
from grid.suggestions import suggest_name
from runners.catalogue import evaluation_drawings, probe_drawings, task_drawings
from runners.catalogue.choice_words import (
    FieldRow,
    MeasureRow,
    ProbeRow,
    field_rows,
    measure_rows,
    parts_of,
    predictors,
    said_of,
    spec_line,
)
from runners.catalogue.materials import materials
from runners.catalogue.stage_words import formula, summary
from runners.evaluations import Evaluation
from runners.probes import Probe
from runners.provenance.code import SOURCE
from runners.tasks import Task
from runners.trial import DEFAULT_PROBES
from variants import Backbone, Operator, Scalars, gpt2

Family = Literal["task", "evaluation", "probe"]
FAMILIES: dict[str, type[Choice]] = {"task": Task, "evaluation": Evaluation, "probe": Probe}


class PartRows(NamedTuple):
    """A spec inside a field."""

    name: str
    about: str
    fields: tuple[FieldRow, ...]


class ChoiceRow(NamedTuple):
    """One kind of a family."""

    of: str
    name: str
    line: str


class ChoiceExplanation(NamedTuple):
    """Everything about one kind of task, evaluation or probe."""

    of: str
    name: str
    line: str
    home: str
    """Its class and module."""
    use: str
    """Python that makes it."""
    drawn: str
    """The spec in its picture, where that is another."""
    formula: str
    """What its file says."""
    about: str
    """What its class says."""
    fields: tuple[FieldRow, ...]
    parts: tuple[PartRows, ...]
    needs: tuple[str, ...]
    measures: tuple[MeasureRow | ProbeRow, ...]
    """Rows of tasks and evaluations by the default spec; of a probe, those of its picture."""
    predictors: tuple[str, ...]
    said: str
    """What it says about what it measures."""


def kinds(*families: str, defined_in: ModuleType | None = None) -> list[ChoiceRow]:
    """Every kind of these families, those of a user's spec file among them; or what one such file defines.

    Raises:
        SpecError: it defines none.
    """
    rows = [
        ChoiceRow(of, kind, summary(member))
        for of in families
        for kind, member in FAMILIES[of].members().items()
        if defined_in is None or member.__module__ == defined_in.__name__
    ]
    if not rows and defined_in is not None:
        what = " nor ".join(families)
        raise SpecError(
            f"{defined_in.__file__} defines {'neither' if len(families) > 1 else 'no'} {what}; leave --spec out"
        )
    return rows


def find_choice(name: str, *families: str) -> tuple[str, type[Choice]]:
    """The family and the class of a kind; NotFoundError names the nearest."""
    for of in families:
        member = FAMILIES[of].members().get(name)
        if member is not None:
            return of, member
    known = [row.name for row in kinds(*families)]
    what = " or ".join(families)
    raise NotFoundError(f"there is no {what} {name!r}; `ablate {families[0]}s` lists them{suggest_name(name, known)}")


def explain_choice(name: str, *families: str) -> ChoiceExplanation:
    """Everything about one kind.

    Raises:
        NotFoundError: there is none of this name.
        SpecError: a field, a measurement or the picture of a kind of the package is not described.
    """
    of, member = find_choice(name, *families)
    with materials() as folder:
        example = _example(of, member, folder)
        line = spec_line(example, folder) if example is not None else f"{member.__name__}(...)"
        measures = example.measures() if isinstance(example, Task | Evaluation) else None
        rows: Sequence[MeasureRow | ProbeRow] = measure_rows(measures, ours=is_ours(member))
        if isinstance(example, Probe) and is_ours(member):
            rows = probe_drawings.row_rows(name)
        return ChoiceExplanation(
            of=of,
            name=name,
            line=summary(member),
            home=f"{member.__name__} of {member.__module__}",
            use=_use(member, line),
            drawn=_drawn(of, member, folder),
            formula=formula(member),
            about=inspect.getdoc(member) or "",
            fields=tuple(field_rows(member)),
            parts=tuple(PartRows(part.__name__, _about(part), tuple(field_rows(part))) for part in parts_of(member)),
            needs=_needs(example, folder),
            measures=tuple(rows),
            predictors=tuple(predictors(measures)),
            said=said_of(type(example).open) if isinstance(example, Task | Evaluation) else "",
        )


def _about(part: type[Spec]) -> str:
    """What a part says, and of a choice its file, too."""
    own = inspect.getdoc(part) or ""
    said = formula(part) if issubclass(part, Choice) else own
    return own if said == own else f"{own}\n\n{said}"


def _drawn(of: str, member: type[Choice], folder: Path) -> str:
    if of != "task" or not is_ours(member):
        return ""
    drawing = task_drawings.drawing_of(member.model_fields["kind"].default)
    small = drawing.small(folder)
    return "" if small == drawing.write(folder) else spec_line(small, folder)


def is_ours(member: type[Choice]) -> bool:
    """Whether a kind is the package's and not a user's."""
    return member.__module__.startswith("runners.")


def _use(member: type[Choice], line: str) -> str:
    home = sys.modules[member.__module__]
    if SOURCE in vars(home):
        return f"{line} in {home.__file__}"
    names = dict.fromkeys(re.findall(r"\b([A-Z]\w*)\(", line))
    exported = [name for name in names if name in dir(runners)]
    home_of = f"from runners import {', '.join(exported)}"
    if getattr(runners, member.__name__, None) is not member:
        home_of = f"from {member.__module__} import {member.__name__}"
    return f"{home_of}; {line}"


def _example(of: str, member: type[Choice], folder: Path) -> Choice | None:
    if is_ours(member):
        kind = member.model_fields["kind"].default
        if of == "task":
            return task_drawings.drawing_of(kind).write(folder)
        if of == "evaluation":
            return evaluation_drawings.drawing_of(kind).write(folder)
        return probe_drawings.drawing_of(kind).probe
    try:
        return member()
    except ValidationError:
        return None


def _needs(example: Choice | None, folder: Path) -> tuple[str, ...]:
    if isinstance(example, Task):
        return _task_needs(example)
    if isinstance(example, Evaluation):
        return _evaluation_needs(example, folder)
    return _probe_needs(example) if isinstance(example, Probe) else ()


def _task_needs(task: Task) -> tuple[str, ...]:
    inputs = task.inputs
    reads = "numbers" if isinstance(inputs, Scalars) else f"tokens, a vocabulary of {inputs.vocabulary:,}"
    direction = "an encoder, causal=False" if task.sees_ahead else "a causal model"
    unscored = (f"the first {task.unscored} positions are not in the loss",) if task.unscored else ()
    return (f"it reads {reads}", f"{direction}", f"up to {task.length} positions", *unscored)


def _evaluation_needs(evaluation: Evaluation, folder: Path) -> tuple[str, ...]:
    judged: list[str] = []
    refused: dict[str, str] = {}
    for kind, drawing in task_drawings.TASKS.items():
        task = drawing.write(folder)
        try:
            evaluation.check(task, _model_of(task))
            judged.append(kind)
        except ValueError as error:
            refused.setdefault(_without_task(str(error), type(task).__name__, kind), kind)
    found = [f"a model of {', '.join(judged) or 'none of the tasks here'}", f"up to {evaluation.length} positions"]
    return (*found, *(f"refused elsewhere: {sentence}" for sentence in refused))


def _without_task(sentence: str, *names: str) -> str:
    for name in names:
        sentence = sentence.replace(f"{name!r}", "...").replace(name, "...")
    return sentence


def _model_of(task: Task) -> Backbone:
    model = gpt2(layers=2, heads=4, width=64)
    return model.changed(causal=not task.sees_ahead)


def _probe_needs(probe: Probe) -> tuple[str, ...]:
    kind = type(probe)
    looks = kind.of_layer is not Probe.of_layer
    cost = probe_drawings.drawing_of(probe.label).cost if is_ours(kind) else ""
    base = "attention by the definition, once per evaluation for all probes" if looks else "no pass through the model"
    usual = (
        "among the default probes of a trial" if kind in map(type, DEFAULT_PROBES) else "not among the default probes"
    )
    task = task_drawings.TASKS["linear_functions"].write(Path())
    try:
        probe.check(task, _model_of(task), (Operator(),))
        refused: tuple[str, ...] = ()
    except ValueError as error:
        refused = (f"softmax on linear_functions is refused: {error}",)
    return (f"{base}{f'; {cost}' if cost else ''}", usual, *refused)
