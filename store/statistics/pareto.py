"""Pareto sets with noise: which cells are worse than another one in every respect, as far as the seeds can show it.

A cell is *dominated* if another cell is shown to be better in every objective. It is *on the front* if it is shown to
be better than each other cell in some objective. docs/factorial.md has the tests and their error rates.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from scipy import special

from ablate.grid.errors import SpecError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.store.statistics.arms import widen_by_choice
from ablate.store.statistics.paired_differences import Floats, or_null, summarise, t_interval
from ablate.store.statistics.scales import ROUNDING, Scale, back, response
from ablate.store.statistics.verdict import MIN_PAIRS, ROBUST_PAIRS, Better, few, holm

STANDINGS: Final = ("dominated", "on the front", "inconclusive")

_MOST_NAMED: Final = 6
_BEFORE: Final[dict[str, Any]] = {"cell": pl.String, "label": pl.String, "n": pl.Int64}
_NAMES: Final = pl.List(pl.String)
_BEHIND: Final = {"standing": pl.String, "dominated_by": _NAMES, "inconclusive": _NAMES, "note": pl.String}


class Objective(NamedTuple):
    """A column to be made small or large, and the scale on which seeds are averaged and compared."""

    column: str
    better: Better = "lower"
    scale: Scale = "log"
    exact: bool = False
    """Known without noise, as parameters are: the same on all seeds is equal, a constant difference is shown."""


Forbidden = Mapping[tuple[str, str], str]  # pairs of cell keys that cannot be compared, in both orders, with the reason


def pareto(
    values: pl.DataFrame,
    objectives: Sequence[Objective],
    *,
    alpha: float = 0.05,
    forbidden: Forbidden | None = None,
    chosen: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """One row per cell with a run that has every objective, in order of appearance.

    `values` has one row per planned run: cell, label, seed and the objectives' columns. A run without one of them is
    left out; a cell without a usable run still counts in Holm's adjustment. Runs of tuned cells are those that the
    other seeds choose; `chosen` has those that all seeds choose, so that errors contain what choosing adds. The columns
    of the result are cell, label, n, the mean of each objective, low, high, standing, dominated_by, inconclusive and
    note. `low` and `high` are the 1 - alpha t interval of the first objective, in its unit. Inconclusive are cells that
    neither dominate it nor are shown to be worse in one objective. Raises SpecError for fewer than two objectives, an
    unknown column, or a value that its scale cannot take.
    """
    columns = [each.column for each in objectives]
    _check(values, columns)
    kept = _keep_complete(values, columns)
    cells = kept.select("cell", "label").unique("cell", maintain_order=True)
    keys, names = cells["cell"].to_list(), cells["label"].to_list()
    table = _table(kept, keys, objectives)
    fixed = None if chosen is None else _table(_keep_complete(chosen, columns), keys, objectives)
    barred = forbidden or {}
    exact = [each.exact for each in objectives]
    pairs = np.array([(one, other) in barred for one in keys for other in keys], dtype=bool).reshape(2 * [len(keys)])
    dominates, front, better = _claims(table, fixed, alpha, exact, pairs, values["cell"].n_unique())
    known = np.isfinite(table).all(-1).astype(int)
    shared = known @ known.T
    lost = values.filter(~pl.col("cell").is_in(keys))["label"].unique(maintain_order=True).to_list()
    absent = f"not compared with {some(lost, _MOST_NAMED)}: no usable run" if lost else ""
    rows = []
    for at, (cell, label) in enumerate(cells.iter_rows()):
        by = [names[j] for j in np.flatnonzero(dominates[:, at])]
        standing = "dominated" if by else "on the front" if front[at] else "inconclusive"
        numbers = [_mean(table[at, :, k], each) for k, each in enumerate(objectives)]
        numbers += _interval(table[at, :, 0], None if fixed is None else fixed[at, :, 0], objectives[0], alpha)
        inconclusive = [names[j] for j in np.flatnonzero(~better[at]) if j != at]
        n = int(np.isfinite(table[at, :, 0]).sum())
        told = standing != STANDINGS[-1]
        rests_on = shared[dominates[:, at], at].max() if by else np.delete(shared[at], at).min(initial=ROBUST_PAIRS)
        caution = few() if rests_on < ROBUST_PAIRS else ""
        notes = [caution, absent if standing == STANDINGS[1] else ""]
        note = "; ".join(filter(None, notes)) if told else _reasons(cell, zip(keys, names, strict=True), barred)
        rows.append((cell, label, n, *numbers, standing, by, [] if told else inconclusive, note))
    schema = {**_BEFORE, **dict.fromkeys((*columns, "low", "high"), pl.Float64), **_BEHIND}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _check(values: pl.DataFrame, columns: Sequence[str]) -> None:
    if len(set(columns)) < 2:
        raise SpecError(f"{columns} are too few objectives; give at least two, such as the measure and train_s")
    for name in ("cell", "label", "seed", *columns):
        if name not in values.columns:
            raise SpecError(f"there is no column {name!r}{suggest_name(name, values.columns)}")


def _keep_complete(values: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    numbers = values.with_columns(pl.col(name).cast(pl.Float64) for name in columns)
    return numbers.filter(pl.all_horizontal(pl.col(name).is_finite().fill_null(value=False) for name in columns))


def _reasons(cell: str, others: Iterable[tuple[str, str]], forbidden: Forbidden) -> str:
    """Each reason once, with the first cells that it holds against, which reasons call the baseline."""
    reasons: dict[str, list[str]] = {}
    for key, name in others:
        if (cell, key) in forbidden:
            reason = forbidden[cell, key].replace("the baseline's", "its").replace("the baseline", "it")
            reasons.setdefault(reason, []).append(name)
    return "; ".join(f"against {some(names, _MOST_NAMED)}: {reason}" for reason, names in reasons.items())


def _table(kept: pl.DataFrame, cells: Sequence[str], objectives: Sequence[Objective]) -> Floats:
    """[cells, seeds, objectives] in analysis units, smaller is better; NaN where a run is missing."""
    kept = kept.filter(pl.col("cell").is_in(cells))
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


def _claims(
    table: Floats, fixed: Floats | None, alpha: float, exact: Sequence[bool], barred: np.ndarray, planned: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether i is shown to dominate j [i, j]; to be better in some objective than each other cell [i]; than j [i, j].

    Cells that are `planned` and not in the table count in the families.
    """
    p, equal = _one_sided(table, fixed, np.array(exact, dtype=bool))
    p, equal = np.where(barred[:, :, None], 1.0, p), equal & ~barred[:, :, None]
    cells = len(table)
    other = ~np.eye(cells, dtype=bool)
    every = np.where(equal, 0.0, p).max(-1)  # all objectives must be shown, so the largest p is that of the claim
    every = np.where(equal.all(-1), 1.0, every)
    dominates = np.zeros((cells, cells), dtype=bool)
    dominates[other] = _holm_of(every[other], planned * (planned - 1)) <= alpha
    some = np.minimum(np.where(equal, 1.0, p).min(-1) * p.shape[-1], 1.0)
    worst = np.where(other, some, 0.0).max(-1) if cells > 1 else np.ones(cells)  # against nobody nothing is shown
    return dominates, _holm_of(worst, planned) <= alpha, some * planned <= alpha


def _holm_of(p: Floats, family: int) -> Floats:
    """Holm-adjusted `p` in a family of so many claims, of which the others cannot be tested."""
    return holm(np.append(p, np.full(family - p.size, np.nan)))[: p.size]


def _one_sided(table: Floats, fixed: Floats | None, exact: np.ndarray) -> tuple[Floats, np.ndarray]:
    """[i, j, objective]: p of "i is not smaller than j", 1 below three pairs; and whether they are equal on all pairs.

    A difference without any spread needs no test where the objective is exact, and shows nothing where it is not. The
    error has what choosing adds if there is `fixed`, as of `widen_by_choice`.
    """
    cells, _, objectives = table.shape
    p = np.ones((cells, cells, objectives))
    equal = np.zeros((cells, cells, objectives), dtype=bool)
    for i in range(cells):
        n, mean, squares = _differ(table, i)
        enough = n >= MIN_PAIRS
        size = np.nanmax(np.abs(table), axis=(0, 1), initial=0.0) + 1.0
        still = squares <= (ROUNDING * size) ** 2 * np.maximum(n - 1, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.sqrt(squares / (n - 1) / n)
            if fixed is not None:
                m, mean_fixed, squares_fixed = _differ(fixed, i)
                error = np.hypot(np.maximum(error, np.sqrt(squares_fixed / (m - 1) / m)), mean - mean_fixed)
            tested = np.nan_to_num(special.stdtr(np.maximum(n - 1, 1), mean / error), nan=1.0)
        known = np.where(exact & (mean < -ROUNDING * size), 0.0, 1.0)
        p[i] = np.where(enough, np.where(still, known, tested), 1.0)
        equal[i] = exact & enough & still & (np.abs(mean) <= ROUNDING * size)
    return p, equal


def _differ(table: Floats, i: int) -> tuple[np.ndarray, Floats, Floats]:
    """[j, objective] of cell i minus each other one: number of pairs, mean, sum of squares about it."""
    differences = table[i][None] - table
    known = np.isfinite(differences)
    n, filled = known.sum(1), np.where(known, differences, 0.0)
    mean = filled.sum(1) / np.maximum(n, 1)
    return n, mean, np.where(known, (filled - mean[:, None]) ** 2, 0.0).sum(1)


def _interval(units: Floats, fixed: Floats | None, objective: Objective, alpha: float) -> list[float | None]:
    sign = 1 if objective.better == "lower" else -1
    own = summarise(sign * units[np.isfinite(units)])
    own = own if fixed is None else widen_by_choice(own, sign * fixed[np.isfinite(fixed)])
    return [or_null(back(float(end), objective.scale)) for end in t_interval(own, alpha)]


def _mean(units: Floats, objective: Objective) -> float | None:
    known = units[np.isfinite(units)] * (1 if objective.better == "lower" else -1)
    return or_null(back(float(known.mean()), objective.scale)) if known.size else None
