"""Training compiled against training as it is, step for step side by side, as JSON lines.

OMP_NUM_THREADS=1 python benchmarks/training.py [--device cuda] [--steps 200] [--sizes small]

Each model, operator and precision has one line. It has the median time of a step without and with compilation on the
same batches, and their ratio. It has the seconds of compiling, tokens per second and utilisation. Utilisation is the
rate of operations of matrix products over that of one large product on the device. Both sides take turns of ten steps.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from runners import Execution, Grammar, LinearFunctions, Task, Training, Trial
from runners.optimisers import AdamW
from runners.training.compilation import Forward, graphs_forgotten
from runners.training.cost import Precision, flops, peak_flops_per_s
from runners.training.flops import Shape
from runners.trial import build_model
from variants import Backbone, Operator, gpt2, llama2, principled, softmax, ssa
from variants.model.seeding import generator

TURN = 10
"""Steps that one side takes before the other does."""
WARM_UP = 3
"""Steps of each side that are not counted; the first one compiles."""


class Case(NamedTuple):
    """A model, its task and its operator."""

    model: Backbone
    task: Task
    operator: Operator
    precision: Precision


def cases(sizes: str, device: torch.device) -> Iterator[Case]:
    """Every case of one of the `sizes`: "tiny" are for a test of this file."""
    recalled: dict[str, list[tuple[Backbone, Task]]] = {
        "tiny": [(gpt2(layers=1, heads=2, width=8), LinearFunctions(points=4, batch=2))],
        "small": [
            (gpt2(layers=2, heads=2, width=64), LinearFunctions(points=41, batch=64)),
            (gpt2(layers=3, heads=4, width=128), LinearFunctions(points=41, batch=64)),
            (gpt2(layers=12, heads=8, width=256), LinearFunctions(points=41, batch=64)),
            (llama2(layers=4, heads=4, width=256, feedforward_width=704), Grammar(batch=32)),
        ],
        "large": [(llama2(layers=12, heads=12, width=768, feedforward_width=2048), Grammar(batch=32))],
    }
    precisions: tuple[Precision, ...] = ("float32", "bfloat16") if device.type == "cuda" else ("float32",)
    for model, task in recalled[sizes]:
        for operator in (softmax(), ssa(), principled()):
            yield from (Case(model, task, operator, precision) for precision in precisions)


class Side:
    """One of the two ways to train a case."""

    def __init__(self, case: Case, device: torch.device, *, compiled: bool) -> None:
        self.trial = Trial(
            task=case.task,
            model=case.model,
            operator=case.operator,
            training=Training(steps=1_000_000, optimiser=AdamW(lr=1e-4), precision=case.precision),
            execution=Execution(device="auto", compile="on" if compiled else "off"),
        )
        self._device, self._data = device, case.task.open()
        self._model = build_model(self.trial).to(device)
        self._optimiser = torch.optim.AdamW(self._model.parameters(), lr=1e-4, fused=True)
        count = sum(p.numel() for p in self._model.parameters())
        self._forward = Forward(self.trial, device, count, self._outputs)
        self.seconds: list[float] = []
        self.shape = Shape(1, 1)

    def _outputs(self, inputs: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        lower = self.trial.training.precision == "bfloat16"
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=lower):
            found: torch.Tensor = self._model(inputs, visible).float()
        return found

    def steps(self, first: int, count: int) -> None:
        """Train steps `first` and on, and note how long each took."""
        for step in range(first, first + count):
            batch = self._data.batch(0, step, self._device).to(self._device)
            self.shape = Shape(*batch.inputs.shape[:2])
            torch.manual_seed(generator(0, "noise", step).initial_seed())
            began = time.perf_counter()
            self._optimiser.zero_grad(set_to_none=False)
            loss = self._data.loss(self._forward(batch.inputs, batch.visible), batch.targets)
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
            loss.item()
            self.seconds.append(time.perf_counter() - began)


def measured(case: Case, device: torch.device, steps: int) -> dict[str, Any]:
    """The line of one case."""
    with graphs_forgotten():
        sides = {"eager": Side(case, device, compiled=False), "compiled": Side(case, device, compiled=True)}
        for side in sides.values():
            side.steps(1, WARM_UP)
        compile_s = sides["compiled"].seconds[0]
        for first in range(WARM_UP + 1, WARM_UP + 1 + steps, TURN):
            for side in sides.values():
                side.steps(first, min(TURN, WARM_UP + 1 + steps - first))
    step_s = {name: statistics.median(side.seconds[WARM_UP:]) for name, side in sides.items()}
    shape, trial = sides["eager"].shape, sides["eager"].trial
    work, peak = flops(trial, {shape: 1}), peak_flops_per_s(device, case.precision)
    line: dict[str, Any] = {
        "model": case.model.label,
        "operator": case.operator.label,
        "precision": case.precision,
        "batch": shape.batch,
        "length": shape.length,
        "steps": steps,
        "speedup": step_s["eager"] / step_s["compiled"],
        "compile_s": compile_s,
        "peak_flops_per_s": peak,
    }
    for name, seconds in step_s.items():
        line[f"{name}_ms"] = 1e3 * seconds
        line[f"{name}_tokens_per_s"] = shape.batch * shape.length / seconds
        line[f"{name}_utilisation"] = None if work is None or peak is None else work / seconds / peak
    return line


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=200, help="counted steps of each side")
    parser.add_argument("--sizes", choices=("tiny", "small", "large"), default="small")
    given = parser.parse_args()
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("this machine has no CUDA device; use --device cpu")
    if device.type == "cuda":
        print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
    for case in cases(given.sizes, device):
        print(json.dumps(measured(case, device, given.steps)), flush=True)


if __name__ == "__main__":
    main()
