"""Find a grid's values for a printed one, by seed and in the printed unit: recorded, or derived as captions define."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from ablate.dashboards.data.grid_context import GridContext
from ablate.papers.matching.our_results import Own, Results, results
from ablate.papers.matching.published_matching import format_point
from ablate.store.published.tables import PublishedCell, cells

_REASONING: Final = ("winogrande", "arc_easy", "arc_challenge")
_MEANS: Final[Mapping[str, bool | None]] = {
    "mean accuracy of six tasks": None,
    "mean accuracy of eight tasks": None,
    "mean accuracy of three reasoning tasks": True,
    "mean accuracy of five knowledge tasks": False,
}
"""Metrics that are means over tasks: over those of reasoning, over the others, or over all (None)."""
_PERCENT: Final = 0.01  # scores are printed in per cent
_STRETCHED: Final = {"factor": 4.0}  # 002 stretches positions of 2,048 tokens fourfold (section 4.4)


class Measured(NamedTuple):
    """Your own values for a printed one."""

    runs: Mapping[int, float]  # value by seed
    point: str = ""  # where it was measured, in words
    points: int = 1  # number of points of the grid that agree with what is printed; the first of them is shown
    why: str = ""  # why there is none


class RecordedMetrics(NamedTuple):
    """The measurements of a grid for a table."""

    context: GridContext
    results: Results
    names: Sequence[str]  # all measurements of any trial of the grid


def read_recorded(context: GridContext, table: Sequence[PublishedCell]) -> RecordedMetrics:
    """Read what a grid recorded for the cells of a table."""
    recorded = context.store.sql(
        "SELECT DISTINCT name FROM v_final WHERE grid = $grid UNION SELECT DISTINCT p.name FROM v_probe p "
        "JOIN grid_trial g USING (trial) WHERE g.grid = $grid ORDER BY name",
        {"grid": context.grid},
    )["name"].to_list()
    needed = {name for cell in table for name in list_needed_names(cell)}
    patterns = [_pattern(name) for name in needed]
    wanted = needed | {name for name in recorded if any(each.fullmatch(_letters(name)) for each in patterns)}
    return RecordedMetrics(context, results(context.store, context.grid, wanted), recorded)


def list_needed_names(cell: PublishedCell) -> Sequence[str]:
    """The names that a run has to record for a value beside `cell`; "SET" stands for what the paper leaves open."""
    if cell.measurement is not None:
        return (cell.measurement,)
    if cell.metric in _MEANS:
        reasoning = _MEANS[cell.metric]
        return [name for name in _tasks(cell.paper) if reasoning in (None, name.split(".")[1] in _REASONING)]
    kind, task = _kind(cell)
    return [] if kind is None or not kind.name else [kind.name.format("lambada_SET" if task == "lambada" else task)]


def find_values(cell: PublishedCell, own: Own, recorded: RecordedMetrics) -> Measured:
    """The values of `own` for what is printed at `cell`."""
    if cell.measurement is not None:
        return _at(cell.measurement, cell.point, own, recorded, cell.factor)
    if cell.metric in _MEANS:
        return _mean(cell, own, recorded)
    kind, _ = _kind(cell)
    if kind is None:
        return Measured({}, why=f"nothing here measures it: {cell.metric}")
    return kind.derive(cell, own, recorded)


def _softmax_like(own: Own, recorded: RecordedMetrics) -> Own | None:
    """Return the softmax of the grid whose spec is the same else."""
    results = recorded.results
    plain = (each for each in results.cells.values() if ("softmax", ()) in results.operators.get(each.cell, ()))
    return next((each for each in plain if each.rest == own.rest), None)


@cache
def _tasks(paper: str) -> Mapping[str, Mapping[str, float]]:
    """The accuracies of a paper's first table, whose mean its other tables print, with their points."""
    first = (each for each in cells() if each.paper == paper and each.paper_table == "T1" and each.measurement)
    return {name: each.point for each in first if (name := each.measurement or "").startswith("lm_eval.")}


def _at(name: str, at: Mapping[str, float], own: Own, recorded: RecordedMetrics, factor: float) -> Measured:
    """Return the values of a cell at the first point that agrees with `at`, and the number of such points."""
    points = recorded.results.points(own.cell, name, at)
    if not points:
        return Measured({}, why=f"no finished run has {name}{f' at {format_point(at)}' if at else ''}")
    runs = recorded.results.values[own.cell, name][points[0]]
    scaled = {seed: value / factor for seed, value in runs.items()}
    return Measured(scaled, format_point(dict(points[0])), len(points))


def _mean(cell: PublishedCell, own: Own, recorded: RecordedMetrics) -> Measured:
    """Average tasks that were all judged at one point."""
    names = list_needed_names(cell)
    at = _tasks(cell.paper)[names[0]]
    points = {name: recorded.results.points(own.cell, name, at) for name in names}
    lacking = next((name for name in names if not points[name]), None)
    if lacking is not None:
        return _at(lacking, at, own, recorded, _PERCENT)
    shared = [point for point in points[names[0]] if all(point in of for of in points.values())]
    if not shared:
        return Measured({}, why=f"no point has all of {len(names)} tasks")
    parts = [recorded.results.values[own.cell, name][shared[0]] for name in names]
    seeds = sorted(set.intersection(*(set(part) for part in parts)))
    mean = {seed: sum(part[seed] for part in parts) / len(parts) / _PERCENT for seed in seeds}
    return Measured(mean, format_point(dict(shared[0])), len(shared))


def _score(cell: PublishedCell, own: Own, recorded: RecordedMetrics) -> Measured:
    """Return the values of the first recorded name that fits the needed one, in the printed setting."""
    (needed,) = list_needed_names(cell)
    name = next((name for name in recorded.names if _pattern(needed).fullmatch(_letters(name))), needed)
    at = _STRETCHED if "LongBench" in cell.metric else {"fewshot": float(cell.setup["shots"])}
    return _at(name, at, own, recorded, _PERCENT)


def _pattern(needed: str) -> re.Pattern[str]:
    """Match a recorded name in the paper's spelling: `longbench_passage_count` is PassageCount, in English."""
    letters = _letters(needed).replace("lambadaset", "lambada[a-z]*")
    return re.compile(re.sub("(?<=longbench)(.*)score$", r"\1(en)?score", letters))


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


_NO_SOFTMAX: Final = Measured({}, why="no cell of softmax differs from this one in the operator only")


def _gain(cell: PublishedCell, own: Own, recorded: RecordedMetrics) -> Measured:
    """Per cent of softmax's value, seed by seed."""
    base = _softmax_like(own, recorded)
    if base is None:
        return _NO_SOFTMAX
    one, other = (_score(cell, each, recorded) for each in (own, base))
    if one.point != other.point:
        return Measured({}, why="softmax was evaluated at another point")
    both = {seed: 100 * (value / other.runs[seed] - 1) for seed, value in one.runs.items() if other.runs.get(seed)}
    return Measured(both, one.point, one.points, one.why or other.why or "softmax has no value of the same seed")


def _added_parameters(cell: PublishedCell, own: Own, recorded: RecordedMetrics) -> Measured:
    del cell
    millions = recorded.context.store.sql(
        "SELECT g.seed, t.operator_parameters / 1e6 AS millions FROM grid_trial g JOIN trial t USING (trial) "
        "WHERE g.grid = $grid AND g.cell = $cell AND t.state = 'done' AND t.operator_parameters IS NOT NULL",
        {"grid": recorded.context.grid, "cell": own.cell},
    )
    return Measured(dict(millions.iter_rows()), why="no finished run")


def _ranks(cell: PublishedCell, own: Own, recorded: RecordedMetrics) -> Measured:
    """The share of sequences whose effective rank is above softmax's, at a layer from the end, of the same seed."""
    base = _softmax_like(own, recorded)
    if base is None:
        return _NO_SOFTMAX
    last = int(cell.setup["layer from the end"])
    shares = recorded.context.store.sql(
        _RANKS, {"grid": recorded.context.grid, "own": own.cell, "base": base.cell, "last": last}
    )
    why = "no two finished runs of a seed have effective_rank_median by sequence"
    return Measured(dict(shares.iter_rows()), why=why)


class _Kind(NamedTuple):
    derive: Callable[[PublishedCell, Own, RecordedMetrics], Measured]
    name: str  # name of the measurement; {} is the task; empty: every run is enough


_KINDS: Final[Mapping[str, _Kind]] = {
    "relative gain over softmax": _Kind(_gain, "lm_eval.{}.acc"),
    "score": _Kind(_score, "lm_eval.{}.acc"),
    "LongBench": _Kind(_score, "lm_eval.longbench_{}.score"),
    "added parameters": _Kind(_added_parameters, ""),
    "samples whose median rank exceeds softmax's": _Kind(_ranks, "effective_rank_median"),
}
"""How a metric is derived; its name in the tables may have a task before or behind it."""


def _kind(cell: PublishedCell) -> tuple[_Kind | None, str]:
    """Return how a metric is derived, and its task."""
    first, _, rest = cell.metric.partition(" ")
    key = next((each for each in (cell.metric, first, rest) if each in _KINDS), "")
    return _KINDS.get(key), rest if key == first else first


_RANKS: Final = """
WITH rank AS (
    SELECT g.cell, g.seed, p.layer, p.point['sequence'] AS sequence, p.value
    FROM v_probe p JOIN grid_trial g USING (trial) JOIN trial t USING (trial)
    WHERE g.grid = $grid AND g.cell IN ($own, $base) AND p.name = 'effective_rank_median' AND t.state = 'done'
      AND isfinite(p.value)
    QUALIFY p.step = max(p.step) OVER (PARTITION BY p.trial)
)
SELECT a.seed, 100 * avg((a.value > b.value)::INT) AS higher
FROM rank a JOIN rank b USING (seed, layer, sequence)
WHERE a.cell = $own AND b.cell = $base AND layer = (SELECT max(layer) FROM rank) + 1 - $last
GROUP BY a.seed ORDER BY a.seed
"""
