"""The explanation of an operator, a choice of a stage, a task, an evaluation or a probe, for commands and pages."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ablate.training.catalogue.choice_words import (
    FIELD_HEADINGS,
    MEASURE_HEADINGS,
    ROW_HEADINGS,
    FieldRow,
    MeasureRow,
    ProbeRow,
)
from ablate.training.catalogue.stage_words import NUMBER_HEADINGS, NumberRow, option_words

PATHS = "execution paths"
"""Heading of the facts that depend on the machine."""


class StageFormula(NamedTuple):
    """The formula of a choice of a stage."""

    stage: str
    kind: str
    formula: str
    """Plain text in lines, with its symbols and limits."""
    source: str
    """Paper and equation; empty if there is none."""

    @property
    def text(self) -> str:
        """The formula with its source."""
        return (
            self.formula if "Source:" in self.formula or not self.source else f"{self.formula}\nSource: {self.source}."
        )


class Argument(NamedTuple):
    """An argument of the function of a named operator."""

    name: str
    default: object
    values: tuple[object, ...]
    """All values it takes, if they are few; else empty."""

    def __str__(self) -> str:
        """Write the argument with its default and its possible values."""
        values = f"  one of {', '.join(map(repr, self.values))}" if self.values else ""
        return f"{self.name}={self.default!r}{values}"


class PartRows(NamedTuple):
    """Describes a spec inside a field."""

    name: str
    docstring: str
    fields: tuple[FieldRow, ...]


class Facts(NamedTuple):
    """One table or, without headings, one list of an explanation."""

    heading: str
    rows: Sequence[Sequence[str]] | Sequence[str]
    headings: Sequence[str] = ()
    is_code: bool = False
    """True for short words, which fit into one line."""


class Explanation(NamedTuple):
    """Describes one of them; what it does not have is empty."""

    of: str
    """operator, task, evaluation, probe or the name of a stage."""
    name: str
    line: str
    home: str
    """The paper of an operator; the class and module of all others."""
    use: str = ""
    """Python that makes it."""
    formula: str = ""
    """The docstring of the file of a task, an evaluation or a probe."""
    docstring: str = ""
    """The docstring of its class, if it says more."""
    formulas: tuple[StageFormula, ...] = ()
    arguments: tuple[Argument, ...] = ()
    fields: tuple[FieldRow, ...] = ()
    parts: tuple[PartRows, ...] = ()
    numbers: tuple[NumberRow, ...] = ()
    options: Mapping[str, object] = {}
    """Fields of stages that are no numbers."""
    model: str = ""
    """The backbone in which `added` parameters are counted."""
    added: int | None = None
    """Parameters added to softmax in all layers of `model`; None if it does not fit."""
    reason: str | None = None
    """Why it does not fit."""
    needs: tuple[str, ...] = ()
    measures: tuple[MeasureRow | ProbeRow, ...] = ()
    """Measurements of the example spec, or the rows of a probe."""
    predictors: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    pitfalls: tuple[str, ...] = ()
    breaks: Mapping[str, str] = {}
    """The laws that it breaks, with the reason."""
    used_by: tuple[str, ...] = ()
    """The named operators that have it."""
    paths: Mapping[str, str] = {}
    """By execution path: "yes", or why it cannot run there."""
    said: str = ""
    """The docstring of `evaluate`."""

    def facts(self) -> list[Facts]:
        """List its tables and lists in the order of a page, without empty ones."""
        is_probe = self.of == "probe"
        added = f"does not fit: {self.reason}" if self.added is None else f"{self.added:,}"
        every = (
            Facts("arguments", [*map(str, self.arguments)], is_code=True),
            Facts(f"fields of {self.name}", self.fields, FIELD_HEADINGS),
            Facts("parts", [f"{part.name}: {part.docstring.splitlines()[0]}" for part in self.parts]),
            Facts("numbers", [row.words for row in self.numbers], NUMBER_HEADINGS),
            Facts("options", [f"{name}={option_words(each)}" for name, each in self.options.items()], is_code=True),
            Facts(f"parameters added to {self.model}", [added] if self.model else (), is_code=True),
            Facts("cost and needs" if is_probe else "needs", self.needs),
            Facts("values", self.measures, ROW_HEADINGS if is_probe else MEASURE_HEADINGS),
            Facts("reference predictors", self.predictors, is_code=True),
            Facts("it is another operator if (proved)", self.limits),
            Facts("pitfalls", self.pitfalls),
            Facts("laws it does not keep", [f"{law}: {reason}" for law, reason in self.breaks.items()]),
            Facts("named operators that have it", self.used_by),
            Facts(PATHS, [f"{path}: {reason}" for path, reason in self.paths.items()]),
        )
        return [each for each in every if each.rows]
