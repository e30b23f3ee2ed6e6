"""Attention by execution path, side by side with PyTorch's fused softmax attention of the same shape.

OMP_NUM_THREADS=1 python benchmarks/attention.py [--lengths 256 1024] [--rounds 15] [--operators ssa cog] [--write FILE]

All sides take turns, so that a busy machine slows all alike. Time is the processor time of this process, which other
processes change little. A result is the median of the rounds in milliseconds, for forward alone and for forward and
backward. Its ratio is to fused attention. Inputs are random, causal and float32. `--write` stores all as one JSON file.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from measurement import machine, tell
from torch import Tensor
from torch.nn import functional as F

from variants import Heads, Operator
from variants.model.seeding import generator
from variants.operator import head_shape
from variants.papers.catalogue import catalogue
from variants.paths.case import Case
from variants.paths.choose import PATHS, Path as ExecutionPath, choose

BATCH, HEADS, CHANNELS = 2, 4, 64
OPERATORS = (
    "softmax", "affine_scaled", "learned_sink", "principled", "principled_ground", "ssa", "cog", "sigmoid",
    "linear_elu", "identity", "mlp_kernel", "cosformer", "entmax15",
)  # fmt: skip
WARM_UP = 2

Step = Callable[[], None]


def heads_of(operator: Operator, length: int) -> tuple[Heads, dict[str, Tensor]]:
    """Draw heads and numbers of `operator`, with gradients."""
    made = torch.Generator().manual_seed(0)
    joined = operator.merge.heads_joined
    heads, value = HEADS // joined, CHANNELS * joined
    query = value + operator.added_channels
    sizes = ((heads, query), (heads, query), (heads, value))
    q, k, v = (torch.randn(BATCH, count, length, size, generator=made).requires_grad_() for count, size in sizes)
    shape = head_shape(operator, heads=heads, query=query, value=value, width=1)
    numbers = {}
    for name, number in operator.numbers().items():
        table = number.table(shape, 0) if number.trained else number.fixed_value(shape, 0)
        if number.trained:
            number.disturb(table, generator(0, "benchmark", name))
        numbers[name] = (number.value(table, 0) if number.trained else table).detach().requires_grad_()
    return Heads(q, k, v), numbers


def steps_of(run: Callable[[], Tensor], inputs: Sequence[Tensor]) -> dict[str, Step]:
    """Return the forward pass, and the forward and backward pass."""

    def forward() -> None:
        with torch.no_grad():
            run()

    def both() -> None:
        for x in inputs:
            x.grad = None
        output = run()
        output.backward(torch.ones_like(output))  # type: ignore[no-untyped-call]

    return {"forward": forward, "both": both}


def on_path(operator: Operator, path: ExecutionPath, length: int) -> dict[str, Step]:
    """Return the steps of `operator` on `path`."""
    heads, numbers = heads_of(operator, length)
    return steps_of(lambda: path.run(operator, heads, numbers), [*heads[:3], *numbers.values()])


def fused(length: int) -> dict[str, Step]:
    """Return the steps of PyTorch's fused attention alone."""
    q, k, v = inputs = [torch.randn(BATCH, HEADS, length, CHANNELS).requires_grad_() for _ in range(3)]
    return steps_of(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), inputs)


def measure(length: int, names: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """Measure every operator on every path that can run it, in turns."""
    case, known = Case(length, length), catalogue()
    every = {("fused attention", ""): fused(length)}
    operators = {name: known[name].make() for name in names}
    for name, operator in operators.items():
        able = (path for path in PATHS if path.reason(operator, case) is None)
        every |= {(name, path.name): on_path(operator, path, length) for path in able}
    taken: dict[tuple[str, str, str], list[float]] = {}
    for turn in range(WARM_UP + rounds):
        for (name, path), steps in every.items():
            for what, step in steps.items():
                began = time.process_time()
                step()
                if turn >= WARM_UP:
                    taken.setdefault((name, path, what), []).append(time.process_time() - began)
    median = {at: statistics.median(each) for at, each in taken.items()}
    rows = []
    for name, path in every:
        row: dict[str, Any] = {"length": length, "operator": name, "path": path}
        row["chosen"] = name in operators and choose(operators[name], case).path.name == path
        for what in ("forward", "both"):
            row[f"{what}_ms"] = round(1e3 * median[name, path, what], 3)
            row[f"{what}_ratio"] = round(median[name, path, what] / median["fused attention", "", what], 3)
        rows.append(row)
    return rows


def main() -> None:
    """Print one JSON line for the machine and one for each operator, path and length; write them if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--operators", nargs="+", default=list(OPERATORS))
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    shape = {"batch": BATCH, "heads": HEADS, "channels": CHANNELS, "dtype": "float32", "causal": True}
    about = {**machine(), "threads": torch.get_num_threads(), "torch": torch.__version__, "shape": shape}
    tell(about)
    rows = [row for length in asked.lengths for row in measure(length, tuple(asked.operators), asked.rounds)]
    for row in rows:
        tell(row)
    if asked.write:
        asked.write.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
