"""Pareto sets with noise: which cells are worse than another one in every respect, as far as the seeds can show it.

A cell is *dominated* only if some other cell is shown to be better in every objective that is not the same on all
seeds (parameters often are), by paired t tests over shared seeds. It is *on the front* if against each other cell it is
shown to be better in some objective. Otherwise the seeds do *not tell it apart*. Both claims are Holm-adjusted: the
chance of any false one of a kind is at most alpha.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from scipy import special

from grid.errors import SpecError
from grid.spec import did_you_mean
from store.statistics.family import MIN_PAIRS, Better, holm
from store.statistics.paired import Floats
from store.statistics.response import response
from store.statistics.scales import Scale, back

STANDINGS: Final = ("dominated", "on the front", "not told apart")
"""Every word a cell can get."""


class Objective(NamedTuple):
    """A column to be made small or large, and the scale on which seeds are averaged and compared."""

    column: str
    better: Better = "lower"
    scale: Scale = "log"


def pareto(values: pl.DataFrame, objectives: Sequence[Objective], *, alpha: float = 0.05) -> pl.DataFrame:
    """One row per cell with a run that has every objective, in order of appearance.

    `values` has one row per run: cell, label, seed and the objectives' columns; a run that lacks one is left out. The
    columns are cell, label, n, the mean of each objective over its seeds, standing, dominated_by and untold (labels of
    the cells that it is neither shown to be dominated by nor to be better than somewhere). Raises SpecError for fewer
    than two objectives, a column that is not there, or a value that its scale cannot take.
    """
    columns = [each.column for each in objectives]
    if len(set(columns)) < 2:
        raise SpecError(f"a Pareto set needs two objectives or more, such as the measure and train_s; got {columns}")
    for name in ("cell", "label", "seed", *columns):
        if name not in values.columns:
            raise SpecError(f"there is no column {name!r}{did_you_mean(name, values.columns)}")
    numbers = [pl.col(name).cast(pl.Float64) for name in columns]
    kept = values.with_columns(numbers).filter(
        pl.all_horizontal(pl.col(name).is_not_null() & pl.col(name).is_finite() for name in columns)
    )
    cells = kept.select("cell", "label").unique("cell", maintain_order=True)
    table = _table(kept, cells["cell"].to_list(), objectives)
    worse, front = _shown(table, alpha)
    names = cells["label"].to_list()
    rows = []
    for at, (cell, label) in enumerate(cells.iter_rows()):
        by = [names[j] for j in np.flatnonzero(worse.claimed[:, at])]
        standing = "dominated" if by else "on the front" if front.claimed[at] else "not told apart"
        means = [_mean(table[at, :, k], each) for k, each in enumerate(objectives)]
        untold = [names[j] for j in np.flatnonzero(~front.pairs[at]) if j != at]
        n = int(np.isfinite(table[at, :, 0]).sum())
        rows.append((cell, label, n, *means, standing, by, untold if standing == STANDINGS[-1] else []))
    schema: dict[str, Any] = {
        "cell": pl.String,
        "label": pl.String,
        "n": pl.Int64,
        **dict.fromkeys(columns, pl.Float64),
    }
    schema |= {"standing": pl.String, "dominated_by": pl.List(pl.String), "untold": pl.List(pl.String)}
    return pl.DataFrame(rows, schema=schema, orient="row")


class _Worse(NamedTuple):
    claimed: np.ndarray
    """[i, j]: i is shown to dominate j."""


class _Front(NamedTuple):
    claimed: np.ndarray
    pairs: np.ndarray
    """[i, j]: i is shown to be better than j in some objective."""


def _table(kept: pl.DataFrame, cells: Sequence[str], objectives: Sequence[Objective]) -> Floats:
    """[cells, seeds, objectives] in analysis units, smaller is better; NaN where a run is missing."""
    seeds = kept["seed"].unique(maintain_order=True).to_list()
    table = np.full((len(cells), len(seeds), len(objectives)), np.nan)
    places = (
        [cells.index(cell) for cell in kept["cell"].to_list()],
        [seeds.index(seed) for seed in kept["seed"].to_list()],
    )
    for k, each in enumerate(objectives):
        units = response(kept[each.column].to_numpy(), each.scale)
        table[(*places, k)] = units if each.better == "lower" else -units
    return table


def _shown(table: Floats, alpha: float) -> tuple[_Worse, _Front]:
    p, equal = _one_sided(table)
    cells = len(table)
    other = ~np.eye(cells, dtype=bool)
    every = np.where(equal, 0.0, p).max(-1)  # all objectives must be shown, so the largest p is that of the claim
    every = np.where(equal.all(-1), 1.0, every)
    dominates = np.zeros((cells, cells), dtype=bool)
    dominates[other] = holm(every[other]) <= alpha
    some = np.minimum(np.where(equal, 1.0, p).min(-1) * p.shape[-1], 1.0)
    worst = np.where(other, some, 0.0).max(-1, initial=0.0)
    return _Worse(dominates), _Front(holm(worst) <= alpha, some * cells <= alpha)


def _one_sided(table: Floats) -> tuple[Floats, np.ndarray]:
    """[i, j, objective]: p of "i is not smaller than j", 1 below three pairs; and whether they are equal on all pairs.

    A difference without any spread is the same on every seed, as of parameters: it needs no test.
    """
    cells, _, objectives = table.shape
    p = np.ones((cells, cells, objectives))
    equal = np.zeros((cells, cells, objectives), dtype=bool)
    for i in range(cells):
        differences = table[i][None] - table
        n = np.isfinite(differences).sum(1)
        filled = np.where(np.isfinite(differences), differences, 0.0)
        mean = filled.sum(1) / np.maximum(n, 1)
        squares = np.where(np.isfinite(differences), (filled - mean[:, None]) ** 2, 0.0).sum(1)
        enough = n >= MIN_PAIRS
        size = np.nanmax(np.abs(table), axis=(0, 1), initial=0.0) + 1.0
        still = squares <= (1e-12 * size) ** 2 * np.maximum(n, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = mean / np.sqrt(squares / (n - 1) / n)
        tested = special.stdtr(np.maximum(n - 1, 1), t)
        exact = np.where(mean < -1e-12 * size, 0.0, 1.0)
        p[i] = np.where(enough, np.where(still, exact, tested), 1.0)
        equal[i] = enough & still & (np.abs(mean) <= 1e-12 * size)
    return p, equal


def _mean(units: Floats, objective: Objective) -> float | None:
    known = units[np.isfinite(units)] * (1 if objective.better == "lower" else -1)
    value = back(float(known.mean()), objective.scale) if known.size else math.nan
    return value if math.isfinite(value) else None
