"""Records what user code reads while a spec file is loaded: data files and environment variables.

A file counts if user code opens it, or if a library opens it below the directory of the spec file or the working
directory. A variable counts if user code reads it. Reads by the project and by imports do not count.

Python does not report what a library in native code reads, such as polars or duckdb. An existing file counts as read by
it if a string of the statements that use the library names it, relative to the spec file or the working directory.
"""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b, file_digest
from pathlib import Path
from types import FrameType
from typing import Any

from ablate.runners.provenance.origin import is_installed, is_project, is_standard
from ablate.runners.provenance.source import hash_text, texts_in, uses_of

_reads: dict[str, set[tuple[str, str]]] = {}
"""By file of user code: pairs ("file" or "variable", path or name)."""

_home: Path | None = None
"""Directory of the spec file that is being loaded."""


def spec_directory() -> Path:
    """Return the directory of the spec file that is being loaded, or else the working directory."""
    return Path.cwd() if _home is None else _home


@contextmanager
def record_reads(file: Path) -> Iterator[None]:
    """Record the reads of user code in the body, which loads the spec file `file`."""
    global _home  # an audit hook takes no argument and stays for good
    if not _reads:
        sys.addaudithook(_hear)
    _reads[str(file)] = set()
    kind, before, _home = type(os.environ), _home, file.parent
    os.environ.__class__ = _Recording
    try:
        yield
    finally:
        os.environ.__class__, _home = kind, before


def read_by(files: Iterable[str], named: Iterable[Path] = ()) -> dict[str, str]:
    """Hash what the user files `files` read, and the files `named`: "file NAME" by content, "$NAME" by value."""
    reads = sorted({("file", str(path)) for path in named}.union(*(_reads.get(file, ()) for file in files)))
    contents: dict[str, list[str]] = {}
    for kind, name in reads:
        if kind == "variable":
            contents[f"${name}"] = [os.environ.get(name, "unset")]
        else:
            digest = "absent"
            with suppress(OSError), Path(name).open("rb") as file:
                digest = file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
            contents.setdefault(f"file {Path(name).name}", []).append(digest)
    return {name: hash_text("\n".join(sorted(values))) for name, values in contents.items()}


_REPORTED = sys.stdlib_module_names | {"ablate", "numpy", "torch"}
"""Packages that open files by Python, which reports them."""

_BREAKS = re.compile(r"[\s'\"(),;]+")
"""Separators around a path in a query."""


def named_files(file: str, body: Sequence[ast.stmt], left_out: Iterable[str]) -> Iterator[Path]:
    """Yield the files that the statements of a user's file name where they use a library in native code."""
    texts = texts_in(uses_of(body, _REPORTED, left_out))
    words = {word for text in texts for word in (text, *_BREAKS.split(text)) if word.strip("/") and "\0" not in word}
    places = {Path(file).parent, Path.cwd()}
    for folder in (True, False):
        for path in [place / name for place in places for word in words for name in {word, word.lstrip("/")}]:
            with suppress(OSError):  # such as a name that is too long
                if folder and path.is_dir():
                    places.add(path)
                elif not folder and path.suffix != ".py" and path.is_file():
                    yield Path(os.path.abspath(path))  # noqa: PTH100  # links are kept, as in `_hear`


class _Recording(type(os.environ)):  # type: ignore[misc]
    """`os.environ` while a spec file is loaded."""

    def __getitem__(self, name: str) -> str:
        reader, own, _ = _find_reader(sys._getframe(1))
        if own and isinstance(name, str):  # `subprocess` asks for b"PATH", too
            _reads.setdefault(reader, set()).add(("variable", name))
        value: str = super().__getitem__(name)
        return value


_EVENTS = ("open", "sqlite3.connect")


def _hear(event: str, details: tuple[Any, ...]) -> None:
    if event not in _EVENTS or _home is None or not isinstance(details[0], str | bytes | os.PathLike):
        return
    if event == "open" and (set(details[1] or "") & set("wax+") or (details[2] or 0) & (os.O_WRONLY | os.O_RDWR)):
        return  # it writes
    reader, own, imports = _find_reader(sys._getframe(1))
    name = os.fsdecode(details[0])
    if event != "open":  # a database may be a URI, or in memory
        name = name.removeprefix("file:").partition("?")[0]
        if name in ("", ":memory:"):
            return
    path = Path(os.path.abspath(name))  # noqa: PTH100  # no file access within the hook
    if imports or not reader or is_project(reader):
        return
    if own or path.is_relative_to(_home) or path.is_relative_to(Path.cwd()):
        _reads.setdefault(reader, set()).add(("file", str(path)))


def _find_reader(frame: FrameType | None) -> tuple[str, bool, bool]:
    """Return the user's file that reads, True if no installed package lies between, and True inside an import."""
    own = True
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib"):
            return "", False, True
        if not is_installed(file):
            return file, own and not is_project(file), False
        own = own and is_standard(file)
        frame = frame.f_back
    return "", False, False
