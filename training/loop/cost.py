"""Measures the cost of the steps of one attempt, as entries of `TrainingResult.cost`.

    steps, tokens        trained on; a token is an input position, with padding but without sink tokens
    flops                matrix products of forward and backward, counted for `execution.path="reference"`
    train_s, evaluate_s, probe_s
    refit_s              of the refit of the knock-outs: part of evaluate_s
    graphs, compile_s    compiled graphs, and the seconds of the steps that compiled them: part of train_s
    compile_tokens, compile_flops    tokens and operations of those steps: parts of tokens and flops
    joules               of the processor packages or the GPUs as a whole, with evaluations and probes
    peak_memory_bytes    of the device on CUDA, else of the process
    peak_flops_per_s     of one large matrix product on the trial's devices, in the precision of training

Repeated steps count again. All but the two peaks are sums, which add up over attempts. An entry that cannot be measured
is missing. FLOPs of attention count all pairs of positions, also hidden ones. FLOPs of the optimiser, a teacher,
evaluations and running means are not counted. With several ranks, FLOPs are those of the whole batch; seconds and
memory are rank 0's. The peak of a device is measured once in a process, after training of more than `LONG_S`.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, Literal, final

import torch

from ablate.runners.processes.memory import peak_memory_bytes
from ablate.runners.processes.process_group import World, node_count
from ablate.training.loop.energy import Energy, meters
from ablate.training.loop.flops import Shape, count_flops
from ablate.training.trial import Trial
from ablate.variants.axes import Inputs

LONG_S: Final = 30.0
"""Seconds of training that justify half a second for measuring the peak of the device."""
MOST_COUNTED: Final = 3
"""Sequence lengths that are counted. FLOPs are quadratic in the length, so others are interpolated."""


@final
class Cost:
    """Adds up the cost of the steps of one attempt."""

    def __init__(self, trial: Trial, world: World) -> None:
        self._trial, self._world = trial, world
        self._shapes, self._compiling = Counter[Shape](), Counter[Shape]()
        self._drawn: Shape | None = None
        self._graphs, self._compile_s = 0, 0.0
        measured = world.place.rank == 0 and node_count() == 1  # meters of other nodes cannot be read
        self._energy = Energy(meters(world.device, trial.execution.gpus) if measured else None)

    def begin_step(self, inputs: Inputs) -> None:
        """Note the batch `inputs` [B, T, ...] of all ranks."""
        self._drawn = Shape(inputs.shape[0], inputs.shape[1])

    def end_step(self, seconds: float, graphs: int) -> None:
        """Count the step; `graphs` is the number compiled so far."""
        assert self._drawn is not None
        self._shapes[self._drawn] += 1
        if graphs > self._graphs:
            self._graphs, self._compile_s = graphs, self._compile_s + seconds
            self._compiling[self._drawn] += 1
        self._energy.read_if_due()

    def entries(self, seconds: Mapping[str, float], *, measure: bool = True) -> dict[str, float]:
        """Return the cost so far, with the peak of the device if `measure`; empty on ranks other than 0."""
        if self._world.place.rank:
            return {}
        device, gpus = self._world.device, self._trial.execution.gpus
        costs: dict[str, float | None] = {
            "steps": self._shapes.total(),
            "tokens": _tokens(self._shapes),
            **seconds,
            "joules": self._energy.joules(),
            "peak_memory_bytes": peak_memory_bytes(),
            "flops": flops(self._trial, self._shapes),
        }
        if self._graphs:
            costs |= {"graphs": self._graphs, "compile_s": self._compile_s}
            costs |= {"compile_tokens": _tokens(self._compiling), "compile_flops": flops(self._trial, self._compiling)}
        peak = peak_flops_per_s(device, self._trial.training.precision, measure=measure and seconds["train_s"] > LONG_S)
        costs["peak_flops_per_s"] = None if peak is None else peak * gpus
        return {name: value for name, value in costs.items() if value is not None}


def _tokens(shapes: Mapping[Shape, int]) -> int:
    return sum(shape.batch * shape.length * steps for shape, steps in shapes.items())


def flops(trial: Trial, shapes: Mapping[Shape, int]) -> float | None:
    """Sum the FLOPs of the steps, counted by batch shape; None if an operator cannot be counted."""
    total = Fraction(0)
    model = (trial.model, trial.operators(), trial.task.inputs, "reference")
    for batch in {shape.batch for shape in shapes}:
        lengths = {shape.length: steps for shape, steps in shapes.items() if shape.batch == batch}
        known = sorted(lengths)
        if len(known) > MOST_COUNTED:
            known = [known[0], known[len(known) // 2], known[-1]]
        try:
            counted = {at: Fraction(count_flops(*model, Shape(batch, at), training=True)) for at in known}
        except Exception:  # noqa: BLE001  (a user's code that reads tensor values; meta tensors have none)
            return None
        total += sum(steps * _interpolate(length, counted) for length, steps in lengths.items())
    return float(total)


def _interpolate(length: int, counted: Mapping[int, Fraction]) -> Fraction:
    if length in counted:
        return counted[length]
    total = Fraction(0)
    for one, value in counted.items():
        for other in counted:
            if other != one:
                value *= Fraction(length - other, one - other)
        total += value
    return total


Precision = Literal["float32", "bfloat16"]

MEASURE_S: Final = 0.5
"""Seconds of timing after the first product."""
_SIZE: Final = {"cpu": 1024, "cuda": 8192}
_TYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_known: dict[tuple[str, str, int], float | None] = {}


def peak_flops_per_s(device: torch.device, precision: Precision, *, measure: bool = True) -> float | None:
    """Return the best rate measured; None if memory is short, or if it is unknown and `measure` is false."""
    key = (str(device), precision, torch.get_num_threads())
    if key not in _known and measure:
        _known[key] = _measure(device, precision)
    return _known.get(key)


def _measure(device: torch.device, precision: Precision) -> float | None:
    size = _SIZE[device.type]
    try:
        drawn = torch.Generator(device).manual_seed(0)  # a device computes faster on zeros and ones
        factor = torch.randn(size, size, generator=drawn, device=device).to(_TYPES[precision])
        least, _ = math.inf, _time_product(factor, device)
        until = time.perf_counter() + MEASURE_S
        while time.perf_counter() < until:
            least = min(least, _time_product(factor, device))
    except torch.OutOfMemoryError:
        return None
    return 2.0 * size**3 / least


def _time_product(factor: torch.Tensor, device: torch.device) -> float:
    began = time.perf_counter()
    factor @ factor
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began
