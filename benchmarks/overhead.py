"""Overhead of a trial on a warm worker, without training and evaluation, and the speed of two workers against one.

    OMP_NUM_THREADS=1 python benchmarks/overhead.py [--trials 60] [--write FILE]

Prints JSON lines, and writes them if asked. `overhead_ms` is the time between the ends of consecutive trials of a
worker that is neither training nor evaluation: claiming, records, shards, building the model. The first trial of each
worker is left out; "of" is the kind of experiment. The time of a program by itself does not count.

`own_step_us` is a step of a loop of a user's own that logs five metrics and does nothing else. `rerun_s` is the time of
the same command again on the finished grid, in a process of its own. `process_ms` is what the state of the process
costs a trial, in time of the CPU: reset random numbers, compare the rest.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import itertools

import own_training
from measurement import Results, machine, make_parser

from ablate import LinearFunctions, RunRequest, ShiftGrid, Training, Trial, run_campaign
from ablate.grid import Grid, Measure
from ablate.runners.execution import Local
from ablate.runners.processes.process_state import ProcessState
from ablate.store.store import Store
from ablate.variants import gpt2, ssa


def grid(trials: int) -> Grid:
    """`trials` replicates of one tiny cell."""
    shifts = ShiftGrid(sigma_x=(1,), sigma_f=(1, 2), functions=10, sequences=4, points=11)
    base = Trial(
        task=LinearFunctions(points=11, batch=32, evaluation=shifts),
        model=gpt2(layers=2, heads=2, width=32, max_positions=32),
        operator=ssa(),
        training=Training(steps=60),
    )
    return Grid(name="overhead", base=base, seeds=range(trials), measure=Measure(name="mse"))


def measure(
    trials: int, workers: int, make: Callable[[int], Grid], what: str, own_s: float | None = None
) -> dict[str, object]:
    """Run the grid of `make` on `workers` fresh workers; `own_s` are the seconds of each training, if known."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run_campaign(Path(folder), [make(trials)], Local(workers), RunRequest(progress=False, land_every_s=None))
        wall = time.perf_counter() - started
        with Store.open(Path(folder)) as store:
            rows = store.sql("SELECT worker, ended, train_s, evaluate_s FROM attempt ORDER BY worker, ended").rows()
    gaps = [
        (ended - before - (train + evaluate if own_s is None else own_s)) * 1000
        for (worker, before, *_), (other, ended, train, evaluate) in itertools.pairwise(rows)
        if worker == other
    ]
    return {
        "of": what,
        "workers": workers,
        "trials": trials,
        "wall_s": round(wall, 2),
        "trials_per_s": round(trials / wall, 2),
        "overhead_ms_median": round(median(gaps), 1),
        "overhead_ms_mean": round(mean(gaps), 1),
        "train_s_mean": round(mean(row[2] for row in rows), 3),
    }


def time_program(rounds: int = 50) -> float:
    """Time the program of `own_training` by itself, in seconds."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(own_training.PROGRAM, check=True, capture_output=True)
        took.append(time.perf_counter() - began)
    return median(took)


def measure_log(make: Callable[[int, int], Grid], what: str) -> dict[str, object]:
    """Measure a step of a user's own loop that logs five metrics and does nothing else, in a campaign."""
    with tempfile.TemporaryDirectory() as folder:
        run_campaign(Path(folder), [make(5, 5000)], request=RunRequest(progress=False))
        with Store.open(Path(folder)) as store:
            (took,) = store.sql("SELECT median(value) FROM v_evaluation WHERE name = 'log_us'").row(0)
    return {"of": what, "own_step_us": round(took, 1), "target_us": 250.0}


def compare_process(rounds: int = 200) -> dict[str, object]:
    """Time how long a trial resets random numbers and compares the state of its process."""
    state, took = ProcessState(), []
    for _ in range(rounds):
        began = time.process_time()
        with state.isolate(0):
            pass
        state.changes()
        took.append((time.process_time() - began) * 1000)
    return {"process_ms_median": round(median(took), 2), "process_ms_min": round(min(took), 2), "target_ms": 2.0}


SPEC = """\
import sys
sys.path.insert(0, {here!r})
from overhead import grid as make
grid = make({trials})
"""


def rerun(trials: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.py"
        spec.write_text(SPEC.format(here=str(Path(__file__).parent), trials=trials))
        command = [sys.executable, "-m", "ablate", "run", str(spec), "--campaign", f"{folder}/c", "--workers", "2"]
        took = []
        for _ in range(4):
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            took.append(time.perf_counter() - began)
    return {"trials": trials, "rerun_s": round(min(took[1:]), 2)}


def main() -> None:
    """Print the machine, then a line per number of workers, then one of the finished grid."""
    parser = make_parser(__doc__, device=False)
    parser.add_argument("--trials", type=int, default=60)
    given = parser.parse_args()
    results = Results({**machine(), "threads": 1}, given.write)
    results.add(measure(given.trials, 1, own_training.grid, "Experiment"))
    results.add(measure(given.trials, 1, own_training.program_grid, "Command", time_program()))
    results.add(measure_log(own_training.grid, "Experiment"))
    results.add(measure_log(own_training.logging_grid, "Command"))
    for workers in (1, 2):
        results.add(measure(given.trials, workers, grid, "Trial"))
    results.add(rerun(given.trials))
    results.add(compare_process())


if __name__ == "__main__":
    main()
