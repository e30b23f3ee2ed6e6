"""A grid over two of its axes, the others averaged, fixed or best; a cell without a value gives the reason."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from ablate.dashboards.data.formatting import change, count, join_words, number, plain
from ablate.dashboards.data.seed_averages import Scale
from ablate.dashboards.figures.canvas import cut
from ablate.store import Store
from ablate.store.analysis.effects import BESIDE, levels_of
from ablate.store.analysis.verdicts import GridMeasure, runs
from ablate.store.state import State
from ablate.store.statistics import balanced_means, select_then_report
from ablate.store.statistics.paired_differences import or_null
from ablate.store.statistics.scales import back, forward

_OFF_SCALE: Final[Mapping[Scale, str]] = {
    "log": "not positive, where the log scale has no value",
    "logit": "not between 0 and 1, where the logit scale has no value",
    "linear": "too large to average",
}
_MOST_NAMED: Final = 3
_LONGEST: Final = 18  # letters of a level in a cell


def reason(runs: pl.DataFrame, scale: Scale) -> str:
    """Why planned runs have no value: 'failed: diverged', 'failed: diverged 2, error 1; running 1', 'not run'."""
    if runs.is_empty():
        return "not planned"
    failed, states = Counter[str](), Counter[str]()
    for run in runs.iter_rows(named=True):
        if run["state"] == State.FAILED:
            failed[str(run["why"] or "unknown")] += 1
        elif run["state"] != State.DONE:
            states["not run" if run["state"] == State.PENDING else run["state"]] += 1
        elif run["value"] is None:
            states["unreadable" if run["unreadable"] else "not recorded"] += 1
        else:
            states[_OFF_SCALE[scale] if math.isfinite(run["value"]) else "no finite value"] += 1
    counts = ", ".join(f"{why} {n}" if len(failed) > 1 else why for why, n in failed.most_common())
    words = [f"{word} {n}" if failed or len(states) > 1 else word for word, n in states.most_common()]
    return "; ".join([*([f"failed: {counts}"] if failed else []), *words])


def _describe_cell(
    average: Mapping[str, Any],
    planned: pl.DataFrame,
    chosen: pl.DataFrame | None,
    others: Sequence[str],
    settings: Sequence[str],
    scale: Scale,
) -> dict[str, Any]:
    """A cell with a value: in words, lines as plotly takes them, and more for who points at it.

    `chosen` are the runs of its best setting, if one stands for all. A setting with fewer values than the best is not
    chosen, however good they are (`select_then_report`). `others` and `settings` are as of `Pivot`.
    """
    value, low, high, n, runs = (average[name] for name in ("value", "low", "high", "n", "runs"))
    counts = planned.group_by("setting", maintain_order=True).agg(pl.col("units").count().alias("n"), pl.len())
    known = {setting: (some, all_) for setting, some, all_ in counts.iter_rows() if some}
    best, fewer, kept = None, {}, planned.height
    if chosen is not None:
        most, kept, best = chosen["units"].count(), chosen.height, str(chosen["setting"][0])
        fewer = {key: f"{some} of {count(all_, 'value')}" for key, (some, all_) in known.items() if some < most}
    there = [setting for setting in known if setting not in fewer]
    lacking = [setting for setting in settings if setting not in there]
    spread = spread_words(value, low, high, scale)
    few = "" if runs == kept else f", {runs}/{kept} runs"
    lines = [number(value), *([spread] if spread else []), f"n {n}{few}"]
    notes = [] if low is None or high is None else [f"{number(low)} to {number(high)}"]
    notes.append(f"{runs} of {count(kept, 'planned run')}")
    names = join_words(others)
    if best is not None:
        lines.append(f"best: {plain(cut(best, _LONGEST))}")
        notes.append(f"best: {names} {best}")
    if lacking:
        lines.append(f"{len(there)}/{len(settings)} settings")
    if without := [each for each in lacking if each not in fewer]:
        notes.append(f"without {names} {_some(without)}")
    if fewer:
        notes.append(f"{names} {_some([f'{key} has {counts}' for key, counts in fewer.items()])}, so not chosen")
    return {
        **{name: average[name] for name in ("value", "low", "high", "n", "runs")},
        "planned": kept,
        "settings": len(there),
        "best": best,
        "text": "<br>".join(lines),
        "note": "; ".join(notes),
        "partial": bool(lacking),
    }


def _some(settings: Sequence[str]) -> str:
    more = len(settings) - _MOST_NAMED
    return join_words(settings if more <= 0 else [*settings[:_MOST_NAMED], f"{more} more"])


def spread_words(value: float, low: float | None, high: float | None, scale: Scale) -> str:
    """Half an interval: '± 0.02'; on the log scale '± 4 %' or '×÷ 2.3'; '' where there is none."""
    if low is None or high is None:
        return ""
    if scale == "log" and value > 0 and high > 0:
        half = math.log(high / value)
        return f"±{change(half, 'log').replace('+', ' ')}" if half < math.log(2) else f"×÷ {math.exp(half):.2g}"
    return f"± {number((high - low) / 2, 2)}"


NOWHERE: Final = "does not apply"  # the level of a cell on an axis that it does not have
_AXIS: Final = "axis: "
_KINDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("x", "y"), pl.String),
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("n", "runs", "planned", "settings"), pl.Int64),
    **dict.fromkeys(("best", "reason", "key", "text", "note"), pl.String),
    "partial": pl.Boolean,
}


class Pivot(NamedTuple):
    """The cells of the map."""

    frame: pl.DataFrame
    """Rows in the grid's order.

    Levels: x, y, key (places of both). Averages over seeds: value, low, high, text, note, or the reason for no value.
    Counts: n (seeds of the setting with the fewest), runs, planned, settings. `best` is the setting that
    stands for the cell, if one does. `partial` is true if settings of another cell are missing here.
    """
    warning: str  # warning about values that were chosen as the best
    others: Sequence[str]  # the axes that are averaged or chosen among
    settings: Sequence[str]  # settings of these axes, in words, that some cell plans
    followers: Mapping[str, str]  # by an axis that each level of a shown one decides, as if zipped, that one


def table(store: Store, grid: str, measure: GridMeasure) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    """Every planned run with its level on each axis, in columns "axis: NAME", and all levels of each axis in order.

    Columns beside those: as `ablate.store.analysis.verdicts.runs` has them, trial and why (the reason of a failure).
    Raises as that.
    """
    planned = runs(store, grid, measure)
    header = store.grid(grid)
    levels = levels_of(header, planned["axes"].to_list())
    at = {name: [level or NOWHERE for level in each] for name, each in levels.items()}
    columns = [pl.Series(_AXIS + name, each, pl.String) for name, each in at.items()]
    why = store.sql(
        "SELECT g.cell, g.seed, g.trial, t.reason AS why FROM grid_trial g JOIN trial t USING (trial) "
        "WHERE g.grid = $grid",
        {"grid": grid},
    )
    whole = planned.with_columns(columns).join(why, on=["cell", "seed"], how="left", maintain_order="left")
    order = {axis["name"]: dict.fromkeys([*axis["labels"], *at[axis["name"]]]) for axis in header["axes"]}
    there = {name: set(at[name]) for name in order}
    return whole, {name: [level for level in of if level in there[name]] for name, of in order.items()}


def follows(table: pl.DataFrame, axis: str, other: str) -> bool:
    """Whether each level of `other` has one level of `axis` in the runs of `table`, as if zipped."""
    counts = table.group_by(_AXIS + other).agg(pl.col(_AXIS + axis).n_unique())
    return bool((counts[_AXIS + axis] == 1).all())


def at_levels(table: pl.DataFrame, fixed: Mapping[str, str]) -> pl.DataFrame:
    """The runs of `table` at these levels."""
    for name, level in fixed.items():
        table = table.filter(pl.col(_AXIS + name) == level)
    return table


def pivot(
    table: pl.DataFrame,
    levels: Mapping[str, Sequence[str]],
    measure: GridMeasure,
    axes: tuple[str, str],
    *,
    fixed: Mapping[str, str],
    best: bool = False,
) -> Pivot:
    """The runs of `table` over two axes.

    A cell averages the settings of the axes that are neither shown nor `fixed`, with equal weights and a t interval
    over seeds (`balanced_means`). With `best`, the setting with the best mean stands for all. It is chosen on the seeds
    that are shown, among the settings with the most values. Averages are on the measure's scale.
    """
    value = pl.col("value").cast(pl.Float64)
    value = pl.when(pl.col("state") == State.DONE, value.is_finite()).then(value).fill_null(np.nan)
    units = forward(table.select(value).to_series().to_numpy(), measure.scale)
    table = at_levels(table.with_columns(pl.Series("units", units).fill_nan(None)), fixed)
    rest = [name for name in levels if name not in (*axes, *fixed) and table[_AXIS + name].n_unique() > 1]
    followers = {name: by for by in reversed(axes) for name in rest if follows(table, name, by)}
    others = [name for name in rest if name not in followers]
    keys, over = [_AXIS + name for name in axes], [_AXIS + name for name in others]
    table = table.with_columns((pl.concat_str(over, separator=BESIDE) if over else pl.lit("")).alias("setting"))
    settings = table["setting"].unique(maintain_order=True).to_list()
    chooses = best and bool(others)
    kept, warning, scale = table, "", measure.scale
    if chooses:
        chosen = select_then_report(table, over=over, within=keys, scale=scale, better=measure.better, by="all")
        kept = table.filter(pl.col("cell").is_in(list(chosen.choices)))
        warning = chosen.warning.replace(_AXIS, "")
    means = balanced_means(kept.drop_nulls("units"), keys, alpha=measure.alpha).rename({"mean": "value"})
    parts, stand, averaged = (
        {(str(row[0]), str(row[1])): part for row, part in each.group_by(keys, maintain_order=True)}
        for each in (table, kept, means)
    )
    rows = []
    for (i, up), (j, across) in product(enumerate(levels[axes[1]]), enumerate(levels[axes[0]])):
        at = across, up
        planned, average = parts.get(at, table.clear()), _in_unit(averaged.get(at), measure.scale)
        if average is None:
            why = reason(planned, measure.scale)
            row = {"planned": planned.height, "settings": 0, "reason": why, "text": "", "note": "", "partial": False}
        else:
            row = _describe_cell(average, planned, stand[at] if chooses else None, others, settings, measure.scale)
        rows.append({"x": across, "y": up, "key": f"{j},{i}", **row})
    frame = pl.DataFrame(rows, schema=_KINDS).with_columns(
        pl.col(side).cast(pl.Enum(list(levels[name]))) for side, name in zip("xy", axes, strict=True)
    )
    return Pivot(frame, warning, others, settings, followers)


def _in_unit(mean: pl.DataFrame | None, scale: Scale) -> dict[str, Any] | None:
    """An average in the measure's unit; None if it is no finite number."""
    if mean is None:
        return None
    row = mean.row(0, named=True)
    row |= {end: None if row[end] is None else or_null(back(row[end], scale)) for end in ("value", "low", "high")}
    return None if row["value"] is None else row


def runs_at(table: pl.DataFrame, levels: Mapping[str, Sequence[str]], axes: tuple[str, str], key: str) -> pl.DataFrame:
    """The runs of `table` behind the cell `key` of the map; none where there is no such cell."""
    places = product(*(enumerate(levels[name]) for name in axes))
    at = {f"{j},{i}": {axes[0]: across, axes[1]: up} for (j, across), (i, up) in places}
    return at_levels(table, at[key]) if key in at else table.clear()
