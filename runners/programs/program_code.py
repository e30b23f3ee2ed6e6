"""The code of a program: its script and the local files that it imports or names, by hash."""

import ast
import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from shutil import which
from typing import Final

from ablate.grid.errors import SpecError
from ablate.runners.provenance.source import digest

_MOST_BYTES: Final = 2**20
"""Larger files that an argument names are data."""
_SCRIPT: Final = re.compile(r".+\.(py|sh|bash|r|jl|js|ts|lua|pl|rb)", re.IGNORECASE)
_WORD: Final = re.compile(r"[\w./-]+")


def script_in(argv: Sequence[str], folder: Path) -> int | None:
    """Return the place of the script in `argv`: the first argument that is a file, or is named like a script."""
    for at, text in enumerate(argv):
        named = text and not text.startswith("-") and "{" not in text and (at > 0 or os.sep in text)
        if named and ((folder / text).is_file() or _SCRIPT.fullmatch(text)):
            return at
    return None


def code_of(argv: Sequence[str], folder: Path) -> dict[str, str]:
    """Return hashes by name of the script in `argv`, of local files that it imports, and of files that `argv` names.

    Raises SpecError if there is no such program or script.
    """
    at = script_in(argv, folder)
    if at is not None and not (folder / argv[at]).is_file():
        raise SpecError(f"there is no {argv[at]} in {folder}; argv names the script from the folder of the spec file")
    if argv[0] not in ("python", "python3") and which(argv[0], path=None) is None and not (folder / argv[0]).is_file():
        raise SpecError(f"there is no program {argv[0]} on this machine; write its path")
    waiting = [each for text in argv for each in _local(text.rpartition("=")[2], folder)]
    modules = [argv[at + 1] for at, text in enumerate(argv[:-1]) if text == "-m"]
    waiting += [each for name in modules for each in _modules(name, (folder,))]
    code: dict[str, str] = {}
    while waiting:
        file = waiting.pop()
        name = f"file {os.path.relpath(file, folder)}"
        if name not in code:
            status = file.stat()
            code[name], used = _read(file, folder, status.st_mtime_ns, status.st_size)
            waiting += used
    return dict(sorted(code.items()))


@lru_cache(maxsize=1024)
def _read(file: Path, folder: Path, mtime_ns: int, size: int) -> tuple[str, tuple[Path, ...]]:
    """Hash a file; return the local files that it uses, too."""
    del mtime_ns, size  # an edited file has another cache key
    data = file.read_bytes()
    plain = blake2b(data, digest_size=16).hexdigest()
    if file.suffix != ".py":
        script = data.startswith(b"#!") or _SCRIPT.fullmatch(file.name)
        words = _WORD.findall(data.decode("utf-8", "replace")) if script else []
        return plain, tuple(each for word in set(words) for each in _local(word, folder, file.parent) if each != file)
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return plain, ()
    return digest(tree.body), tuple(_used(tree, file, folder))


def _used(tree: ast.Module, file: Path, folder: Path) -> Iterator[Path]:
    """Yield local files that a Python file imports, or names in a text, as `exec(open("settings.py").read())` does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(alias.name, (file.parent, folder))
        elif isinstance(node, ast.ImportFrom):
            places = (file.parent, folder) if not node.level else (file.parents[node.level - 1],)
            for name in ("", *(alias.name for alias in node.names)):
                yield from _modules(".".join(filter(None, (node.module, name))), places)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _SCRIPT.fullmatch(node.value):
            yield from _local(node.value, folder, file.parent)


def _modules(name: str, places: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of a module in the first of `places` that has its package, and those of its parents."""
    parts = name.split(".")
    for place in places:
        top = place / parts[0]
        if not (top.is_dir() or top.with_suffix(".py").is_file()):
            continue
        for count in range(1, len(parts) + 1):
            path = place.joinpath(*parts[:count])
            yield from (each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file())
        return


def _local(text: str, *folders: Path) -> Iterator[Path]:
    """Yield the file that a text names, if it is small."""
    for folder in folders:
        try:
            path = folder / text
            if text.strip("./") and path.is_file() and path.stat().st_size <= _MOST_BYTES:
                yield Path(os.path.normpath(path))
                return
        except (OSError, ValueError):  # such as a name that is too long
            return
