"""Statistical power of a grid: the smallest difference that its verdicts would tell from zero.

Power 0.8 of the paired t test at the level of Holm's hardest step, alpha over all comparisons of the grid with its
baseline (`docs/statistics.md`). The standard deviation of a pair is what finished trials show
(`runners/planning/seed_noise.py`).
With too few of them differences are told in standard deviations of a pair.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from grid import Grid
from runners.planning.seed_noise import Noise, noise_of
from store.files.layout import Layout

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


def _resolution(header: dict[str, Any], noise: Noise) -> Resolution:
    import numpy as np

    from store.statistics.power import power, seeds_needed
    from store.statistics.scales import margin

    measure, seeds, comparisons = header["measure"], len(header["seeds"]), header["cells"] - 1
    level = measure["alpha"] / comparisons
    rope = margin(measure["rope"], measure["scale"])
    sd, size = np.full(1, noise.sd or math.nan), np.full(1, rope)
    chance = float(power(size, sd, np.full(1, float(seeds)), alpha=level)[0]) if noise.sd else math.nan
    needed = float(seeds_needed(rope, sd, alpha=level)[0])
    return Resolution(
        grid=header["grid"],
        measure=_format_measure(measure),
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


def _format_measure(measure: dict[str, Any]) -> str:
    point = ", ".join(f"{name}={value:g}" for name, value in measure["point"].items())
    return f"{measure['name']}{f' at {point}' if point else ''}"


def _found_by(seeds: int, level: float) -> float | None:
    import numpy as np

    from store.statistics.power import detectable

    found = float(detectable(np.ones(1), np.full(1, float(seeds)), alpha=level)[0])
    return found if math.isfinite(found) else None
