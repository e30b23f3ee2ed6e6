"""All measurements on a GPU in one command, within a time limit; results go to benchmarks/results.

python benchmarks/gpu.py NAME [--minutes 8] [--parts attention] [--device cuda]

NAME names the GPU in the file names, such as h200. First, a quick run of each measurement fills the compilers' caches,
with a process per core; FlexAttention is compiled where it is measured. Then each part is measured alone, with the
exactness of all operators at the end. A part is a process with a share of the time; rows that it has measured when its
time ends are kept. A part without a row has failed, and its older file stays. `--parts attention` leaves out parts that
do not begin with "attention". It needs CUDA and the packages torch, triton, numpy, pydantic, pyarrow, entmax,
jaxtyping, lazy-loader and nvidia-ml-py; neither a store nor a dashboard.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from measurement import tell

HERE = Path(__file__).parent
WARM_UP = 0.3
"""Share of the time, at most, in which the compilers' caches are filled."""
TIME_IS_UP = "time is up"


class Part(NamedTuple):
    """A benchmark with its share of the time."""

    file: str
    share: float
    command: tuple[str, ...]
    operators: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    """Options that replace others while caches are filled; () for a part that has none."""


_ATTENTION = (
    "attention.py", "--lengths", "64", "256", "1024", "2048", "4096", "8192", "16384", "--flex-lengths", "4096",
    "--rounds", "15", "--channels",
)  # fmt: skip
_COMPILED = ("--compiled", "--lengths", "2048", "8192", "--flex-lengths")
_QUICK = ("--lengths", "1024", "--rounds", "1")
_OPERATORS = (
    "softmax", "affine_scaled", "learned_sink", "integral", "differential", "principled_ground", "principled", "ssa",
    "cog", "sigmoid",
)  # fmt: skip
_TRAINING, _SHORT = ("training_speed.py", "--eager", "--size"), ("--steps", "10")
_TRAINED = ("softmax", "principled", "ssa", "affine_scaled", "principled_ground")
"""The most important first: to compile one takes up to 42 s, and time may end before the last."""
PARTS = (
    Part("attention-{}-d64", 0.06, (*_ATTENTION, "64"), _OPERATORS, _QUICK),
    Part("attention-{}-d128", 0.08, (*_ATTENTION, "128"), _OPERATORS, _QUICK),
    Part("attention-{}-d64-compiled", 0.02, (*_ATTENTION, "64", *_COMPILED), _OPERATORS, ("--rounds", "1")),
    Part("training-{}-125m", 0.26, (*_TRAINING, "125m", "--steps", "20"), _TRAINED, _SHORT),
    Part("training-{}-tiny", 0.06, (*_TRAINING, "tiny", "--steps", "100"), ("softmax", "principled"), _SHORT),
    Part("vectorised-{}", 0.02, ("vectorised.py",)),
    Part("packing-{}", 0.08, ("packing.py",)),
    Part("exactness-{}", 0.12, ("exactness.py", "--processes", str(os.cpu_count()))),
)
"""With `WARM_UP`, shares add up to 1."""


class Runner(NamedTuple):
    """Runs benchmarks on a device."""

    name: str
    device: str

    def run(self, command: tuple[str, ...], seconds: float, write: Path | None = None) -> int | str:
        """Run a command for at most so long; return its exit code, or that its time was up."""
        words = [sys.executable, str(HERE / command[0]), *command[1:], "--device", self.device]
        words += [] if write is None else ["--write", str(write)]
        output = subprocess.DEVNULL if write is None else None
        others = os.environ.get("PYTHONPATH", "")
        environment = {**os.environ, "PYTHONPATH": f"{HERE.parent}/src:{others}".rstrip(":")}
        process = subprocess.Popen(words, env=environment, stdout=output, stderr=output, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return TIME_IS_UP
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
            process.wait()

    def warm_up(self, parts: Sequence[Part], seconds: float) -> None:
        """Run each operator of each part quickly, side by side; a failure comes again when it is measured."""
        until = time.monotonic() + seconds
        slowest_first = [(part, each) for part in reversed(parts) if part.quick for each in part.operators]
        commands = [(*part.command, *part.quick, "--operators", each) for part, each in slowest_first]

        def run(command: tuple[str, ...]) -> None:
            if (left := until - time.monotonic()) > 0:
                self.run(command, left)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for command in commands:
                pool.submit(run, command)

    def measure(self, part: Part, seconds: float) -> tuple[int | str, int]:
        """Return how the part ended and its number of rows without an error; if any, they replace an older file."""
        command = (*part.command, *(("--operators", *part.operators) if part.operators else ()))
        file = HERE / "results" / f"{part.file.format(self.name)}.json"
        new = file.with_suffix(".new")
        new.unlink(missing_ok=True)
        code = self.run(command, seconds, new)
        rows = json.loads(new.read_text(encoding="utf-8"))["rows"] if new.exists() else []
        measured = sum("error" not in row for row in rows)
        if measured:
            new.replace(file)
        return code, measured


def main() -> int:
    """Run the parts one after the other; say how long each took and how it ended; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--parts", nargs="+", default=[""])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    given = parser.parse_args()
    runner, until = Runner(given.name, given.device), time.monotonic() + 60 * given.minutes
    parts = [part for part in PARTS if part.file.startswith(tuple(given.parts))]
    if not parts:
        there = ", ".join(part.file.format("NAME") for part in PARTS)
        parser.error(f"no part begins with {' or '.join(given.parts)}; there are {there}")
    left, failed = sum(part.share for part in parts), False
    runner.warm_up(parts, 60 * given.minutes * WARM_UP)
    for part in parts:
        began = time.monotonic()
        code, rows = runner.measure(part, (until - began) * part.share / left)
        left -= part.share
        bad = rows == 0 or code not in (0, TIME_IS_UP)
        failed |= bad
        ended = {"seconds": round(time.monotonic() - began, 1), "exit": code, "rows": rows, "failed": bad}
        tell({"part": part.file.format(given.name), **ended})
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
