"""Prove operators law by law, those of the package or of a spec file, and what else the file defines."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType

from pydantic import BaseModel

from ablate.grid import Grid
from ablate.grid.durations import format_duration
from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.suggestions import suggest_name
from ablate.runners.output import LINE_EVERY_S, format_count, say, slow_notice, write_prose
from ablate.runners.provenance.specfile import import_spec_file
from ablate.runners.result_stream import results
from ablate.training.catalogue.prove_own import Proven, own_subjects
from ablate.training.planning.tried_task import TooLong, law_of
from ablate.training.trial import Trial
from ablate.variants.laws.battery import LAWS, LawFinding, find
from ablate.variants.laws.examples import (
    around,
    combinations_of_choices,
    distinct,
    every_choice,
    examples,
    family,
    named_operators,
)
from ablate.variants.operator import KINDS, Operator
from ablate.variants.papers.catalogue import catalogue


def prove(spec: Path | None, name: str | None, *, full: bool = False) -> int:
    """Try every law on operators of a spec file, or of the package, and print a line for each.

    So for the tasks, evaluations, probes and experiments that are the file's own.

    The operators have each distinct choice once. With `full` they are all operators; if those of a spec file keep their
    laws, the file's choices are also tried beside all others. `name` chooses one of all by its label.

    Returns 0, or 4 if one breaks a law without declaring it.

    Raises NotFoundError if no operator has that name.
    Raises SpecError if the file cannot be run, or has nothing to prove.
    """
    everything, subjects = full or name is not None, list[Proven]()
    with slow_notice("listing the operators"):
        if spec is not None:
            module = import_spec_file(spec)
            operators, further = operators_in(module, combine=everything)
            subjects = own_subjects(module, spec, full=full) if name is None else []
            if not operators and not subjects:
                raise SpecError(
                    f"{spec} has nothing to prove, since a Command has no laws; define a Grid of trials, a choice of a "
                    "stage such as a Score, a Task or an Experiment"
                )
        else:
            operators, further = list(examples() if everything else chain(named_operators(), every_choice())), []
    if name is not None:
        labels = [operator.label for operator in operators + further]
        if name not in labels:
            near = suggest_name(name, labels) or f"; there are {', '.join(labels[:12])}{' ...' if labels[12:] else ''}"
            raise NotFoundError(f"there is no operator {name!r} to prove{near}")
        operators, further = [each for each in operators + further if each.label == name], []
    elif not full:
        operators = each_choice_once(operators)
    started = time.monotonic()
    failed = _count_failures(operators)
    tried = operators if failed else operators + further
    failed += 0 if failed else _count_failures(further)
    failed += _count_broken(subjects)
    result = f"{failed} with a broken law" if failed else "no law is broken that is not declared"
    more = len(operators + further) - len(tried)
    left = f"; {more} combinations of its choices were not tried, repair these first" if more else ""
    quick = "" if everything else "; each distinct choice was tried once, --full tries all combinations"
    took = format_duration(time.monotonic() - started)
    others = f" and {len(subjects)} of its tasks, evaluations, probes and experiments" if subjects else ""
    write_prose(f"{format_count(len(tried), 'operator')}{others} in {took}: {result}{left}{quick}")
    return 4 if failed else 0


def each_choice_once(operators: Iterable[Operator]) -> list[Operator]:
    """Keep the operators that have a choice which no earlier one has, with the numbers of the choice."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for operator in operators:
        choices = {(stage, getattr(operator, stage).key) for stage in Operator.model_fields if stage != "name"}
        if not choices <= seen:
            kept.append(operator)
        seen |= choices
    return kept


def _count_failures(operators: list[Operator]) -> int:
    started = last_line = time.monotonic()
    failed = 0
    for done, operator in enumerate(operators):
        now = time.monotonic()
        if done and now - last_line >= LINE_EVERY_S:
            last_line = now
            left = format_duration((now - started) / done * (len(operators) - done))
            say(f"{done}/{len(operators)} operators · {left} left · at {operator.label}")
        findings = list(_findings(operator))
        for text in line(operator, findings).split("\n"):
            write_prose(text, hanging=4)
        results().flush()
        failed += not all(finding.proved for finding in findings)
    return failed


def _count_broken(subjects: Iterable[Proven]) -> int:
    """Try the laws of each subject, and print a line with those that are broken.

    After broken inputs, or a law without end, the others are left out.
    """
    failed = 0
    for title, laws in subjects:
        broken: dict[str, str] = {}
        for name, check in laws.items():
            try:
                with law_of(title, name):
                    check()
            except SpecError as error:
                if str(error) not in broken.values():
                    broken[name] = str(error)
                if name == "inputs" or isinstance(error, TooLong):
                    break
        kept = f"BREAKS {', '.join(broken)}" if broken else f"keeps {format_count(len(laws), 'law')}"
        write_prose(f"{title}: {kept}", hanging=4)
        for name, words in broken.items():
            write_prose(f"  {name}: {words}", hanging=4)
        results().flush()
        failed += bool(broken)
    return failed


def _findings(operator: Operator) -> Iterator[LawFinding]:
    """Try every law. If numbers are not finite, try no other laws: they would report the same."""
    for law in LAWS:
        finding = find(operator, law)
        yield finding
        if law.name == "finite" and not finding.proved and not finding.raised:
            return


def line(operator: Operator, findings: list[LawFinding]) -> str:
    """Summarise the laws in one line, with an indented line below for each problem."""
    stated = [finding for finding in findings if finding.stated]
    kept = sum(finding.kept and finding.proved for finding in stated)
    wrong = [finding for finding in findings if not finding.proved]
    parts = [f"{operator.label}: keeps {kept} of {len(stated)} laws"]
    left = len(LAWS) - len(findings)
    parts += [f"{left} not tried"] if left else []
    silent = [finding.law for finding in findings if not finding.stated]
    parts += [f"nothing stated for {', '.join(silent)}"] if silent else []
    parts += [f"breaks {each.law}, as it says: {each.declared}" for each in findings if each.proved and not each.kept]
    if wrong:
        for said, tried in (("BREAKS", True), ("IS NOT FINITE, so not tried:", False)):
            laws = [each.law for each in wrong if each.tried is tried]
            parts += [f"{said} {', '.join(laws)}"] if laws else []
    return "\n".join(["; ".join(parts), *_wrong(wrong)])


def _wrong(findings: list[LawFinding]) -> Iterator[str]:
    """Yield a line per law. An error that is raised at one place is reported once."""
    at = Counter(finding.raised for finding in findings if finding.raised)
    for finding in findings:
        words = finding.words or f"it says that it breaks this law ({finding.declared}), and keeps it"
        if not finding.raised:
            yield f"  {finding.law}: {words}"
        elif at[finding.raised]:
            more = at.pop(finding.raised) - 1
            yield f"  {finding.law}: {words}" + (f"; and {more} more law{'s' if more > 1 else ''}" if more else "")


def operators_in(module: ModuleType, *, combine: bool = True) -> tuple[list[Operator], list[Operator]]:
    """Return the operators of a spec file, each once, and with `combine` its choices combined with all others.

    The operators are those in its grids, around its choices, and its named ones.
    """
    kinds = [(stage, member) for stage in KINDS for member in family(stage).members().values()]
    own = [(stage, member.example()) for stage, member in kinds if member.__module__ == module.__name__]
    around_own = (around(stage, choice).changed(name=f"{stage} {choice.label}") for stage, choice in own)
    named = (known.make() for known in catalogue().values() if known.make.__module__ == module.__name__)
    own_operators = distinct(chain(_in_grids(module), around_own, named))
    known = {operator.key for operator in own_operators}
    further = distinct(combinations_of_choices(tuple(choice for _, choice in own))) if own and combine else []
    return own_operators, [operator for operator in further if operator.key not in known]


def _in_grids(module: ModuleType) -> Iterator[Operator]:
    """Yield the operators of all grids. Operators with the same label get the name of their first cell."""
    grids = [value for name, value in vars(module).items() if isinstance(value, Grid) and not name.startswith("_")]
    cells: dict[str, tuple[Operator, str]] = {}
    for planned in (planned for grid in grids for planned in grid.cells()):
        for operator in _inside(planned.trial):
            cells.setdefault(operator.key, (operator, planned.label))
    labels = Counter(operator.label for operator, _ in cells.values())
    for operator, cell in cells.values():
        yield operator.changed(name=f"{operator.label} ({cell})") if labels[operator.label] > 1 else operator


def _inside(value: object) -> Iterator[Operator]:
    """Yield all operators of a trial's layers, or in any other spec."""
    if isinstance(value, Operator):
        yield value
    elif isinstance(value, Trial):
        yield from (each for each in value.operators() if isinstance(each, Operator))
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from _inside(getattr(value, field))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _inside(each)
