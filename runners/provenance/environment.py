"""What a trial's numbers may depend on beside its code: Python, packages, machine. As a record, and its differences.

A worker refuses where Python's minor version, torch, or a package that trials or the user's spec import differs: such a
result would be another one under the same key. Everything else is only told: another processor, driver or C library
is a property of the node, which the cluster chose, and results of one campaign come from many.
"""

import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from pathlib import Path
from typing import Any, NamedTuple, final

from runners.provenance.nvidia_smi import ask_gpus
from runners.provenance.origin import ROOMS

SCHEMA = 1
NOT_IN_TRIALS = frozenset(
    {"cyclopts", "duckdb", "lazy-loader", "nvidia-ml-py", "plotly", "polars", "rich", "scipy", "submitit"}
)
"""What the project needs to submit, store and show; a process that trains imports none of it."""

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "MKL_CBWR",
    "CUBLAS_WORKSPACE_CONFIG",
)
"""Environment variables that decide in which order sums are taken."""

_NAME = re.compile(r"(?P<name>[\w.+]+?)-(?P<version>[^-]+)(-py[\d.]+)?\.(dist|egg)-info")
_WORDS = {
    "implementation": "the Python implementation",
    "platform": "the system",
    "machine": "the architecture",
    "glibc": "the C library",
    "cpu": "the processor",
    "gpus": "GPUs",
    "threads": "thread settings",
}


@final
class Differences(NamedTuple):
    """What is not as it was recorded, a sentence each."""

    forbidding: tuple[str, ...]
    """With these a trial would be another one under the same key."""
    remarks: tuple[str, ...]


def record(imports: Iterable[str] = ()) -> dict[str, Any]:
    """This process's environment for JSON, a few kB; torch is not imported.

    `imports` are top-level names of modules that the user's code imports; the distributions they are from become part
    of what must not differ.
    """
    return {
        "schema": SCHEMA,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "distributions": distributions(),
        "needed": sorted(_declared_packages() | _from_distributions(imports)),
        "platform": platform.system() + " " + platform.release(),
        "machine": platform.machine(),
        "glibc": _glibc(),
        "cpu": _processor(),
        "threads": {name: os.environ[name] for name in THREADS if name in os.environ},
        "gpus": _gpus(),
    }


def distributions() -> dict[str, str]:
    """Version by normalised name of all that is installed on the import path, sorted; of two, the one that is found.

    Taken from the names of directories: reading every package's metadata takes seconds on a cluster's file system.
    """
    found: dict[str, str] = {}
    for place in sys.path:
        for name in _entries(place or "."):
            match = _NAME.fullmatch(name)
            if match is not None:
                found.setdefault(_normal(match["name"]), match["version"])
    return dict(sorted(found.items()))


def torch_without_cuda() -> bool:
    """Whether the torch that is installed calls itself a build for the CPU; it is not imported."""
    try:
        return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False


def differences(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> Differences:
    """What differs between two records, as far as both say it."""
    return Differences(tuple(_forbidding(recorded, here)), tuple(_remarks(recorded, here)))


def _forbidding(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    if _minor(recorded["python"]) != _minor(here["python"]):
        yield _describe("Python", recorded["python"], here["python"])
    if recorded.get("implementation") != here.get("implementation"):
        yield _describe(_WORDS["implementation"], recorded.get("implementation"), here.get("implementation"))
    for name in recorded.get("needed", ()):
        yield from _package(name, recorded, here)


def _remarks(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    if recorded["python"] != here["python"] and _minor(recorded["python"]) == _minor(here["python"]):
        yield _describe("Python", recorded["python"], here["python"])
    needed = frozenset(recorded.get("needed", ()))
    for name in sorted(frozenset(recorded["distributions"]) | frozenset(here["distributions"])):
        if name not in needed:
            yield from _package(name, recorded, here)
    for name in ("platform", "machine", "glibc", "cpu"):
        if recorded.get(name) != here.get(name):
            yield _describe(_WORDS[name], recorded.get(name), here.get(name))
    for name in ("threads", "gpus"):
        if recorded.get(name) != here.get(name):
            yield _describe(_WORDS[name], _join_values(recorded.get(name)), _join_values(here.get(name)))


def _package(name: str, recorded: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    before, now = recorded["distributions"].get(name), here["distributions"].get(name)
    if before == now:
        return
    if now is None:
        yield f"{name} is not installed here and is {before} where it was submitted"
    elif before is None:
        yield f"{name} is {now} here and not installed where it was submitted"
    else:
        yield _describe(name, before, now)


def _describe(what: str, before: object, now: object) -> str:
    verb = "are" if what.endswith("s") else "is"
    return f"{what} {verb} {now or 'unknown'} here and {before or 'unknown'} where it was submitted"


def _join_values(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in value.items()) or "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _entries(place: str) -> list[str]:
    try:
        return sorted(each.name for each in Path(place).iterdir())
    except OSError:  # a zip archive, or an entry that leads nowhere
        return []


def _declared_packages() -> frozenset[str]:
    """What trials need of what the project declares; torch at least, where the project was never installed."""
    try:
        declared = requires("ablate") or []
    except PackageNotFoundError:
        declared = []
    names = {_normal(re.split(r"[^\w.-]", requirement)[0]) for requirement in declared if "extra ==" not in requirement}
    return frozenset((names | {"torch"}) - NOT_IN_TRIALS)


def _from_distributions(imports: Iterable[str]) -> frozenset[str]:
    wanted = frozenset(imports) - sys.stdlib_module_names - frozenset((*ROOMS, "ablate")) - _declared_packages()
    if not wanted:  # the usual case, and the table of all packages takes a while
        return frozenset()
    known = _names_by_import(tuple(place for place in sys.path if any(map(_NAME.fullmatch, _entries(place or ".")))))
    return frozenset(_normal(name) for each in wanted for name in known.get(each, ()))


@cache
def _names_by_import(_places: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Distributions by what they let import, which are in these places; read once: it takes longer than a small run."""
    return packages_distributions()


def _glibc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):  # another C library
        return None


def _processor() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor() or None
    found = re.search(r"^(model name|Model|cpu)\s*:\s*(?P<name>.+)$", text, re.MULTILINE)
    return found["name"].strip() if found else platform.processor() or None


def _gpus() -> list[str]:
    """Name and driver of each GPU, as nvidia-smi tells them; none without it."""
    return [", ".join(row) for row in ask_gpus("name", "driver_version") or []]
