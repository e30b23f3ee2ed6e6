"""Share of verdict tables with a false claim, and power, with the variance of each comparison and with a shared one.

python benchmarks/shared_variance.py [--tables 4000]

normal and t3 have noise of all cells alike. In seed, half of the variance is by seed. In spreads, those of cells are
0.5 to 3. In one, half and baseline, so many cells are six times as wide as the others. `power` is the share of
comparisons that find a difference of 3 standard deviations of a difference under normal noise. Judged on the linear
scale with ROPE 0 at alpha 0.05. `targets` are those of docs/statistics.md; each is met if the measured share is not
beyond it, without any allowance for the error. The seeds are fixed.
"""

import json
import math
from collections.abc import Iterator

import numpy as np
from measurement import read_options

from ablate.store.statistics import decide, summarise
from ablate.store.statistics.paired_differences import Floats
from ablate.store.statistics.shared_variance import guard_variance
from ablate.store.statistics.verdict import CLAIMS

NOISES = ("normal", "t3", "seed", "spreads", "one", "half", "baseline")
SHIFT = 3 * math.sqrt(2)


def draw(noise: str, rng: np.random.Generator, tables: int, m: int, n: int) -> Floats:
    """Draw tables without any difference, [tables, cells, seeds], the baseline first."""
    shape = (tables, m + 1, n)
    if noise == "t3":
        return rng.standard_t(3, size=shape)
    normal = rng.normal(size=shape)
    if noise == "seed":
        return math.sqrt(0.5) * (normal + rng.normal(size=(tables, 1, n)))
    wide = np.ones((m + 1, 1))
    if noise == "spreads":
        wide = np.geomspace(0.5, 3, m + 1)[rng.permuted(np.tile(np.arange(m + 1), (tables, 1)), axis=1)][..., None]
    elif noise != "normal":
        wide[{"one": slice(1, 2), "half": slice(1, 1 + m // 2), "baseline": slice(0, 1)}[noise]] = 6
    return np.asarray(wide * normal)


def measure(noise: str, m: int, n: int, tables: int) -> dict[str, object]:
    rng = np.random.default_rng([m, n])
    runs = draw(noise, rng, tables, m, n)
    own = summarise(runs[:, 1:] - runs[:, :1])
    shared = guard_variance(own)
    of: dict[str, float] = {}
    for name, pairs in (("own", own), ("shared", shared)):
        words = decide(pairs, rope=0.0, alpha=0.05, better="lower").words
        of[name] = float(np.isin(words, CLAIMS).any(-1).mean())
        if noise == "normal":
            moved = pairs._replace(mean=pairs.mean + SHIFT)
            found = decide(moved, rope=0.0, alpha=0.05, better="lower").words == "worse"
            of[f"power_{name}"] = float(found.mean())
    error = math.sqrt(max(of["shared"], 1 / tables) * (1 - of["shared"]) / tables)
    said = [
        {"target": 11, "measured": round(value, 4), "limit": f"{sign} {limit:g}", "met": met}
        for value, sign, limit in targets(n, m, of)
        for met in [value <= limit if sign == "<=" else value >= limit]
    ]
    numbers = {name: round(value, 4) for name, value in {**of, "error": error}.items()}
    return {"noise": noise, "variants": m, "seeds": n, "tables": tables, **numbers, "targets": said}


def targets(n: int, m: int, of: dict[str, float]) -> Iterator[tuple[float, str, float]]:
    """Yield measured share, "<=" or ">=", and limit."""
    yield of["shared"], "<=", 0.065
    if n == 3 and "power_shared" in of:
        yield of["power_shared"], ">=", {5: 0.5, 20: 0.45}[m]


def main() -> None:
    tables = read_options(__doc__, tables=4000).tables
    for noise in NOISES:
        for m in (5, 20):
            for n in (3, 4, 5):
                print(json.dumps(measure(noise, m, n, tables)), flush=True)


if __name__ == "__main__":
    main()
