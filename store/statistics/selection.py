"""The winner's curse: the best of several equal variants looks better than it is, on the seeds that chose it.

So each seed reports the level that the other seeds choose. Neighbouring seeds share most of their choosing runs, so the
spread of these values understates the error; `Pairing.summary` has the error that holds.
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

Choosing = Literal["others", "all"]
"""others: a seed reports the choice of the other seeds; all: that of all seeds, its own too, with a warning."""


class TunedChoice(NamedTuple):
    """The choice for one setting of all other axes."""

    cell: str
    label: str
    among: int  # cells that had a value to be chosen by; 0: nothing chose this one
    levels: Mapping[str, object]  # levels of the chosen cell on the axes selected over
    runs: int  # planned for the setting
    outstanding: int  # runs that have not ended
    unusable: int  # runs that ended, as failed or finished, without a finite value
    values: int = 0  # number of values of the chosen cell
    otherwise: int = 0  # seeds for which the other seeds choose another cell


class Selected(NamedTuple):
    """Runs to report, and how they were chosen."""

    values: pl.DataFrame  # rows below the cell that all seeds choose; `chosen` is that cell's own value
    choices: Mapping[str, TunedChoice]  # by the cell that all seeds choose
    warning: str  # empty where no seed had a part in its own choice


def select_then_report(
    values: pl.DataFrame,
    *,
    over: Sequence[str],
    within: Sequence[str],
    scale: Scale,
    better: Better,
    by: Choosing = "others",
) -> Selected:
    """The best levels of the axes `over` for every setting of the axes `within`.

    `values` has the columns that `compare` takes and one for every axis named. A cell with fewer usable values than
    another of its setting is not chosen. The middle one of equals is, in the order of the rows: runs at the limit of a
    measure would else stand at an end of the levels. A setting without any value keeps its first cell, with `among` 0.
    Raises SpecError for an axis that is no column.
    """
    for name in (*over, *within):
        if name not in values.columns:
            known = values.columns
            raise SpecError(f"{name!r} is no column of the runs to choose over{suggest_name(name, known)}")
    numbers = values["value"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    usable = (values["state"] == State.DONE).to_numpy() & np.isfinite(numbers)
    units = forward(np.where(usable, numbers, np.nan), scale)
    values = values.with_columns(pl.Series("units_", units).fill_nan(None))
    choices = _choices(values, over, within, better)
    if by == "all":
        kept = values.filter(pl.col("cell").is_in(list(choices)))
        return Selected(kept.drop("units_"), choices, _warning(choices, over))
    kept, changed = _leave_one_out(values, choices, within, better)
    choices = {cell: each._replace(otherwise=changed[cell]) for cell, each in choices.items()}
    return Selected(kept, choices, "")


def _leave_one_out(
    values: pl.DataFrame, choices: Mapping[str, TunedChoice], within: Sequence[str], better: Better
) -> tuple[pl.DataFrame, dict[str, int]]:
    """The run that the other seeds choose, for each setting and seed, and how often it is of another cell."""
    own = pl.col("units_").is_not_null().cast(pl.Int64)
    others = (own.sum().over("cell") - own, pl.col("units_").sum().over("cell") - pl.col("units_").fill_null(0.0))
    mean = pl.when(others[0] > 0).then(others[1] / others[0])
    values = values.with_columns(all_=pl.lit(0))
    within = [*within, "all_"]  # there may be no other axis
    ranked = values.with_row_index("at_").with_columns(n_=others[0], mean_=mean if better == "lower" else -mean)
    keys = [*within, "seed"]
    complete = ranked.filter(pl.col("n_") == pl.col("n_").max().over(keys))
    best = complete.filter(pl.col("mean_").is_null() | (pl.col("mean_") == pl.col("mean_").min().over(keys)))
    middle = pl.when(pl.col("n_") > 0).then(pl.len().over(keys) // 2).otherwise(0)
    picked = best.filter(pl.col("at_").rank("ordinal").over(keys) == middle + 1)
    names = ("cell", "label", *within)
    chosen = values.filter(pl.col("cell").is_in(list(choices)))
    names_of = chosen.select(*names).unique("cell", maintain_order=True)
    on_all = chosen.select(*keys, chosen="value")
    kept = (
        picked.rename({"cell": "from_"})
        .drop("label")
        .join(names_of, on=within, nulls_equal=True, maintain_order="left")
    )
    kept = kept.join(on_all, on=keys, how="left", nulls_equal=True, maintain_order="left")
    counts = dict(kept.group_by("cell").agg((pl.col("from_") != pl.col("cell")).sum()).iter_rows())
    columns = [*(name for name in values.columns if name not in ("units_", "all_")), "chosen"]
    return kept.select(columns), counts


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
        ranks = [(-row["n_"], sign * (row["mean_"] or 0.0)) for row in group]  # the complete ones first
        first = min(ranks)
        equal = [row for row, rank in zip(group, ranks, strict=True) if rank == first]
        best = equal[len(equal) // 2 if equal[0]["n_"] else 0]
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
