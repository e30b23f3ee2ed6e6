"""Time the Triton kernels on a GPU with many tile sizes, to choose those of `ablate.variants.paths.triton_ops.TILES`.

python benchmarks/tiles.py [--processes 12] [--write FILE]

First, processes compile every kernel with every tile. Then this process times each: Principled Attention with and
without a gate, bfloat16, causal, 4 sequences of 4,096 tokens, 16 heads. A row has the median of the runs in
milliseconds: of the forward kernel, or of both backward kernels, the other one with its usual tile. `usual` marks the
tile of `TILES`.
"""

import statistics
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby, product
from typing import Any, NamedTuple

import torch
from attention import describe, seconds_on_gpu
from measurement import Results, describe_error, make_parser

from ablate.variants.paths.triton_ops import TILES, Tile, Tiles, score_attention, score_attention_backward

BATCH, HEADS, LENGTH = 4, 16, 4096
ROUNDS = 9
RULE = ("exponential", "ground", True)


class Case(NamedTuple):
    """A kernel with a tile, for heads of a width."""

    width: int
    gated: bool
    kernel: str
    tile: Tile

    @property
    def place(self) -> tuple[str, int, bool]:
        """Where its tile is in `TILES`."""
        return "half", self.width, self.gated


def all_cases() -> Iterator[Case]:
    """Yield every case. Four warps share 64 rows of a product, and eight share 128."""
    for width, gated, kernel, warps, stages in product((64, 128), (False, True), Tiles._fields, (4, 8), (2, 3, 4)):
        shortest = 32 if kernel == "forward" or not gated else 16
        for short in (shortest, 2 * shortest, 4 * shortest):
            rows, keys = (short, 16 * warps) if kernel == "keys" else (16 * warps, short)
            yield Case(width, gated, kernel, Tile(rows, keys, warps, stages))


class Inputs:
    """Random inputs of a width."""

    def __init__(self, width: int, *, gated: bool) -> None:
        made = torch.Generator("cuda").manual_seed(0)
        heads, rows = (BATCH, HEADS, LENGTH, width), (BATCH * HEADS, LENGTH)
        q, k, v, gate = (torch.randn(heads, generator=made, device="cuda", dtype=torch.bfloat16) for _ in range(4))
        number = torch.full(rows, 0.2, device="cuda")
        gates = (gate, gate, number) if gated else (None, None, None)
        self._given = (q, k, v, number, *gates, None, None, number, None)  # neither exponent, shift nor mask
        _, logs, ground, floors = score_attention(*self._given, *RULE)
        self._slopes = (logs, torch.rand_like(v), *map(torch.zeros_like, (logs, ground, floors)))

    def milliseconds(self, case: Case, rounds: int) -> float:
        """Return the median of `rounds` after the first, with the tile of `case` in `TILES` meanwhile."""
        usual = TILES[case.place]
        TILES[case.place] = usual._replace(**{case.kernel: case.tile})
        try:
            return 1e3 * statistics.median([seconds_on_gpu(lambda: self._run(case)) for _ in range(1 + rounds)][1:])
        finally:
            TILES[case.place] = usual

    def _run(self, case: Case) -> None:
        if case.kernel == "forward":
            score_attention(*self._given, *RULE)
        else:
            score_attention_backward(*self._given, *self._slopes, *RULE)


def run(cases: Iterable[Case], rounds: int) -> Iterator[dict[str, Any]]:
    for (width, gated), same in groupby(cases, key=lambda case: (case.width, case.gated)):
        inputs = Inputs(width, gated=gated)
        for case in same:
            usual = getattr(TILES[case.place], case.kernel) == case.tile
            row: dict[str, Any] = {**case._asdict(), "tile": [*case.tile], "usual": usual}
            try:
                row["ms"] = round(inputs.milliseconds(case, rounds), 4)
            except Exception as error:  # noqa: BLE001  # too little shared memory: a row like others
                row["error"] = describe_error(error)
            yield row


def main() -> None:
    """Compile in several processes, then time in this one."""
    parser = make_parser(__doc__, device=False)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--share", type=int, help="compile only, every PROCESSES-th case from this one")
    given = parser.parse_args()
    cases = [*all_cases()]
    if given.share is not None:
        deque(run(cases[given.share :: given.processes], 1), maxlen=0)
        return
    command = [sys.executable, __file__, "--processes", str(given.processes), "--share"]
    compilers = [subprocess.Popen([*command, str(share)]) for share in range(given.processes)]
    for each in compilers:
        each.wait()
    results = Results({**describe("cuda"), "batch": BATCH, "heads": HEADS, "length": LENGTH}, given.write)
    for row in run(cases, ROUNDS):
        results.add(row)


if __name__ == "__main__":
    main()
