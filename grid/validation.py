"""Pydantic's ValidationError as one sentence: place, rule and given value."""

from collections.abc import Sequence
from itertools import pairwise
from reprlib import Repr

from pydantic import AfterValidator, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from grid.errors import SpecError

_short = Repr()
_short.maxstring = _short.maxother = 60


def spec_error(error: ValidationError, where: str, *, under: str = "") -> SpecError:
    """Turn `error` into a `SpecError`: `where` (a file, a cell, a line), dotted path, rule and given value.

    `under` is the path of the validated spec inside the one that the user wrote. Further problems are counted.
    """
    details = error.errors(include_url=False)
    told: dict[str, str] = {}
    for detail in sorted(details, key=lambda detail: detail["type"] == "none_required"):
        steps = (str(step) for step in detail["loc"] if isinstance(step, int) or step.isidentifier())
        path = ".".join(filter(None, (under, *steps)))  # without pydantic's marks of union branches
        told.setdefault(path, _sentence(path, error.title, detail))
    first, *others = told.values()
    more = f" (and {len(others)} more)" if others else ""
    said = f"{first}{more}"
    return SpecError(f"{where}: {said}" if where and not said.startswith(f"{where}: ") else said)


def _sentence(path: str, owner: str, detail: ErrorDetails) -> str:
    message, kind = detail["msg"], detail["type"]
    if kind in {"choice", "field"}:
        return f"{path}: {message}" if path else message
    path = path or owner
    if kind == "missing":
        return f"{path} is missing and has no default"
    if kind in {"value_error", "assertion_error"}:
        return f"{path}: {message.partition(', ')[2] or message}"
    given = detail["input"]
    if kind == "model_type":
        name = given if isinstance(given, str) else getattr(given, "__name__", "")
        called = f"; write {name}()" if name.isidentifier() else ""
        return f"{path} takes a spec of class {detail['ctx']['class_name']}, got {_short.repr(given)}{called}"
    return f"{path} {message.removeprefix('Input ')}, got {_short.repr(given)}"


def _require_increasing(values: Sequence[float]) -> Sequence[float]:
    if any(low >= high for low, high in pairwise(values)):
        ordered = str(tuple(sorted(set(values))))
        raise PydanticCustomError("increasing", "rises from value to value; write {ordered}", {"ordered": ordered})
    return values


INCREASING = AfterValidator(_require_increasing)
"""Marks a field whose values increase: `Annotated[tuple[int, ...], INCREASING]`."""
