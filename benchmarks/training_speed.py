"""Training by `ablate` against a loop written by hand for the same model, step for step side by side.

OMP_NUM_THREADS=1 python benchmarks/training_speed.py [--size tiny|60m|125m] [--steps 40] [--operators ssa]
        [--write FILE]

The loop by hand draws the same batches. It computes the loss and its gradient, clips, and steps with torch.optim.AdamW;
it logs nothing. Both sides take turns of ten steps, so that a busy machine slows both alike. Time is the processor time
of this process; a result is the median over the turns. `ratio` is the speed of `ablate` as a share of the loop's.

With `--device cuda`, precision is bfloat16, time is wall time up to the end of a turn's last step, and both sides are
compiled. `--eager` adds `ablate` without compilation; `--path triton` takes a path that "auto" does not take yet.
Utilisation is the rate of operations of matrix products over that of one large product on the device.
"""

import argparse
import statistics
from typing import Any, Final, get_args

import torch
from attention import OPERATORS, describe, forget_graphs, read_clock
from measurement import Results, describe_error, make_parser

from ablate import Execution, Grammar, Induction, Task, Training, Trial
from ablate.runners.processes.process_group import RankPlace, World
from ablate.runners.processes.training_context import NullContext
from ablate.training.loop import compilation
from ablate.training.loop.cost import flops, peak_flops_per_s
from ablate.training.loop.flops import Shape
from ablate.training.loop.train import _TrainingRun
from ablate.training.optimisers import AdamW
from ablate.training.tasks.task import Batch
from ablate.training.trial import build_model
from ablate.variants import Backbone, Operator, gpt2
from ablate.variants.model.named_backbones import gpt2_small, sink_60m
from ablate.variants.papers.catalogue import catalogue
from ablate.variants.paths.choose import PathName

TURN = 10
"""Steps that one side takes before the other does."""
CLIP: Final = 1.0
LR: Final = 1e-4
_SMALL: Final = Grammar(nouns=16, verbs=8, names=16, prepositions=4, topics=2, context=32, batch=32)
SIZES: dict[str, tuple[Backbone, Task]] = {
    "tiny": (gpt2(layers=2, heads=2, width=32, max_positions=32), _SMALL),
    "60m": (sink_60m(), Induction(symbols=50_257, context=1024, batch=8)),
    "125m": (gpt2_small(), Induction(symbols=50_257, context=1024, batch=8)),
}


def trial_of(size: str, operator: Operator, device: torch.device, path: PathName, *, compiled: bool) -> Trial:
    model, task = SIZES[size]
    precision = "bfloat16" if device.type == "cuda" else "float32"
    training = Training(steps=1_000_000, optimiser=AdamW(lr=LR), clip=CLIP, precision=precision)
    execution = Execution(compile="on" if compiled else "off", log_every=TURN, path=path)
    return Trial(task=task, model=model, operator=operator, training=training, execution=execution)


class ByHand:
    def __init__(self, trial: Trial, device: torch.device) -> None:
        self._device, self._lower = device, trial.training.precision == "bfloat16"
        self._data, self._drawn_on = trial.task.open(), trial.task.drawn_on(device)
        self._model = build_model(trial).to(device)
        compiled = trial.execution.compile == "on"
        self._compute = torch.compile(self._loss, backend=compilation.BACKEND) if compiled else self._loss
        self._optimiser = torch.optim.AdamW(self._model.parameters(), lr=LR, fused=True)

    def _loss(self, batch: Batch) -> torch.Tensor:
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._lower):
            outputs = self._model(batch.inputs, batch.visible)
        return self._data.loss(outputs.float(), batch.targets)

    def step(self, number: int) -> None:
        batch = self._data.batch(0, number, self._drawn_on).to(self._device)
        self._optimiser.zero_grad()
        self._compute(batch).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), CLIP)
        self._optimiser.step()


def measure(given: argparse.Namespace, operator: Operator) -> dict[str, Any]:
    forget_graphs()  # models by hand share a function, and eight graphs are its limit
    device, size = torch.device(given.device), given.size
    on_gpu = device.type == "cuda"
    trial, world = trial_of(size, operator, device, given.path, compiled=on_gpu), World(RankPlace(), device)
    sides = {"by_hand": ByHand(trial, device).step, "ablate": _TrainingRun(trial, NullContext(), world)._step}
    if given.eager:
        eager = trial_of(size, operator, device, given.path, compiled=False)
        sides["eager"] = _TrainingRun(eager, NullContext(), world)._step
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    first_s = {}
    for first in range(1, given.steps + TURN, TURN):
        for name, step in sides.items():
            began = read_clock(given.device)
            for number in range(first, first + TURN):
                step(number)
            took = read_clock(given.device) - began
            if first == 1:
                first_s[name] = took
            else:
                seconds[name].append(took / TURN)
    step_s = {name: statistics.median(each) for name, each in seconds.items()}
    batch = trial.task.open().batch(0, 1, torch.device("cpu")).inputs
    shape = Shape(batch.shape[0], batch.shape[1])
    work, peak = flops(trial, {shape: 1}), peak_flops_per_s(device, trial.training.precision)
    row: dict[str, Any] = {"size": size, "operator": operator.label, "path": given.path, **shape._asdict()}
    row |= {f"{name}_ms": round(1e3 * each, 3) for name, each in step_s.items()}
    row["ratio"] = round(step_s["by_hand"] / step_s["ablate"], 3)
    row["tokens_per_s"] = round(shape.batch * shape.length / step_s["ablate"])
    row["utilisation"] = None if work is None or peak is None else round(work / step_s["ablate"] / peak, 3)
    row["first_turn_s"] = {name: round(took, 2) for name, took in first_s.items()}
    return row


def main() -> None:
    """Print one JSON line for the machine and one for each operator; write them if asked."""
    parser = make_parser(__doc__)
    parser.add_argument("--size", choices=tuple(SIZES), default="tiny")
    parser.add_argument("--steps", type=int, default=400, help="counted steps of each side")
    parser.add_argument("--operators", nargs="+", default=list(OPERATORS))
    parser.add_argument("--path", choices=get_args(PathName), default="auto")
    parser.add_argument("--eager", action="store_true", help="measure without compilation, too")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("this machine has no CUDA device; use --device cpu")
    results, known = Results({**describe(given.device), "steps": given.steps}, given.write), catalogue()
    for name in given.operators:
        try:
            results.add(measure(given, known[name].make()))
        except Exception as error:  # noqa: BLE001  # no memory, or a path that cannot compute it: a row like others
            results.add({"size": given.size, "operator": name, "path": given.path, "error": describe_error(error)})


if __name__ == "__main__":
    main()
