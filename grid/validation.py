"""Pydantic's ValidationError as one sentence: place, rule and given value."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

from pydantic import AfterValidator, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, PydanticKnownError, core_schema

from ablate.grid.errors import SpecError
from ablate.grid.suggestions import MAKERS, nearest
from ablate.grid.values import END, show


def spec_error(error: ValidationError, where: str, *, under: str = "") -> SpecError:
    """Turn `error` into a `SpecError`: `where` (a file, a cell, a line), dotted path, rule and given value.

    `under` is the path of the validated spec inside the one that the user wrote. Further problems are counted.
    """
    details = error.errors(include_url=False)
    by_path: dict[str, list[ErrorDetails]] = {}
    for detail in sorted(details, key=lambda detail: detail["type"] == "none_required"):
        steps = (str(step) for step in detail["loc"] if not _is_branch(step))
        by_path.setdefault(".".join(filter(None, (under, *steps))), []).append(detail)
    path, first = next(iter(by_path.items()))
    more = f" (and {len(by_path) - 1} more)" if len(by_path) > 1 else ""
    said = f"{_sentence(path, error.title, first)}{more}"
    return SpecError(f"{where}: {said}" if where and not said.startswith(f"{where}: ") else said)


def _is_branch(step: int | str) -> bool:
    """Return True for pydantic's mark of a branch of a union, such as "int" or "literal['auto']"."""
    return isinstance(step, str) and (step in {"bool", "float", "int", "str"} or not step.isidentifier())


def _sentence(path: str, owner: str, branches: Sequence[ErrorDetails]) -> str:
    """Say what is wrong at `path`, according to the branches of its union if it is one."""
    detail = branches[0]
    message, kind = detail["msg"], detail["type"]
    if kind in {"choice", "experiment", "field"}:
        return f"{path}: {message}" if path else message
    path = path or owner
    if kind == "missing":
        return f"{path} is missing and has no default"
    if kind in {"value_error", "assertion_error"}:
        return f"{path}: {message.partition(', ')[2] or message}"
    value = detail["input"]
    if kind == "model_type":
        wanted = detail["ctx"]["class_name"]
        return f"{path} takes a spec of class {wanted}, got {_came(value, wanted)}"
    if kind in {"tuple_type", "list_type"} and isinstance(value, str):
        return f"{path} takes a list, got {show(value)}; write {show(value.split())}"
    rules = dict.fromkeys(each["msg"].removeprefix("Input ") for each in branches)
    if len(rules) > 1:
        rules = dict.fromkeys(rule.partition(" should ")[2].partition(", ")[0] or rule for rule in rules)
        message = f"should {' or '.join(rule.removeprefix('be ') if at else rule for at, rule in enumerate(rules))}"
    else:
        message = next(iter(rules))
    return f"{path} {message}, got {show(value)}"


def _came(value: object, wanted: str) -> str:
    """Describe what was given in place of a spec of the class `wanted`, and say what to write."""
    name = getattr(value, "__name__", "")
    if name.isidentifier():
        return f"the {'class' if isinstance(value, type) else 'function'} {name}; write {name}()"
    if not isinstance(value, str):
        return show(value)
    if not (known := MAKERS.get(wanted)):
        return show(value) + (f"; write {value}()" if value.isidentifier() else "")
    near = nearest(value, known)
    hint = f"write {near}()" if near else f"`ablate {wanted.lower()}s` lists those with a name"
    return f"{show(value)}; {hint}"


def refuse_text(schema: Any) -> Any:
    """Return a core schema whose numbers, also those inside tuples and mappings, are not read from text."""
    if isinstance(schema, list):
        return [refuse_text(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "float":
        return {**schema, "strict": True}
    if schema.get("type") == "int":  # strict whole numbers would refuse 1e3
        return core_schema.no_info_before_validator_function(_require_whole, cast(CoreSchema, schema))
    if schema.get("type") == "function-before" and schema["function"]["function"] is _require_whole:
        return schema
    skipped = _NO_SCHEMA if isinstance(schema.get("type"), str) else ()  # else the names are those of fields
    return {name: each if name in skipped else refuse_text(each) for name, each in schema.items()}


_NO_SCHEMA = ("default", "metadata", "serialization", "keys_schema")
"""Entries of a core schema that hold no field; keys of a mapping are text in JSON."""


def _require_whole(value: object) -> object:
    if isinstance(value, str):
        raise PydanticKnownError("int_type")
    if isinstance(value, int | float) and not -END <= value < END:
        raise PydanticCustomError("int64", "should be a whole number of 64 bits")
    return value


def _require_increasing(values: Sequence[float]) -> Sequence[float]:
    if any(low >= high for low, high in pairwise(values)):
        ordered = str(tuple(sorted(set(values))))
        raise PydanticCustomError(
            "increasing", "does not rise from value to value; write {ordered}", {"ordered": ordered}
        )
    return values


INCREASING = AfterValidator(_require_increasing)
"""Marks a field whose values increase: `Annotated[tuple[int, ...], INCREASING]`."""
