"""Learning curves at equal cost: what runs have reached after the same steps, tokens or seconds, paired by seed.

Nothing is interpolated: at cost x a run has the last value recorded at or before x. The results are the value at a
common budget, the mean value up to it, and the cost at which a level is first reached. The mean value is the area under
the curve divided by its width. A run whose curve ends before it reaches the level is censored: its cost is larger, by
an unknown amount.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from grid.errors import NotFoundError, SpecError
from grid.suggestions import suggest_name
from store.statistics.arms import Baseline, only_survivors
from store.statistics.multiple_testing import holm
from store.statistics.paired_differences import Floats, or_null, p_zero, summarise, t_interval
from store.statistics.scales import Scale, back, percent, response, varies
from store.statistics.verdict import MIN_PAIRS, Better
from store.statistics.verdict_reasons import ROBUST_PAIRS, few

COLUMNS: Final = ("cell", "label", "seed", "cost", "value")

SCHEMA: Final = {
    "cell": pl.String,
    "label": pl.String,
    "question": pl.String,
    "at": pl.Float64,
    "pairs": pl.Int64,
    "value": pl.Float64,
    "baseline_value": pl.Float64,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "percent": pl.Float64,
    "p": pl.Float64,
    "p_holm": pl.Float64,
    "ahead": pl.Int64,
    "behind": pl.Int64,
    "note": pl.String,
}
"""Columns of `compare_curves`, in order."""


class Curve(NamedTuple):
    """One run: costs, rising, and the value recorded at each."""

    cost: Floats
    value: Floats
    status: str = "ok"
    """ok: it ran to its end; failed: it broke off, or its values stopped being finite; else it is outstanding,
    and has no values."""


class Reached(NamedTuple):
    """The cost at which a run first was at a level, or, censored, at which its curve ended without."""

    cost: float
    censored: bool


def value_at(curve: Curve, x: float) -> float:
    """The last value recorded at or before `x`; NaN before the first and after the last."""
    if not curve.cost.size or x > curve.cost[-1]:
        return math.nan
    place = int(np.searchsorted(curve.cost, x, side="right")) - 1
    return float(curve.value[place]) if place >= 0 else math.nan


def mean_until(curve: Curve, start: float, stop: float) -> float:
    """Area under the steps of the curve between two costs over their distance; NaN where the curve does not reach."""
    if math.isnan(value_at(curve, start)) or math.isnan(value_at(curve, stop)) or stop <= start:
        return math.nan
    inside = (curve.cost > start) & (curve.cost < stop)
    edges = np.concatenate([[start], curve.cost[inside], [stop]])
    heights = np.concatenate([[value_at(curve, start)], curve.value[inside]])
    return float(heights @ np.diff(edges)) / (stop - start)


def cost_to_reach(curve: Curve, level: float, better: Better) -> Reached:
    """The first recorded cost at which the value is at `level` or better."""
    there = curve.value <= level if better == "lower" else curve.value >= level
    if there.any():
        return Reached(float(curve.cost[int(there.argmax())]), censored=False)
    return Reached(float(curve.cost[-1]) if curve.cost.size else 0.0, censored=True)


def read_curves(points: pl.DataFrame) -> dict[str, tuple[str, dict[int, Curve]]]:
    """Cell -> (label, seed -> curve) of `points`, one row per run and recorded value.

    A curve ends where it stops being finite: what comes after a diverged step is no learning. A row without a cost
    stands for a run that has recorded none.
    """
    missing = [name for name in COLUMNS if name not in points.columns]
    if missing:
        raise SpecError(f"curves need the columns {list(COLUMNS)}; {missing} are missing from {points.columns}")
    found: dict[str, tuple[str, dict[int, Curve]]] = {}
    for (cell, label, seed), rows in points.sort("cost", maintain_order=True).group_by(
        "cell", "label", "seed", maintain_order=True
    ):
        status = str(rows["status"][0]) if "status" in rows.columns else "ok"
        recorded = rows.drop_nulls("cost")
        cost, value = (recorded[name].cast(pl.Float64).to_numpy() for name in ("cost", "value"))
        bad = ~np.isfinite(value)
        if bad.any():
            end, status = int(bad.argmax()), "failed"
            cost, value = cost[:end], value[:end]
        found.setdefault(str(cell), (str(label), {}))[1][int(str(seed))] = Curve(cost, value, status)
    order = points["cell"].unique(maintain_order=True).to_list()
    return {str(cell): found[str(cell)] for cell in order}


class CurveRule(NamedTuple):
    """How values are compared: on which scale, in which direction, with intervals of level 1 - alpha."""

    scale: Scale
    better: Better = "lower"
    alpha: float = 0.05


def compare_curves(
    points: pl.DataFrame,
    rule: CurveRule,
    *,
    baseline: Baseline,
    budget: float | None = None,
    level: float | None = None,
) -> pl.DataFrame:
    """Each cell against `baseline` (a cell, or one for each), a row per question: `value at`, `mean until`, `cost to`.

    `points` has the columns cell, label, seed, cost, value, and status ("ok", "failed", or what else an
    outstanding run is called) if not all are ok. `budget` is by default the largest cost that every run has reached
    that did not break off; `level` asks for the cost to reach it. `difference` and its t interval are in units of the
    scale (costs: log ratios); `ahead` and `behind` count seeds on which the cell is known to be better or worse. With a
    censored run among the pairs there is no difference, only these counts. There is no p and no interval where
    `compare` would give no verdict: failures differ, fewer than three pairs, no spread; `note`
    says which. Holm is over the cells of one question.

    Raises:
        NotFoundError: the baseline has no curve, or no run has one.
        SpecError: a column lacks, the budget is not among the costs, or the level is no number.
    """
    cells = read_curves(points)
    bases = {cell: baseline for cell in cells if cell != baseline} if isinstance(baseline, str) else baseline
    for base in dict.fromkeys([baseline] if isinstance(baseline, str) else baseline.values()):
        if base not in cells:
            raise NotFoundError(f"the baseline {base!r} has no curve{suggest_name(base, list(cells))}")
    first, common = _common(cells)
    _check(cells, budget, level)
    budget = common if budget is None else budget
    asked: list[tuple[str, float]] = [("value at", budget), ("mean until", budget)]
    asked += [("cost to", level)] if level is not None else []
    rows = []
    for question, at in asked:
        of = [_row(cells, cell, bases[cell], _Question(question, at, first, rule)) for cell in cells if cell in bases]
        adjusted = holm(np.array([math.nan if row["p"] is None else row["p"] for row in of]))
        rows += [_adjust(row, float(p), rule.alpha) for row, p in zip(of, adjusted, strict=True)]
    return pl.DataFrame(rows, schema=SCHEMA)


def _adjust(row: Mapping[str, object], p: float, alpha: float) -> dict[str, object]:
    if p > alpha or math.isnan(p) or int(str(row["pairs"])) >= ROBUST_PAIRS:
        return {**row, "p_holm": or_null(p)}
    return {**row, "p_holm": p, "note": "; ".join(filter(None, (str(row["note"]), few())))}


def _check(cells: Mapping[str, tuple[str, Mapping[int, Curve]]], budget: float | None, level: float | None) -> None:
    every = [curve.cost for _, of in cells.values() for curve in of.values() if curve.cost.size]
    low, high = min(float(cost[0]) for cost in every), max(float(cost[-1]) for cost in every)
    if budget is not None and not low <= budget <= high:
        raise SpecError(
            f"a budget lies between the first and the last recorded cost, {low:g} and {high:g}; got {budget:g}"
        )
    if level is not None and not math.isfinite(level):
        raise SpecError(f"a level to be reached is a finite number; got {level:g}")


class _Question(NamedTuple):
    name: str
    at: float
    start: float
    rule: CurveRule


def _common(cells: Mapping[str, tuple[str, Mapping[int, Curve]]]) -> tuple[float, float]:
    """The first cost from which, and the last up to which, all runs that did not break off have values."""
    every = [curve for _, of in cells.values() for curve in of.values() if curve.cost.size]
    if not every:
        raise NotFoundError("no run has a curve with a finite value")
    curves = [curve for curve in every if curve.status == "ok"] or every
    return max(float(curve.cost[0]) for curve in curves), min(float(curve.cost[-1]) for curve in curves)


def _row(
    cells: Mapping[str, tuple[str, Mapping[int, Curve]]], cell: str, baseline: str, asked: _Question
) -> dict[str, object]:
    (label, ours), (_, theirs) = cells[cell], cells[baseline]
    shared = [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
    answers = [(_answer(x, asked), _answer(y, asked)) for x, y in shared]
    both = [pair for pair in answers if not any(math.isnan(each.cost) for each in pair)]
    ahead, behind = _order(both, "lower" if asked.name == "cost to" else asked.rule.better)
    row: dict[str, object] = {"cell": cell, "label": label, "question": asked.name, "at": asked.at}
    row |= {"pairs": len(both), "ahead": ahead, "behind": behind}
    barred = _failures_differ(shared, answers)
    told = [
        *_outstanding(shared),
        *_missing(shared, answers),
        *_never(label, both, asked),
        *([barred] if barred else []),
    ]
    if not both or any(each.censored for pair in both for each in pair):
        return {**dict.fromkeys(SCHEMA), **row, "note": "; ".join(told)}
    scale: Scale = "log" if asked.name == "cost to" else asked.rule.scale
    x, y = (response(np.array([pair[side].cost for pair in both]), scale) for side in (0, 1))
    shown = None if barred else _too_few(both) or _no_spread(x, y, scale)
    pairs = summarise(x - y)
    low, high = t_interval(pairs, asked.rule.alpha)
    numbers = {"difference": float(pairs.mean), **_plain(x, y, scale)}
    if not barred and not shown:
        numbers |= {"low": float(low), "high": float(high), "p": float(p_zero(pairs))}
    row["note"] = "; ".join([*told, *([shown] if shown else [])])
    return {**dict.fromkeys(SCHEMA), **row, **{name: or_null(number) for name, number in numbers.items()}}


def _answer(curve: Curve, asked: _Question) -> Reached:
    if asked.name == "cost to":
        return (
            cost_to_reach(curve, asked.at, asked.rule.better) if curve.cost.size else Reached(math.nan, censored=True)
        )
    if asked.name == "value at":
        return Reached(value_at(curve, asked.at), censored=False)
    return Reached(mean_until(curve, asked.start, asked.at), censored=False)


def _order(both: list[tuple[Reached, Reached]], better: Better) -> tuple[int, int]:
    """On how many seeds ours is known to be better, and worse; a censored cost is only known to be larger."""
    sign = 1 if better == "lower" else -1
    ahead = sum(sign * x.cost < sign * y.cost and not x.censored for x, y in both)
    ahead += sum(x.cost == y.cost and y.censored and not x.censored for x, y in both)
    behind = sum(sign * y.cost < sign * x.cost and not y.censored for x, y in both)
    behind += sum(x.cost == y.cost and x.censored and not y.censored for x, y in both)
    return ahead, behind


def _plain(x: Floats, y: Floats, scale: Scale) -> dict[str, float]:
    value, base = (back(float(side.mean()), scale) for side in (x, y))
    change = percent(float((x - y).mean()), base, scale)
    return {"value": value, "baseline_value": base, "percent": change}


_Runs = Sequence[tuple[Curve, Curve]]
"""Values of the cell and of the baseline, by shared seed."""
_Answers = Sequence[tuple[Reached, Reached]]

_ENDED: Final = ("ok", "failed")


def _outstanding(shared: _Runs) -> list[str]:
    ended = sum(all(each.status in _ENDED for each in pair) for pair in shared)
    return [f"preliminary: {ended} of {len(shared)} seeds"] if ended < len(shared) else []


def _missing(shared: _Runs, answers: _Answers) -> list[str]:
    lost = sum(
        any(math.isnan(each.cost) for each in found) and all(each.status in _ENDED for each in pair)
        for pair, found in zip(shared, answers, strict=True)
    )
    return [f"{lost} of {len(shared)} shared seeds have no value there"] if lost else []


def _never(label: str, both: _Answers, asked: _Question) -> Iterator[str]:
    for name, side in ((label, 0), ("the baseline", 1)):
        never = sum(pair[side].censored for pair in both)
        if never:
            yield f"{never} of {len(both)} runs of {name} end before they reach {asked.at:g}"


def _failures_differ(shared: _Runs, answers: _Answers) -> str | None:
    """A run that broke off before it had a value, on a seed on which the other arm has one, is no gap in the plan."""
    lost = [0, 0]
    for pair, found in zip(shared, answers, strict=True):
        absent = [math.isnan(each.cost) for each in found]
        for side in (0, 1):
            lost[side] += absent[side] and pair[side].status == "failed" and not absent[1 - side]
    return only_survivors(lost[0], lost[1], len(shared))


def _too_few(both: _Answers) -> str | None:
    return f"fewer than {MIN_PAIRS} pairs" if len(both) < MIN_PAIRS else None


def _no_spread(x: Floats, y: Floats, scale: Scale) -> str | None:
    if varies(x - y, (x, y), scale):
        return None
    if not (x - y).any():
        return "the values equal the baseline's on every seed"
    return "the difference is the same on every seed, so nothing is known about its noise"
