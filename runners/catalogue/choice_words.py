"""The words of a task, an evaluation or a probe: its fields, its parts and how it is written, read from the code."""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard, Union, get_args, get_origin, get_type_hints

from grid.errors import SpecError
from grid.spec import Choice, Spec, field_names, is_outside_key
from runners.catalogue.stage_words import field_words
from runners.evaluations import Evaluation
from runners.probes import Probe
from runners.tasks import Task
from store.analysis.metrics import MEASURES, MetricInfo

FIELD_HEADINGS = ("field", "type", "default", "is")
_EXPLAINED = (Task, Evaluation, Probe)
"""Families whose members have a section of their own."""
_PACKAGE = ("runners.", "variants.")
_MOST = 7
"""Entries of a tuple that are written out."""
_FILLED = ("filled in", "once the spec is built")
"""What the docstring of a field says that the spec fills in itself."""
_RANGES = {"gt": "> {}", "ge": ">= {}", "lt": "< {}", "le": "<= {}", "min_length": "at least {}"}


class FieldRow(NamedTuple):
    """A field, in words."""

    name: str
    type: str
    default: str
    what: str


class MeasureRow(NamedTuple):
    """A measurement, in words."""

    name: str
    points: str
    unit: str
    better: str


class ProbeRow(NamedTuple):
    """What rows of a probe are, in words."""

    name: str
    of: str
    point: str
    unit: str


def field_rows(cls: type[Spec]) -> list[FieldRow]:
    """Every field but the kind, with the docstring below it.

    Raises:
        SpecError: a field of the package has none.
    """
    words, rows = field_words(cls), []
    for name, field in cls.model_fields.items():
        if name == "kind":
            continue
        if not words.get(name) and cls.__module__.startswith(_PACKAGE):
            raise SpecError(f"a field says what it is in a docstring below it; {cls.__name__}.{name} has none")
        outside = " Outside the key." if is_outside_key(cls, name) else ""
        default = "" if field.is_required() else value_words(field.get_default(call_default_factory=True))
        rows.append(
            FieldRow(name, type_words(field.annotation, field.metadata), default, words.get(name, "") + outside)
        )
    return rows


def type_words(annotation: object, metadata: Sequence[object] = ()) -> str:
    """A type as people say it: the values of a Literal, the kinds of a family, `int > 0`."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *marks = get_args(annotation)
        return type_words(inner, (*marks, *metadata))
    limits = ", ".join(_limits(metadata, _plain_type(annotation)))
    return f"{_plain_type(annotation)} {limits}".strip()


def _plain_type(annotation: object) -> str:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f'"{value}"' if isinstance(value, str) else repr(value) for value in inside)
    if origin in (Union, UnionType):
        return " or ".join("None" if each is type(None) else type_words(each) for each in inside)
    if origin is tuple:
        each = ", ".join(type_words(one) for one in inside if one is not Ellipsis)
        return f"tuple of {each}" if Ellipsis in inside else f"({each})"
    if isinstance(origin, type):
        return f"{origin.__name__} of {' to '.join(map(type_words, inside))}"
    if is_family(annotation):
        kinds = (str(each.model_fields["kind"].default) for each in packaged(annotation))
        return f"{annotation.__name__}: {', '.join(kinds)}"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _limits(metadata: Sequence[object], plain: str) -> Iterator[str]:
    for mark in metadata:
        for part in getattr(mark, "metadata", None) or [mark]:  # a pydantic Field holds marks of its own
            for name, words in _RANGES.items():
                limit = getattr(part, name, None)
                if limit is not None:
                    empty = name == "min_length" and plain == "str"
                    yield "not empty" if empty else words.format(f"{limit:g}")


def value_words(value: object, folder: Path | None = None) -> str:
    """A value as it is written in a spec file; long tuples are shortened, paths are below `folder`."""
    if isinstance(value, Spec):
        return spec_line(value, folder)
    if isinstance(value, tuple):
        short = (*value[:3], ..., value[-1]) if len(value) > _MOST else value
        inside = ", ".join("..." if each is ... else value_words(each, folder) for each in short)
        return f"({inside},)" if len(short) == 1 else f"({inside})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{value_words(k, folder)}: {value_words(v, folder)}" for k, v in value.items()) + "}"
    if isinstance(value, str):
        inside_folder = folder is not None and Path(value).is_absolute() and Path(value).is_relative_to(folder)
        said = Path(value).relative_to(folder).as_posix() if inside_folder and folder else value
        return json.dumps(said, ensure_ascii=False)
    return repr(value)


def spec_line(spec: Spec, folder: Path | None = None) -> str:
    """The call that makes a spec, with what is not its default; what it fills in itself is left out."""
    fields, words = type(spec).model_fields, field_words(type(spec))
    given = {
        name: getattr(spec, name)
        for name in field_names(type(spec))
        if name != "kind" and not name.endswith("_hash")
        if not any(filled in words.get(name, "") for filled in _FILLED)
        if fields[name].is_required() or getattr(spec, name) != fields[name].get_default(call_default_factory=True)
    }
    inside = ", ".join(f"{name}={value_words(value, folder)}" for name, value in given.items())
    return f"{type(spec).__name__}({inside})"


def parts_of(cls: type[Spec]) -> list[type[Spec]]:
    """The specs of the same room that a class's fields hold, and theirs; every kind of a family that they may be."""
    found: dict[type[Spec], None] = {}
    for field in cls.model_fields.values():
        for each in _specs_in(field.annotation):
            found[each] = None
            found |= dict.fromkeys(parts_of(each))
    return list(found)


def _specs_in(annotation: Any) -> Iterator[type[Spec]]:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        if annotation.__module__.startswith("runners.") and annotation not in _EXPLAINED:
            yield from packaged(annotation) if is_family(annotation) else (annotation,)
        return
    for inside in get_args(annotation):
        yield from _specs_in(inside)


def measure_rows(
    measures: Mapping[str, Sequence[Mapping[str, float]]] | None, *, ours: bool = True
) -> list[MeasureRow]:
    """What is measured, at how many points; nothing where it is known only when it has run. Units are known of `ours`.

    Raises:
        SpecError: `measure_words` does not say what a measurement is.
    """
    rows: dict[str, MeasureRow] = {}
    for name, points in (measures or {}).items():
        told, shown = told_of(name) if ours else MetricInfo(""), name
        if ours and name.rpartition(".")[2] not in MEASURES:
            shown = f"{name.rpartition('.')[0]}.SET"
        axes = ", ".join(points[0]) if points else ""
        where = f"{{{axes}}}, {len(points)} point{'s' if len(points) > 1 else ''}" if axes else "once"
        rows.setdefault(shown, MeasureRow(shown, where, told.unit, told.better))
    return list(rows.values())


def told_of(name: str) -> MetricInfo:
    """The unit of a measurement and which way is better, whichever predictor or set it is of."""
    for part in name.split("."):
        if part in MEASURES:
            return MEASURES[part]
    raise SpecError(f"what is measured has a unit; say that of {name!r} in store/analysis/metrics.py")


def predictors(measures: Mapping[str, object] | None) -> list[str]:
    """The reference predictors whose rows stand beside a model's."""
    firsts = (name.partition(".")[0] for name in measures or {} if "." in name)
    return list(dict.fromkeys(first for first in firsts if first not in MEASURES))


def said_of(opener: object) -> str:
    """What the class that `open` returns says about its `evaluate`."""
    opened = get_type_hints(opener)["return"]
    return inspect.getdoc(opened.evaluate) or ""


def is_family(annotation: object) -> TypeGuard[type[Choice]]:
    """Whether it is a family of choices and no member of one."""
    return isinstance(annotation, type) and issubclass(annotation, Choice) and "kind" not in annotation.model_fields


def packaged(family: type[Choice]) -> list[type[Choice]]:
    """The members that the package defines, whatever a user's spec file or a test adds."""
    return [member for member in family.members().values() if member.__module__.startswith(_PACKAGE)]
