"""Ablation grids for Transformer attention: every public name of the project in one import.

    from ablate import Grid, over, Trial, gpt2, principled, Slurm

A name is imported when it is first used, so that reading results loads no torch.
"""

from importlib import import_module
from typing import Any

_PACKAGES = ("grid", "store", "runners", "variants", "dashboards")
"""In this order, so that names of results and grids load no torch."""


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    for package in _PACKAGES if not name.startswith("_") else ():  # Python itself asks for `__path__`
        if name in import_module(package).__all__:
            return getattr(import_module(package), name)
    replacements = import_module("runners.replacements").REPLACEMENTS
    if name in replacements:
        raise import_module("grid").SpecError(f"ablate has no {name}; {replacements[name]}")
    raise AttributeError(f"module 'ablate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({name for package in _PACKAGES for name in import_module(package).__all__})


if __name__ == "__main__":  # `python -m ablate` is the command
    import sys

    if not sys.flags.safe_path:
        sys.path.append(sys.path.pop(0))  # installed modules before those of the working directory, as for the command
    import_module("runners.cli.app").main()
