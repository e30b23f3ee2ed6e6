"""Share of verdict tables with a false claim that no detector of noise marks, as JSON.

python benchmarks/noise.py [--tables 400]

A: a variant learns (1.0) in 20 % of runs, else 0.05, spread 0.02, baseline 0.24. A1: only one variant is like that. B:
the baseline is 0.9 in 77.5 % of runs, else 0.1, variants 0.72 with spread 0.03. bim50, bim20, bim10: all cells are 1 in
50, 20 or 10 % of runs, else 0, spread 0.02. LN: lognormal with spread of the logarithm 2 (variants) and 0.7 (baseline)
and one mean. LN x4: lognormal around 20 minus its mean, variants four times as wide. normal: with
this share of variance by seed. effect: normal, and variants differ by so many standard deviations. Judged on the
linear scale with ROPE 0 at alpha 0.05, as `ablate.store.statistics.compare` does.

`missed_unmarked` is the share of plain 95 % intervals that miss the true difference in a table without a mark.
`marked` is the share of tables in which a detector fires; `error` the standard
error of `unmarked`, of one table at least. `targets` are those of docs/statistics.md; each is met if the measured share
is not beyond it, without any allowance for the error. The seeds are fixed.
"""

import json
import math
from collections.abc import Iterator

import numpy as np
from measurement import read_options

from ablate.store.statistics import decide, summarise, t_interval
from ablate.store.statistics.noise import examine
from ablate.store.statistics.paired_differences import Floats
from ablate.store.statistics.verdict import CLAIMS

NOISES: tuple[str, ...] = ("A", "A1", "B", "bim50", "bim20", "bim10", "LN", "LN x4", "t3")
NOISES += tuple(f"normal {share:g}" for share in (0, 0.5, 0.8, 0.95)) + tuple(f"effect {size}" for size in (1, 2, 9))
SHIFTED = {5: {3: 0.08, 5: 0.06, 8: 0.02, 12: 0.01}, 20: {3: 0.02, 5: 0.01, 8: 0.01, 12: 0.01}}


def draw(noise: str, rng: np.random.Generator, m: int, n: int) -> tuple[Floats, bool]:
    """Draw one table, baseline first, and whether both outcomes occurred."""
    z, late = rng.normal(size=(m + 1, n)), rng.random((m + 1, n))
    if noise in ("A", "A1"):
        rare = late < 0.2
        rare[0], rows = False, slice(1, None if noise == "A" else 2)
        table = 0.24 + 0.02 * z
        table[rows] = np.where(rare, 1.0, 0.05)[rows] + 0.02 * z[rows]
        return table, bool(rare[rows].any())
    if noise == "B":
        table = 0.72 + 0.03 * z
        table[0] = np.where(late[0] < 0.225, 0.1, 0.9) + 0.03 * z[0]
        return table, bool((late[0] < 0.225).any() and (late[0] >= 0.225).any())
    if noise.startswith("bim"):
        return (late < float(noise[3:]) / 100) + 0.02 * z, True
    if noise == "LN":
        sd = np.array([0.7] + [2.0] * m)[:, None]
        return np.exp(sd * z - sd**2 / 2), True
    if noise == "LN x4":
        return 20 + np.array([1.0] + [4.0] * m)[:, None] * (np.exp(z) - math.exp(0.5)), True
    if noise == "t3":
        return 20 + rng.standard_t(3, size=(m + 1, n)), True
    kind, number = noise.split()
    if kind == "effect":
        return 20 + z + float(number) * (np.arange(m + 1) > 0)[:, None], True
    share = float(number)
    return 20 + math.sqrt(share) * rng.normal(size=(1, n)) + math.sqrt(1 - share) * z, True


def measure(noise: str, m: int, n: int, tables: int) -> dict[str, object]:
    rng = np.random.default_rng([m, n])
    is_base = np.arange(m + 1) == 0
    false, marked, split, seen = np.zeros((4, tables), dtype=bool)
    missed, truth = np.zeros(tables), float(noise.removeprefix("effect")) if noise.startswith("effect") else 0.0
    for i in range(tables):
        table, seen[i] = draw(noise, rng, m, n)
        pairs = summarise(table[1:] - table[0])
        words = decide(pairs, rope=0.0, alpha=0.05, better="lower").words
        low, high = t_interval(pairs, 0.05)
        missed[i] = ((low > truth) | (high < truth)).mean()
        false[i] = np.isin(words, CLAIMS).any()
        fired = examine(table, is_base, long_tail=True).fired
        marked[i], split[i] = bool(fired), "split" in fired
    unmarked = (false & ~marked).mean()
    error = math.sqrt(max(unmarked, 1 / tables) * (1 - unmarked) / tables)
    parts = {"claims": false, "marked": marked, "split": split, "unmarked_and_seen": false & ~marked & seen}
    parts["missed_unmarked"] = missed * ~marked
    of = {**{name: float(part.mean()) for name, part in parts.items()}, "unmarked": float(unmarked), "error": error}
    said = [
        {"target": number, "measured": round(value, 4), "limit": f"{sign} {limit:.3g}", "met": met}
        for number, value, sign, limit in targets(noise, n, m, of)
        for met in [value <= limit if sign == "<=" else value >= limit]
    ]
    numbers = {name: round(value, 4) for name, value in of.items()}
    return {"noise": noise, "variants": m, "seeds": n, "tables": tables, **numbers, "targets": said}


def targets(noise: str, n: int, m: int, of: dict[str, float]) -> Iterator[tuple[int, float, str, float]]:
    """Yield number, measured share, "<=" or ">=", and limit."""
    if noise in ("A", "A1", "B"):
        yield 1, of["unmarked_and_seen"], "<=", 0.02 if n == 3 else 0.01
    if noise.startswith("bim") or (noise == "A" and m > 1):
        yield 2, of["unmarked"], "<=", 0.06
    elif noise == "B" or (noise in ("A", "A1") and m == 1):
        yield 3, of["unmarked"], "<=", (0.775 if noise == "B" else 0.8) ** n + 0.015
    if noise == "LN":
        yield 4, of["unmarked"], "<=", 0.065
    if noise == "LN x4" and m in SHIFTED:
        yield 5, of["unmarked"], "<=", SHIFTED[m][n]
    if noise.startswith("normal"):
        yield 6, of["marked"], "<=", 0.04
    if noise == "t3":
        yield 6, of["split"], "<=", 0.05
    if noise.startswith("effect") and of["claims"]:
        yield 7, of["unmarked"] / of["claims"], ">=", 0.97
    if noise.startswith(("normal", "bim")) or noise in ("t3", "LN") or (noise == "A" and m > 1):
        yield 10, of["missed_unmarked"], "<=", 0.06


def main() -> None:
    tables = read_options(__doc__, tables=400).tables
    for noise in NOISES:
        for m in (1, 5, 20):
            for n in (3, 5, 8, 12):
                print(json.dumps(measure(noise, m, n, tables)), flush=True)


if __name__ == "__main__":
    main()
