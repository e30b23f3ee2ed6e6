"""How a benchmark says what it measured: JSON lines with the median and the least of several times, and a target.

The least processor time of all threads is beside each least time. On a busy machine, it bounds the time that a quiet
machine with one core takes.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple


def machine() -> dict[str, object]:
    """Describe the machine. A load above the number of cores means that other programs ran."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        **{name: _version(name) for name in ("torch", "triton", "duckdb", "pyarrow")},
    }


def _commit() -> str | None:
    """Return the commit of the working directory; None without git."""
    with suppress(OSError):
        return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() or None
    return None


def _processor() -> str:
    """Name the processor; Linux names it in /proc/cpuinfo only."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def read_options(doc: str | None, **defaults: int | None) -> argparse.Namespace:
    """Read whole numbers by name, `--campaign` and `--write` from the command line."""
    parser = argparse.ArgumentParser(description=doc)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--campaign", type=Path, default=None)
    parser.add_argument("--write", type=Path)
    return parser.parse_args()


def make_parser(doc: str | None, *, device: bool = True) -> argparse.ArgumentParser:
    """Make a parser of `--write FILE` and, if `device`, of `--device`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path)
    if device:
        parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return parser


class Took(NamedTuple):
    """Time and memory of one run."""

    wall_s: float
    cpu_s: float
    """Includes this process and its children."""


def took(action: Callable[[], object]) -> Took:
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    action()
    return Took(time.perf_counter() - wall, sum(os.times()[:4]) - cpu)


def tell(line: Mapping[str, object]) -> None:
    """One JSON line, at once."""
    print(json.dumps(line), flush=True)


def report(
    name: str,
    runs: Sequence[Took],
    target_s: float | None = None,
    say: Callable[[Mapping[str, object]], None] = tell,
) -> None:
    """One line; the target is met if the least of the times is within it."""
    wall, cpu = zip(*runs, strict=True)
    line = {"median_s": statistics.median(wall), "least_s": min(wall), "cpu_s": min(cpu)}
    said: dict[str, object] = {"name": name, **{key: round(value, 3) for key, value in line.items()}}
    if target_s is not None:
        said |= {"target_s": target_s, "met": min(wall) <= target_s}
    say({**said, "load": round(os.getloadavg()[0], 1)})


def describe_error(error: Exception) -> str:
    """Return the kind and the beginning of the text of an error, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


class Results:
    """Prints a line for the machine and one per row, and keeps a JSON file up to date, so that a break loses no row."""

    def __init__(self, about: Mapping[str, object], file: Path | None) -> None:
        self._about, self._file = about, file
        self._rows: list[Mapping[str, object]] = []
        tell(about)

    def add(self, row: Mapping[str, object]) -> None:
        self._rows.append(row)
        tell(row)
        if self._file is not None:
            part = self._file.with_suffix(".part")
            part.write_text(json.dumps({**self._about, "rows": self._rows}, indent=1) + "\n", encoding="utf-8")
            part.replace(self._file)
