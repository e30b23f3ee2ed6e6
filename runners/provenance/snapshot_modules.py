"""Finds the user's imported modules and their imports."""

import ast
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from runners.provenance.code import SOURCE, has_source, source_text
from runners.provenance.origin import is_installed, is_project
from runners.provenance.source import statements


class UserModule(NamedTuple):
    """A module outside the project and installed packages."""

    file: Path
    home: Path
    """The directory that must be on the import path for the module's name to mean `file`."""
    package: Path | None
    """Directory of its top-level package; None for a single module."""


def user_modules() -> list[UserModule]:
    """List the imported user modules, sorted by file.

    Modules loaded by path are left out, since their name does not lead to their file.
    """
    found = {module.file: module for each in _users() if (module := _place(each)) is not None}
    return [found[file] for file in sorted(found)]


def user_imports() -> frozenset[str]:
    """Collect the top-level names that the user's spec files and modules import anywhere."""
    texts = [source_text(each) for each in _users() if has_source(each)]
    return frozenset().union(*map(_find_imports, texts))


def _users() -> list[ModuleType]:
    named = [each for each in list(sys.modules.values()) if getattr(each, "__name__", "__main__") != "__main__"]
    files = [getattr(each, "__file__", None) or "" for each in named]
    return [
        each
        for each, file in zip(named, files, strict=True)
        if SOURCE in vars(each) or not (is_project(file) or is_installed(file))
    ]


def _place(module: ModuleType) -> UserModule | None:
    """Find the import directory of `module`; None if its name does not match its file."""
    if SOURCE in vars(module):
        return None
    file = Path(str(module.__file__)).resolve()
    names = module.__name__.split(".")
    at = file.parent if file.name.partition(".")[0] == "__init__" else file.with_name(file.name.partition(".")[0])
    if len(names) >= len(at.parts) or at.parts[-len(names) :] != tuple(names):
        return None
    home = at.parents[len(names) - 1]
    package = home / names[0]
    return UserModule(file, home, package if package.is_dir() else None)


@cache  # a notebook submits again and again with the same modules
def _find_imports(text: str) -> frozenset[str]:
    nodes = [node for statement in statements(text) for node in ast.walk(statement)]
    plain = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    origins = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level and node.module}
    return frozenset(name.partition(".")[0] for name in plain | origins)
