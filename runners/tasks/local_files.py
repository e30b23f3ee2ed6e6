"""Text of the user's own: a .txt or .jsonl file, or a folder of these."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from grid.errors import EnvironmentProblem, SpecError
from runners.tasks.corpus import Origin, content_hash

SUFFIXES = (".jsonl", ".txt")


def local_files(source: Path) -> Origin:
    """A .txt file (one document), a .jsonl file (one per line, in its field `text`), or every such file of a folder.

    Its `documents` raise SpecError where one is not UTF-8, or a line is no object with a `text`.

    Raises:
        SpecError: there is no such file, it has another suffix, or the folder holds none.
        EnvironmentProblem: it cannot be read.
    """
    paths = _paths(source)
    folder = source if source.is_dir() else source.parent
    files = {path.relative_to(folder).as_posix(): _hash(path) for path in paths}
    return Origin(str(source), files, lambda: (document for path in paths for document in _documents(path)))


def _paths(source: Path) -> list[Path]:
    if source.is_dir():
        found = sorted(path for suffix in SUFFIXES for path in source.rglob(f"*{suffix}") if path.is_file())
        if not found:
            raise SpecError(f"a text folder holds .txt or .jsonl files; {source} has none")
        return found
    if not source.exists():
        raise SpecError(f"there is no text {source}; give a .txt or .jsonl file, or a folder of these")
    if source.suffix not in SUFFIXES:
        raise SpecError(f"a text is a .txt or .jsonl file, or a folder of these; got {source}")
    return [source]


def _documents(path: Path) -> Iterator[bytes]:
    data = _read(path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"a text is UTF-8; {path} is not, at byte {error.start}; convert it") from error
    if path.suffix == ".txt":
        yield data
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _of_line(line, f"{path}, line {number}")


def _of_line(line: str, where: str) -> bytes:
    try:
        found = json.loads(line)
    except ValueError as error:  # no JSON, or a whole number of thousands of digits
        raise SpecError(f"each line of a .jsonl text is one JSON object; {where}: {error}") from error
    text = found.get("text") if isinstance(found, dict) else None
    if not isinstance(text, str):
        raise SpecError(f"each line of a .jsonl text has its document in a field `text`; {where} has {line[:60]!r}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # JSON can escape half a character, UTF-8 cannot hold it
        lone = f"\\u{ord(text[error.start]):04x} alone at character {error.start}"
        rule = "a text is UTF-8, and UTF-8 has characters, not halves of them"
        raise SpecError(f"{rule}; {where} has {lone}; write both halves or drop it") from error


def _hash(path: Path) -> str:
    try:
        about = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    return _hash_as_of(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=65536)  # a grid names one text in every trial
def _hash_as_of(path: Path, mtime_ns: int, size: int) -> str:
    del mtime_ns, size  # a file that changed is another entry
    return content_hash(path.suffix, _read(path))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(f"cannot read {path}: {error.strerror}; check the file and its permissions")
