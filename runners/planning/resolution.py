"""What the seeds of a grid can resolve: the smallest difference that its verdicts would tell from zero.

Power 0.8 of the paired t test at the level of Holm's hardest step, alpha over all comparisons of the grid with its
baseline (`docs/statistics.md`). The standard deviation of a pair is pooled over the pairs of the campaign's finished
trials, as its published snapshot has them; a plan ingests nothing. With too few pairs differences are told in standard
deviations of a pair.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from grid import Grid
from grid.errors import NotFoundError, StoreError
from store.layout import Layout

SEED_COUNTS: Final = (3, 5, 8, 12)
"""Numbers of seeds that a plan tells of."""
ENOUGH: Final = 5
"""Degrees of freedom of the pooled standard deviation from which it is told."""

_ROUNDING: Final = 1e-12
"""Differences that agree to so much of their size are equal."""


class Resolution(NamedTuple):
    """Differences are in log ratios on the log scale, else in the measure's unit; without `sd`, in multiples of it."""

    grid: str
    measure: str
    scale: Literal["log", "linear", "logit"]
    seeds: int
    comparisons: int
    """Cells compared with the baseline, the family of the verdicts."""
    sd: float | None
    """Standard deviation of the difference of a pair; None: too few pairs have finished, 0: they are all equal."""
    pairs: int
    """Finished pairs that it is from."""
    in_sd: float | None
    """The smallest difference found, in standard deviations of a pair; None below three seeds."""
    by_seeds: tuple[tuple[int, float], ...]
    """The same for other numbers of seeds."""
    remark: str = ""
    """Why the finished trials could not be asked."""

    def data(self) -> dict[str, Any]:
        """As JSON, with `detectable` in the units of the difference where the standard deviation is known."""
        known = None if self.sd is None or self.in_sd is None else self.sd * self.in_sd
        return {**self._asdict(), "by_seeds": dict(self.by_seeds), "detectable": known}


def resolutions(layout: Layout, grids: Sequence[Grid]) -> tuple[Resolution, ...]:
    """Of every grid that has a measure and a baseline to compare with; writes nothing."""
    headers = [grid.header() for grid in grids]
    return tuple(
        _resolution(layout, header)
        for header in headers
        if header["measure"] is not None and header["baseline"] is not None and header["cells"] > 1
    )


def _resolution(layout: Layout, header: dict[str, Any]) -> Resolution:
    measure, seeds, comparisons = header["measure"], len(header["seeds"]), header["cells"] - 1
    pairs, sd, remark = _pooled(layout, header)
    level = measure["alpha"] / comparisons
    return Resolution(
        grid=header["grid"],
        measure=_named(measure),
        scale=measure["scale"],
        seeds=seeds,
        comparisons=comparisons,
        sd=sd,
        pairs=pairs,
        in_sd=_found_by(seeds, level),
        by_seeds=tuple((count, size) for count in SEED_COUNTS if (size := _found_by(count, level)) is not None),
        remark=remark,
    )


def _named(measure: dict[str, Any]) -> str:
    point = ", ".join(f"{name}={value:g}" for name, value in measure["point"].items())
    return f"{measure['name']}{f' at {point}' if point else ''}"


def _found_by(seeds: int, level: float) -> float | None:
    import numpy as np

    from store.statistics.power import detectable

    found = float(detectable(np.ones(1), np.full(1, float(seeds)), alpha=level)[0])
    return found if math.isfinite(found) else None


def _pooled(layout: Layout, header: dict[str, Any]) -> tuple[int, float | None, str]:
    """Finished pairs, their pooled standard deviation within cells where it is known, and why they were not asked."""
    from store.store import Store

    if not layout.snapshot.exists():
        return 0, None, ""
    measure = header["measure"]
    try:
        with Store.open(layout.root, refresh=False) as store:
            rows = store.final(header["grid"], measure["name"], measure["point"]).select("cell", "seed", "value").rows()
    except NotFoundError:  # the grid is new to this campaign
        return 0, None, ""
    except StoreError as error:
        return 0, None, str(error)
    return *_spread(_differences(rows, header["baseline"], measure["scale"])), ""


def _differences(rows: Sequence[tuple[str, int, float | None]], baseline: str, scale: str) -> list[list[float]]:
    values: dict[str, dict[int, float]] = defaultdict(dict)
    for cell, seed, value in rows:
        if value is not None and math.isfinite(value) and (scale == "linear" or value > 0):
            values[cell][seed] = math.log(value) if scale == "log" else value
    base = values.pop(baseline, {})
    return [[value - base[seed] for seed, value in cell.items() if seed in base] for cell in values.values()]


def _spread(cells: list[list[float]]) -> tuple[int, float | None]:
    """Pairs of cells that have two or more, and their standard deviation about their own cell's mean."""
    several = [found for found in cells if len(found) > 1]
    pairs, freedom = sum(map(len, several)), sum(len(found) - 1 for found in several)
    if freedom < ENOUGH:
        return pairs, None
    squares = sum((value - sum(found) / len(found)) ** 2 for found in several for value in found)
    sd, largest = math.sqrt(squares / freedom), max(abs(value) for found in several for value in found)
    return pairs, sd if sd > _ROUNDING * largest else 0.0
