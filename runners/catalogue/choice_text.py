"""What is known about tasks, evaluations and probes, for a terminal."""

from collections.abc import Sequence

from runners.catalogue.choice_page import MEASURE_HEADINGS, ROW_HEADINGS
from runners.catalogue.choice_words import FIELD_HEADINGS
from runners.catalogue.explain_choice import ChoiceExplanation
from runners.output import write, write_table


def write_choice(found: ChoiceExplanation) -> None:
    """A page about one kind."""
    write(f"{found.of} {found.name}: {found.home}\n\n{found.use}\n")
    write(found.formula)
    if found.about != found.formula:
        write(f"\n{found.about}")
    _rows(f"\nfields of {found.name}", FIELD_HEADINGS, found.fields)
    for part in found.parts:
        write(f"\n{part.name}: {part.about}")
        _rows("", FIELD_HEADINGS, part.fields)
    if found.needs:
        write("\n".join(("\nneeds", *(f"  - {each}" for each in found.needs))))
    _rows("", ROW_HEADINGS if found.of == "probe" else MEASURE_HEADINGS, found.measures)
    if found.predictors:
        write(f"\nreference predictors: {', '.join(found.predictors)}")
    if found.said:
        write(f"\n{found.said}")


def data(found: ChoiceExplanation) -> dict[str, object]:
    """An explanation as plain data, rows as objects."""
    return {name: _plain(value) for name, value in found._asdict().items()}


def _plain(value: object) -> object:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _rows(heading: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        write(heading)
        write_table(headings, rows)
