"""Trials per second enumerated, validated and hashed, and the memory that takes, as JSON lines.

`in_dumps` is the time in that of `json.dumps` of the same trials as data, taken in the same process. Its target is 1.

python benchmarks/enumerate.py [--repeat 3] [--write FILE]

Target: 100,000 full trials in 4 s and 300 MB on one core. Every pass runs in a process of its own, because the
highest memory of a process never falls; what importing torch with the trial's class takes is told beside it.
"""

import json
import multiprocessing
import resource
import statistics
import time
from itertools import islice
from typing import Any

from measurement import Results, machine, read_options

PATHS = ("operator.gate.strength.per", "operator.normaliser.threshold.per", "operator.margin.amplification.per")
CASES = ("enumerate", "trials", "every_operator_new", "header")
SEEDS = 5
TARGET_S = 4.0
TARGET_MB = 300.0


def main() -> None:
    options = read_options(__doc__, repeat=3)
    results = Results({**machine(), "threads": 1}, options.write)
    for case in CASES:
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            runs = pool.map(_measure, [case] * options.repeat, chunksize=1)
        middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        rate = round(middle["trials"] / middle["seconds"])
        is_met = middle["seconds"] <= TARGET_S and middle["added_mb"] <= TARGET_MB
        target = f"{TARGET_S:g} s, {TARGET_MB:g} MB"
        results.add({"case": case, **middle, "trials_per_s": rate, "target": target, "met": is_met})


def _measure(case: str) -> dict[str, float]:
    grid = _grid(new_operators=case == "every_operator_new")
    before, start, started = _peak_mb(), time.perf_counter(), time.process_time()
    if case == "header":
        trials = int(grid.header()["trials"])
    else:
        trials = len({planned.key for planned in (grid.trials() if case == "trials" else grid.enumerate())})
    seconds, cpu = time.perf_counter() - start, time.process_time() - started
    added = _peak_mb() - before
    some = [planned.trial.data() for planned in islice(grid.enumerate(), 5000)]
    written = time.process_time()
    for data in some:
        json.dumps(data)
    in_dumps = cpu / trials / ((time.process_time() - written) / len(some))
    times = {"seconds": round(seconds, 3), "cpu_s": round(cpu, 3), "in_dumps": round(in_dumps, 2)}
    return {"trials": trials, **times, "added_mb": round(added, 1), "before_mb": round(before, 1)}


def _grid(*, new_operators: bool) -> Any:
    """192 operators x 104 learning rates x 5 seeds, or 100,000 operators that have nothing in common, one seed."""
    from ablate.grid import Grid, over
    from ablate.training.optimisers import Training
    from ablate.training.tasks import LinearFunctions
    from ablate.training.trial import Trial
    from ablate.variants import gpt2, granularities
    from ablate.variants.papers.principled import principled

    base = Trial(
        task=LinearFunctions(),
        model=gpt2(layers=3, heads=4, width=128),
        operator=principled(),
        training=Training(steps=1200),
    )
    axes = [over(path, granularities) for path in PATHS]
    axes.append(over("operator.readout.ground_value.per", granularities[:3]))
    if new_operators:
        axes.append(over("operator.gate.strength.init", [n / 1000 for n in range(1, 522)]))
        return Grid("enumerated", base, axes, seeds=[0])
    axes.append(over("training.optimiser.lr", [n / 10_000 for n in range(1, 105)]))
    return Grid("enumerated", base, axes, seeds=range(SEEDS))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main()
