"""Statistical power of a grid: the smallest difference that its verdicts would tell from zero.

Power 0.8 of the paired t test at the level of Holm's hardest step, alpha over all comparisons of the grid with its
baseline (`docs/statistics.md`). The standard deviation of a pair is what finished trials show.
With too few of them differences are told in standard deviations of a pair.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import polars as pl

from ablate.grid import Grid
from ablate.grid.durations import format_hours
from ablate.grid.errors import NotFoundError, SpecError
from ablate.runners.output import format_count, name_measure
from ablate.store.analysis.tuned_verdicts import nuisance_axes
from ablate.store.analysis.verdicts import compare_runs, compared_runs, measure_of
from ablate.store.files.layout import Layout
from ablate.store.files.plans import added_cells
from ablate.store.statistics.noise import UNSEEN, unseen_share
from ablate.store.statistics.power import detectable, power, seeds_needed
from ablate.store.statistics.scales import ROUNDING, Scale, forward, margin
from ablate.store.statistics.two_part import Learners, boschloo_p
from ablate.store.store import Store

ENOUGH: Final = 5
"""Degrees of freedom from which a pooled standard deviation is shown."""
FEWEST_SEEDS: Final = 3
"""Seeds of the baseline alone that are enough to estimate noise."""
SEED_COUNTS: Final = (3, 5, 8, 12)
"""Numbers of seeds that a plan tells of."""


SHARING_SEEDS: Final = range(3, 6)
SHARING_COMPARISONS: Final = 5
"""Seeds and least comparisons at which a shared variance helps and errs in no more tables than promised."""


class Noise(NamedTuple):
    """Standard deviations in log ratios on the log scale (of odds, on the logit scale), else in the measure's unit."""

    sd: float | None = None
    """Standard deviation of the difference of a pair. None: too few trials. 0: all differences are equal."""
    pairs: int = 0
    """Finished pairs of cells that have two or more."""
    seed_sd: float | None = None
    """Standard deviation over the seeds of each baseline."""
    seeds: int = 0
    """Finished runs of the baselines."""
    basis: Literal["pairs", "baseline", "nothing"] = "nothing"
    """The source of `sd`. From the baseline alone it is sqrt(2) times `seed_sd`, as for independent seeds."""
    source: str = ""
    """Where it was found, if not in the grid's own trials."""


def noise_of(layout: Layout, header: Mapping[str, Any], other: Layout | None = None) -> Noise:
    """Return the noise of a grid by its header. `other` is a campaign to use if its own has no noise.

    Raises NotFoundError if `other` is needed and has no results.
    """
    noise = _query_noise(layout, header, own=True)
    if noise.sd is not None or other is None:
        return noise
    if not other.snapshot.exists():
        raise NotFoundError(f"{other.root} has no results; `ablate status` there reads them")
    there = _query_noise(other, header, own=False)
    return noise if there.sd is None else there._replace(source=f"{there.source} of {other.root}")


def _query_noise(layout: Layout, header: Mapping[str, Any], *, own: bool) -> Noise:
    """Return the best noise of a campaign's grids that have the baseline; without `own`, of all its grids."""
    if not layout.snapshot.exists():
        return Noise()
    query = "SELECT DISTINCT grid FROM grid_trial WHERE NOT $own OR cell = $cell OR grid = $name ORDER BY grid = $name"
    parameters = {"own": own, "cell": header["baseline"], "name": header["grid"]}
    with Store.open(layout.root, refresh=False) as store:
        names = [str(name) for name in store.sql(f"{query} DESC, grid", parameters)["grid"]]
        known = [_in_grid(store, name, header, own=own) for name in names]
    rank = ("nothing", "baseline", "pairs")
    return max(known, key=lambda each: (rank.index(each.basis), not each.source), default=Noise())


def _in_grid(store: Store, name: str, header: Mapping[str, Any], *, own: bool) -> Noise:
    measure = header["measure"]
    try:
        rows = store.final(name, measure["name"], measure["point"]).select("cell", "seed", "value").rows()
    except (NotFoundError, SpecError):
        return Noise()
    planned = header if header["baseline"] in {cell for cell, _, _ in rows} else store.grid(name)
    added, base = added_cells(planned), planned.get("baselines") or planned["baseline"]
    judged = None
    if name == header["grid"] and nuisance_axes(stored := store.grid(name)) and stored["measure"] == measure:
        compared = compared_runs(store, name, measure_of(store, name, None))  # each setting at its best level
        rows, base = compared.values.select("cell", "seed", "value").rows(), compared.baseline
        judged = compare_runs(compared, measure_of(store, name, None))
    noise = noise_among([row for row in rows if row[0] not in added], base, measure["scale"])
    if judged is not None and noise.basis == "pairs":  # with the error of choosing levels, as verdicts have it
        tested = judged.filter((pl.col("pairs") > 1) & (pl.col("error") > 0))
        errors, pairs = (tested[each].to_numpy() for each in ("error", "pairs"))
        if pairs.size:
            noise = noise._replace(sd=float(np.sqrt(np.average(errors**2 * pairs, weights=pairs - 1))))
    return noise._replace(source="" if own and name == header["grid"] else f"grid {name}")


def noise_among(
    rows: Sequence[tuple[str, int, float | None]], baseline: Mapping[str, str] | str | None, scale: Scale
) -> Noise:
    """Return the noise of pairs with the baseline, or of the baseline's seeds if there are too few pairs.

    `rows` hold cell, seed and value. `baseline` is a cell, or the baseline of each cell.
    """
    values: dict[str, dict[int, float]] = defaultdict(dict)
    for cell, seed, value in rows:
        scaled = math.nan if value is None else float(forward(np.asarray(value), scale))
        if math.isfinite(scaled):
            values[cell][seed] = scaled
    names = dict.fromkeys(baseline.values() if isinstance(baseline, Mapping) else [baseline or ""])
    bases = baseline if isinstance(baseline, Mapping) else dict.fromkeys(values.keys() - {*names}, baseline or "")
    own = [[*values[name].values()] for name in names if name in values]
    seeds = sum(map(len, own))
    size = max((abs(each) for runs in values.values() for each in runs.values()), default=0.0)
    smallest = ROUNDING * (size if scale == "linear" else max(size, 1.0))
    differences = [
        [value - values[base][seed] for seed, value in values[cell].items() if seed in values[base]]
        for cell, base in bases.items()
        if cell in values and base in values
    ]
    several = [each for each in differences if len(each) > 1]
    pairs, freedom = sum(map(len, several)), sum(len(each) - 1 for each in several)
    seed_sd = _sd(own, smallest) if seeds - len(own) >= FEWEST_SEEDS - 1 else None
    if freedom >= ENOUGH:
        return Noise(_sd(several, smallest), pairs, seed_sd, seeds, "pairs")
    sd = None if seed_sd is None else math.sqrt(2) * seed_sd
    return Noise(sd, pairs, seed_sd, seeds, "nothing" if sd is None else "baseline")


def _sd(groups: Sequence[Sequence[float]], smallest: float) -> float:
    """Return the standard deviation about the mean of each group; 0 for values that vary by rounding only."""
    squares = sum((value - sum(group) / len(group)) ** 2 for group in groups for value in group)
    sd = math.sqrt(squares / sum(len(group) - 1 for group in groups))
    return sd if sd > smallest else 0.0


class Resolution(NamedTuple):
    """Differences are in log ratios on the log scale (of odds, on the logit scale), else in the measure's unit.

    Where the noise has no standard deviation, they are in multiples of it.
    """

    grid: str
    measure: str
    scale: Literal["log", "linear", "logit"]
    seeds: int
    comparisons: int
    """Cells compared with the baseline, the family of the verdicts."""
    noise: Noise
    in_sd: float | None
    """The smallest difference found, in standard deviations of a pair; None below three seeds."""
    by_seeds: tuple[tuple[int, float], ...]
    """The same for other numbers of seeds."""
    rope: float
    """The largest difference that counts as equal."""
    power_at_rope: float | None
    """Chance that a true difference as large as the ROPE is told from zero; None: no noise known, or two seeds."""
    seeds_for_rope: int | None
    """Seeds with which that chance is 80 %."""
    variance: str = "own"
    """The grid's."""
    share: int | None = None
    """Runs of a cell that have to learn, where none does in the other, so that shares are told apart.

    None: no number of them, or so many seeds that it is no question.
    """
    seeds_for_share: int = 0
    """The fewest seeds that tell shares apart at all."""
    hours: float | None = None
    """Hours, in `unit`, of one more seed in every cell; None: unknown."""
    unit: Literal["GPU-h", "CPU-h"] = "CPU-h"

    def data(self) -> dict[str, Any]:
        """As JSON, with `detectable` in the units of the difference where the standard deviation is known."""
        known = None if self.noise.sd is None or self.in_sd is None else self.noise.sd * self.in_sd
        plain = {**self._asdict(), "noise": self.noise._asdict(), "by_seeds": dict(self.by_seeds)}
        return {**plain, "detectable": known}


def resolutions(layout: Layout, grids: Sequence[Grid], other: Layout | None = None) -> tuple[Resolution, ...]:
    """Return the resolution of every grid with a measure and a baseline. Write nothing.

    `other` is a campaign whose noise counts where this one has none.
    """
    headers = [grid.header() for grid in grids]
    return tuple(
        _resolution(header, grid.comparisons, noise_of(layout, header, other))
        for grid, header in zip(grids, headers, strict=True)
        if header["measure"] is not None and header["baseline"] is not None and grid.comparisons
    )


def _resolution(header: dict[str, Any], comparisons: int, noise: Noise) -> Resolution:
    measure, seeds = header["measure"], len(header["seeds"])
    level = measure["alpha"] / comparisons
    rope = margin(measure["rope"], measure["scale"])
    sd, size = np.full(1, noise.sd or math.nan), np.full(1, rope)
    chance = float(power(size, sd, np.full(1, float(seeds)), alpha=level)[0]) if noise.sd else math.nan
    needed = float(seeds_needed(rope, sd, alpha=level)[0])
    return Resolution(
        grid=header["grid"],
        measure=name_measure(measure),
        scale=measure["scale"],
        seeds=seeds,
        comparisons=comparisons,
        noise=noise,
        in_sd=_found_by(seeds, level),
        by_seeds=tuple(
            (count, difference) for count in SEED_COUNTS if (difference := _found_by(count, level)) is not None
        ),
        rope=rope,
        power_at_rope=chance if seeds >= SEED_COUNTS[0] and math.isfinite(chance) else None,
        seeds_for_rope=round(needed) if math.isfinite(needed) else None,
        variance=header.get("variance", "own"),
        share=_smallest_share(seeds, level),
        seeds_for_share=math.ceil((1 - math.log2(level / 2)) / 2),  # all against none has p 2^(1 - 2 seeds)
    )


def _found_by(seeds: int, level: float) -> float | None:
    smallest = float(detectable(np.ones(1), np.full(1, float(seeds)), alpha=level)[0])
    return smallest if math.isfinite(smallest) else None


def _smallest_share(seeds: int, level: float) -> int | None:
    """Return the fewest of `seeds` runs that differ from none by the test of shares, which has half of the level."""
    if unseen_share(seeds) < UNSEEN:
        return None
    return next((k for k in range(1, seeds + 1) if boschloo_p(Learners(k, seeds, 0, seeds)) <= level / 2), None)


def resolution_lines(resolution: Resolution) -> Iterator[str]:
    """Describe the smallest difference that the seeds of a grid resolve, and the noise behind it."""
    said = f"{resolution.seeds} seed{'s' * (resolution.seeds > 1)} of {resolution.measure}"
    more = ", ".join(
        f"{seeds} seeds {_size(resolution, size)}" for seeds, size in resolution.by_seeds if seeds != resolution.seeds
    )
    if resolution.in_sd is None:
        yield f"{said} cannot find a difference, a verdict needs 3; {more}"
    else:
        comparisons = format_count(resolution.comparisons, "comparison")
        basis = f"power 80 %, {comparisons}, {_spread(resolution)}"
        yield f"{said} find differences of {_size(resolution, resolution.in_sd)} and more ({basis}); {more}"
    if unseen_share(resolution.seeds) >= UNSEEN:
        yield _share_line(resolution)
    yield from _variance_line(resolution)
    yield _noise_line(resolution)
    if resolution.noise.sd:
        yield _rope_line(resolution)


def _share_line(resolution: Resolution) -> str:
    n, k = resolution.seeds, resolution.share
    least = "" if k == n else "at least "
    told = f"no share can be claimed below {resolution.seeds_for_share} seeds"
    if k is not None:
        told = f"a claim about shares needs {least}{k} of {n} against none"
    unseen = f"an outcome of fewer than {100 * unseen_share(n):.0f} % of a cell's runs may be unseen"
    return f"where runs learn or do not, {told}; {unseen}"


def _variance_line(resolution: Resolution) -> Iterator[str]:
    if resolution.variance == "shared":
        yield "variance shared by the comparisons: smaller differences are found if all have about the same noise"
    elif (
        resolution.seeds in SHARING_SEEDS
        and resolution.comparisons >= SHARING_COMPARISONS
        and not resolution.noise.pairs
    ):
        yield 'Grid(variance="shared") finds smaller differences with so few seeds, if chosen before any result'


def _noise_line(resolution: Resolution) -> str:
    noise = resolution.noise
    place = f" of {noise.source}" if noise.source else ""
    if noise.sd is None:
        have = f"{format_count(noise.seeds, 'run')} of the baseline finished{place}; " if noise.seeds else ""
        other = "`--noise-from CAMPAIGN` takes that of another campaign"
        return f"no noise known yet: {have}{ENOUGH} baseline seeds will tell; {other}"
    if noise.seed_sd is None:
        return f"noise floor from {format_count(noise.pairs, 'pair')}{place}; too few seeds of the baseline alone"
    seeds = f"{format_count(noise.seeds, 'run')} of the baseline{place}"
    line = f"noise floor: {resolution.measure} varies by {_amount(resolution, noise.seed_sd)} (SD) over {seeds}"
    if noise.basis != "pairs":
        return f"{line}; no pairs yet, so seeds count as having nothing in common"
    return f"{line}, of differences from it by {_amount(resolution, noise.sd)} over {format_count(noise.pairs, 'pair')}"


def _rope_line(resolution: Resolution) -> str:
    size = _amount(resolution, resolution.rope)
    if resolution.seeds_for_rope is None:
        return f"a difference of {size}, which counts as equal, is beyond any affordable number of seeds"
    needed = f"80 % needs {resolution.seeds_for_rope:,} seeds"
    more = resolution.seeds_for_rope - resolution.seeds
    if more > 0:
        cost = "" if resolution.hours is None else f" ({format_hours(more * resolution.hours, resolution.unit)})"
        needed += f", {more:,} more{cost}"
    chance = (
        "nothing tells" if resolution.power_at_rope is None else f"power {100 * resolution.power_at_rope:.0f} % for"
    )
    return f"{chance} a true difference of {size}, the most that counts as equal; {needed}"


def _amount(resolution: Resolution, size: float) -> str:
    if resolution.scale == "linear":
        return f"{size:.2g}"
    percent = 100 * math.expm1(min(size, 700.0))
    text = f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"
    return text + (" in odds" if resolution.scale == "logit" else "")


def _size(resolution: Resolution, size: float) -> str:
    return _amount(resolution, size * resolution.noise.sd) if resolution.noise.sd else f"{size:.2g} SD"


def _spread(resolution: Resolution) -> str:
    noise = resolution.noise
    if noise.sd is None:
        return "SD of a pair unknown"
    source = f"{noise.pairs} pairs" if noise.basis == "pairs" else f"{noise.seeds} runs of the baseline"
    if noise.sd == 0:
        return f"SD of a pair 0: the {source} are all equal, as if seeds changed nothing"
    return f"SD of a pair {noise.sd:.2g}, pooled over {source}"
