"""Whether the runs of a table are noise that the verdicts do not cover: two groups, a long tail, skew with spread.

The detectors look at all cells at once, because one cell has few runs. Their limits come from simulated normal tables
with the same runs and the same share of variance by seed. `docs/statistics.md` has the rules and what they find.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ablate.store.statistics.arms import Baseline, arms, match_cells
from ablate.store.statistics.paired_differences import Floats
from ablate.store.statistics.scales import Scale, back, fits, forward, varies
from ablate.store.statistics.verdict import MIN_PAIRS

SPLIT_LEVEL: Final = 0.99
SKEW_LEVEL: Final = 0.95
UNSEEN: Final = 0.1  # shares of outcomes that may be unseen are said from here on: below 29 runs
TABLES: Final = 2_000  # simulated per limit: the rate of alarms at 1 % is then known to 0.2 points
_SHARES: Final = (0.0, 0.5, 0.8, 0.95, 0.99)
_GAPS: Final = 4
_BATCH: Final = 500_000  # simulated values that are in memory at once


class Statistic(NamedTuple):
    """A number beside the largest that normal noise explains; NaN if it cannot be computed."""

    value: float = math.nan
    limit: float = math.nan

    @property
    def fires(self) -> bool:
        return self.value > self.limit


class NoiseShape(NamedTuple):
    """The findings of the detectors in one table."""

    cells: int
    runs: int  # finite values in these cells
    fewest: int  # runs of the cell that has the fewest
    seed_share: float  # part of the variance within cells that all cells have in common
    split: Statistic = Statistic()  # R: share of the squares within cells that ends if all cells are cut at `between`
    between: float = math.nan  # the cut in the widest gap that fires, as a value of the measure
    above: int = 0  # runs above it
    tail: Statistic = Statistic()  # log likelihood on the log scale minus that on the linear one
    skew: Statistic = Statistic()  # pooled, absolute
    spread: Statistic = Statistic()  # absolute log ratio of the variances of variants and baselines

    @property
    def fired(self) -> tuple[str, ...]:
        """Name the findings that normal noise does not explain: "split", "tail", "skew" (with unequal spread)."""
        both = self.skew.fires and self.spread.fires
        marks = {"split": self.split.fires, "tail": self.tail.fires, "skew": both}
        return tuple(name for name, fires in marks.items() if fires)


def detect(values: pl.DataFrame, *, baseline: Baseline, scale: Scale, all_learned: bool = False) -> NoiseShape:
    """Examine the runs that `compare` takes, in cells of three finite values or more that vary and fit the scale.

    With `all_learned`, no late runs are left to be found, and a split must not come from unequal spreads, either.
    """
    cells = arms(values)
    bases = match_cells(list(cells), baseline)
    chosen = [cell for cell in cells if cell in bases or cell in bases.values()]
    known = {cell: cells[cell].values(cells[cell].measured) for cell in chosen}
    usable = [cell for cell in chosen if known[cell].size >= MIN_PAIRS and fits(known[cell], scale)]
    usable = [cell for cell in usable if varies(own := forward(known[cell], scale), [own], scale)]
    seeds = sorted({seed for cell in usable for seed in cells[cell].measured})
    table = np.full((len(usable), len(seeds)), np.nan)
    for row, cell in zip(table, usable, strict=True):
        row[[seeds.index(seed) for seed in sorted(cells[cell].measured)]] = forward(known[cell], scale)
    is_base = np.array([cell not in bases for cell in usable], dtype=bool)
    shape = examine(table, is_base, long_tail=scale == "linear", all_learned=all_learned)
    return shape._replace(between=back(shape.between, scale))


def examine(table: Floats, is_base: NDArray[np.bool_], *, long_tail: bool, all_learned: bool = False) -> NoiseShape:
    """Examine `table` [cells, seeds] in analysis units, NaN where no run is; `long_tail` if it is a linear scale."""
    if not table.size:
        return NoiseShape(0, 0, 0, math.nan)
    order = np.lexsort((*np.isnan(table).T, ~is_base))  # the limits depend on no order of cells
    table, is_base = table[order], is_base[order]
    there = np.isfinite(table)
    counts, share = there.sum(-1), seed_share(table)
    shape = (there.tobytes(), there.shape, int(is_base.sum()))
    low = max(i for i, known in enumerate(_SHARES[:-1]) if known <= share)
    part = (share - _SHARES[low]) / (_SHARES[low + 1] - _SHARES[low])
    limits = (1 - part) * _limits(*shape, _SHARES[low]) + part * _limits(*shape, _SHARES[low + 1])
    explained, cuts = split(table[None])
    fires = explained[0] > limits[0]
    cut = cuts[0, fires.argmax() if fires.any() else explained[0].argmax()]
    values = (explained[0].max(), *(each[0] for each in skew_and_spread(table[None], int(is_base.sum()))))
    numbers = [Statistic(float(value), float(limit)) for value, limit in zip(values, limits, strict=True)]
    if all_learned and fires.any():
        own = _simulate(table, share, lambda each: split(each)[0].max(-1))
        numbers[0] = numbers[0]._replace(limit=max(numbers[0].limit, _quantile(own, SPLIT_LEVEL)))
    above = int((table[there] > cut).sum())
    tail = _long_tail(table, share) if long_tail and (table[there] > 0).all() else Statistic()
    of = (len(table), int(there.sum()), int(counts.min()), share)
    return NoiseShape(*of, numbers[0], float(cut), above, tail, *numbers[1:])


def unseen_share(runs: int) -> float:
    """Return the share of outcomes that `runs` runs leave unseen with a probability of 5 %: rarer ones may exist."""
    return float(1 - 0.05 ** (1 / runs))


def seed_share(table: Floats) -> float:
    """Estimate the share of the variance within cells that all cells have in common by seed, 0 to 0.99."""
    there = np.isfinite(table)
    rest = np.where(there, _centre(table), 0.0)
    both = there.astype(float) @ there.T
    pairs = np.maximum(both - 1, 0).sum() - np.maximum(there.sum(-1) - 1, 0).sum()
    squares = float((rest**2).sum())
    if not pairs or not squares:
        return 0.0
    common = (float((rest.sum(0) ** 2).sum()) - squares) / pairs
    return float(np.clip(common / (squares / (there.sum(-1) - 1).sum()), 0.0, _SHARES[-1]))


def split(tables: Floats) -> tuple[Floats, Floats]:
    """R if all cells are cut in the middle of one of the four largest gaps within cells, and the middles, widest first.

    `tables` [tables, cells, seeds]; both results [tables, gaps].
    """
    ordered = np.sort(tables, axis=-1)  # NaN last
    gaps = np.diff(ordered, axis=-1).reshape(len(tables), -1)
    middles = ((ordered[..., 1:] + ordered[..., :-1]) / 2).reshape(len(tables), -1)
    widest = np.argsort(np.where(np.isnan(gaps), 0.0, -gaps), axis=-1)[:, :_GAPS]
    cuts = np.take_along_axis(middles, widest, -1)
    centred, total = _centre(tables), _squares(tables)
    explained = np.zeros(cuts.shape)
    for cut, column in zip(cuts.T, explained.T, strict=True):
        high = tables > cut[:, None, None]
        left = _squares(np.where(high, centred, np.nan)) + _squares(np.where(high, np.nan, centred))
        np.divide(total - left, total, out=column, where=total > 0)
    return explained, cuts


def skew_and_spread(tables: Floats, bases: int) -> tuple[Floats, Floats]:
    """Pooled absolute skewness, and the log ratio of variances of the first `bases` cells and the others; [tables]."""
    rest, there = _centre(tables), np.isfinite(tables[0])
    known, runs = np.where(there, rest, 0.0), there.sum()
    second, third = (known**2).sum((-1, -2)) / runs, (known**3).sum((-1, -2)) / runs
    freedom = there.sum(-1) - 1
    if not 0 < bases < len(there):
        return np.abs(third) / second**1.5, np.full(len(tables), np.nan)
    sides = [(known[:, each] ** 2).sum((-1, -2)) / freedom[each].sum() for each in (slice(bases), slice(bases, None))]
    return np.abs(third) / second**1.5, np.abs(np.log(sides[1] / sides[0]))


def long_tail(tables: Floats) -> Floats:
    """Log likelihood as lognormal minus that as normal, every cell with its own spread; -inf with values <= 0."""
    there = np.isfinite(tables[0])
    positive = ((tables > 0) | ~there).all((-1, -2))
    logs = np.log(np.where(positive[:, None, None], tables, np.nan), where=there, out=np.full(tables.shape, np.nan))
    counts = there.sum(-1)
    fits = [0.5 * counts * np.log((np.where(there, _centre(each), 0.0) ** 2).sum(-1)) for each in (tables, logs)]
    gain = (fits[0] - fits[1] - np.where(there, logs, 0.0).sum(-1)).sum(-1)
    return np.where(positive, gain, -np.inf)


def _long_tail(table: Floats, share: float) -> Statistic:
    gain = float(long_tail(table[None])[0])
    if gain <= 0:
        return Statistic(gain, 0.0)
    return Statistic(gain, max(0.0, _quantile(_simulate(table, share, long_tail), SPLIT_LEVEL)))


def _simulate(table: Floats, share: float, statistic: Callable[[Floats], Floats]) -> Floats:
    """Compute a statistic of normal tables whose cells have the means and the spreads of `table`."""
    there = np.isfinite(table)
    mean = np.nanmean(table, -1, keepdims=True)
    sd = np.sqrt(np.nansum((table - mean) ** 2, -1, keepdims=True) / (there.sum(-1, keepdims=True) - 1))
    return np.concatenate([statistic(mean + sd * tables) for tables in _normal(there, share)])


@lru_cache(maxsize=256)
def _limits(there: bytes, shape: tuple[int, int], bases: int, share: float) -> Floats:
    """The limits of split, skew and spread, of tables of this shape without any difference."""
    runs = np.frombuffer(there, dtype=bool).reshape(shape)
    simulated = [(split(tables)[0].max(-1), *skew_and_spread(tables, bases)) for tables in _normal(runs, share)]
    levels = (SPLIT_LEVEL, SKEW_LEVEL, SKEW_LEVEL)
    return np.array(
        [_quantile(np.concatenate(each), at) for each, at in zip(zip(*simulated, strict=True), levels, strict=True)]
    )


def _normal(there: NDArray[np.bool_], share: float) -> Iterator[Floats]:
    """Yield batches of TABLES normal tables [batch, cells, seeds] with this share of variance by seed, always alike."""
    rng, left = np.random.default_rng(0), TABLES
    while left:
        batch = min(left, max(1, _BATCH // there.size))
        common = rng.standard_normal((batch, 1, there.shape[1]))
        own = rng.standard_normal((batch, *there.shape))
        yield np.where(there, math.sqrt(share) * common + math.sqrt(1 - share) * own, np.nan)
        left -= batch


def _quantile(values: Floats, level: float) -> float:
    """The order statistic, so that -inf stays what it is."""
    return float(np.sort(values)[min(math.ceil(level * len(values)), len(values) - 1)])


def _centre(tables: Floats) -> Floats:
    there = np.isfinite(tables)
    counts = np.maximum(there.sum(-1, keepdims=True), 1)
    return np.asarray(tables - np.where(there, tables, 0.0).sum(-1, keepdims=True) / counts)


def _squares(tables: Floats) -> Floats:
    """Pooled sum of squares about the mean of each cell, [tables]."""
    return np.asarray((np.where(np.isfinite(tables), _centre(tables), 0.0) ** 2).sum((-1, -2)))
