"""Ablation grids for Transformer attention: every public name of the project in one import.

    from ablate import Grid, over, Trial, gpt2, principled, Slurm

A name is imported when it is first used, so that reading results loads no torch. `ablate.pyi` lists the names.
"""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


@cache
def _packages() -> dict[str, str]:
    """Map each public name to the package that defines it."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = (node for node in stub.body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_packages())
    if name not in _packages():
        raise AttributeError(f"module 'ablate' has no attribute {name!r}")
    return getattr(import_module(_packages()[name]), name)


def __dir__() -> list[str]:
    return sorted(_packages())
