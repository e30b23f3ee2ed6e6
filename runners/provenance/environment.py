"""Records the environment of a trial: Python, packages and machine; compares two records.

A worker refuses to train if the environment would change the trial. These are Python's minor version, torch, and every
package that trials or the user's spec import. Other differences are only reported: the processor, driver and C library
depend on the node that the cluster chose.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from pathlib import Path
from typing import Any, NamedTuple, final

SCHEMA = 1
NOT_IN_TRIALS = frozenset(
    {"cyclopts", "duckdb", "lazy-loader", "nvidia-ml-py", "plotly", "polars", "rich", "scipy", "submitit"}
)
"""Dependencies for submission, storage and display; training imports none of them."""

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "MKL_CBWR",
    "CUBLAS_WORKSPACE_CONFIG",
)
"""Environment variables that change the order of sums."""

_NAME = re.compile(r"(?P<name>[\w.+]+?)-(?P<version>[^-]+)(-py[\d.]+)?\.(dist|egg)-info")
_WORDS = {
    "python": "Python",
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
    """Differences from a recorded environment, one sentence each."""

    forbidding: tuple[str, ...]
    """Differences that may change the numbers of the trial."""
    remarks: tuple[str, ...]


def record(imports: Iterable[str] = ()) -> dict[str, Any]:
    """Record the environment of this process for JSON; torch is not imported.

    `imports` are top-level modules that the user's code imports; their distributions must not differ either.
    """
    return {
        "schema": SCHEMA,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "distributions": distributions(),
        "needed": sorted(_declared_packages() | _from_distributions(imports)),
        "platform": platform.system() + " " + platform.release(),
        "machine": platform.machine(),
        "glibc": " ".join(platform.libc_ver()).strip() or None,
        "cpu": _processor(),
        "threads": {name: os.environ[name] for name in THREADS if name in os.environ},
        "gpus": [", ".join(row) for row in ask_gpus("name", "driver_version") or []],
    }


def distributions() -> dict[str, str]:
    """List installed versions by normalised name; the first on the import path counts.

    Reads directory names only: reading all metadata takes seconds on a cluster file system.
    """
    versions: dict[str, str] = {}
    for place in sys.path:
        for name in _entries(place or "."):
            match = _NAME.fullmatch(name)
            if match is not None:
                versions.setdefault(_normal(match["name"]), match["version"])
    return dict(sorted(versions.items()))


def torch_without_cuda() -> bool:
    """Return True if the installed torch is a CPU build; it is not imported."""
    try:
        return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False


def differences(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> Differences:
    """Compare the fields that both records have."""
    needed = recorded.get("needed", ())
    versions = recorded["distributions"], here["distributions"]
    forbidding = [*_compare("implementation", recorded, here), *_compare_packages(needed, *versions)]
    remarks = [*_compare_packages(sorted((versions[0].keys() | versions[1].keys()) - {*needed}), *versions)]
    for name in ("platform", "machine", "glibc", "cpu", "threads", "gpus"):
        remarks += _compare(name, recorded, here)
    minor = [version.split(".")[:2] for version in (recorded["python"], here["python"])]
    (remarks if minor[0] == minor[1] else forbidding)[:0] = _compare("python", recorded, here)
    return Differences(tuple(forbidding), tuple(remarks))


def _compare(name: str, recorded: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    before, now = recorded.get(name), here.get(name)
    return [] if before == now else [_describe(_WORDS[name], before, now)]


def _compare_packages(names: Iterable[str], before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in names:
        if before.get(name) == now.get(name):
            continue
        if name not in now:
            yield f"{name} is not installed here and is {before[name]} where it was submitted"
        elif name not in before:
            yield f"{name} is {now[name]} here and not installed where it was submitted"
        else:
            yield _describe(name, before[name], now[name])


def _describe(what: str, before: object, now: object) -> str:
    verb = "are" if what.endswith("s") else "is"
    return f"{what} {verb} {_join_values(now)} here and {_join_values(before)} where it was submitted"


def _join_values(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in value.items()) or "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value or "unknown")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _entries(place: str) -> list[str]:
    try:
        return sorted(each.name for each in Path(place).iterdir())
    except OSError:  # a zip archive, or a missing directory
        return []


def _declared_packages() -> frozenset[str]:
    """Return the declared dependencies that trials need; only torch if the project is not installed."""
    try:
        declared = requires("ablate") or []
    except PackageNotFoundError:
        declared = []
    names = {_normal(re.split(r"[^\w.-]", requirement)[0]) for requirement in declared if "extra ==" not in requirement}
    return frozenset((names | {"torch"}) - NOT_IN_TRIALS)


def _from_distributions(imports: Iterable[str]) -> frozenset[str]:
    wanted = frozenset(imports) - sys.stdlib_module_names - {"ablate"} - _declared_packages()
    if not wanted:  # the usual case; building the table of packages is slow
        return frozenset()
    known = _names_by_import(tuple(place for place in sys.path if any(map(_NAME.fullmatch, _entries(place or ".")))))
    return frozenset(_normal(name) for each in wanted for name in known.get(each, ()))


@cache
def _names_by_import(_places: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Map import names to distributions; cached, since it takes longer than a small run."""
    return packages_distributions()


def _processor() -> str | None:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(errors="replace")
        if name := re.search(r"^(model name|Model|cpu)\s*:\s*(?P<name>.+)$", text, re.MULTILINE):
            return name["name"].strip()
    return platform.processor() or None


_PATIENCE_S = 20.0


def ask_gpus(*fields: str) -> list[list[str]] | None:
    """Query one row of `--query-gpu` fields per GPU; None if nvidia-smi is missing or fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0:
        return None
    return [[word.strip() for word in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]
