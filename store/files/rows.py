"""Rows of the long tables, checked when they are logged: one that cannot be written would hold up all others."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any, Final

from ablate.grid.errors import SpecError
from ablate.grid.values import MOST_LABEL, require_number, require_text, require_whole, show

Check = Callable[[Any, str], Any]


def check_row(table: str, row: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row of `table` as a shard holds it, from trial to value. Raises SpecError with its name and column."""
    trial, attempt, step, name, *rest = row
    try:
        name = require_text(name, "the name")
        checked = [check(value, column) for (column, check), value in zip(_CHECKS[table], rest, strict=True)]
        return (trial, attempt, require_whole(step, "the step"), name, *checked)
    except SpecError as error:
        raise SpecError(f"{table} {show(name)}: {error}") from error


def _check_point(point: Any, what: str) -> dict[str, float]:
    if not isinstance(point, Mapping):
        raise SpecError(f"{what} is {show(point)}; give coordinates by name")
    coordinates = {
        require_text(name, "a coordinate"): require_number(value, f"{what}[{name!r}]") for name, value in point.items()
    }
    for name, value in coordinates.items():
        if not isfinite(value):
            raise SpecError(f"{what}[{name!r}] is {value}; give a finite coordinate")
    return coordinates


def _or_none(check: Check) -> Check:
    return lambda value, what: None if value is None else check(value, what)


_VALUE: Final[tuple[str, Check]] = ("value", require_number)
_POINT: Final[tuple[str, Check]] = ("point", _check_point)
_PLACE: Final = _or_none(partial(require_whole, end=2**15))
_CHECKS: Final[Mapping[str, Sequence[tuple[str, Check]]]] = {
    "metric": (_VALUE, ("wall_s", require_number)),
    "evaluation": (_POINT, _VALUE, ("items", require_whole), ("se_items", _or_none(require_number))),
    "item": (_POINT, ("item", partial(require_text, most=MOST_LABEL)), _VALUE),
    "probe": (("layer", _PLACE), ("head", _PLACE), _POINT, _VALUE),
}
"""The columns of each table after trial, attempt, step and name, in the order of `ablate.store.files.shards.TABLES`."""
