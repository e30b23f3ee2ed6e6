"""Sections about tasks, evaluations and probes, in Markdown."""

from collections.abc import Sequence

from runners.catalogue.choice_words import FIELD_HEADINGS, FieldRow
from runners.catalogue.explain_choice import ChoiceExplanation
from runners.catalogue.markdown import listed, safe, table

MEASURE_HEADINGS = ("measures", "points", "unit", "better")
ROW_HEADINGS = ("row", "of each", "point", "unit")


def contents(found: Sequence[ChoiceExplanation]) -> list[str]:
    """A table of what there is, each with a link to its section."""
    return [
        table((of, "is"), [(f"[{each.name}](#{each.name})", each.line) for each in found if each.of == of])
        for of in dict.fromkeys(each.of for each in found)
    ]


def section(found: ChoiceExplanation, folder: str) -> str:
    """Everything about one kind, with its picture in `folder`."""
    parts = [
        f"### {found.name}\n",
        f"{safe(found.line)}\n",
        f"`{found.use}`\n",
        f"![{found.line.replace('[', '(').replace(']', ')')}]({folder}/{found.name}.svg)\n",
    ]
    if found.drawn:
        parts.append(f"Drawn: `{found.drawn}`.\n")
    _, _, formula = found.formula.partition("\n\n")
    if formula:
        parts.append(f"```text\n{formula}\n```\n")
    if found.about and found.about != found.formula:
        parts.append(f"{_paragraphs(found.about)}\n")
    parts.append(_fields(found.fields))
    if found.parts:
        links = ", ".join(f"[{each.name}](#{each.name.lower()})" for each in found.parts)
        parts.append(f"Fields of its parts: {links}.\n")
    parts += listed("Cost and needs" if found.of == "probe" else "Needs", found.needs)
    if found.measures:
        headings = ROW_HEADINGS if found.of == "probe" else MEASURE_HEADINGS
        parts.append(table(headings, [(f"`{each.name}`", *each[1:]) for each in found.measures]))
    elif found.of != "probe":
        parts.append("What it measures is known when it has run.\n")
    if found.predictors:
        parts.append(f"Reference predictors: {', '.join(f'`{each}`' for each in found.predictors)}.\n")
    if found.said:
        parts.append(f"{_paragraphs(found.said)}\n")
    return "\n".join(parts)


def part_sections(found: Sequence[ChoiceExplanation]) -> list[str]:
    """The fields of the specs that are fields of several kinds, once."""
    parts = {part.name: part for each in found for part in each.parts}
    if not parts:
        return []
    return [
        "## Parts\n",
        *(
            "\n".join(
                (
                    f"### {name}\n",
                    f"{_paragraphs(part.about)}\n",
                    _fields(part.fields),
                )
            )
            for name, part in sorted(parts.items())
        ),
    ]


def _fields(rows: Sequence[FieldRow]) -> str:
    return table(FIELD_HEADINGS, [(f"`{each.name}`", *each[1:]) for each in rows]) if rows else "It has no fields.\n"


def _paragraphs(text: str) -> str:
    """Paragraphs as they are; what is indented or lists something keeps its lines."""
    blocks = text.split("\n\n")
    return "\n\n".join(
        f"```text\n{block}\n```" if any(line.startswith("    ") for line in block.splitlines()) else safe(block)
        for block in blocks
    )
