"""Coverage of the intervals of SSA against softmax over few of 100 pairs, of which some did not learn, as JSON.

python benchmarks/learned_pairs.py [--draws 20000]

The pairs are those of `results/ssa/confirmation-cpu`. A run learned if its error in distribution is below 0.2. `plain`
is the coverage of the 95 % interval of `seeds` pairs for the mean of all 100. `learned` is that of the pairs in which
both runs learned, if there are three or more, for the mean of all such pairs. `known` is the share of draws with so
many. Pairs are drawn with replacement, as from a large population, with fixed seeds.
The target is that of docs/statistics.md.
"""

import json
from pathlib import Path

import numpy as np
from measurement import read_options
from numpy.typing import NDArray

from ablate.papers.results.grid_results import read
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.statistics import summarise, t_interval
from ablate.store.statistics.paired_differences import Floats

LIMIT = 0.2
RESULTS = Path(__file__).parent.parent / "results" / "ssa"


def values(sigma_f: float) -> Floats:
    """Errors at a spread of functions, [SSA and softmax, seeds]."""
    rows = read(RESULTS, "confirmation-cpu").runs(GridMeasure("mse", {"sigma_x": 1.0, "sigma_f": sigma_f}))
    return np.array([rows.filter(label=label).sort("seed")["value"].to_list() for label in ("SSA", "softmax")])


def measure(differences: Floats, learned: NDArray[np.bool_], n: int, draws: int) -> dict[str, object]:
    rng = np.random.default_rng(n)
    plain, known, covers = np.zeros(draws, dtype=bool), np.zeros(draws, dtype=bool), np.zeros(draws, dtype=bool)
    truth = differences.mean(), differences[learned].mean()
    for i in range(draws):
        chosen = rng.integers(differences.size, size=n)
        low, high = t_interval(summarise(differences[chosen]))
        plain[i] = low <= truth[0] <= high
        kept = differences[chosen[learned[chosen]]]
        known[i] = kept.size >= 3
        if known[i]:
            low, high = t_interval(summarise(kept))
            covers[i] = low <= truth[1] <= high
    share = float(covers.sum() / known.sum())
    target = {"target": 9, "measured": round(share, 4), "limit": ">= 0.92", "met": share >= 0.92}
    numbers = {"plain": float(plain.mean()), "learned": share, "known": float(known.mean())}
    return {
        "seeds": n,
        "draws": draws,
        **{name: round(value, 4) for name, value in numbers.items()},
        "targets": [target],
    }


def main() -> None:
    draws = read_options(__doc__, draws=20000).draws
    ours, theirs = np.log(values(3.0))
    late = values(1.0) > LIMIT
    learned = np.asarray(~late.any(0))
    print(
        json.dumps({"pairs": learned.size, "late": late.mean(1).round(3).tolist(), "both_learned": int(learned.sum())})
    )
    for n in (3, 5, 8, 12):
        print(json.dumps(measure(ours - theirs, learned, n, draws)), flush=True)


if __name__ == "__main__":
    main()
