"""Statistical power of a grid: the smallest difference that its verdicts would tell from zero.

Power 0.8 of the paired t test at the level of Holm's hardest step, alpha over all comparisons of the grid with its
baseline (`docs/statistics.md`). The standard deviation of a pair is what finished trials show.
With too few of them differences are told in standard deviations of a pair.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from grid import Grid
from grid.errors import NotFoundError, SpecError, StoreError
from runners.output import name_measure
from store.files.layout import Layout

if TYPE_CHECKING:
    from store.store import Store

ENOUGH: Final = 5
"""Degrees of freedom from which a pooled standard deviation is shown."""
FEWEST_SEEDS: Final = 3
"""Seeds of the baseline alone that are enough to estimate noise."""

Row = tuple[str, int, float | None]
"""Cell, seed, value."""


class Noise(NamedTuple):
    """Standard deviations in log ratios on the log scale (of odds, on the logit scale), else in the measure's unit."""

    sd: float | None = None
    """Standard deviation of the difference of a pair. None: too few trials. 0: all differences are equal."""
    pairs: int = 0
    """Finished pairs of cells that have two or more."""
    seed_sd: float | None = None
    """Standard deviation of the baseline over seeds."""
    seeds: int = 0
    """Finished ones of the baseline."""
    basis: Literal["pairs", "baseline", "nothing"] = "nothing"
    """The source of `sd`. From the baseline alone it is sqrt(2) times `seed_sd`, as for independent seeds."""
    source: str = ""
    """Where it was found, if not in the grid's own trials."""
    seed_s: float | None = None
    """Seconds of training one seed in every cell: medians of finished trials, their mean for cells without any."""
    on_gpu: bool = False
    remark: str = ""
    """Why the finished trials could not be asked."""


def noise_of(layout: Layout, header: Mapping[str, Any], other: Layout | None = None) -> Noise:
    """Return the noise of a grid by its header. `other` is a campaign to use if its own has no noise."""
    found = _query_noise(layout, header, own=True)
    if found.sd is not None or other is None:
        return found
    there = _query_noise(other, header, own=False)
    return there if there.sd is not None or there.remark else found


def _query_noise(layout: Layout, header: Mapping[str, Any], *, own: bool) -> Noise:
    from store.store import Store

    if not layout.snapshot.exists():
        remark = "" if own else f"{layout.root} has no results; `ablate status` there reads them"
        return Noise(remark=remark)
    try:
        with Store.open(layout.root, refresh=False) as store:
            known = [_in_grid(store, name, header, own=own) for name in _grids(store, header, own=own)]
    except StoreError as error:
        return Noise(remark=str(error))
    rank = {"pairs": 2, "baseline": 1, "nothing": 0}
    best = max(known, key=lambda each: (rank[each.basis], not each.source), default=Noise())
    return best if own or not best.source else best._replace(source=f"{best.source} of {layout.root}")


def _grids(store: "Store", header: Mapping[str, Any], *, own: bool) -> list[str]:
    """Names of the grids to ask, the one of the same name first."""
    query = "SELECT DISTINCT grid FROM grid_trial WHERE NOT $own OR cell = $cell OR grid = $name ORDER BY ALL"
    given = {"own": own, "cell": header["baseline"], "name": header["grid"]}
    found = [str(name) for name in store.sql(query, given)["grid"]]
    return sorted(found, key=lambda name: name != header["grid"])


def _in_grid(store: "Store", name: str, header: Mapping[str, Any], *, own: bool) -> Noise:
    measure = header["measure"]
    try:
        rows = store.final(name, measure["name"], measure["point"]).select("cell", "seed", "value").rows()
    except (NotFoundError, SpecError):
        return Noise()
    cells = {cell for cell, _, _ in rows}
    planned = header if header["baseline"] in cells else store.grid(name)
    found = noise_among(rows, planned.get("baselines") or planned["baseline"], measure["scale"])
    seed_s, on_gpu = _seconds(store, name, header["cells"])
    source = "" if own and name == header["grid"] else f"grid {name}"
    return found._replace(source=source, seed_s=seed_s, on_gpu=on_gpu)


def noise_among(rows: Sequence[Row], baseline: Mapping[str, str] | str | None, scale: str) -> Noise:
    """Return the noise of pairs with the baseline, or of the baseline's seeds if there are too few pairs.

    `baseline` is a cell, or the baseline of each cell. Seeds are those of the first one.
    """
    size = max((abs(value) for _, value in _usable(rows, scale)), default=0.0)
    pairs, sd = pool_differences(differences(rows, baseline, scale), size if scale == "linear" else max(size, 1.0))
    first = next(iter(baseline.values())) if isinstance(baseline, Mapping) else baseline
    seeds = [value for _, value in _usable([row for row in rows if row[0] == first], scale)]
    seed_sd = _sd([seeds], len(seeds) - 1) if len(seeds) >= FEWEST_SEEDS else None
    if sd is not None:
        return Noise(sd, pairs, seed_sd, len(seeds), "pairs")
    if seed_sd is not None:
        return Noise(math.sqrt(2) * seed_sd, pairs, seed_sd, len(seeds), "baseline")
    return Noise(None, pairs, None, len(seeds))


def differences(rows: Sequence[Row], baseline: Mapping[str, str] | str | None, scale: str) -> list[list[float]]:
    """Return the paired differences of every other cell from its baseline, in units of the scale."""
    values: dict[str, dict[int, float]] = defaultdict(dict)
    for (cell, seed, _), value in _usable(rows, scale):
        values[cell][seed] = value
    bases = baseline if isinstance(baseline, Mapping) else {cell: baseline for cell in values if cell != baseline}
    pairs = [(runs, values.get(bases[cell] or "", {})) for cell, runs in list(values.items()) if cell in bases]
    return [[value - base[seed] for seed, value in runs.items() if seed in base] for runs, base in pairs]


def _usable(rows: Sequence[Row], scale: str) -> Iterator[tuple[Row, float]]:
    for row in rows:
        value = row[2]
        if value is None or not math.isfinite(value) or (scale != "linear" and value <= 0):
            continue
        if scale == "logit" and value >= 1:
            continue
        yield row, value if scale == "linear" else math.log(value / (1 - value) if scale == "logit" else value)


def pool_differences(cells: Sequence[Sequence[float]], size: float = 0.0) -> tuple[int, float | None]:
    """Pairs of cells that have two or more, and their standard deviation about their own cell's mean.

    `size` is the largest of the values that these are differences of: what varies by its rounding only does not vary.
    """
    several = [found for found in cells if len(found) > 1]
    pairs, freedom = sum(map(len, several)), sum(len(found) - 1 for found in several)
    return pairs, _sd(several, freedom, size) if freedom >= ENOUGH else None


def _sd(several: Sequence[Sequence[float]], freedom: int, size: float = 0.0) -> float:
    from store.statistics.scales import ROUNDING

    squares = sum((value - sum(found) / len(found)) ** 2 for found in several for value in found)
    sd, largest = math.sqrt(squares / freedom), max(abs(value) for found in several for value in found)
    return sd if sd > ROUNDING * max(largest, size) else 0.0


def _seconds(store: "Store", name: str, cells: int) -> tuple[float | None, bool]:
    """Return the hours of one seed in every cell, by finished trials, and the unit."""
    found = store.sql(
        """
        SELECT median(t.wall_s) AS seconds, bool_or(starts_with(coalesce(a.device, ''), 'cuda')) AS gpu
        FROM grid_trial g JOIN trial t USING (trial) JOIN attempt a ON a.trial = t.trial AND a.status = 'ok'
        WHERE g.grid = $grid AND t.status = 'ok' AND t.wall_s IS NOT NULL GROUP BY g.cell
        """,
        {"grid": name},
    )
    if found.is_empty():
        return None, False
    seconds = [float(value) for value in found["seconds"]]
    return cells * sum(seconds) / len(seconds), bool(found["gpu"].any())


SEED_COUNTS: Final = (3, 5, 8, 12)
"""Numbers of seeds that a plan tells of."""


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
    hours: float | None = None
    """Hours, in `unit`, of one more seed in every cell."""
    unit: Literal["GPU-h", "CPU-h"] = "CPU-h"

    @property
    def sd(self) -> float | None:
        """Standard deviation of the difference of a pair; None: unknown, 0: all differences are equal."""
        return self.noise.sd

    def data(self) -> dict[str, Any]:
        """As JSON, with `detectable` in the units of the difference where the standard deviation is known."""
        known = None if self.sd is None or self.in_sd is None else self.sd * self.in_sd
        plain = {**self._asdict(), "noise": self.noise._asdict(), "by_seeds": dict(self.by_seeds)}
        return {**plain, "detectable": known}


def resolutions(layout: Layout, grids: Sequence[Grid], other: Layout | None = None) -> tuple[Resolution, ...]:
    """Return the resolution of every grid with a measure and a baseline. Write nothing.

    `other` is a campaign whose noise counts where this one has none.
    """
    headers = [grid.header() for grid in grids]
    return tuple(
        _resolution(header, noise_of(layout, header, other))
        for header in headers
        if header["measure"] is not None and header["baseline"] is not None and header["cells"] > 1
    )


def _count_comparisons(header: Mapping[str, Any]) -> int:
    return len(header.get("baselines") or ()) or int(header["cells"]) - 1


def _resolution(header: dict[str, Any], noise: Noise) -> Resolution:
    import numpy as np

    from store.statistics.power import power, seeds_needed
    from store.statistics.scales import margin

    measure, seeds, comparisons = header["measure"], len(header["seeds"]), _count_comparisons(header)
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
        by_seeds=tuple((count, found) for count in SEED_COUNTS if (found := _found_by(count, level)) is not None),
        rope=rope,
        power_at_rope=chance if seeds >= SEED_COUNTS[0] and math.isfinite(chance) else None,
        seeds_for_rope=round(needed) if math.isfinite(needed) else None,
        hours=None if noise.seed_s is None else noise.seed_s / 3600,
        unit="GPU-h" if noise.on_gpu else "CPU-h",
    )


def _found_by(seeds: int, level: float) -> float | None:
    import numpy as np

    from store.statistics.power import detectable

    found = float(detectable(np.ones(1), np.full(1, float(seeds)), alpha=level)[0])
    return found if math.isfinite(found) else None
