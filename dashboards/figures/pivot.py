"""A grid over two of its axes, the others averaged, fixed or best; a cell without a value gives the reason."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import change, count, join_words, number, plain
from dashboards.data.seed_averages import Scale
from dashboards.figures.canvas import cut
from dashboards.figures.heat import draw_heat, heat_ramp
from store import Store
from store.analysis.effects import BESIDE, levels_of
from store.analysis.verdicts import GridMeasure, runs
from store.statistics import balanced_means, select_then_report
from store.statistics.paired_differences import or_null
from store.statistics.scales import back, forward

_STATES: Final = {"running": "running", "pending": "not run"}
_OFF_SCALE: Final[Mapping[Scale, str]] = {
    "log": "not positive, where the log scale has no value",
    "logit": "not between 0 and 1, where the logit scale has no value",
    "linear": "too large to average",
}
_MOST_NAMED: Final = 3
_LONGEST: Final = 18
"""Letters of a level in a cell."""


class Average(NamedTuple):
    """Average of the runs behind a cell of the map, in the measure's unit."""

    value: float
    low: float | None
    high: float | None
    n: int
    """Seeds of the setting with the fewest."""
    runs: int


def averages(found: pl.DataFrame, measure: GridMeasure, keys: Sequence[str]) -> dict[tuple[str, str], Average]:
    """By the levels of the two axes `keys`; `found` as `balanced_means` takes it, with nulls in units."""
    means = balanced_means(found.drop_nulls("units"), keys, alpha=measure.alpha)
    averaged: dict[tuple[str, str], Average] = {}
    for across, up, *ends, n, n_runs in means.select(*keys, "mean", "low", "high", "n", "runs").iter_rows():
        value, low, high = (None if end is None else or_null(back(end, measure.scale)) for end in ends)
        if value is not None:
            averaged[across, up] = Average(value, low, high, n, n_runs)
    return averaged


def reason(runs: pl.DataFrame, scale: Scale) -> str:
    """Why planned runs have no value: 'failed: diverged', 'failed: diverged 2, error 1; running 1', 'not run'."""
    if runs.is_empty():
        return "not planned"
    failed = Counter(str(why or "unknown") for why in runs.filter(pl.col("status") == "failed")["why"])
    others = runs.filter(pl.col("status") != "failed").iter_rows(named=True)
    states = Counter(_state(run, scale) for run in others)
    said = []
    if failed:
        counts = ", ".join(f"{why} {n}" if len(failed) > 1 else why for why, n in failed.most_common())
        said.append(f"failed: {counts}")
    said += [f"{word} {n}" if failed or len(states) > 1 else word for word, n in states.most_common()]
    return "; ".join(said)


def _state(run: Mapping[str, Any], scale: Scale) -> str:
    if run["status"] in _STATES:
        return _STATES[run["status"]]
    if run["value"] is None:
        return "unreadable" if run["unreadable"] else "not recorded"
    return _OFF_SCALE[scale] if math.isfinite(run["value"]) else "no finite value"


class Settings(NamedTuple):
    """Settings of the axes that vary behind the cells of a map."""

    names: Sequence[str]
    """The axes."""
    every: Sequence[str]
    """Settings, in words, that some cell of the map plans."""

    def lacking(self, there: Sequence[str]) -> list[str]:
        """List the settings that are not in `there`."""
        return [each for each in self.every if each not in set(there)]


class Behind(NamedTuple):
    """The settings behind a cell of a map that has a value."""

    there: Sequence[str]
    """Settings that the value averages or was chosen among."""
    best: str | None
    """The one that stands for them, if one does."""
    fewer: Mapping[str, str]
    """Settings that could not be chosen, with their numbers of values: '2 of 3 values'."""


def behind(runs: pl.DataFrame, chosen: pl.DataFrame | None) -> Behind:
    """Describe the settings in all `runs` of a cell; `chosen` are the runs of its best setting, if one stands for all.

    One with fewer values than the best is not chosen, however good they are (`select_then_report`).
    """
    counts = runs.group_by("setting", maintain_order=True).agg(pl.col("units").count().alias("n"), pl.len())
    known = {setting: (n, planned) for setting, n, planned in counts.iter_rows() if n}
    if chosen is None:
        return Behind(list(known), None, {})
    most = chosen["units"].count()
    fewer = {setting: f"{n} of {count(planned, 'value')}" for setting, (n, planned) in known.items() if n < most}
    return Behind([each for each in known if each not in fewer], str(chosen["setting"][0]), fewer)


def describe_cell(average: Average, planned: int, settings: Settings, found: Behind, scale: Scale) -> tuple[str, str]:
    """A cell in words, lines as plotly takes them, and more for who points at it."""
    value, low, high, n, runs = average
    spread = spread_words(value, low, high, scale)
    few = "" if runs == planned else f", {runs}/{planned} runs"
    lines = [number(value), *([spread] if spread else []), f"n {n}{few}"]
    notes = [] if low is None or high is None else [f"{number(low)} to {number(high)}"]
    notes.append(f"{runs} of {count(planned, 'planned run')}")
    names = join_words(settings.names)
    if found.best is not None:
        lines.append(f"best: {plain(cut(found.best, _LONGEST))}")
        notes.append(f"best: {names} {found.best}")
    lacking = settings.lacking(found.there)
    if lacking:
        lines.append(f"{len(found.there)}/{len(settings.every)} settings")
    if without := [each for each in lacking if each not in found.fewer]:
        notes.append(f"without {names} {_some(without)}")
    if found.fewer:
        few = _some([f"{setting} has {counts}" for setting, counts in found.fewer.items()])
        notes.append(f"{names} {few}, so not chosen")
    return "<br>".join(lines), "; ".join(notes)


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


NOWHERE: Final = "does not apply"
"""The level of a cell on an axis that it does not have."""
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
    Counts: n (seeds of the setting with the fewest), runs, planned, settings (of `rest`). `best` is the setting that
    stands for the cell, if one does. `partial` is true if settings of another cell are missing here.
    """
    span: tuple[float, float] | None
    """Least and greatest mean of a single cell of the grid: a scale that every choice of the others shares."""
    warning: str
    """Warning about values that were chosen as the best."""
    rest: Settings
    """Settings of the axes that are averaged or chosen among."""
    followers: Mapping[str, str]
    """By an axis that each level of a shown one decides, as if zipped, that one."""


def table(store: Store, grid: str, measure: GridMeasure) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    """Every planned run with its level on each axis, in columns "axis: NAME", and all levels of each axis in order.

    Columns beside those: as `store.analysis.verdicts.runs` has them, trial, why (the reason of a failure) and
    unreadable. Raises as that.
    """
    found = runs(store, grid, measure)
    header = store.grid(grid)
    levels = levels_of(header, found["axes"].to_list())
    columns = [pl.Series(_AXIS + name, [of or NOWHERE for of in each], pl.String) for name, each in levels.items()]
    why = store.sql(
        "SELECT g.cell, g.seed, g.trial, t.reason AS why, u.trial IS NOT NULL AS unreadable FROM grid_trial g "
        "JOIN trial t USING (trial) LEFT JOIN v_unreadable u ON u.grid = g.grid AND u.trial = g.trial "
        "WHERE g.grid = $grid",
        {"grid": grid},
    )
    order = {axis["name"]: list(axis["labels"]) for axis in header["axes"]}
    for name, each in levels.items():
        known = set(order[name])
        order[name] += [level for level in dict.fromkeys(of or NOWHERE for of in each) if level not in known]
    whole = found.with_columns(columns).join(why, on=["cell", "seed"], how="left", maintain_order="left")
    return whole, {name: _present(of, whole[_AXIS + name]) for name, of in order.items()}


def _present(order: Sequence[str], column: pl.Series) -> list[str]:
    there = set(column.to_list())
    return [level for level in dict.fromkeys(order) if level in there]


def follows(found: pl.DataFrame, axis: str, other: str) -> bool:
    """Whether each level of `other` has one level of `axis` in the runs of `table`, as if zipped."""
    counts = found.group_by(_AXIS + other).agg(pl.col(_AXIS + axis).n_unique())
    return bool((counts[_AXIS + axis] == 1).all())


def at_levels(found: pl.DataFrame, fixed: Mapping[str, str]) -> pl.DataFrame:
    """The runs of `table` at these levels."""
    for name, level in fixed.items():
        found = found.filter(pl.col(_AXIS + name) == level)
    return found


def pivot(
    found: pl.DataFrame,
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
    units = forward(_finite(found), measure.scale)
    found = found.with_columns(pl.Series("units", units).fill_nan(None))
    spans = found.group_by("cell").agg(pl.col("units").mean())["units"].drop_nulls().to_list()
    span = (back(min(spans), measure.scale), back(max(spans), measure.scale)) if spans else None
    found = at_levels(found, fixed)
    others = [name for name in levels if name not in (*axes, *fixed) and found[_AXIS + name].n_unique() > 1]
    followers = {name: by for by in reversed(axes) for name in others if follows(found, name, by)}
    names = [name for name in others if name not in followers]
    words = pl.concat_str([_AXIS + name for name in names], separator=BESIDE) if names else pl.lit("")
    found = found.with_columns(words.alias("setting"))
    rest = Settings(names, found["setting"].unique(maintain_order=True).to_list())
    chooses = best and bool(names)
    keys = [_AXIS + name for name in axes]
    kept, warning = _best(found, measure, names, keys) if chooses else (found, "")
    averaged = averages(kept, measure, keys)
    parts, stand = (
        {(row[0], row[1]): part for row, part in each.group_by(keys, maintain_order=True)} for each in (found, kept)
    )
    rows = []
    for at, key in _places(levels, axes):
        runs = _Runs(parts.get(at, found.clear()), stand.get(at, found.clear()), averaged.get(at), chooses)
        rows.append((*at, *_row(runs, rest, key, measure)))
    frame = pl.DataFrame(rows, schema=_KINDS, orient="row").with_columns(
        pl.col(side).cast(pl.Enum(list(levels[name]))) for side, name in zip("xy", axes, strict=True)
    )
    return Pivot(frame, span, warning, rest, followers)


def _places(levels: Mapping[str, Sequence[str]], axes: tuple[str, str]) -> list[tuple[tuple[str, str], str]]:
    """The levels of every cell, row by row, and the key of its place."""
    x, y = (levels[name] for name in axes)
    return [((across, up), f"{j},{i}") for i, up in enumerate(y) for j, across in enumerate(x)]


class _Runs(NamedTuple):
    """The runs of a cell of the map."""

    planned: pl.DataFrame
    kept: pl.DataFrame
    """Runs of the best setting if one is chosen; else all."""
    average: Average | None
    chooses: bool


def _row(runs: _Runs, rest: Settings, key: str, measure: GridMeasure) -> tuple[Any, ...]:
    average = runs.average
    if average is None:
        why = reason(runs.planned, measure.scale)
        return (None,) * 3 + (None, None, runs.planned.height, 0, None, why, key, "", "", False)
    planned, found = runs.kept.height, behind(runs.planned, runs.kept if runs.chooses else None)
    text, note = describe_cell(average, planned, rest, found, measure.scale)
    lacks = bool(rest.lacking(found.there))
    return *average, planned, len(found.there), found.best, None, key, text, note, lacks


def draw_pivot(found: Pivot, axes: tuple[str, str], title: str, *, log: bool, shared: bool) -> go.Figure:
    """The map; colours follow the logarithm with `log`, and the range of all cells of the grid with `shared`."""
    values = found.frame["value"]
    if shared and found.span is not None:
        values = pl.Series([*found.span, *values.to_list()], dtype=pl.Float64)
    return draw_heat(found.frame, heat_ramp(values, title, log=log), x=axes[0], y=axes[1])


def runs_at(found: pl.DataFrame, levels: Mapping[str, Sequence[str]], axes: tuple[str, str], key: str) -> pl.DataFrame:
    """The runs of `table` behind the cell `key` of the map; none where there is no such cell."""
    parts = key.split(",")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        return found.clear()
    places = [int(part) for part in parts]
    if any(place >= len(levels[name]) for place, name in zip(places, axes, strict=True)):
        return found.clear()
    for place, name in zip(places, axes, strict=True):
        found = found.filter(pl.col(_AXIS + name) == levels[name][place])
    return found


def _finite(found: pl.DataFrame) -> np.ndarray:
    values = found["value"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    return np.where(np.isfinite(values) & (found["status"] == "ok").to_numpy(), values, np.nan)


def _best(
    found: pl.DataFrame, measure: GridMeasure, rest: Sequence[str], within: Sequence[str]
) -> tuple[pl.DataFrame, str]:
    chosen = select_then_report(
        found,
        over=[_AXIS + name for name in rest],
        within=within,
        scale=measure.scale,
        better=measure.better,
        split="same",
    )
    return found.filter(pl.col("cell").is_in(list(chosen.choices))), chosen.warning.replace(_AXIS, "")
