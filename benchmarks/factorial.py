"""Seconds for the factorial analysis of 960 runs (4 x 4 x 4 x 3 cells, 5 seeds) with all two-way interactions, as JSON.

python benchmarks/factorial.py [--repeat 20]
"""

from itertools import product

import numpy as np
import polars as pl
from measurement import read_options, report, took

from ablate.store.statistics import factorial

AXES = {name: [f"{name}{level}" for level in range(levels)] for name, levels in zip("abcd", (4, 4, 4, 3), strict=True)}


def main() -> None:
    cells = [dict(zip(AXES, levels, strict=True)) for levels in product(*AXES.values())]
    values = pl.DataFrame([{"seed": seed, **cell} for seed in range(5) for cell in cells])
    values = values.with_columns(value=pl.Series(np.random.default_rng(0).normal(size=values.height)))
    repeat = read_options(__doc__, repeat=20).repeat
    report("factorial", [took(lambda: factorial(values, AXES, scale="linear")) for _ in range(repeat)])


if __name__ == "__main__":
    main()
