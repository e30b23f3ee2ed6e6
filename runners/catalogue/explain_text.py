"""What is known about operators, for a terminal."""

from collections.abc import Iterable

from runners.catalogue.explain import Argument, Explanation, KindExplanation, Part
from runners.catalogue.stage_words import NumberRow, option_words
from runners.output import write, write_table

NUMBER_HEADINGS = ("number", "starts at", "varies", "range", "is")


def write_explanation(found: Explanation) -> None:
    """A page about one named operator."""
    write(f"{found.name}: {found.line}\n{found.paper}\n")
    write(found.use)
    _listed("arguments", map(argument_words, found.arguments))
    for part in found.parts:
        write(f"\n{part.stage} = {part.kind}")
        _formula(part)
    _numbers(found.numbers)
    _listed("options", (f"{name} = {option_words(value)}" for name, value in found.options.items()))
    write(f"\nparameters added to {found.model}: {added_words(found)}")
    _listed("is another operator where", found.limits)
    _listed("traps", found.traps)
    _listed("laws it does not keep", (f"{law}: {reason}" for law, reason in found.breaks.items()))
    _listed("execution paths", (f"{path}: {reason}" for path, reason in found.paths.items()))


def write_kind(found: KindExplanation) -> None:
    """A page about one choice of a stage."""
    write(f"{found.part.stage} = {found.part.kind}: {found.home}")
    _formula(found.part)
    _numbers(found.numbers)
    _listed("options", (f"{name} = {option_words(value)}" for name, value in found.options.items()))
    _listed("traps", found.traps)
    _listed("laws it does not keep", (f"{law}: {reason}" for law, reason in found.breaks.items()))
    _listed("named operators that have it", found.used_by)


def argument_words(argument: Argument) -> str:
    """Its default as code, then its values."""
    values = f"  one of {', '.join(map(repr, argument.values))}" if argument.values else ""
    return f"{argument.name}={argument.default!r}{values}"


def added_words(found: Explanation) -> str:
    """How many parameters it adds, or why it does not fit."""
    return f"does not fit: {found.reason}" if found.added is None else f"{found.added:,}"


def _formula(part: Part) -> None:
    write(_indented(part.formula))
    if part.source and "Source:" not in part.formula:
        write(f"    Source: {part.source}.")


def _numbers(rows: Iterable[NumberRow]) -> None:
    rows = list(rows)
    if rows:
        write("")
        write_table(NUMBER_HEADINGS, [row.words for row in rows])


def _listed(heading: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    if lines:
        write("\n".join(("", heading, *(f"  - {line}" for line in lines))))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
