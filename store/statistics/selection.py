"""The winner's curse: the best of several equal variants looks better than it is, on the seeds that chose it.

So the choice is made on some seeds and reported on the others. The split is by rank: of the sorted seeds that any run
has, every other one selects, beginning with the first, whatever their values are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from scipy import special

from ablate.grid.errors import SpecError
from ablate.grid.suggestions import suggest_name
from ablate.store.state import ENDED, State
from ablate.store.statistics.paired_differences import Floats
from ablate.store.statistics.scales import Scale, forward
from ablate.store.statistics.verdict import Better

Split = Literal["apart", "same"]
"""apart: one half of the seeds selects, the other is reported; same: all seeds do both, with a warning."""


class TunedChoice(NamedTuple):
    """The choice for one setting of all other axes."""

    cell: str
    label: str
    among: int  # cells that had a value to be chosen by; 0: nothing chose this one
    levels: Mapping[str, object]  # levels of the chosen cell on the axes selected over
    runs: int  # planned for the setting on the seeds that select
    outstanding: int  # selecting runs that have not ended
    unusable: int  # selecting runs that ended, as failed or finished, without a finite value
    values: int = 0  # number of values of the chosen cell on the selecting seeds


class Selected(NamedTuple):
    """Runs to report, and how they were chosen."""

    values: pl.DataFrame  # the rows of the chosen cells on the seeds that are reported
    choices: Mapping[str, TunedChoice]  # by the cell that was chosen
    selected_on: tuple[int, ...]
    reported_on: tuple[int, ...]
    warning: str  # empty where the seeds that are reported had no part in the choice


def select_then_report(
    values: pl.DataFrame,
    *,
    over: Sequence[str],
    within: Sequence[str],
    scale: Scale,
    better: Better,
    split: Split = "apart",
) -> Selected:
    """The best levels of the axes `over` for every setting of the axes `within`, chosen on half of the seeds.

    `values` has the columns that `compare` takes and one for every axis named. A cell with fewer usable values than
    another of its setting is not chosen. A setting without any value on these seeds keeps its first cell, with `among`
    0. Raises SpecError for an axis that is no column, and if there are too few seeds to split.
    """
    for name in (*over, *within):
        if name not in values.columns:
            known = values.columns
            raise SpecError(f"a selection is over columns of the runs; got {name!r}{suggest_name(name, known)}")
    seeds = sorted(values["seed"].unique().to_list())
    if split == "apart" and len(seeds) < 2:
        raise SpecError(f"a selection needs seeds to report on beside those that select; there is {len(seeds)}")
    selecting, reported = (tuple(seeds[::2]), tuple(seeds[1::2])) if split == "apart" else (tuple(seeds),) * 2
    selected = values.filter(pl.col("seed").is_in(selecting))
    numbers = selected["value"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    usable = (selected["state"] == State.DONE).to_numpy() & np.isfinite(numbers)
    units = forward(np.where(usable, numbers, np.nan), scale)
    choices = _choices(selected.with_columns(pl.Series("units_", units).fill_nan(None)), over, within, better)
    kept = values.filter(pl.col("seed").is_in(reported) & pl.col("cell").is_in(list(choices)))
    return Selected(kept, choices, selecting, reported, _warning(choices, over) if split == "same" else "")


def _choices(
    values: pl.DataFrame, over: Sequence[str], within: Sequence[str], better: Better
) -> dict[str, TunedChoice]:
    cells = values.group_by("cell", maintain_order=True).agg(
        *(pl.col(name).first() for name in ("label", *over, *within)),
        pl.col("units_").count().alias("n_"),
        pl.col("units_").mean().alias("mean_"),
        pl.len().alias("runs_"),
        pl.col("state").is_in(ENDED).not_().sum().alias("outstanding_"),
    )
    settings: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in cells.iter_rows(named=True):
        settings.setdefault(tuple(str(row[name]) for name in within), []).append(row)
    choices: dict[str, TunedChoice] = {}
    sign = 1 if better == "lower" else -1
    for group in settings.values():
        best = min(group, key=lambda row: (-row["n_"], sign * (row["mean_"] or 0.0)))  # the complete ones first
        among = sum(row["n_"] == best["n_"] > 0 for row in group)  # one with fewer values could not be chosen
        sums = {name: sum(row[name] for row in group) for name in ("runs_", "outstanding_", "n_")}
        levels = {name: best[name] for name in over}
        runs, outstanding = sums["runs_"], sums["outstanding_"]
        counts = (runs, outstanding, runs - outstanding - sums["n_"], best["n_"])
        choices[best["cell"]] = TunedChoice(best["cell"], best["label"], among, levels, *counts)
    return choices


def _warning(choices: Mapping[str, TunedChoice], over: Sequence[str]) -> str:
    """The greatest optimism of the choices."""
    known = [(expected_optimism(each.among, each.values), each.among, each.values) for each in choices.values()]
    flattery, among, values = max(known, default=(0.0, 0, 0))
    if among < 2:
        return ""
    return (
        f"selected over {', '.join(over)} on the seeds that are reported: the best of {among} equal cells looks "
        f"{flattery:.2g} standard deviations of a run better than it is, with {values} value{'s' * (values != 1)} each"
    )


def expected_optimism(variants: int, seeds: int | Floats) -> float:
    """How much better the best of equal `variants` looks on average over `seeds`, in standard deviations of a run.

    The expectation of the largest of as many standard normals, by quadrature, over the square root of the seeds.
    """
    if variants < 2:
        return 0.0
    x = np.linspace(-12.0, 12.0, 4801)
    below = special.ndtr(x) ** variants
    positive, negative = np.trapezoid((1 - below)[x >= 0], x[x >= 0]), np.trapezoid(below[x <= 0], x[x <= 0])
    return float((positive - negative) / np.sqrt(seeds))
