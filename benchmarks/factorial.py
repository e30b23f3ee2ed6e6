"""Seconds for the factorial analysis of 960 runs (4 x 4 x 4 x 3 cells, 5 seeds) with all two-way interactions, as JSON.

python benchmarks/factorial.py [--repeat 20]
"""

import argparse
import json
import statistics
import time
from itertools import product

import numpy as np
import polars as pl

from store.statistics import factorial

AXES = {name: [f"{name}{level}" for level in range(levels)] for name, levels in zip("abcd", (4, 4, 4, 3), strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=20)
    repeat = parser.parse_args().repeat
    cells = [dict(zip(AXES, levels, strict=True)) for levels in product(*AXES.values())]
    values = pl.DataFrame([{"seed": seed, **cell} for seed in range(5) for cell in cells])
    values = values.with_columns(value=pl.Series(np.random.default_rng(0).normal(size=values.height)))
    wall, cpu = [], []
    for _ in range(repeat):
        began, used = time.perf_counter(), time.process_time()
        found = factorial(values, AXES, scale="linear")
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    print(
        json.dumps(
            {
                "runs": found.runs,
                "terms": found.terms.height,
                "means": found.means.height,
                "wall_s": round(statistics.median(wall), 4),
                "cpu_s": round(statistics.median(cpu), 4),
            }
        )
    )


if __name__ == "__main__":
    main()
