"""Gradients of eight seeds of a small model in one `torch.func.vmap`, beside one seed after the other.

    OMP_NUM_THREADS=1 python benchmarks/vectorised.py [--device cuda] [--write FILE]

Prints JSON lines, and writes them if asked. Times are those of forward and backward of all eight, medians of 30 turns:
the processor time, or with `--device cuda` the wall time.
"""

import statistics
import warnings
from collections.abc import Callable
from copy import deepcopy

import torch
from attention import describe, read_clock
from measurement import Results, make_parser
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap

from ablate import LinearFunctions, ShiftGrid, Training, Trial
from ablate.training.trial import build_model
from ablate.variants import gpt2, softmax

SEEDS, BATCH, TOKENS, TURNS = 8, 64, 21, 30


def measure(width: int, device: str) -> dict[str, object]:
    """Measure models of two layers of two heads."""
    shifts = ShiftGrid(sigma_x=(1,), sigma_f=(1,), functions=2, sequences=2, points=11)
    base = Trial(
        task=LinearFunctions(points=11, batch=BATCH, evaluation=shifts),
        model=gpt2(layers=2, heads=2, width=width, max_positions=32),
        operator=softmax(),
        training=Training(steps=1),
    )
    models = [build_model(base.changed(seed=seed)).to(device) for seed in range(SEEDS)]
    inputs = torch.randn(SEEDS, BATCH, TOKENS, 1, device=device)
    parameters, buffers = stack_module_state(models)
    shape = deepcopy(models[0]).to("meta")

    def loss(own: dict[str, Tensor], fixed: dict[str, Tensor], x: Tensor) -> Tensor:
        output: Tensor = functional_call(shape, (own, fixed), (x,))
        return output.square().mean()

    together = vmap(grad(loss))

    def in_turn() -> None:
        for model, x in zip(models, inputs, strict=True):
            model.zero_grad()
            model(x).square().mean().backward()

    sides: dict[str, Callable[[], object]] = {
        "vectorised_ms": lambda: together(parameters, buffers, inputs),
        "in_turn_ms": in_turn,
    }

    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(TURNS):
        for name, side in sides.items():
            began = read_clock(device)
            side()
            taken[name].append(1e3 * (read_clock(device) - began))
    median = {name: round(statistics.median(each), 2) for name, each in taken.items()}
    return {"width": width, **median, "ratio": round(median["in_turn_ms"] / median["vectorised_ms"], 2)}


def main() -> None:
    """Print the machine, then a line per width."""
    given = make_parser(__doc__).parse_args()
    results = Results(describe(given.device), given.write)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch has no batching rule for the CPU's fused attention, and says so
        for width in (32, 64):
            results.add(measure(width, given.device))


if __name__ == "__main__":
    main()
