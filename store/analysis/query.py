"""The language of queries, for commands and for the page Runs: `operator=SSA seed<3 state=done`.

A query is a list of words. A word is a condition, NAME SIGN VALUE with one of the signs = != < <= > >= ~, or stands
alone. Conditions with = about one field are alternatives; all others must hold. Values are compared as numbers where
both are numbers, else as texts apart from case; = prefers the text as written. ~ asks for a part of the text.
"""

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import polars as pl

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.names import some, split_query
from ablate.grid.suggestions import suggest_name

STATE: Final = "state"
"""The column with the state of a trial."""

_OTHER_NAMES: Final = {"status": STATE}
_OTHER_VALUES: Final[Mapping[str, Mapping[str, str]]] = {STATE: {"ok": "done"}}
"""Words of release 0.1.0 for a column and, by column, for its values."""

_SENTENCES: Final = "note"
"""The field whose values are sentences: = asks for a part of them."""

_SIGN: Final = re.compile(r"!=|<=|>=|=|<|>|~")
_SIZES: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARE: Final = {"=": operator.eq, "!=": operator.ne, **_SIZES}
_MOST_LISTED: Final = 12

T = TypeVar("T", pl.Expr, pl.Series)


class Table(NamedTuple):
    """Rows to choose from, and what the words of a query mean for them."""

    rows: pl.DataFrame
    columns: Mapping[str, str]  # by the names that a query may use; they hold texts, lists of texts or numbers
    alone: Callable[[str], tuple[str, pl.Expr]]  # condition of a word alone; words with one key are alternatives
    labels: Collection[str] = ()  # words that stand alone although they have signs
    levels: Mapping[str, Sequence[str]] = {}  # values by column, in the order of the spec
    missing: str | None = None  # for = and !=, the text of a missing value; None: it fits neither
    must_exist: bool = True  # whether = about a value that no row has is an error


def split_quoted(words: Sequence[str]) -> list[str]:
    """Split the words that hold quotes: `operator="two words" lr=1` as one word becomes two."""
    quoted = ('="', "='", '~"', "~'")
    return [part for word in words for part in (split_query(word) if any(map(word.count, quoted)) else [word])]


def split_condition(word: str, names: Collection[str] = ()) -> tuple[str, str, str] | None:
    """Split a word into name, sign and value: at the first sign after one of `names`, else at the first one.

    None for a word without a sign.
    """
    parts = [(word[: sign.start()], sign[0], word[sign.end() :]) for sign in _SIGN.finditer(word) if sign.start()]
    return next((each for each in parts if each[0] in names), parts[0] if parts else None)


def fit(table: Table, words: Sequence[str]) -> pl.Series:
    """Whether each row fits every word, or of words that are alternatives one.

    Raises:
        SpecError: a number is compared with a text.
        NotFoundError: a field is unknown, or no row has the value of a condition; the text names the nearest.
    """
    conditions: dict[tuple[str, str], pl.Expr] = {}
    for word in words:
        key, condition = _read(table, word)
        conditions[key] = conditions[key] | condition if key in conditions else condition
    every = pl.all_horizontal(pl.repeat(value=True, n=pl.len()), *conditions.values())
    return table.rows.select(every.fill_null(value=False)).to_series()


def contains(rows: pl.DataFrame, column: str, text: str) -> pl.Expr:
    """Whether a column, whatever its type, contains a text, apart from case."""
    return _any(
        rows, column, lambda each: each.cast(pl.String).str.to_lowercase().str.contains(text.lower(), literal=True)
    )


def _read(table: Table, word: str) -> tuple[tuple[str, str], pl.Expr]:
    """Return the condition that a word is, after a key that its alternatives share."""
    columns = {**{other: name for other, name in _OTHER_NAMES.items() if name in table.columns}, **table.columns}
    parts = None if word in table.labels else split_condition(word, columns)
    if parts is None or (parts[0] not in columns and word.casefold() in map(str.casefold, table.labels)):
        key, condition = table.alone(word)
        return ("", key), condition
    name, sign, value = parts
    if name not in columns:
        known = some([each for each in columns if "." not in each], _MOST_LISTED)
        raise NotFoundError(f"there is no field {name!r}; there are {known}{suggest_name(name, list(columns))}")
    column = columns[name]
    key = "" if sign == "=" else word
    if sign == "~":
        return (column, key), contains(table.rows, column, value)
    numeric, wanted = table.rows.schema[column].is_numeric(), _number(value)
    if (wanted is None and numeric) or (sign in _SIZES and (wanted is None or math.isnan(wanted))):
        raise SpecError(f"{word!r} compares numbers, and {value!r} is none; write a number, or = for a text")
    if numeric:
        return (column, key), _COMPARE[sign](pl.col(column).cast(pl.Float64), wanted)
    fitting = _fitting(table, (name, column), sign, value)
    return (column, key), _any(table.rows, column, lambda each: _text(each, table.missing).is_in(fitting))


def _fitting(table: Table, field: tuple[str, str], sign: str, value: str) -> list[str]:
    """List the texts of a field, a name and its column, that fit. Raise NotFoundError if none does and = needs one."""
    name, column = field
    there = set(_text(table.rows[column].explode(), table.missing).unique().drop_nulls())
    if value not in there:
        value = _OTHER_VALUES.get(column, {}).get(value.casefold(), value)
    declared = [each for each in dict.fromkeys(table.levels.get(column, ())) if each in there]
    known = [*declared, *sorted(there.difference(declared), key=lambda each: (len(each), each))]
    if sign != "=":
        return [each for each in known if compare(each, sign, value)]
    if column == _SENTENCES and value != table.missing:
        fitting = [each for each in known if value.casefold() in each.casefold()]
    else:
        fitting = [value] if value in there else [each for each in known if compare(each, sign, value)][:1]
    if not fitting and table.must_exist:
        if column == _SENTENCES:
            raise NotFoundError(
                f"no {name} contains {value!r}; {len(known)} notes are there, and `ablate tag` lists them"
            )
        listed = f"there are {some(known, _MOST_LISTED)}{suggest_name(value, known)}" if known else "none has any"
        raise NotFoundError(f"no trial has {name}={value}; {listed}")
    return fitting


def _any(rows: pl.DataFrame, column: str, test: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
    """Whether the value of a column, or one of its list, passes a test."""
    if rows.schema[column] == pl.List:
        return pl.col(column).list.eval(test(pl.element())).list.any()
    return test(pl.col(column))


def _text(values: T, missing: str | None) -> T:
    texts = values.cast(pl.String)
    return texts if missing is None else texts.fill_null(missing)


def compare(text: str, sign: str, wanted: str) -> bool:
    """Compare as numbers if both texts are; other texts are at most equal, apart from case."""
    number, other = _number(text), _number(wanted)
    if number is not None and other is not None:
        return bool(_COMPARE[sign](number, other))
    return sign in ("=", "!=") and bool(_COMPARE[sign](text.casefold(), wanted.casefold()))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
