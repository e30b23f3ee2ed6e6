"""Share of verdict tables with a false claim where the noise is skewed and its spread differs, as JSON.

python benchmarks/skewed_noise.py [--grids 20000]

A run is k (exp(z) - exp(1/2)) with a standard normal z: mean zero, and k is 1 in the baseline and `spread` in every
variant. Judged on the linear scale with ROPE 0 at alpha 0.05, as `ablate.store.statistics.compare` does. The seed is
fixed.
"""

import json
import math

import numpy as np
from measurement import read_options

from ablate.store.statistics import decide, summarise
from ablate.store.statistics.verdict import CLAIMS

TABLE = [(4.0, seeds, comparisons) for comparisons in (1, 5, 50) for seeds in (5, 8)] + [(2.0, 8, 20)]


def false_claims(spread: float, seeds: int, comparisons: int, grids: int) -> float:
    """Share of `grids` tables that claim any difference, although all means are equal."""
    rng, wrong = np.random.default_rng([seeds, comparisons]), 0
    for _ in range(grids // 500):
        runs = np.exp(rng.normal(size=(500, comparisons + 1, seeds))) - math.exp(0.5)
        found = decide(summarise(spread * runs[:, 1:] - runs[:, :1]), rope=0.0, alpha=0.05, better="lower")
        wrong += int(np.isin(found.words, CLAIMS).any(-1).sum())
    return wrong / (grids // 500 * 500)


def main() -> None:
    grids = read_options(__doc__, grids=20_000).grids
    for spread, seeds, comparisons in TABLE:
        share = false_claims(spread, seeds, comparisons, grids)
        print(json.dumps({"spread": spread, "seeds": seeds, "comparisons": comparisons, "false": round(share, 3)}))


if __name__ == "__main__":
    main()
