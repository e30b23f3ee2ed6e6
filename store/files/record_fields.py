"""Required fields of the JSON records of a campaign, checked before anything reaches the database."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, final

from grid.errors import StoreError
from store.files.layout import FILE_SCHEMA

_KEY = re.compile(r"[0-9a-f]{32}")
_INT_BITS = {"int32": 31, "int64": 63}
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "key": str,
    "text": str,
    "float": (int, float),
    "int32": int,
    "int64": int,
    "object": dict,
    "list": list,
}


@final
class Field(NamedTuple):
    """One field of a record: its kind, and whether it may be null or missing."""

    kind: str
    optional: bool = False


def check_record(record: Mapping[str, Any], fields: Mapping[str, Field]) -> None:
    """Check `record` against `fields`; further fields are allowed, for the writers of tomorrow.

    Raises:
        StoreError: the first field that is missing or wrong.
    """
    for name, field in fields.items():
        value = record.get(name)
        if value is None and field.optional:
            continue
        if not _fits(value, field.kind):
            raise StoreError(f"field {name!r} must be {field.kind}, got {_short(value)}")


def check_schema(record: Mapping[str, Any]) -> None:
    """Check the version of a record that carries one.

    Raises:
        StoreError: it has none, or one this program does not read.
    """
    version = record.get("schema")
    if version != FILE_SCHEMA or isinstance(version, bool):
        older = isinstance(version, int) and version < FILE_SCHEMA
        remedy = "read it with the ablate that wrote it" if older else "upgrade ablate"
        raise StoreError(f"it has schema version {_short(version)}, and this ablate reads {FILE_SCHEMA}; {remedy}")


def another_version(record: Mapping[str, Any]) -> bool:
    """Whether a record is of another version than this program's, and so neither damaged nor to be replaced."""
    version = record.get("schema")
    return isinstance(version, int) and not isinstance(version, bool) and version != FILE_SCHEMA


def _fits(value: object, kind: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, _TYPES[kind]):
        return False
    if kind in _INT_BITS:
        return isinstance(value, int) and abs(value) < 2 ** _INT_BITS[kind]
    if kind == "float":
        return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)
    return kind != "key" or (isinstance(value, str) and _KEY.fullmatch(value) is not None)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def clean_text(text: str | None) -> str | None:
    """`text` as valid Unicode: a lone surrogate, as in an undecodable file name, becomes a question mark."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")
