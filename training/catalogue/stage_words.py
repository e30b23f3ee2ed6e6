"""Words about a stage: its formula, its numbers and its other fields, read from docstrings."""

import ast
import inspect
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple, TypeGuard

from ablate.grid.docstrings import docstring
from ablate.grid.spec import Choice, Spec
from ablate.variants.links import LINKS
from ablate.variants.number import ByDepth, Contrast, Matrix, Number, RunningMean, Vector
from ablate.variants.stages.stage import Stage

NUMBER_HEADINGS: Final = ("number", "starts at", "varies", "range", "description")


class NumberRow(NamedTuple):
    """Describes a number of an operator."""

    number: str
    start: str
    varies: str
    range: str
    what: str
    spec: Number
    """The number, for programs."""

    @property
    def words(self) -> tuple[str, ...]:
        """The columns of a table."""
        return self[:5]


def number_rows(choice: Spec, prefix: str = "") -> list[NumberRow]:
    """List the numbers of a stage, each with the docstring below its field."""
    if not isinstance(choice, Stage):
        return []
    return [
        NumberRow(
            f"{prefix}{name}", _start(number), _varies(number), _range(number), _number_words(choice, name), number
        )
        for name, number in choice.numbers().items()
    ]


def _number_words(choice: Spec, name: str) -> str:
    """Return the docstring below a number's field; "0.n" is field n of the first part."""
    index, _, field = name.rpartition(".")
    if not index:
        return field_words(type(choice)).get(name, "")
    parts: tuple[Spec, ...] = next(value for value in vars(choice).values() if _is_specs(value))
    return _number_words(parts[int(index)], field)


def options(choice: Spec, prefix: str = "") -> list[tuple[str, object]]:
    """List the fields of a stage that are no numbers, with their values."""
    values = {name: getattr(choice, name) for name in type(choice).model_fields if name != "kind"}
    return [(f"{prefix}{name}", value) for name, value in values.items() if not isinstance(value, Number)]


def option_words(value: object) -> str:
    """Write the value of a field as in a spec file. Specs in it are written by their labels."""
    return ", ".join(each.label for each in value) if _is_specs(value) else repr(value)


def _is_specs(value: object) -> TypeGuard[tuple[Spec, ...]]:
    return isinstance(value, tuple) and all(isinstance(each, Spec) for each in value)


def formula(cls: type[Spec]) -> str:
    """Return the docstring of the file of a choice if the file has its name, else of the class."""
    module, kind = inspect.getmodule(cls), cls.model_fields.get("kind")
    names = (cls.__name__.lower(), kind.default if kind is not None else "")
    own_file = module is not None and cls.__module__.rpartition(".")[2] in names
    return (docstring(module) if own_file else "") or docstring(cls)


def summary(cls: type[Choice]) -> str:
    """Return the first paragraph of the docstring as one line."""
    return " ".join(formula(cls).partition("\n\n")[0].split())


def source_of(cls: type[Spec]) -> str:
    """Return the source of the formula of a choice, or ""."""
    return str(getattr(cls, "source", "") or "")


@lru_cache(maxsize=256)
def field_words(cls: type[Spec]) -> Mapping[str, str]:
    """Return the docstrings below the fields of a spec class and its bases, by field.

    They are read from the source, so importing a spec costs nothing for them.
    """
    words: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if issubclass(each, Spec) and each.__module__ != Spec.__module__:
            words |= _field_docstrings(each)
    return words


def _field_docstrings(cls: type) -> dict[str, str]:
    module = inspect.getmodule(cls)
    try:
        tree = ast.parse(inspect.getsource(module) if module is not None else "")
    except (OSError, TypeError):  # typed at a prompt
        return {}
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__] or ([],)
    return {
        field.target.id: " ".join(ast.literal_eval(below.value).split())
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def _start(number: Number) -> str:
    projection = f", projection of s.d. {number.projection_std:g}" if number.projection_std else ""
    start = f"{number.init:g}"
    if isinstance(number, Matrix):
        start = f"drawn, s.d. {start}/sqrt(D)"
    elif isinstance(number, RunningMean):
        start += f", the mean of {number.of}"
    elif isinstance(number, ByDepth):
        spread = f", from vectors of s.d. {number.spread:g}" if isinstance(number, Contrast) and number.random else ""
        start += f" in layer 0, towards {number.deep:g}{spread}"
    elif isinstance(number, Vector):
        first = " in the first channel" if number.along == "first" else ""
        start += first + (f", s.d. {number.spread:g}" if number.spread else "")
    return start + projection


def _varies(number: Number) -> str:
    if isinstance(number, RunningMean):
        return "per head, not trained"
    return f"per {number.label}" if number.per else f"constant, {'trained' if number.trained else 'fixed'}"


def _range(number: Number) -> str:
    words = LINKS[number.link].words(trained=number.trained)
    entries = "matrix" if isinstance(number, Matrix) else "vector" if isinstance(number, Vector) else ""
    limits = "any" if words == "(-inf, inf)" else f"{words} {number.link}"
    return f"{entries}, {limits}" if entries else limits
