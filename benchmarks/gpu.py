"""All measurements on a GPU in one command, within a time limit; results go to benchmarks/results.

python benchmarks/gpu.py NAME [--minutes 8] [--device cuda]

NAME names the GPU in the file names, such as h200. Each part is a process with a share of the time. Rows that it has
measured when its time ends are kept. It needs CUDA and the packages torch, triton, numpy, pydantic, pyarrow, entmax,
lazy-loader and nvidia-ml-py; neither a store nor a dashboard.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from measurement import tell

HERE = Path(__file__).parent
FEW = ("softmax", "affine_scaled", "learned_sink", "integral", "differential", "principled_ground", "principled", "ssa")
KERNELS = ("principled_ground", "principled", "ssa")
"""Operators of which path "triton" has kernels."""


class Part(NamedTuple):
    """A benchmark with its share of the time."""

    file: str
    share: float
    command: tuple[str, ...]


ATTENTION = (
    "attention.py", "--lengths", "1024", "2048", "4096", "8192", "16384", "--rounds", "8",
    "--operators", *FEW, "cog", "sigmoid",
)  # fmt: skip
PARTS = (
    Part("attention-{}-d64", 0.24, (*ATTENTION, "--channels", "64")),
    Part("attention-{}-d128", 0.24, (*ATTENTION, "--channels", "128")),
    Part("training-{}-tiny", 0.1, ("training.py", "--eager", "--steps", "100", "--operators", "softmax", "principled")),
    Part("training-{}-60m", 0.1, ("training.py", "--size", "60m", "--steps", "40", "--operators", "softmax", "ssa")),
    Part("training-{}-125m", 0.16, ("training.py", "--size", "125m", "--steps", "40", "--operators", *FEW)),
    Part("training-{}-125m-triton", 0.16, (
        "training.py", "--size", "125m", "--steps", "40", "--path", "triton", "--operators", *KERNELS,
    )),
)  # fmt: skip


def main() -> int:
    """Run the parts one after the other; say how long each took, and whether its time ended first; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    given = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    until = time.monotonic() + 60 * given.minutes
    left, failed = 1.0, False
    for part in PARTS:
        began = time.monotonic()
        limit = (until - began) * part.share / left
        left -= part.share
        write = HERE / "results" / f"{part.file.format(given.name)}.json"
        command = [str(HERE / part.command[0]), *part.command[1:], "--device", given.device, "--write", str(write)]
        try:
            code: int | str = subprocess.run([sys.executable, *command], env=environment, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            code = "time is up"
        failed |= isinstance(code, int) and code != 0
        tell({"part": write.stem, "seconds": round(time.monotonic() - began, 1), "exit": code})
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
