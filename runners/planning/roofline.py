"""How long a trial takes before any like it has run: its work against what a device can do at most.

    seconds of a pass = max(F / P, b / B) + b' / B + k s        F, b: operations and bytes of matrix products
                                                                b': bytes of everything else, k: kernels
P and B are the device's peaks, s the seconds that launching one kernel takes. A GPU computes while the next kernel is
launched, so its time is the larger of the two parts. All of it times `CALIBRATION`. The idea is Williams, Waterman and
Patterson 2009 (Roofline), with launches added, which decide over small models.

It is a prior, wide (`runners.planning.posterior.BY_WORK`) and soon overruled by trials that have finished.
"""

import json
import math
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import torch

from runners.tasks.distillation.distillation import Distillation
from runners.tasks.distillation.finished_trial import FinishedTrial
from runners.tasks.synthetic.linear_functions import LinearFunctions
from runners.tasks.task import Task
from runners.tasks.text.text import Text
from runners.training.flops import Shape, Work, forward_work, optimiser_work, step_work
from runners.trial import Trial, parameters
from variants import Operator, softmax

CALIBRATION: Final = 2.1
"""What trials take in multiples of the peaks' time: the geometric mean over 5 operators on 4 models, float32 on one
thread of one CPU, where the log of the ratio had a standard deviation of 0.31. No GPU was measured.

OMP_NUM_THREADS=1 python benchmarks/roofline.py
"""
MOST_COUNTED: Final = 24
"""Operators that are counted; further ones are taken for softmax on the same backbone, so that a plan stays quick."""
PROBE_S: Final = 0.2
"""Seconds that measuring this CPU takes."""


class Device(NamedTuple):
    """Peaks of a device in the precision that trials compute in, float32."""

    name: str
    flops: float
    """Matrix products, operations per second."""
    bandwidth: float
    """Bytes per second."""
    launch_s: float
    overlaps: bool
    """Whether it computes while the next kernel is launched."""

    def seconds(self, work: Work) -> float:
        """For `work`, at the peaks."""
        computing = max(work.flops / self.flops, work.product_bytes / self.bandwidth)
        computing += work.other_bytes / self.bandwidth
        launching = work.kernels * self.launch_s
        return max(computing, launching) if self.overlaps else computing + launching


_LAUNCH_S = 6e-6
"""Of one kernel from PyTorch's eager mode, forward and backward; the order of magnitude, not measured on these."""

GPUS: Final = tuple(
    Device(name, flops, bandwidth, _LAUNCH_S, overlaps=True)
    for name, flops, bandwidth in (
        ("H200", 67e12, 4.8e12),
        ("H100", 67e12, 3.35e12),
        ("A100", 19.5e12, 2.0e12),
        ("L40S", 91.6e12, 0.864e12),
        ("V100", 15.7e12, 0.9e12),
    )
)
"""NVIDIA's data sheets: float32 without tensor cores, which PyTorch uses for float32 only when told to."""

UNKNOWN_GPU: Final = GPUS[2]._replace(name="a GPU taken for an A100")


class Place(NamedTuple):
    """Where trials run, as far as their records tell."""

    device: Literal["cpu", "cuda"]
    threads: int


class Prior(NamedTuple):
    """Seconds one trial takes, the median of what it may."""

    seconds: float
    training_s: float
    """Without evaluation."""


def gpu(name: str) -> Device:
    """The device that `name` mentions, such as "NVIDIA H100 80GB HBM3" or "h100"."""
    return next((each for each in GPUS if each.name.lower() in name.lower()), UNKNOWN_GPU)


def device_at(place: Place, gpu_name: str | None) -> Device:
    """The device of `place`; its CPU is taken to be like this one, and a GPU without a name to be this machine's."""
    if place.device == "cpu":
        return this_cpu(place.threads)
    if gpu_name is None and torch.cuda.is_available():
        gpu_name = torch.cuda.get_device_name()
    return gpu(gpu_name or "")


def place_of(trial: Any, *, cluster_gpus: float | None) -> Place:
    """Where `trial` will run: `cluster_gpus` says what a cluster's workers have, None that they run here."""
    execution = getattr(trial, "execution", None)
    wanted, threads = getattr(execution, "device", "cpu"), int(getattr(execution, "threads", 1))
    there = torch.cuda.is_available() if cluster_gpus is None else cluster_gpus > 0
    return Place("cuda" if wanted == "cuda" or (wanted == "auto" and there) else "cpu", threads)


def is_here(place: Place) -> bool:
    """Whether this machine has such a device, so that a few steps can be timed on it."""
    return place.device == "cpu" or torch.cuda.is_available()


def prior(trial: Any, device: Device) -> Prior | None:
    """What `trial` takes on `device`; None for a spec that is no `Trial`, whose work nobody can count."""
    if not isinstance(trial, Trial):
        return None
    step, judging = _trial_work(trial)
    training_s = CALIBRATION * trial.training.steps * device.seconds(step)
    evaluations = sum(CALIBRATION * times * device.seconds(work) for work, times in judging)
    return Prior(training_s + _evaluations(trial) * evaluations, training_s)


def _trial_work(trial: Trial) -> tuple[Work, list[tuple[Work, float]]]:
    """Of one training step; and of one evaluation, forward passes with how many of them there are."""
    task, execution, inputs = trial.task, trial.execution, trial.task.inputs
    path = execution.path
    operators = tuple(_counted_as(operator) for operator in trial.operators())
    shape = Shape(math.ceil(task.batch / trial.parts), trained_length(task, trial.training.steps))
    part = step_work(trial.model, operators, inputs, path, shape).plus(teacher_work(task, shape))
    step = part.scaled(trial.accumulate).plus(optimiser_work(parameters(trial).total))
    passes = evaluation_passes(task)
    judging = [(forward_work(trial.model, operators, inputs, path, each), times) for each, times in passes]
    return step, judging + [(teacher_work(task, each), times) for each, times in passes[-1:]]


def teacher_work(task: Task, shape: Shape) -> Work:
    """A forward pass of the teacher, where the task has one and it is of this package; of others nothing is known."""
    if not isinstance(task, Distillation) or not isinstance(task.teacher, FinishedTrial):
        return Work()
    known = task.teacher.known_architecture()
    operators = tuple(_counted_as(operator) for operator in known.operators())
    return forward_work(known.model, operators, task.inputs, "auto", shape)


_counted: dict[str, Operator] = {}


@lru_cache(maxsize=65536)
def _counted_as(operator: Operator) -> Operator:
    """One that does the same work: operators that differ in real numbers alone, such as where one starts, are alike."""
    shape = json.dumps(_without_reals(operator.model_dump(mode="json")), sort_keys=True)
    if shape not in _counted and len(_counted) >= MOST_COUNTED:
        return softmax()
    return _counted.setdefault(shape, operator)


def _without_reals(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_reals(each) for name, each in value.items() if name != "name"}
    if isinstance(value, list):
        return [_without_reals(each) for each in value]
    return None if isinstance(value, float) else value


def _evaluations(trial: Trial) -> int:
    every = trial.training.evaluate_every
    return 1 if every is None else 1 + (trial.training.steps - 1) // every


def trained_length(task: Task, steps: int) -> int:
    """Tokens of a training sequence; of a curriculum, the mean over the run."""
    if isinstance(task, Distillation):
        return trained_length(task.task, steps)
    if isinstance(task, LinearFunctions):
        seen = [task.points_at(1 + at * steps // 100) for at in range(100)]
        return max(1, round(2 * sum(seen) / len(seen)) - 1)
    return task.length


def evaluation_passes(task: Task) -> list[tuple[Shape, float]]:
    """The forward passes of one evaluation and how often; none for a task whose sizes nobody knows here.

    The last of a distillation are those that compare it with its teacher.
    """
    if isinstance(task, Distillation):
        rows = min(32, task.validation_sequences)
        return [*evaluation_passes(task.task), (Shape(rows, task.length), task.validation_sequences / rows)]
    if isinstance(task, LinearFunctions):
        grid = task.evaluation
        sequences, length, rows = grid.functions * grid.sequences, 2 * grid.points - 1, 128
        return [(Shape(min(rows, sequences), length), len(grid.conditions()) * max(1.0, sequences / rows))]
    if isinstance(task, Text):
        rows = min(32, task.validation_windows)
        return [(Shape(rows, task.context), task.validation_windows / rows)]
    return []


@lru_cache(maxsize=8)
def this_cpu(threads: int) -> Device:
    """The peaks of this machine's CPU with so many threads, measured for a moment; the best of a few goes."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        square, long = torch.ones(384, 384), torch.ones(1 << 20)
        small = torch.ones(16, requires_grad=True)
        product_s = _least(lambda: square @ square)
        copy_s = _least(lambda: long + 1.0)
        chain_s = _least(lambda: _chain(small))
    finally:
        torch.set_num_threads(before)
    return Device("this CPU", 2 * 384**3 / product_s, 8 * len(long) / copy_s, chain_s / _CHAIN_KERNELS, overlaps=False)


_CHAIN = 20
_CHAIN_KERNELS = 4 * _CHAIN


def _chain(small: torch.Tensor) -> None:
    x = small
    for _ in range(_CHAIN):
        x = (x * small) * 0.5
    x.sum().backward()  # type: ignore[no-untyped-call]
    small.grad = None


def _least(work: Callable[[], object]) -> float:
    work()
    least, until = math.inf, time.perf_counter() + PROBE_S / 3
    while time.perf_counter() < until:
        began = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - began)
    return least
