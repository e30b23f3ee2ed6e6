"""Proving operators law by law: those of the package, or of a user's spec file with the choices it defines."""

import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType

from pydantic import BaseModel

from grid import Grid
from grid.errors import NotFoundError, SpecError
from grid.spec import did_you_mean
from runners.output import say, write
from runners.progress import LINE_EVERY_S
from runners.specfile import import_spec_file
from runners.tally import duration
from runners.trial import Trial
from variants.operator import KINDS, Operator
from variants.papers.named import catalogue
from variants.proof.battery import LAWS, Finding, find
from variants.proof.examples import around, distinct, examples, family

BROKEN = 4
"""The exit code where an operator breaks a law without saying so."""


def prove(spec: Path | None, name: str | None) -> int:
    """Try every law on every operator of a spec file, or of the package; one line for each on stdout.

    `name` chooses one by its label. Returns 0, or 4 where a law is broken that the operator does not say it breaks.

    Raises:
        NotFoundError: no operator has that name.
        SpecError: the file cannot be run, or has neither a grid nor a choice of its own.
    """
    operators = list(examples()) if spec is None else operators_of(spec)
    if name is not None:
        operators = _called(name, operators)
    started = told_at = time.monotonic()
    failed = 0
    for done, operator in enumerate(operators):
        if time.monotonic() - told_at >= LINE_EVERY_S:
            told_at = time.monotonic()
            say(f"{done}/{len(operators)} operators · at {operator.label}")
        findings = [find(operator, law) for law in LAWS]
        write(line(operator, findings))
        failed += not all(finding.proved for finding in findings)
    many = f"{len(operators)} operator{'s' if len(operators) > 1 else ''}"
    told = f"{failed} with a broken law" if failed else "no law is broken that is not declared"
    say(f"{many} in {duration(time.monotonic() - started)}: {told}")
    return BROKEN if failed else 0


def line(operator: Operator, findings: list[Finding]) -> str:
    """What came of the laws, in one line; what is wrong stands last, indented, in lines of its own."""
    stated = [finding for finding in findings if finding.stated]
    kept = sum(finding.kept and finding.proved for finding in stated)
    wrong = [finding for finding in findings if not finding.proved]
    parts = [f"{operator.label}: keeps {kept} of {len(stated)} laws"]
    silent = [finding.law for finding in findings if not finding.stated]
    parts += [f"nothing stated for {', '.join(silent)}"] if silent else []
    parts += [f"breaks {each.law}, as it says: {each.declared}" for each in findings if each.proved and not each.kept]
    if wrong:
        parts.append(f"BREAKS {', '.join(each.law for each in wrong)}")
    return "\n".join(["; ".join(parts), *(f"  {each.law}: {_wrong(each)}" for each in wrong)])


def _wrong(finding: Finding) -> str:
    return finding.words or f"it says that it breaks this law ({finding.declared}), and keeps it"


def operators_of(spec: Path) -> list[Operator]:
    """The operators of a spec file, each once: those in its grids, around its choices, and its named ones."""
    module = import_spec_file(spec)
    found = distinct(chain(_in_grids(module), _of_choices(module), _of_names(module)))
    if not found:
        raise SpecError(f"{spec}: there is nothing to prove; define a Grid, or a choice of a stage such as a Score")
    return found


def _in_grids(module: ModuleType) -> Iterator[Operator]:
    """Of several operators with one label, each is called after the first cell that has it."""
    grids = [value for name, value in vars(module).items() if isinstance(value, Grid) and not name.startswith("_")]
    cells: dict[str, tuple[Operator, str]] = {}
    for planned in (planned for grid in grids for planned in grid.cells()):
        for operator in _inside(planned.trial):
            cells.setdefault(operator.key, (operator, planned.label))
    labels = Counter(operator.label for operator, _ in cells.values())
    for operator, cell in cells.values():
        yield operator.changed(name=f"{operator.label} ({cell})") if labels[operator.label] > 1 else operator


def _inside(value: object) -> Iterator[Operator]:
    """Every operator that a trial's layers have; of any other spec, every operator in it."""
    if isinstance(value, Operator):
        yield value
    elif isinstance(value, Trial):
        yield from value.operators()
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from _inside(getattr(value, field))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _inside(each)


def _of_choices(module: ModuleType) -> Iterator[Operator]:
    for stage in KINDS:
        for kind, member in family(stage).members().items():
            if member.__module__ == module.__name__:
                yield around(stage, member.example()).changed(name=f"{stage} {kind}")


def _of_names(module: ModuleType) -> Iterator[Operator]:
    for known in catalogue().values():
        if known.make.__module__ == module.__name__:
            yield known.make()


def _called(name: str, operators: list[Operator]) -> list[Operator]:
    found = [operator for operator in operators if operator.label == name]
    if not found:
        labels = [operator.label for operator in operators]
        near = did_you_mean(name, labels) or f"; there are {', '.join(labels[:12])}{' ...' if labels[12:] else ''}"
        raise NotFoundError(f"there is no operator {name!r} to prove{near}")
    return found
