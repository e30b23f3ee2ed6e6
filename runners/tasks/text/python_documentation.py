"""Real text that every machine has: the documentation inside the Python standard library.

One document per module, its docstrings in order, and one per topic of `pydoc`. It is about 2 MB, and different for
every version of Python.
"""

import ast
import os
import platform
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from runners.tasks.text.corpus import Origin, content_hash
from runners.tasks.text.encoder import END, SUBSTITUTE

_FORM: Final = "python documentation, form 1"
"""Part of every hash: another way to make documents of the same files is another text."""

_LEFT_OUT: Final = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
_TOPICS: Final = "pydoc_data/topics.py"


@cache
def python_documentation() -> Origin:
    """Return the standard library of the running Python."""
    root = Path(sysconfig.get_path("stdlib"))
    files = {name: content_hash(_FORM, (root / name).read_bytes()) for name in _names(root)}
    return Origin(f"documentation of Python {platform.python_version()}", files, lambda: _documents(root, files))


def _names(root: Path) -> list[str]:
    """List Python files below `root` without those that a distribution or a build generates."""
    found = []
    for folder, inside, files in os.walk(root):
        inside[:] = sorted(set(inside) - _LEFT_OUT)
        found += [
            (Path(folder) / file).relative_to(root).as_posix()
            for file in files
            if file.endswith(".py") and not file.startswith(("_sysconfig", "sitecustomize"))
        ]
    return sorted(found)


def _documents(root: Path, names: dict[str, str]) -> Iterator[bytes]:
    for name in names:
        tree = ast.parse((root / name).read_bytes())
        if name == _TOPICS:
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
