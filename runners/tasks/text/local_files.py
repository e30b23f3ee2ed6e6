"""Local text: a .txt, .jsonl or .parquet file, or a folder of these with its subfolders and links."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow
from pyarrow import parquet

from grid.errors import SpecError
from runners.tasks.text.corpus import Origin, content_hash, decode, parse_object
from runners.tasks.text.encoder import END, SUBSTITUTE
from runners.tasks.user_files import cache_by_file, unreadable

SUFFIXES = (".jsonl", ".parquet", ".txt")
_COLUMN = "text"


def local_files(source: Path) -> Origin:
    """Find the text in a file or in all files of a folder.

    A .txt file is one document. A .jsonl file has one per line, in its field `text`. A .parquet file has one per row,
    in its column `text`; null is no document. `documents` raises SpecError for text that is not UTF-8, has a NUL or SUB
    character, or lacks the field or column.

    SpecError if there is no such file, it has another suffix, or the folder holds none.
    EnvironmentProblem if it cannot be read.
    """
    paths = _paths(source)
    folder = source if source.is_dir() else source.parent
    files = {path.relative_to(folder).as_posix(): _hash(path) for path in paths}
    return Origin(str(source), files, lambda: (document for path in paths for document in _documents(path)))


def _paths(source: Path) -> list[Path]:
    rule = "a text is a .txt, .jsonl or .parquet file, or a folder of these"
    if not source.exists():
        raise SpecError(f"there is no text {source}; {rule}")
    files = sorted(_inside(source)) if source.is_dir() else [source]
    paths = [path for path in files if path.suffix.lower() in SUFFIXES]
    if not paths:
        raise SpecError(f"{rule}; got {source}")
    return paths


def _inside(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders; a folder behind several links counts once."""

    def fail(error: OSError) -> None:
        raise unreadable(Path(error.filename), error) from error

    seen: set[Path] = set()
    for place, folders, files in os.walk(folder, onerror=fail, followlinks=True):
        real = Path(place).resolve()
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        yield from (path for path in (Path(place, name) for name in files) if path.is_file() or path.is_symlink())


def as_document(text: object, where: str, rule: str) -> bytes:
    """Encode a text as UTF-8; SpecError if it is no string, has half a character, or has a NUL or SUB character."""
    if not isinstance(text, str):
        raise SpecError(f"{rule}; {where} has {text!r:.60}; write a string there, or drop it")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:  # JSON can escape half a character
        raise SpecError(f"a text is UTF-8; {where} has half a character at {error.start}; drop it") from error
    for character, what in ((END, "NUL, which ends documents"), (SUBSTITUTE, "SUB, which hides tokens")):
        at = data.find(character)
        if at >= 0:
            raise SpecError(f"a text has no {what}; {where} has one at byte {at}; remove it")
    return data


def _documents(path: Path) -> Iterator[bytes]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from _of_table(path)
        return
    try:
        text = decode(path.read_bytes(), path)
    except OSError as error:
        raise unreadable(path, error) from error
    if suffix == ".txt":
        yield as_document(text, str(path), "a text is a text")
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            document = parse_object(line, where).get(_COLUMN)
            rule = f"each line of a .jsonl text has its document in a field `{_COLUMN}`"
            if document is None:
                raise SpecError(f"{rule}; {where} has {line[:60]!r}; rename the field that holds it, or drop the line")
            yield as_document(document, where, rule)


def _of_table(path: Path) -> Iterator[bytes]:
    rule = f"a .parquet text has its documents in a column `{_COLUMN}` of strings"
    try:
        with parquet.ParquetFile(path) as table:
            names = table.schema_arrow.names
            if _COLUMN not in names:
                raise SpecError(f"{rule}; {path} has {', '.join(names) or 'no column'}; rename one")
            number = 0
            for batch in table.iter_batches(batch_size=1024, columns=[_COLUMN]):
                for text in batch.column(0).to_pylist():
                    number += 1
                    if text is not None:
                        yield as_document(text, f"{path}, row {number}", rule)
    except UnicodeDecodeError as error:
        raise SpecError(f"a text is UTF-8; {path} is not, in one of the rows after {number}; convert it") from error
    except pyarrow.ArrowException as error:
        said = str(error).splitlines()[0]
        raise SpecError(f"a .parquet text is a Parquet file; {path}: {said}; write it again, or move it") from error
    except OSError as error:
        raise unreadable(path, error) from error


@cache_by_file(entries=65536)  # every trial of a grid names the same text
def _hash(path: Path) -> str:
    return content_hash(path.suffix.lower(), path.read_bytes())
