"""Valid texts, JSON for the database, versions of records, and signatures of their files."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ablate.grid.errors import StoreError
from ablate.store.files.layout import FILE_SCHEMA, Layout

Problem = tuple[str, str]  # a file, relative to the campaign, and what is wrong with it


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


def check_schema(record: Mapping[str, Any]) -> None:
    """Raise StoreError for a record without a version, or of one that this program does not read."""
    version = record.get("schema")
    if version != FILE_SCHEMA or isinstance(version, bool):
        older = isinstance(version, int) and version < FILE_SCHEMA
        remedy = "read it with the ablate that wrote it" if older else "upgrade ablate"
        raise StoreError(f"it has schema version {version!r:.60}, and this ablate reads {FILE_SCHEMA}; {remedy}")


def relative(layout: Layout, path: Path) -> str:
    """The name of a file below the campaign."""
    return path.relative_to(layout.root).as_posix()


def file_signature(path: Path | str) -> str:
    """The version that reads it, the file's inode, its size, and the times of change of its bytes and of the file.

    A rename over the file changes its inode. A file that came back with its old times, from a backup, has a new last.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 (a Path for each of very many is slow)
    except OSError:  # also one that cannot be looked at; whoever reads it says why
        return "absent"
    return f"{FILE_SCHEMA}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def signed_size(signature: str) -> int:
    """The size of the file that has `signature`; 0 if it is absent."""
    return 0 if signature == "absent" else int(signature.split(":")[2])
