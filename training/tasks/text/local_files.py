"""Text of this machine: files, or the documentation inside the Python standard library.

Files are a .txt, .jsonl or .parquet file, or a folder of these with its subfolders and links. The documentation has one
document per module, its docstrings in order, and one per topic of `pydoc`. It is about 2 MB, and different for every
version of Python.

The package `datasets` (5.2) does not read the files: of JSON lines whose texts are dates it makes times.
"""

import ast
import os
import platform
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow
from pyarrow import parquet

from ablate.grid.errors import SpecError
from ablate.training.tasks.text.corpus import Origin, content_hash, decode, parse_object
from ablate.training.tasks.text.encoder import END, SUBSTITUTE
from ablate.training.tasks.user_files import cache_by_file, unreadable

SUFFIXES = (".jsonl", ".parquet", ".txt")
COLUMN: Final = "text"
"""Field of a .jsonl or .parquet file with the documents, by default."""
TABLES = (".jsonl", ".parquet")
"""Suffixes of files that have fields."""

_FORM: Final = "python documentation, form 1"
"""Part of every hash: another way to make documents of the same files is another text."""
_LEFT_OUT: Final = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})


def local_files(source: Path, column: str = COLUMN) -> Origin:
    """Find the text in a file or in all files of a folder.

    A .txt file is one document. A .jsonl file has one per line, in its field `column`. A .parquet file has one per
    row, in this column; null is no document. Raises SpecError for other files, EnvironmentProblem for unreadable ones.
    """
    rule = "a text is a .txt, .jsonl or .parquet file, or a folder of these"
    if not source.exists():
        raise SpecError(f"there is no text {source}; {rule}")
    candidates = sorted(_inside(source)) if source.is_dir() else [source]
    paths = [path for path in candidates if path.suffix.lower() in SUFFIXES]
    if not paths:
        raise SpecError(f"{source} holds no text; {rule}")
    folder = source if source.is_dir() else source.parent
    files = {path.relative_to(folder).as_posix(): _hash(path) for path in paths}
    return Origin(str(source), files, lambda: (document for path in paths for document in _documents(path, column)))


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
        raise SpecError(f"{where} has {text!r:.60}, and {rule}; write a string there, or drop it")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:  # JSON can escape half a character
        raise SpecError(f"{where} has half a character at {error.start}, and a text is UTF-8; drop it") from error
    for character, what in ((END, "NUL, which ends documents"), (SUBSTITUTE, "SUB, which hides tokens")):
        at = data.find(character)
        if at >= 0:
            raise SpecError(f"{where} has {what}, at byte {at}; remove it")
    return data


def _documents(path: Path, column: str) -> Iterator[bytes]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from _of_table(path, column)
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
            document = parse_object(line, where).get(column)
            rule = f"each line of a .jsonl text has its document in a field `{column}`"
            if document is None:
                raise SpecError(
                    f"{where} has {line[:60]!r}, and {rule}; set column to the field that holds it, or drop the line"
                )
            yield as_document(document, where, rule)


def _of_table(path: Path, column: str) -> Iterator[bytes]:
    rule = f"a .parquet text has its documents in a column `{column}` of strings"
    try:
        with parquet.ParquetFile(path) as table:
            names = table.schema_arrow.names
            if column not in names:
                raise SpecError(f"{path} has {', '.join(names) or 'no column'}, and {rule}; set column to one of them")
            number = 0
            for batch in table.iter_batches(batch_size=1024, columns=[column]):
                for text in batch.column(0).to_pylist():
                    number += 1
                    if text is not None:
                        yield as_document(text, f"{path}, row {number}", rule)
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not UTF-8 in one of the rows after {number}; convert it") from error
    except pyarrow.ArrowException as error:
        said = str(error).splitlines()[0]
        raise SpecError(f"{path} is no Parquet file: {said}; write it again, or move it") from error
    except OSError as error:
        raise unreadable(path, error) from error


@cache_by_file(entries=65536)  # every trial of a grid names the same text
def _hash(path: Path) -> str:
    return content_hash(path.suffix.lower(), path.read_bytes())


@cache
def python_documentation() -> Origin:
    """Return the standard library of the running Python."""
    root = Path(sysconfig.get_path("stdlib"))
    files = {name: content_hash(_FORM, (root / name).read_bytes()) for name in _python_files(root)}
    return Origin(f"documentation of Python {platform.python_version()}", files, lambda: _python_documents(root, files))


def _python_files(root: Path) -> list[str]:
    paths = []
    for folder, inside, files in os.walk(root):
        inside[:] = sorted(set(inside) - _LEFT_OUT)
        paths += [
            (Path(folder) / file).relative_to(root).as_posix()
            for file in files
            if file.endswith(".py") and not file.startswith(("_sysconfig", "sitecustomize"))
        ]
    return sorted(paths)


def _python_documents(root: Path, names: Iterable[str]) -> Iterator[bytes]:
    for name in names:
        tree = ast.parse((root / name).read_bytes())
        if name == "pydoc_data/topics.py":
            for statement in tree.body:
                if isinstance(statement, ast.Assign):
                    for topic, text in sorted(ast.literal_eval(statement.value).items()):
                        yield f"{topic}\n\n{text}".encode()
        else:
            text = "\n\n".join(_find_docstrings(tree)).translate({END: None, SUBSTITUTE: None})
            yield text.encode("utf-8", errors="replace")


def _find_docstrings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text:
            yield text
    for part in ("body", "handlers", "orelse", "finalbody"):
        inside = getattr(node, part, None)
        for child in inside if isinstance(inside, list) else ():
            yield from _find_docstrings(child)
