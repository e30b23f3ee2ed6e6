"""Required fields of the JSON records of a campaign, checked before anything reaches the database."""

import json
import os
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ablate.grid.errors import StoreError
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import FILE_SCHEMA, Layout

Problem = tuple[str, str]  # a file, relative to the campaign, and what is wrong with it

_KEY: Final = re.compile(r"[0-9a-f]{32}")
_INT_BITS: Final = {"int32": 31, "int64": 63}
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("key", "text"), str),
    **dict.fromkeys(_INT_BITS, int),
    "float": (int, float),
    "object": dict,
    "list": list,
}

Fields = Mapping[str, tuple[str, bool]]  # by name the kind of a field, and whether it may be null or missing


def fields(required: Mapping[str, str], optional: Mapping[str, str] | None = None) -> Fields:
    """Fields by kind: `{"key": "trial cell"}` has two keys."""
    return {
        name: (kind, given is optional)
        for given in (required, optional or {})
        for kind, names in given.items()
        for name in names.split()
    }


def check_record(record: Mapping[str, Any], fields: Fields) -> None:
    """Raise StoreError for the first field that is missing or wrong; further ones are of later versions."""
    for name, (kind, optional) in fields.items():
        value = record.get(name)
        fits = isinstance(value, _TYPES[kind]) and not isinstance(value, bool)
        if isinstance(value, int):
            fits = fits and abs(value) < 2 ** _INT_BITS.get(kind, 63)
        if kind == "key":
            fits = fits and _KEY.fullmatch(str(value)) is not None
        if not fits and not (value is None and optional):
            raise StoreError(f"field {name!r} must be {kind}, got {reprlib.repr(value)}")


def read_record(path: Path, fields: Fields) -> dict[str, Any]:
    """The JSON record in `path`, of this version and with these `fields`. Raises NotFoundError or StoreError."""
    record = read_json(path)
    check_schema(record)
    check_record(record, fields)
    return record


def check_schema(record: Mapping[str, Any]) -> None:
    """Raise StoreError for a record without a version, or of one that this program does not read."""
    version = record.get("schema")
    if version != FILE_SCHEMA or isinstance(version, bool):
        older = isinstance(version, int) and version < FILE_SCHEMA
        remedy = "read it with the ablate that wrote it" if older else "upgrade ablate"
        raise StoreError(f"it has schema version {version!r:.60}, and this ablate reads {FILE_SCHEMA}; {remedy}")


def clean_text(value: Any) -> Any:
    """A text as valid Unicode: a lone surrogate, as in an undecodable file name, becomes a question mark."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode("utf-8")
    return value


def json_text(value: Any) -> str | None:
    """`value` as JSON text for the database; null stays null."""
    return None if value is None else str(clean_text(_ENCODER.encode(value)))


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
"""One for all: `json.dumps` would make one per value."""


def relative(layout: Layout, path: Path) -> str:
    """The name of a file below the campaign."""
    return path.relative_to(layout.root).as_posix()


def file_signature(path: Path | str) -> str:
    """The version that reads it, the file's inode, its size, and the times of change of its bytes and of the file.

    A rename over the file changes its inode. A file that came back with its old times, from a backup, has a new last.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 (a Path for each of very many is slow)
    except OSError:  # also one that cannot be looked at; whoever reads it says why
        return "absent"
    return f"{FILE_SCHEMA}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def signed_size(signature: str) -> int:
    """The size of the file that has `signature`; 0 if it is absent."""
    return 0 if signature == "absent" else int(signature.split(":")[2])
