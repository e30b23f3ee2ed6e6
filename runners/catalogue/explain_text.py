"""Terminal pages about operators, stages, tasks, evaluations and probes."""

from collections.abc import Iterable, Sequence
from typing import Final

from grid.operator_view import OperatorPart
from runners.catalogue.choice_words import FIELD_HEADINGS
from runners.catalogue.explain import Argument, Explanation, KindExplanation
from runners.catalogue.explain_choice import ChoiceExplanation
from runners.catalogue.stage_words import option_words
from runners.output import write, write_table

NUMBER_HEADINGS: Final = ("number", "starts at", "varies", "range", "description")
MEASURE_HEADINGS: Final = ("measures", "evaluation conditions", "unit", "better")
ROW_HEADINGS: Final = ("row", "of each", "point", "unit")


def write_explanation(explanation: Explanation) -> None:
    """Write a page about one named operator."""
    write(f"{explanation.name}: {explanation.line}\n{explanation.paper}\n")
    write(explanation.use)
    _write_list("arguments", map(argument_words, explanation.arguments))
    for part in explanation.parts:
        write(f"\n{part.stage} = {part.kind}")
        _write_formula(part)
    _write_rows("", NUMBER_HEADINGS, [row.words for row in explanation.numbers])
    _write_list("options", (f"{name} = {option_words(value)}" for name, value in explanation.options.items()))
    write(f"\nparameters added to {explanation.model}: {added_words(explanation)}")
    _write_list("is another operator where", explanation.limits)
    _write_list("pitfalls", explanation.traps)
    _write_list("laws it does not keep", (f"{law}: {reason}" for law, reason in explanation.breaks.items()))
    _write_list("execution paths", (f"{path}: {reason}" for path, reason in explanation.paths.items()))


def write_kind(explanation: KindExplanation) -> None:
    """Write a page about one choice of a stage."""
    write(f"{explanation.part.stage} = {explanation.part.kind}: {explanation.home}")
    _write_formula(explanation.part)
    _write_rows("", NUMBER_HEADINGS, [row.words for row in explanation.numbers])
    _write_list("options", (f"{name} = {option_words(value)}" for name, value in explanation.options.items()))
    _write_list("pitfalls", explanation.traps)
    _write_list("laws it does not keep", (f"{law}: {reason}" for law, reason in explanation.breaks.items()))
    _write_list("named operators that have it", explanation.used_by)


def write_choice(explanation: ChoiceExplanation) -> None:
    """Write a page about one task, evaluation or probe."""
    write(f"{explanation.of} {explanation.name}: {explanation.home}\n\n{explanation.use}\n")
    write(explanation.formula)
    if explanation.about != explanation.formula:
        write(f"\n{explanation.about}")
    _write_rows(f"fields of {explanation.name}", FIELD_HEADINGS, explanation.fields)
    for part in explanation.parts:
        write(f"\n{part.name}: {part.about}")
        _write_rows("", FIELD_HEADINGS, part.fields)
    _write_list("needs", explanation.needs)
    _write_rows("", ROW_HEADINGS if explanation.of == "probe" else MEASURE_HEADINGS, explanation.measures)
    if explanation.predictors:
        write(f"\nreference predictors: {', '.join(explanation.predictors)}")
    if explanation.said:
        write(f"\n{explanation.said}")


def argument_words(argument: Argument) -> str:
    """Write an argument with its default and its possible values."""
    values = f"  one of {', '.join(map(repr, argument.values))}" if argument.values else ""
    return f"{argument.name}={argument.default!r}{values}"


def added_words(explanation: Explanation) -> str:
    """Write how many parameters an operator adds, or why it does not fit."""
    return f"does not fit: {explanation.reason}" if explanation.added is None else f"{explanation.added:,}"


def _write_formula(part: OperatorPart) -> None:
    write("\n".join(f"    {line}" if line else "" for line in part.formula.splitlines()))
    if part.source and "Source:" not in part.formula:
        write(f"    Source: {part.source}.")


def _write_rows(heading: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        write(f"\n{heading}" if heading else "")
        write_table(headings, rows)


def _write_list(heading: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    if lines:
        write("\n".join(("", heading, *(f"  - {line}" for line in lines))))
