"""What this machine offers to the harness, and what it lacks."""

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from runners.finding import CAMPAIGNS

NEEDED_BYTES = 1 << 30


class Check(NamedTuple):
    """One thing looked at; `needed` says whether nothing works without it."""

    what: str
    found: str
    ok: bool = True
    needed: bool = True


def examine(campaign: Path | None = None) -> list[Check]:
    """Every check, in the order a newcomer would ask."""
    return [
        Check("Python", platform.python_version()),
        *(_package(name) for name in ("torch", "pydantic", "duckdb", "polars", "pyarrow", "plotly")),
        _devices(),
        Check("cores", f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}"),
        _disk(campaign or CAMPAIGNS),
        _program("browser for image export", "chromium", "google-chrome", "chromium-browser"),
        _program("SLURM", "sbatch"),
    ]


def _package(name: str) -> Check:
    try:
        return Check(name, version(name))
    except PackageNotFoundError:
        return Check(name, f"missing; pip install {name}", ok=False)


def _devices() -> Check:
    import torch

    if not torch.cuda.is_available():
        return Check("accelerator", "none; trials run on the CPU", ok=False, needed=False)
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Check("accelerator", ", ".join(names), needed=False)


def _disk(directory: Path) -> Check:
    existing = next(path for path in (directory.resolve(), *directory.resolve().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if not os.access(existing, os.W_OK):
        return Check("campaign directory", f"{existing} is not writable; choose another with --campaign", ok=False)
    enough = free >= NEEDED_BYTES
    return Check("campaign directory", f"{existing}: writable, {free / (1 << 30):.1f} GiB free", ok=enough)


def _program(what: str, *names: str) -> Check:
    found = next((path for name in names if (path := shutil.which(name))), None)
    return Check(what, found or f"no {' or '.join(names)} on the path", ok=found is not None, needed=False)
