"""Filter expressions over the rows of a table: `operator=SSA seed<3 diverged`."""

import operator
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from ablate.dashboards.data.user_errors import Unknown, require
from ablate.grid.names import split_query

_CONDITION: Final = re.compile(r"(?P<name>.+?)(?P<sign>!=|<=|>=|=|<|>|~)(?P<value>.*)", re.DOTALL)
_COMPARE: Final[Mapping[str, Callable[[pl.Expr, Any], pl.Expr]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAMES: Final = ("cell", "label")
"""Columns of labels of cells."""
HELP: Final = "operator=SSA seed<3 status!=ok cell~head; a word alone is searched in all columns"


def keep_rows(found: pl.DataFrame, expression: str, same: Mapping[str, str] = MappingProxyType({})) -> pl.DataFrame:
    """The rows that fit every condition of an expression; `same` has the labels of cells by their short names.

    A condition is NAME, one of = != < <= > >= ~ (contains) and a value, or a word that any column contains. Names are
    columns, or the part before their "@". Values with blanks stand in quotes.

    Raises:
        SpecError: a quote is open.
        Unknown: a column is not there, or a value to compare with is no number.
    """
    for part in split_query(expression):
        found = found.filter(_condition(found, part, same))
    return found


def _condition(found: pl.DataFrame, part: str, same: Mapping[str, str]) -> pl.Expr:
    given = _CONDITION.fullmatch(part)
    if given is None:
        return pl.any_horizontal(_contains(name, part) for name in found.columns)
    name, sign, value = given.groups()
    short = {column.partition("@")[0]: column for column in reversed(found.columns)}
    column = short.get(name) or require("the table", "column", name, found.columns)
    if sign == "~":
        return _contains(column, value)
    if found[column].dtype.is_numeric():
        try:
            return _COMPARE[sign](pl.col(column).cast(pl.Float64), float(value))
        except ValueError as error:
            raise Unknown(f"{part!r} compares numbers; got {value!r}") from error
    if sign not in ("=", "!="):
        raise Unknown(f"{part!r} compares sizes, and {column!r} holds texts; use = != or ~")
    value = same.get(value, value) if column in _NAMES else value
    return _COMPARE[sign](pl.col(column).cast(pl.String).fill_null(""), value)


def _contains(column: str, text: str) -> pl.Expr:
    lower = pl.col(column).cast(pl.String).str.to_lowercase()
    return lower.str.contains(text.lower(), literal=True).fill_null(value=False)
