"""Steps per second of small trials side by side on one device, beside those of one alone.

    python benchmarks/packing.py [--device cuda] [--processes 1 4 8] [--steps 200] [--write FILE]

Prints JSON lines, and writes them if asked. Each trial is a process, as in a worker with `per_gpu`, and trains the
model of `training_speed.py --size tiny` without compilation. All begin together, after a warm-up. The time is from the
first begin to the last end.
"""

import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from queue import SimpleQueue
from typing import Any

import torch
from attention import describe, read_clock
from measurement import Results, make_parser
from training_speed import trial_of

from ablate.runners.processes.process_group import RankPlace, World
from ablate.runners.processes.training_context import NullContext
from ablate.training.loop.train import _TrainingRun
from ablate.variants import softmax

WARM_UP = 20
"""Steps that are not counted."""
_PATIENCE_S = 120
"""Seconds after which the others give up if a process has failed."""


def train(device: str, steps: int, start: Barrier, times: "SimpleQueue[tuple[float, float]]") -> None:
    """Train in this process; put the seconds of its begin and its end into `times`."""
    torch.set_num_threads(1)
    trial = trial_of("tiny", softmax(), torch.device(device), "auto", compiled=False)
    step = _TrainingRun(trial, NullContext(), World(RankPlace(), torch.device(device)))._step
    for number in range(1, WARM_UP + 1):
        step(number)
    read_clock(device)
    start.wait(_PATIENCE_S)
    began = time.perf_counter()
    for number in range(WARM_UP + 1, WARM_UP + steps + 1):
        step(number)
    read_clock(device)
    times.put((began, time.perf_counter()))


def measure(processes: int, device: str, steps: int) -> dict[str, Any]:
    """Train in so many processes at once."""
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    start, times = context.Barrier(processes), context.SimpleQueue()
    workers = [context.Process(target=train, args=(device, steps, start, times)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise SystemExit(f"a process ended with exit code {worker.exitcode}")
    begins, ends = zip(*(times.get() for _ in workers), strict=True)
    return {"processes": processes, "steps_per_s": round(processes * steps / (max(ends) - min(begins)), 1)}


def main() -> None:
    """Print the machine, then a line per number of processes."""
    parser = make_parser(__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    results = Results({**describe(given.device), "threads": 1, "steps": given.steps}, given.write)
    for processes in given.processes:
        results.add(measure(processes, given.device, given.steps))


if __name__ == "__main__":
    main()
