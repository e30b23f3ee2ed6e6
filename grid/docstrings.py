"""Docstrings as data, also where Python drops them: with -OO, or PYTHONOPTIMIZE=2, they are read from the source."""

import ast
import inspect
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any


def docstring(of: Any, *, inherited: bool = False) -> str:
    """Return the docstring of a module, class or function without its indentation; if `inherited`, also of a base."""
    if sys.flags.optimize < 2:
        return (inspect.getdoc(of) if inherited else inspect.cleandoc(of.__doc__ or "")) or ""
    chain = of.__mro__[:-1] if inherited and isinstance(of, type) else (of,)
    return next(filter(None, map(_read, chain)), "")


def _read(of: Any) -> str:
    """Read a docstring from the file of its module."""
    of = inspect.unwrap(of)
    module = of if isinstance(of, ModuleType) else sys.modules.get(of.__module__)
    file = getattr(module, "__file__", None)
    node = _tree(file) if file is not None else None
    for name in () if of is module else of.__qualname__.split("."):
        inside = (each for each in getattr(node, "body", ()) if getattr(each, "name", None) == name)
        node = next(inside, None)
    is_documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return (ast.get_docstring(node) if is_documented else None) or ""  # type: ignore[arg-type]


@lru_cache
def _tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_bytes())
