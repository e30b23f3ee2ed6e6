"""Words about the fields, types, values and measurements of tasks, evaluations and probes, read from the code."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeGuard, Union, get_args, get_origin

from ablate.grid.errors import SpecError
from ablate.grid.spec import Choice, Spec, field_names, is_outside_key
from ablate.store.analysis.metrics import direction
from ablate.training.catalogue.stage_words import field_words
from ablate.training.evaluations import Evaluation
from ablate.training.probes import Probe
from ablate.training.tasks import Task

FIELD_HEADINGS: Final = ("field", "type", "default", "description")
MEASURE_HEADINGS: Final = ("measures", "evaluation conditions", "unit", "better")
ROW_HEADINGS: Final = ("row", "of each", "point", "unit")
_FAMILIES: Final = (Task, Evaluation, Probe)
_PACKAGE: Final = ("ablate.training.", "ablate.variants.")
_LONGEST_TUPLE: Final = 7
_COMPUTED_FIELD: Final = ("filled in", "once the spec is built")
"""Phrases in the docstring of a field that the spec computes itself."""
_RANGES: Final = {"gt": "> {}", "ge": ">= {}", "lt": "< {}", "le": "<= {}", "min_length": "at least {}"}


class FieldRow(NamedTuple):
    """Describes a field."""

    name: str
    type: str
    default: str
    what: str


class MeasureRow(NamedTuple):
    """Describes a measurement of a task or an evaluation."""

    name: str
    points: str
    unit: str
    better: str


class ProbeRow(NamedTuple):
    """Describes a row of a probe."""

    name: str
    of: str
    point: str
    unit: str


def field_rows(cls: type[Spec], *, documented: bool = True) -> list[FieldRow]:
    """List all fields except the kind, with the docstring below each.

    Raises SpecError if a field of the package has no docstring, and all must be `documented`.
    """
    words, rows = field_words(cls), []
    for name, field in cls.model_fields.items():
        if name == "kind":
            continue
        if documented and not words.get(name) and cls.__module__.startswith(_PACKAGE):
            raise SpecError(f"{cls.__name__}.{name} has no docstring below it, which every field needs; add one")
        outside = " Outside the key." if is_outside_key(cls, name) else ""
        default = "" if field.is_required() else value_words(field.get_default(call_default_factory=True))
        rows.append(
            FieldRow(name, type_words(field.annotation, field.metadata), default, words.get(name, "") + outside)
        )
    return rows


def type_words(annotation: object, metadata: Sequence[object] = ()) -> str:
    """Describe a type: the values of a Literal, the kinds of a family, `int > 0`."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        return type_words(inner, (*marks, *metadata))
    plain = _plain_type(annotation)
    return f"{plain} {', '.join(_limits(metadata, plain))}".strip()


def _plain_type(annotation: object) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f'"{value}"' if isinstance(value, str) else repr(value) for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join("None" if each is type(None) else type_words(each) for each in arguments)
    if origin is tuple:
        inner = ", ".join(type_words(each) for each in arguments if each is not Ellipsis)
        return f"tuple of {inner}" if Ellipsis in arguments else f"({inner})"
    if isinstance(origin, type):
        return f"{origin.__name__} of {' to '.join(map(type_words, arguments))}"
    if _is_family(annotation):
        kinds = ", ".join(str(each.model_fields["kind"].default) for each in _package_members(annotation))
        return f"{annotation.__name__}: {kinds}" if kinds else annotation.__name__
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _limits(metadata: Sequence[object], plain: str) -> Iterator[str]:
    for mark in metadata:
        for part in getattr(mark, "metadata", None) or [mark]:  # a pydantic Field holds its own marks
            for name, words in _RANGES.items():
                limit = getattr(part, name, None)
                if limit is not None:
                    is_string = name == "min_length" and plain == "str"
                    yield "not empty" if is_string else words.format(f"{limit:g}")


def value_words(value: object, folder: Path | None = None) -> str:
    """Write a value as in a spec file. Long tuples are shortened; paths are relative to `folder`."""
    if isinstance(value, Spec):
        return spec_line(value, folder)
    if isinstance(value, tuple):
        short = (*value[:3], ..., value[-1]) if len(value) > _LONGEST_TUPLE else value
        inner = ", ".join("..." if each is ... else value_words(each, folder) for each in short)
        return f"({inner},)" if len(short) == 1 else f"({inner})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{value_words(k, folder)}: {value_words(v, folder)}" for k, v in value.items()) + "}"
    if isinstance(value, str):
        if folder is not None and Path(value).is_absolute() and Path(value).is_relative_to(folder):
            value = Path(value).relative_to(folder).as_posix()
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def spec_line(spec: Spec, folder: Path | None = None) -> str:
    """Write the call that makes a spec, without defaults and without fields that it computes itself."""
    fields, words = type(spec).model_fields, field_words(type(spec))
    arguments = {
        name: getattr(spec, name)
        for name in field_names(type(spec))
        if name != "kind" and not name.endswith("_hash")
        if not any(phrase in words.get(name, "") for phrase in _COMPUTED_FIELD)
        if fields[name].is_required() or getattr(spec, name) != fields[name].get_default(call_default_factory=True)
    }
    inner = ", ".join(f"{name}={value_words(value, folder)}" for name, value in arguments.items())
    return f"{type(spec).__name__}({inner})"


def parts_of(cls: type[Spec]) -> list[type[Spec]]:
    """List the specs of `runners` that the fields of a class can hold, recursively."""
    parts: dict[type[Spec], None] = {}
    for field in cls.model_fields.values():
        for each in _specs_in(field.annotation):
            parts[each] = None
            parts |= dict.fromkeys(parts_of(each))
    return list(parts)


def _specs_in(annotation: Any) -> Iterator[type[Spec]]:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        if annotation.__module__.startswith("ablate.training.") and annotation not in _FAMILIES:
            yield from _package_members(annotation) if _is_family(annotation) else (annotation,)
        return
    for inner in get_args(annotation):
        yield from _specs_in(inner)


def _is_family(annotation: object) -> TypeGuard[type[Choice]]:
    return isinstance(annotation, type) and issubclass(annotation, Choice) and "kind" not in annotation.model_fields


def _package_members(family: type[Choice]) -> list[type[Choice]]:
    """List the members that the package defines, without those of spec files and tests."""
    return [member for member in family.members().values() if member.__module__.startswith(_PACKAGE)]


def measure_rows(
    measures: Mapping[str, Sequence[Mapping[str, float]]], units: Mapping[str, str], *, ours: bool = True
) -> list[MeasureRow]:
    """Describe measurements: name, points, unit and direction.

    Raises SpecError if `units` has no unit of a measurement of this package.
    """
    rows: dict[str, MeasureRow] = {}
    for name, points in measures.items():
        measure = next((part for part in name.split(".") if part in units), "")  # without predictor and set
        shown = name
        if ours and not measure:
            raise SpecError(f"measurement {name!r} has no unit; add it to `units` of its class")
        if measure and not name.endswith(measure):
            shown = f"{name.rpartition('.')[0]}.SET"
        axes = ", ".join(points[0]) if points else ""
        grid = f"{{{axes}}}, {len(points)} point{'s' if len(points) > 1 else ''}" if axes else "once"
        better = direction(measure) or "" if measure else ""
        rows.setdefault(shown, MeasureRow(shown, grid, units.get(measure, ""), better))
    return list(rows.values())


def predictors(measures: Mapping[str, object], units: Mapping[str, str]) -> list[str]:
    """List the reference predictors that are measured beside a model."""
    first_parts = (name.partition(".")[0] for name in measures if "." in name)
    return list(dict.fromkeys(part for part in first_parts if part not in units))
