"""How long the remaining trials take in all, given those that have finished: a hierarchy of log-normals.

    log seconds of a trial = log of its prior + root + place + grid + operator + cell + noise
    log of a few timed steps = the same, with a noise of its own + moment

Every term is normal about 0 with a stated standard deviation (`Scatter`), so the posterior is known in closed form: at
every node the observations below it are one mean with one precision, passed upward (a normal times a normal), and a
draw of the whole tree goes downward, each node given its parent. All timed steps were timed in one moment, whose load
they have in common; what is passed upward is joint in the node and the moment, which is drawn first. A place is a
device with a number of threads: trials that ran elsewhere share the root with the remaining ones and nothing else. The
sum over the trials of a cell is drawn from the log-normal with its mean and variance (Fenton and Wilkinson); sums of
cells are sums of the same draws.

The noise is estimated from trials of one cell, robustly, and an observation far outside what the tree allows is moved
to the edge: a trial whose node hung for a day says that it was slow, and no more.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Path = tuple[str, ...]
"""(place, grid, operator, cell), or the beginning of one."""

DRAWS: Final = 1000
SINGLE: Final = 100
"""Draws of single trials that are kept, to share them among workers."""
TIMED_SD: Final = 0.15
"""Of the log of a few timed steps against a whole trial, of which evaluation is no part."""
MOMENT_SD: Final = 0.4
"""What all timed steps have in common: the load of a moment, where the trials will meet that of hours."""
_PRIOR_TRIALS: Final = 4.0
"""How many trials the stated noise is worth against the observed."""
_OUTSIDE: Final = 3.0
"""Standard deviations from the median of its like beyond which an observation is moved."""
_OF_DIFFERENCES: Final = 1.0483
"""Standard deviation of a normal by the median size of differences of two: 1 / (0.6745 sqrt 2)."""
_OPERATOR: Final = 3
"""Names in a path as far as its operator."""
_ALIKE: Final = 5
"""Observations whose median is worth going by."""


class Scatter(NamedTuple):
    """Standard deviations of log seconds, level by level."""

    root: float
    place: float
    grid: float
    operator: float
    cell: float
    trial: float

    @property
    def levels(self) -> tuple[float, ...]:
        """Of the levels of a path."""
        return self.place, self.grid, self.operator, self.cell


BY_WORK: Final = Scatter(root=0.4, place=0.35, grid=0.2, operator=0.3, cell=0.1, trial=0.25)
"""Against a prior that knows a trial's work: 0.7 in all for a trial of which nothing has been seen."""

UNKNOWN_WORK: Final = Scatter(root=10.0, place=1.0, grid=0.5, operator=0.7, cell=0.3, trial=0.25)
"""Without such a prior: seconds against one second, so that only observations say anything."""


UNCOUNTED: Final = BY_WORK._replace(operator=1.3, cell=0.3)
"""Of operators whose work could not be counted where that of others could, against a usual trial: from the place down
as wide as without any prior."""


class Seen(NamedTuple):
    """An observation: the log of seconds over prior seconds."""

    path: Path
    log_ratio: float
    timed: bool = False
    """Only a few steps of it."""


class Left(NamedTuple):
    """Trials of one cell that remain."""

    path: Path
    seconds: float
    """The prior's, of one trial."""
    trials: int
    gpus: float = 0.0
    pool: str = ""
    """Whose workers they are for."""


@final
@dataclass
class Pooled:
    """Draws for the trials of one pool of workers."""

    trial_s: Floats
    """Of all of them, one after the other."""
    cells: list[tuple[int, Floats]]
    """Trials of each cell, and the first `SINGLE` draws of the seconds of one without noise."""


class Totals(NamedTuple):
    """Draws of what all remaining trials take."""

    trial_s: Floats
    gpu_s: Floats
    pools: Mapping[str, Pooled]
    noise: float
    """Standard deviation of the log of what a trial takes among those of its cell."""


def totals(
    seen: Sequence[Seen],
    left: Sequence[Left],
    scatter: Scatter,
    *,
    uncounted: frozenset[Path] = frozenset(),
    seed: int = 0,
) -> Totals:
    """`DRAWS` draws of the seconds that `left` takes, summed over its trials; the same for the same seed.

    `uncounted` are operators (place, grid, operator) whose prior is that of a usual trial.
    """
    noise = trial_scatter(seen, scatter)
    terms = _Terms(scatter, uncounted)
    drawn = _Tree(_within_reach(seen, terms, noise), terms, noise, np.random.default_rng(seed))
    trial_s, gpu_s = np.zeros(DRAWS), np.zeros(DRAWS)
    pools: dict[str, Pooled] = {}
    for each in sorted(left):
        single = each.seconds * np.exp(drawn.log_ratio(each.path))
        took = single * drawn.summed(each.trials)
        trial_s += took
        gpu_s += took * each.gpus
        pooled = pools.setdefault(each.pool, Pooled(np.zeros(DRAWS), []))
        pooled.trial_s += took
        pooled.cells.append((each.trials, single[:SINGLE]))
    return Totals(trial_s, gpu_s, pools, noise)


def trial_scatter(seen: Sequence[Seen], scatter: Scatter) -> float:
    """Standard deviation of log seconds among trials of one cell: of their differences, shrunk to the stated one."""
    last: dict[Path, float] = {}
    differences: list[float] = []
    for each in seen:
        if not each.timed:
            if each.path in last:
                differences.append(abs(each.log_ratio - last[each.path]))
            last[each.path] = each.log_ratio
    if not differences:
        return scatter.trial
    observed = _OF_DIFFERENCES * median(differences)
    known = len(differences)
    return math.sqrt((_PRIOR_TRIALS * scatter.trial**2 + known * observed**2) / (_PRIOR_TRIALS + known))


class _Terms(NamedTuple):
    """The standard deviation of every node about its parent."""

    scatter: Scatter
    uncounted: frozenset[Path]

    def sd(self, path: Path) -> float:
        """Of the last node of `path`."""
        scatter = UNCOUNTED if path[:_OPERATOR] in self.uncounted else self.scatter
        return scatter.levels[len(path) - 1]


def _within_reach(seen: Sequence[Seen], terms: _Terms, noise: float) -> Iterator[Seen]:
    """The observations, those that lie far from the median of their like moved to the edge of what is allowed."""
    alike = defaultdict[Path, list[float]](list)
    for each in seen:
        for depth in range(len(each.path) + 1):
            alike[each.path[:depth]].append(each.log_ratio)
    middles = {path: median(found) for path, found in alike.items() if len(found) >= _ALIKE}
    for each in seen:
        known = [depth for depth in range(len(each.path) + 1) if each.path[:depth] in middles]
        if not known:
            yield each
            continue
        depth = known[-1]
        own = TIMED_SD**2 + MOMENT_SD**2 if each.timed else noise**2
        reach = _OUTSIDE * math.sqrt(
            own + sum(terms.sd(each.path[: at + 1]) ** 2 for at in range(depth, len(each.path)))
        )
        middle = middles[each.path[:depth]]
        yield each._replace(log_ratio=min(max(each.log_ratio, middle - reach), middle + reach))


class _Known(NamedTuple):
    """What observations say of a node and the moment: a joint normal's precisions, and its means times those."""

    precision: float = 0.0
    weighted: float = 0.0
    shared: float = 0.0
    """Between the node and the moment: of `precision`, the part that timed steps brought."""
    moment_precision: float = 0.0
    moment_weighted: float = 0.0

    def and_(self, other: "_Known") -> "_Known":
        return _Known(*(one + two for one, two in zip(self, other, strict=True)))

    def through(self, sd: float) -> "_Known":
        """Of the parent, from which the node lies `sd` away, and the moment; the node itself is integrated out."""
        shrunk = 1 + self.precision * sd**2
        return _Known(
            self.precision / shrunk,
            self.weighted / shrunk,
            self.shared / shrunk,
            self.moment_precision - self.shared**2 * sd**2 / shrunk,
            self.moment_weighted - self.shared * self.weighted * sd**2 / shrunk,
        )


@final
class _Tree:
    """Draws of the nodes; only those on the way to the last path asked for are kept."""

    def __init__(self, seen: Iterator[Seen], terms: _Terms, noise: float, random: np.random.Generator) -> None:
        self._terms, self._noise, self._random = terms, noise, random
        self._known = _upward(seen, terms, noise)
        top = self._known.get((), _Known())
        alone = top.through(terms.scatter.root)
        precision = alone.moment_precision + 1 / MOMENT_SD**2
        self._moment = random.normal(alone.moment_weighted / precision, 1 / math.sqrt(precision), DRAWS)
        self._root = self._normal(top, np.zeros(DRAWS), terms.scatter.root)
        self._way: list[tuple[str, Floats]] = []

    def log_ratio(self, path: Path) -> Floats:
        """Draws of what a cell's log seconds are above its prior's."""
        kept = next((at for at, (name, _) in enumerate(self._way) if name != path[at]), len(self._way))
        del self._way[kept:]
        for depth in range(kept, len(path)):
            parent = self._way[-1][1] if self._way else self._root
            known = self._known.get(path[: depth + 1], _Known())
            self._way.append((path[depth], self._normal(known, parent, self._terms.sd(path[: depth + 1]))))
        return self._way[-1][1]

    def summed(self, trials: int) -> Floats:
        """Draws of the sum of the noise of so many trials: near `trials` times exp(noise^2 / 2)."""
        spread = math.log1p(math.expm1(self._noise**2) / trials)
        shaken = self._random.normal(-spread / 2, math.sqrt(spread), DRAWS)
        return np.asarray(trials * np.exp(self._noise**2 / 2 + shaken))

    def _normal(self, known: _Known, parent: Floats, sd: float) -> Floats:
        precision = known.precision + 1 / sd**2
        mean = (known.weighted - known.shared * self._moment + parent / sd**2) / precision
        return np.asarray(mean + self._random.normal(0.0, 1 / math.sqrt(precision), DRAWS))


def _upward(seen: Iterator[Seen], terms: _Terms, noise: float) -> Mapping[Path, _Known]:
    known: dict[Path, _Known] = {}

    def add(path: Path, more: _Known) -> None:
        known[path] = known.get(path, _Known()).and_(more)

    for each in seen:
        precision = 1 / (TIMED_SD if each.timed else noise) ** 2
        weighted = precision * each.log_ratio
        of_moment = (precision, precision, weighted) if each.timed else (0.0, 0.0, 0.0)
        add(each.path, _Known(precision, weighted, *of_moment))
    for depth in range(len(terms.scatter.levels), 0, -1):
        for path in [path for path in known if len(path) == depth]:
            add(path[:-1], known[path].through(terms.sd(path)))
    return known


def interval(draws: Floats) -> tuple[float, float, float]:
    """Median, and the 10 and 90 per cent quantiles: 80 % of the draws lie between."""
    low, middle, high = np.quantile(draws, (0.1, 0.5, 0.9))
    return float(middle), float(low), float(high)
