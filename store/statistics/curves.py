"""Learning curves at equal cost: what runs have reached after the same steps, tokens or seconds, paired by seed.

Nothing is interpolated: at cost x a run has the last value recorded at or before x. The mean value up to a budget is
the area under the curve divided by its width. A run whose curve ends before it reaches a level is censored: its cost
is larger, by an unknown amount.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from ablate.grid.errors import NotFoundError, SpecError
from ablate.store.state import State
from ablate.store.statistics.arms import (
    Baseline,
    Outcome,
    Unusable,
    match_cells,
    no_spread,
    only_survivors,
    widen_by_choice,
)
from ablate.store.statistics.paired_differences import Floats, or_null, p_zero, summarise, t_interval
from ablate.store.statistics.scales import Scale, back, percent, response, varies
from ablate.store.statistics.verdict import MIN_PAIRS, ROBUST_PAIRS, Better, few, holm

COLUMNS: Final = ("cell", "label", "seed", "cost", "value")
NOT_FINITE: Final = "not finite"
_OUTCOMES: Final[Mapping[str, Outcome]] = {State.DONE: "measured", State.FAILED: "failed"}

SCHEMA: Final[dict[str, Any]] = {
    **dict.fromkeys(("cell", "label", "question"), pl.String),
    "at": pl.Float64,
    "pairs": pl.Int64,
    **dict.fromkeys(("value", "baseline_value", "difference", "low", "high", "percent", "p", "p_holm"), pl.Float64),
    **dict.fromkeys(("ahead", "behind"), pl.Int64),
    "note": pl.String,
}


class Curve(NamedTuple):
    """One run: costs, rising, and the value recorded at each.

    Its outcome is "not finite" if its values stopped being so. One that is outstanding may have no values.
    """

    cost: Floats
    value: Floats
    outcome: Outcome = "measured"


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


Cells = Mapping[str, tuple[str, Mapping[int, Curve]]]  # cell -> (label, seed -> curve)


def read_curves(points: pl.DataFrame) -> Cells:
    """The curves of `points`, one row per run and recorded value.

    A curve ends where it stops being finite: what comes after a diverged step is no learning. A row without a cost
    stands for a run that has recorded none.
    """
    missing = [name for name in COLUMNS if name not in points.columns]
    if missing:
        raise SpecError(f"the columns {missing} are missing from {points.columns}; curves need {list(COLUMNS)}")
    order = points["cell"].unique(maintain_order=True).to_list()
    cells: dict[str, tuple[str, dict[int, Curve]]] = {str(cell): ("", {}) for cell in order}
    for (cell, label, seed), rows in points.sort("cost", maintain_order=True).group_by(
        "cell", "label", "seed", maintain_order=True
    ):
        state = rows["state"][0] if "state" in rows.columns else State.DONE
        outcome = _OUTCOMES.get(state, "outstanding")
        recorded = rows.drop_nulls("cost")
        cost, value = (recorded[name].cast(pl.Float64).to_numpy() for name in ("cost", "value"))
        bad = ~np.isfinite(value)
        if bad.any():
            end, outcome = int(bad.argmax()), outcome if outcome == "failed" else NOT_FINITE
            cost, value = cost[:end], value[:end]
        curves = cells[str(cell)][1]
        curves[int(str(seed))] = Curve(cost, value, outcome)
        cells[str(cell)] = str(label), curves
    return cells


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
    chosen: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Each cell against `baseline` (a cell, or one for each), a row per question: `value at`, `mean until`, `cost to`.

    `points` has the columns cell, label, seed, cost, value, and the state of each run if not all are done. `budget` is
    by default the largest cost that every run has reached that did not break off; `level` asks for the cost to reach
    it. Runs of tuned cells are those that the other seeds choose; `chosen` has those that all seeds choose, so that
    errors contain what choosing adds. docs/factorial.md explains the columns. With a censored run among the pairs there
    is no difference. There is no p and no interval if `compare` would give no verdict; `note` says why. Holm is over
    the cells of one question. Raises NotFoundError: the baseline has no curve, or no run has one; SpecError: a column
    lacks, the budget is not among the costs, or the level is no number.
    """
    cells, fixed = read_curves(points), {} if chosen is None else read_curves(chosen)
    bases = match_cells(list(cells), baseline)
    first, common = _common(cells, budget, level)
    budget = common if budget is None else budget
    questions = [("value at", budget), ("mean until", budget), *([("cost to", level)] if level is not None else [])]
    rows = []
    for name, at in questions:
        question = _Question(name, at, first, rule)
        of = [
            _row(cells[cell], cells[base], question, cell, (fixed[cell][1], fixed[base][1]) if fixed else None)
            for cell, base in bases.items()
        ]
        adjusted = holm(np.array([math.nan if row["p"] is None else row["p"] for row in of]))
        for row, p in zip(of, adjusted, strict=True):
            caution = few() if p <= rule.alpha and row["pairs"] < ROBUST_PAIRS else ""
            row |= {"p_holm": or_null(p), "note": "; ".join(filter(None, (row["note"], caution)))}
        rows += of
    return pl.DataFrame(rows, schema=SCHEMA)


class _Question(NamedTuple):
    name: str
    at: float
    start: float
    rule: CurveRule

    def answer(self, curve: Curve) -> Reached:
        """Return what `curve` has reached; NaN where it says nothing."""
        if self.name == "cost to":
            known = curve.cost.size > 0
            return cost_to_reach(curve, self.at, self.rule.better) if known else Reached(math.nan, censored=True)
        value = value_at(curve, self.at) if self.name == "value at" else mean_until(curve, self.start, self.at)
        return Reached(value, censored=False)


def _common(cells: Cells, budget: float | None, level: float | None) -> tuple[float, float]:
    """The first cost from which, and the last up to which, all runs that did not break off have values."""
    every = [curve for _, of in cells.values() for curve in of.values() if curve.cost.size]
    if not every:
        raise NotFoundError("no run has a curve with a finite value")
    low, high = min(float(curve.cost[0]) for curve in every), max(float(curve.cost[-1]) for curve in every)
    if budget is not None and not low <= budget <= high:
        raise SpecError(f"the budget {budget:g} is not among the recorded costs; give one from {low:g} to {high:g}")
    if level is not None and not math.isfinite(level):
        raise SpecError(f"the level {level:g} cannot be reached; give a finite number")
    curves = [curve for curve in every if curve.outcome == "measured"] or every
    return max(float(curve.cost[0]) for curve in curves), min(float(curve.cost[-1]) for curve in curves)


def _row(
    cell: tuple[str, Mapping[int, Curve]],
    base: tuple[str, Mapping[int, Curve]],
    question: _Question,
    key: str,
    fixed: tuple[Mapping[int, Curve], Mapping[int, Curve]] | None,
) -> dict[str, Any]:
    (label, ours), (_, theirs) = cell, base
    runs = [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
    answers = [(question.answer(x), question.answer(y)) for x, y in runs]
    both = [pair for pair in answers if not any(math.isnan(each.cost) for each in pair)]
    ahead, behind = _order(both, "lower" if question.name == "cost to" else question.rule.better)
    row: dict[str, Any] = {**dict.fromkeys(SCHEMA), "cell": key, "label": label, "question": question.name}
    row |= {"at": question.at, "pairs": len(both), "ahead": ahead, "behind": behind}
    barred = _failures_differ(runs, answers)
    told = [*_gaps(label, runs, answers, question), *([barred] if barred else [])]
    if not both or any(each.censored for pair in both for each in pair):
        return {**row, "note": "; ".join(told)}
    scale: Scale = "log" if question.name == "cost to" else question.rule.scale
    x, y = (response(np.array([pair[side].cost for pair in both]), scale) for side in (0, 1))
    shown = None if barred else _no_test(x, y, scale)
    pairs = summarise(x - y)
    if fixed is not None:
        pairs = widen_by_choice(pairs, _differences(*fixed, question, scale))
    value, reference = (back(float(side.mean()), scale) for side in (x, y))
    numbers = {"difference": float(pairs.mean), "value": value, "baseline_value": reference}
    numbers["percent"] = percent(float(pairs.mean), reference, scale)
    if not barred and not shown:
        low, high = t_interval(pairs, question.rule.alpha)
        numbers |= {"low": float(low), "high": float(high), "p": float(p_zero(pairs))}
    note = "; ".join([*told, *([shown] if shown else [])])
    return {**row, **{name: or_null(number) for name, number in numbers.items()}, "note": note}


def _differences(ours: Mapping[int, Curve], theirs: Mapping[int, Curve], question: _Question, scale: Scale) -> Floats:
    """Differences on the seeds on which both curves have reached an answer."""
    both = [[question.answer(of[seed]) for of in (ours, theirs)] for seed in sorted(ours.keys() & theirs.keys())]
    known = [
        [each.cost for each in pair]
        for pair in both
        if all(math.isfinite(each.cost) and not each.censored for each in pair)
    ]
    x, y = response(np.array(known, dtype=np.float64).reshape(-1, 2).T, scale)
    return np.asarray(x - y)


_Runs = Sequence[tuple[Curve, Curve]]  # curves of the cell and of the baseline, by shared seed
_Answers = Sequence[tuple[Reached, Reached]]


def _order(both: _Answers, better: Better) -> tuple[int, int]:
    """On how many seeds ours is known to be better, and worse; a censored cost is only known to be larger."""
    sign = 1 if better == "lower" else -1

    def beats(x: Reached, y: Reached) -> bool:
        return not x.censored and (sign * x.cost < sign * y.cost or (x.cost == y.cost and y.censored))

    return sum(beats(x, y) for x, y in both), sum(beats(y, x) for x, y in both)


def _gaps(label: str, runs: _Runs, answers: _Answers, question: _Question) -> list[str]:
    """Seeds that are outstanding, have no value there, or never reach the level."""
    ended = [all(each.outcome != "outstanding" for each in pair) for pair in runs]
    unknown = [any(math.isnan(each.cost) for each in pair) for pair in answers]
    lost = sum(map(all, zip(ended, unknown, strict=True)))
    told = [f"preliminary: {sum(ended)} of {len(runs)} seeds"] if not all(ended) else []
    told += [f"{lost} of {len(runs)} shared seeds have no value there"] if lost else []
    both = [pair for pair, absent in zip(answers, unknown, strict=True) if not absent]
    for name, side in ((label, 0), ("the baseline", 1)):
        never = sum(pair[side].censored for pair in both)
        told += [f"{never} of {len(both)} runs of {name} end before they reach {question.at:g}"] if never else []
    return told


def _failures_differ(runs: _Runs, answers: _Answers) -> str | None:
    """A run that broke off before it had a value, on a seed on which the other arm has one, is no gap in the plan."""
    lost = [Counter[str](), Counter[str]()]
    for pair, reached in zip(runs, answers, strict=True):
        absent = [math.isnan(each.cost) for each in reached]
        for side in (0, 1):
            lost[side][pair[side].outcome] += absent[side] and not absent[1 - side]
    here, there = (Unusable(each["failed"], each[NOT_FINITE]) for each in lost)
    return only_survivors(here, there, len(runs))


def _no_test(x: Floats, y: Floats, scale: Scale) -> str | None:
    if x.size < MIN_PAIRS:
        return f"fewer than {MIN_PAIRS} pairs"
    return None if varies(x - y, (x, y), scale) else no_spread(x, y)
