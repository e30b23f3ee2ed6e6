"""Ablation grids for Transformer attention: every public name of the project in one import.

    from ablate import Grid, over, Trial, gpt2, principled, Slurm

A name is imported when it is first used, so that reading results loads no torch. In the repository, the subpackages are
links to the folders at its top.
"""

from importlib import import_module
from typing import Any

ROOMS = ("grid", "store", "runners", "variants", "training", "dashboards", "papers")
"""The subpackages, in this order, so that names of results and grids load no torch."""


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name in ROOMS:
        return import_module(f"ablate.{name}")
    for room in ROOMS if not name.startswith("_") else ():
        if name in import_module(f"ablate.{room}").__all__:
            return getattr(import_module(f"ablate.{room}"), name)
    raise AttributeError(f"module 'ablate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({name for room in ROOMS for name in import_module(f"ablate.{room}").__all__})
