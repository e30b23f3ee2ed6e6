"""Facts about a task, an evaluation or a probe, collected from the code."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Final, NamedTuple, get_type_hints

from pydantic import ValidationError

from ablate import training
from ablate.grid.docstrings import docstring
from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.spec import Choice, Spec
from ablate.grid.suggestions import suggest_name
from ablate.runners.provenance.code import SOURCE
from ablate.training.catalogue.choice_words import (
    MeasureRow,
    ProbeRow,
    field_rows,
    measure_rows,
    parts_of,
    predictors,
    spec_line,
)
from ablate.training.catalogue.explanation import Explanation, PartRows
from ablate.training.catalogue.stage_words import formula, summary
from ablate.training.evaluations import Evaluation, LmEval, MinimalPairs
from ablate.training.probes import Probe
from ablate.training.tasks import LinearFunctions, Task, Text
from ablate.training.tasks.distillation.distillation import Distillation
from ablate.training.tasks.distillation.finished_trial import Architecture, FinishedTrial
from ablate.training.tasks.text.masked_text import MaskedText
from ablate.training.trial import DEFAULT_PROBES
from ablate.variants import Backbone, Operator, Placement, Scalars, gpt2

FAMILIES: Final[Mapping[str, type[Choice]]] = {"task": Task, "evaluation": Evaluation, "probe": Probe}


class ChoiceRow(NamedTuple):
    """Names one kind of a family."""

    of: str
    name: str
    line: str


def kinds(*families: str, defined_in: ModuleType | None = None) -> list[ChoiceRow]:
    """List all kinds of these families, or those that one spec file defines.

    Raises SpecError if the spec file defines none.
    """
    rows = [
        ChoiceRow(of, kind, summary(member))
        for of in families
        for kind, member in FAMILIES[of].members().items()
        if defined_in is None or member.__module__ == defined_in.__name__
    ]
    if not rows and defined_in is not None:
        raise SpecError(f"{defined_in.__file__} defines no {' and no '.join(families)}; leave --spec out")
    return rows


def find_choice(name: str, *families: str) -> tuple[str, type[Choice]]:
    """Find the family and the class of a kind, or raise NotFoundError."""
    for of in families:
        member = FAMILIES[of].members().get(name)
        if member is not None:
            return of, member
    known = [row.name for row in kinds(*families)]
    what = " or ".join(families)
    if by := [kind for kind, probe in Probe.members().items() if name in {row.name for row in probe.rows}]:
        raise NotFoundError(f"there is no {what} {name!r}; a probe records it: `ablate probes {by[0]}` explains it")
    raise NotFoundError(f"there is no {what} {name!r}; `ablate {families[0]}s` lists them{suggest_name(name, known)}")


def explain_choice(name: str, *families: str) -> Explanation:
    """Collect all facts about one kind.

    Raises NotFoundError if no kind has this name.
    Raises SpecError if a field or a measurement of the package is not described.
    """
    of, member = find_choice(name, *families)
    with make_fixture_files() as folder:
        example = make_example(member, folder)
        line = spec_line(example, folder) if example is not None else f"{member.__name__}(...)"
        measures, units = _measures(example)
        rows: list[MeasureRow | ProbeRow] = [*measure_rows(measures, units, ours=is_ours(member))]
        if issubclass(member, Probe):
            points = [f"{{{', '.join(row.point)}}}" if row.point else "" for row in member.rows]
            rows = [ProbeRow(row.name, row.per, at, row.unit) for row, at in zip(member.rows, points, strict=True)]
        return Explanation(
            of=of,
            name=name,
            line=summary(member),
            home=f"{member.__name__} of {member.__module__}",
            use=_use(member, line),
            formula=formula(member),
            docstring="" if docstring(member, inherited=True) == formula(member) else docstring(member, inherited=True),
            fields=tuple(field_rows(member)),
            parts=tuple(
                PartRows(part.__name__, _docstring_of(part), tuple(field_rows(part))) for part in parts_of(member)
            ),
            needs=_needs(example, folder),
            measures=tuple(rows),
            predictors=tuple(predictors(measures, units)),
            said=_evaluate_docstring(example) if isinstance(example, Task | Evaluation) else "",
        )


def find_part(explanation: Explanation, name: str) -> PartRows:
    """Find a spec inside the fields of a kind, or raise NotFoundError."""
    parts = {each.name: each for each in explanation.parts}
    if name not in parts:
        has = f"it has {', '.join(parts)}{suggest_name(name, list(parts))}" if parts else "it has none"
        raise NotFoundError(f"{explanation.name} has no part {name!r}; {has}")
    return parts[name]


def _evaluate_docstring(example: Task | Evaluation) -> str:
    if isinstance(example, Evaluation) and type(example).open is Evaluation.open:
        return docstring(example.measure, inherited=True)
    return docstring(get_type_hints(type(example).open)["return"].evaluate, inherited=True)


def is_ours(member: type[Choice]) -> bool:
    """Return True if the package defines this kind, False if a user's file does."""
    return member.__module__.startswith("ablate.training.")


def make_example(member: type[Choice], folder: Path) -> Choice | None:
    """Make a spec of a kind, or return None if that needs unknown arguments. `folder` holds the fixture files."""
    kind = member.model_fields["kind"].default
    if is_ours(member) and kind in EXAMPLES:
        return EXAMPLES[kind](folder)
    try:
        return member()
    except ValidationError:
        return None


def _measures(example: Choice | None) -> tuple[Mapping[str, tuple[Mapping[str, float], ...]], Mapping[str, str]]:
    if not isinstance(example, Task | Evaluation):
        return {}, {}
    inner = getattr(example, "task", None)  # distillation measures what its inner task measures, too
    units = {**inner.units, **example.units} if isinstance(inner, Task) else example.units
    return {name: tuple(points) for name, points in (example.measures() or {}).items()}, units


def _docstring_of(part: type[Spec]) -> str:
    own = docstring(part, inherited=True)
    text = formula(part) if issubclass(part, Choice) else own
    return own if text == own else f"{own}\n\n{text}"


def _use(member: type[Choice], line: str) -> str:
    home = sys.modules[member.__module__]
    if SOURCE in vars(home):
        return f"{line} in {home.__file__}"
    if getattr(training, member.__name__, None) is not member:
        return f"from {member.__module__} import {member.__name__}; {line}"
    names = dict.fromkeys(re.findall(r"\b([A-Z]\w*)\(", line))
    return f"from ablate import {', '.join(name for name in names if name in dir(training))}; {line}"


def _needs(example: Choice | None, folder: Path) -> tuple[str, ...]:
    if isinstance(example, Evaluation):
        return _evaluation_needs(example, folder)
    if isinstance(example, Probe):
        return _probe_needs(example)
    if not isinstance(example, Task):
        return ()
    inputs = example.inputs
    reads = "numbers" if isinstance(inputs, Scalars) else f"tokens, a vocabulary of {inputs.vocabulary:,}"
    model = "an encoder, causal=False" if example.sees_ahead else "a causal model"
    unscored = (f"the first {example.unscored} positions are not in the loss",) if example.unscored else ()
    return (f"it reads {reads}", model, f"up to {example.length} positions", *unscored)


def _evaluation_needs(evaluation: Evaluation, folder: Path) -> tuple[str, ...]:
    accepted: list[str] = []
    refusals: dict[str, None] = {}
    for kind, member in Task.members().items():
        task = make_example(member, folder) if is_ours(member) else None
        if not isinstance(task, Task):
            continue
        try:
            evaluation.check(task, _model_of(task))
            accepted.append(kind)
        except ValueError as error:
            refusals[re.sub(rf"'?\b({type(task).__name__}|{kind})\b'?", "...", str(error))] = None
    tasks = ", ".join(accepted) or "none of the tasks here"
    needs = (f"a model of {tasks}", f"up to {evaluation.length} positions")
    return (*needs, *(f"refused elsewhere: {sentence}" for sentence in refusals))


def _model_of(task: Task) -> Backbone:
    return gpt2(layers=2, heads=4, width=64).changed(causal=not task.sees_ahead)


def _probe_needs(probe: Probe) -> tuple[str, ...]:
    kind = type(probe)
    has_layers = kind.of_layer is not Probe.of_layer
    base = (
        "attention by the definition, once per evaluation for all probes" if has_layers else "no pass through the model"
    )
    is_default = kind in map(type, DEFAULT_PROBES)
    needs = (
        f"{base}; {probe.cost}" if probe.cost else base,
        "among the default probes of a trial" if is_default else "not among the default probes",
    )
    try:
        probe.check(LinearFunctions(), _model_of(LinearFunctions()), (Operator(),))
    except ValueError as error:
        return (*needs, f"softmax on linear_functions is refused: `{error}`")
    return needs


_LINES: Final = ("Heads look.", "A row sums.", "It is a sink.", "Rows sum to one.", "It looks back.")
FILES: Final[Mapping[str, str]] = {
    "text.jsonl": "\n".join(json.dumps({"text": line}) for line in _LINES * 120),
    "pairs/agreement.txt": "heads looks\nheads look\na row sum\na row sums\n",
    "harness/rows.yaml": "task: rows\n",
}


@contextmanager
def make_fixture_files() -> Iterator[Path]:
    """Make a temporary folder with `FILES`."""
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, text in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        yield root


def _make_distillation(folder: Path) -> Distillation:
    architecture = Architecture(
        model=gpt2(layers=2, heads=4, width=64), operator=Operator(), placement=Placement(), vocabulary=256
    )
    teacher = FinishedTrial(
        campaign=str(folder / "campaigns/teachers"),
        trial="0123456789abcdef" * 2,
        content_hash="0" * 32,
        architecture=architecture,
    )
    return Distillation(task=Text(source=str(folder / "text.jsonl")), teacher=teacher, temperature=2.0)


EXAMPLES: Final[Mapping[str, Callable[[Path], Task | Evaluation]]] = {
    "distillation": _make_distillation,
    "lm_eval": lambda folder: LmEval(tasks=("rows",), include=str(folder / "harness")),
    "masked_text": lambda folder: MaskedText(source=str(folder / "text.jsonl")),
    "minimal_pairs": lambda folder: MinimalPairs(source=str(folder / "pairs")),
    "text": lambda folder: Text(source=str(folder / "text.jsonl")),
}
"""Specs of the kinds that need arguments; `folder` holds `FILES`. All other kinds are made without arguments."""
