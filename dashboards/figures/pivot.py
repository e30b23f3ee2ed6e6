"""A grid over two of its axes, the others averaged, fixed or best; cells without a value say why."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go
import polars as pl

from dashboards.figures.heat import draw_heat, heat_ramp
from dashboards.seeds import Scale
from dashboards.words import change, number
from store import Store
from store.effects import levels_of
from store.statistics import Paired, select_then_report, t_interval
from store.statistics.paired import or_null
from store.statistics.scales import back, forward
from store.verdicts import Measure, runs

NOWHERE: Final = "does not apply"
"""The level of a cell on an axis that it does not have."""
_AXIS: Final = "axis: "
_STATES: Final = {"running": "running", "pending": "not run", "ok": "no value on this scale"}


class Pivot(NamedTuple):
    """The cells of the map."""

    frame: pl.DataFrame
    """x, y (in the grid's order), value (average over seeds), low, high, n (seeds), runs (that it rests on), planned
    (runs, of all seeds), reason (why there is no value; else null), key (places of the two levels), text, note."""
    span: tuple[float, float] | None
    """Least and greatest mean of a single cell of the grid: a scale that every choice of the others shares."""
    warning: str
    """What must be known of values that were chosen as the best."""


def table(store: Store, grid: str, measure: Measure) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    """Every planned run with its level on each axis, in columns "axis: NAME", and all levels of each axis in order.

    Columns beside those: as `store.verdicts.runs` has them, trial and why (the reason of a failure). Raises as that.
    """
    found = runs(store, grid, measure)
    header = store.grid(grid)
    levels = levels_of(header, found["axes"].to_list())
    columns = [pl.Series(_AXIS + name, [of or NOWHERE for of in each], pl.String) for name, each in levels.items()]
    why = store.sql(
        "SELECT g.cell, g.seed, g.trial, t.reason AS why FROM grid_trial g JOIN trial t USING (trial) "
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


def pivot(
    found: pl.DataFrame,
    levels: Mapping[str, Sequence[str]],
    measure: Measure,
    axes: tuple[str, str],
    *,
    fixed: Mapping[str, str],
    best: bool = False,
) -> Pivot:
    """The runs of `table` over two axes.

    Runs are averaged by seed over the axes that are neither shown nor `fixed`, then over seeds; with `best` the cell
    with the best mean stands for its setting instead, chosen on the seeds that are shown. Averages are of logarithms or
    log odds where the measure's scale says so; intervals are t over seeds.
    """
    units = forward(_finite(found), measure.scale)
    found = found.with_columns(pl.Series("units", units).fill_nan(None))
    spans = found.group_by("cell").agg(pl.col("units").mean())["units"].drop_nulls().to_list()
    span = (back(min(spans), measure.scale), back(max(spans), measure.scale)) if spans else None
    for name, level in fixed.items():
        found = found.filter(pl.col(_AXIS + name) == level)
    x, y = (_AXIS + name for name in axes)
    rest = [_AXIS + name for name, of in levels.items() if name not in (*axes, *fixed) and len(of) > 1]
    kept, warning = (found, "") if not best or not rest else _best(found, measure, rest, [x, y])
    averages = _averages(kept, measure, [x, y])
    reasons = {at: _reason(part) for at, part in found.group_by(x, y)}
    planned = {at: part.height for at, part in kept.group_by(x, y)}
    rows = []
    for i, up in enumerate(levels[axes[1]]):
        for j, across in enumerate(levels[axes[0]]):
            value = averages.get((across, up))
            reason = None if value is not None else reasons.get((across, up), "not planned")
            rows.append((across, up, *(value or (None,) * 5), planned.get((across, up), 0), reason, f"{j},{i}"))
    kinds = {"x": pl.String, "y": pl.String, **dict.fromkeys(("value", "low", "high"), pl.Float64)}
    kinds |= dict.fromkeys(("n", "runs", "planned"), pl.Int64) | {"reason": pl.String, "key": pl.String}
    frame = pl.DataFrame(rows, schema=kinds, orient="row")
    told = [
        _told(row, measure.scale) for row in frame.select("value", "low", "high", "n", "runs", "planned").iter_rows()
    ]
    return Pivot(
        frame.with_columns(
            pl.col("x").cast(pl.Enum(list(levels[axes[0]]))),
            pl.col("y").cast(pl.Enum(list(levels[axes[1]]))),
            pl.Series("text", [text for text, _ in told], pl.String),
            pl.Series("note", [note for _, note in told], pl.String),
        ),
        span,
        warning,
    )


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
    found: pl.DataFrame, measure: Measure, rest: Sequence[str], within: Sequence[str]
) -> tuple[pl.DataFrame, str]:
    chosen = select_then_report(
        found, over=rest, within=within, scale=measure.scale, better=measure.better, split="same"
    )
    return found.filter(pl.col("cell").is_in(list(chosen.choices))), chosen.warning.replace(_AXIS, "")


class _Average(NamedTuple):
    value: float | None
    low: float | None
    high: float | None
    n: int
    """Seeds."""
    runs: int


def _averages(found: pl.DataFrame, measure: Measure, keys: Sequence[str]) -> dict[tuple[str, str], _Average]:
    """By the levels of the two axes."""
    known = found.drop_nulls("units")
    by_seed = known.group_by(*keys, "seed").agg(pl.col("units").mean(), pl.len().alias("runs"))
    whole = by_seed.group_by(*keys).agg(
        pl.col("units").mean().alias("mean"),
        pl.col("units").std().alias("sd"),
        pl.len().alias("n"),
        pl.col("runs").sum(),
    )
    n, mean = whole["n"].cast(pl.Float64).to_numpy(), whole["mean"].to_numpy()
    low, high = t_interval(Paired(n, mean, whole["sd"].fill_null(np.nan).to_numpy()), measure.alpha)
    at = whole.select(*keys, "n", "runs").rows()
    found_: dict[tuple[str, str], _Average] = {}
    for row, *ends in zip(at, mean, low, high, strict=True):
        value, one, other = (or_null(back(float(each), measure.scale)) for each in ends)
        found_[row[0], row[1]] = _Average(value, one, other, row[2], row[3])
    return found_


def _reason(part: pl.DataFrame) -> str:
    """'failed: diverged', 'failed: diverged 2, error 1; running 1', 'not run'."""
    failed = Counter(str(why or "unknown") for why in part.filter(pl.col("status") == "failed")["why"])
    states = Counter(_STATES[state] for state in part["status"] if state != "failed")
    said = []
    if failed:
        counts = ", ".join(f"{why} {n}" if len(failed) > 1 else why for why, n in failed.most_common())
        said.append(f"failed: {counts}")
    said += [f"{word} {n}" if failed or len(states) > 1 else word for word, n in states.most_common()]
    return "; ".join(said)


def _told(row: tuple[Any, ...], scale: Scale) -> tuple[str, str]:
    value, low, high, n, rests_on, planned = row
    if value is None:
        return "", ""
    spread = spread_words(value, low, high, scale)
    few = "" if rests_on == planned else f", {rests_on}/{planned} runs"
    text = "<br>".join([number(value), *([spread] if spread else []), f"n {n}{few}"])
    ends = "" if low is None or high is None else f"{number(low)} to {number(high)}; "
    return text, f"{ends}{rests_on} of {planned} planned runs"


def spread_words(value: float, low: float | None, high: float | None, scale: Scale) -> str:
    """Half an interval: '± 0.02'; on the log scale '± 4 %' or '×÷ 2.3'; '' where there is none."""
    if low is None or high is None:
        return ""
    if scale == "log" and value > 0 and high > 0:
        half = math.log(high / value)
        return f"±{change(half, 'log').replace('+', ' ')}" if half < math.log(2) else f"×÷ {math.exp(half):.2g}"
    return f"± {number((high - low) / 2, 2)}"
