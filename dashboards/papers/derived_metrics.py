"""Find a grid's values for a printed one, by seed and in the printed unit.

A value is recorded under a name, or derived: mean accuracies over tasks, relative gains over softmax, added parameters,
scores of sets of long texts, and the ranks of 002, table 5. The definitions are those of the papers' captions.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from dashboards.data.grid_context import GridContext
from store.analysis.our_results import Own, Results, results
from store.analysis.published_matching import format_point
from store.published.tables import PublishedCell, cells

Runs = Mapping[int, float]
"""Value by seed."""

_REASONING: Final = ("winogrande", "arc_easy", "arc_challenge")
_GROUP: Final = {"six": None, "eight": None, "three": True, "five": False}
"""How many tasks a mean is over, by the word in its name: all of the paper's, those of reasoning, the others."""


class Measured(NamedTuple):
    """One's own values for a printed one."""

    runs: Runs
    point: str = ""
    """Where it was measured, in words."""
    points: int = 1
    """How many points of the grid agree with what is printed; the first of them is shown."""
    why: str = ""
    """Why there is none."""


class Measuring(NamedTuple):
    """Everything of a grid that a table can ask for."""

    about: GridContext
    found: Results
    names: Sequence[str]
    """All measurements that any trial of the grid has recorded."""


def measuring(about: GridContext, table: Sequence[PublishedCell]) -> Measuring:
    """Read of a grid what the cells of a table are of."""
    recorded = about.store.sql(
        "SELECT DISTINCT name FROM v_final WHERE grid = $grid UNION SELECT DISTINCT p.name FROM v_probe p "
        "JOIN grid_trial g USING (trial) WHERE g.grid = $grid ORDER BY name",
        {"grid": about.grid},
    )["name"].to_list()
    wanted = {cell.measurement for cell in table if cell.measurement is not None}
    wanted |= {name for cell in table for name in tasks_of(cell)}
    derived = tuple(f"lm_eval.{cell.metric.split()[0]}" for cell in table if cell.measurement is None)
    wanted |= {name for name in recorded if name.startswith((_LONG, *derived))}
    return Measuring(about, results(about.store, about.grid, wanted), recorded)


def find_values(cell: PublishedCell, own: Own, base: Own | None, given: Measuring) -> Measured:
    """The values of `own` for what is printed at `cell`; `base` is the softmax of the same place, for gains."""
    if cell.measurement is not None:
        return _at(cell.measurement, cell.point, own, given, cell.factor)
    for words, (derive, _) in _DERIVED.items():
        if words in cell.metric:
            return derive(cell, own, base, given)
    return Measured({}, why=f"nothing here measures it: {cell.metric}")


def list_needed_names(cell: PublishedCell) -> Sequence[str]:
    """The names that a run has to record for a value beside `cell`; capitals stand for what the paper leaves open."""
    if cell.measurement is not None:
        return (cell.measurement,)
    first, *_, last = cell.metric.split()
    name = next((name for words, (_, name) in _DERIVED.items() if words in cell.metric), "")
    first = "lambada_SET" if first == "lambada" else first
    return tasks_of(cell) or ([name.format(first=first, last=last)] if name else [])


def tasks_of(cell: PublishedCell) -> Sequence[str]:
    """Return the measurements whose mean is printed; empty for any other metric."""
    known = re.fullmatch(r"mean accuracy of (\w+)(?: \w+)? tasks", cell.metric)
    if known is None:
        return ()
    wanted = _GROUP[known[1]]
    return tuple(name for name in _tasks(cell.paper) if wanted in (None, name.split(".")[1] in _REASONING))


@cache
def _tasks(paper: str) -> Mapping[str, Mapping[str, float]]:
    """The accuracies of a paper's first table, of whose mean its other tables speak, with the points they are at."""
    first = (each for each in cells() if each.paper == paper and each.paper_table == "T1" and each.measurement)
    return {name: each.point for each in first if (name := each.measurement or "").split(".")[0] in _ACCURACIES}


_ACCURACIES: Final = ("lm_eval", "multiple_choice_acc_full")


def _at(name: str, at: Mapping[str, float], own: Own, given: Measuring, factor: float) -> Measured:
    """Return the values of a cell at the first point that agrees with `at`, and the number of such points."""
    points = given.found.points(own.cell, name, at)
    if not points:
        return Measured({}, why=f"no finished run has {name}{f' at {format_point(at)}' if at else ''}")
    runs = given.found.values[own.cell, name][points[0]]
    scaled = {seed: value / factor for seed, value in runs.items()}
    return Measured(scaled, format_point(dict(points[0])), len(points))


def _mean(cell: PublishedCell, own: Own, base: Own | None, given: Measuring) -> Measured:
    """Over tasks that were all judged at one point."""
    del base
    names = tasks_of(cell)
    at = _tasks(cell.paper)[names[0]]
    each = {name: given.found.points(own.cell, name, at) for name in names}
    for name in names:
        if not each[name]:
            return _at(name, at, own, given, _SHARE)
    shared = [point for point in each[names[0]] if all(point in of for of in each.values())]
    if not shared:
        return Measured({}, why=f"no point has all of {len(names)} tasks")
    parts = [given.found.values[own.cell, name][shared[0]] for name in names]
    seeds = sorted(set.intersection(*(set(part) for part in parts)))
    mean = {seed: sum(part[seed] for part in parts) / len(parts) / _SHARE for seed in seeds}
    return Measured(mean, format_point(dict(shared[0])), len(shared))


def _score(cell: PublishedCell, own: Own, base: Own | None, given: Measuring) -> Measured:
    """Return the score of the set that was judged, as the paper does not name the exact one."""
    del base
    task = cell.metric.split()[0]
    called = re.compile(rf"lm_eval\.{task}{'(_[a-z]+)?' if task == 'lambada' else ''}\.acc")
    for name in given.names:
        if called.fullmatch(name):
            return _at(name, {"fewshot": float(cell.setup["shots"])}, own, given, _SHARE)
    return Measured({}, why=f"no finished run has a score of {task}")


def _gain(cell: PublishedCell, own: Own, base: Own | None, given: Measuring) -> Measured:
    """Per cent of softmax's value, seed by seed."""
    if base is None:
        return Measured({}, why="no cell of softmax differs from this one in the operator only, to gain on")
    one, other = (_score(cell, each, None, given) for each in (own, base))
    both = {seed: 100 * (value / other.runs[seed] - 1) for seed, value in one.runs.items() if other.runs.get(seed)}
    if one.point != other.point:
        return Measured({}, why="softmax was judged at another point")
    return Measured(both, one.point, one.points, one.why or other.why or "softmax has no value of the same seed")


def _count_added(cell: PublishedCell, own: Own, base: Own | None, given: Measuring) -> Measured:
    del cell, base
    found = given.about.store.sql(
        "SELECT g.seed, t.operator_parameters / 1e6 AS millions FROM grid_trial g JOIN trial t USING (trial) "
        "WHERE g.grid = $grid AND g.cell = $cell AND t.status = 'ok' AND t.operator_parameters IS NOT NULL",
        {"grid": given.about.grid, "cell": own.cell},
    )
    return Measured(dict(found.iter_rows()), why="no finished run")


def _long(cell: PublishedCell, own: Own, base: Own | None, given: Measuring) -> Measured:
    """The set of long texts that is named like the paper's: `long_context.passage_count` is PassageCount."""
    del base
    wanted = _letters(cell.metric.removeprefix(_BENCH))
    called = {wanted, f"{wanted}en"}  # LongBench has sets in two languages, and the paper uses the English ones
    for name in given.names:
        if name.startswith(_LONG) and _letters(name.removeprefix(_LONG)) in called:
            return _at(name, _STRETCHED, own, given, _SHARE)
    return Measured({}, why=f"no finished run has a set of long texts called {wanted}")


def _ranks(cell: PublishedCell, own: Own, base: Own | None, given: Measuring) -> Measured:
    """The share of sequences whose effective rank is above softmax's, at a layer from the end, of the same seed."""
    if base is None:
        return Measured({}, why="no cell of softmax differs from this one in the operator only, to compare ranks with")
    found = given.about.store.sql(
        _RANKS,
        {"grid": given.about.grid, "own": own.cell, "base": base.cell, "last": int(cell.setup["layer from the end"])},
    )
    return Measured(
        dict(found.iter_rows()), why="no two finished runs of a seed have effective_rank_median by sequence"
    )


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


_SHARE: Final = 0.01
"""Scores are printed in per cent."""
_BENCH, _LONG = "LongBench ", "long_context."
_STRETCHED: Final = {"factor": 4.0}
"""002 stretches positions of 2,048 tokens fourfold (section 4.4)."""

_Derive = Callable[[PublishedCell, Own, Own | None, Measuring], Measured]
_DERIVED: Final[Mapping[str, tuple[_Derive, str]]] = {
    "mean accuracy": (_mean, ""),
    "relative gain": (_gain, "lm_eval.{first}.acc"),
    "lambada score": (_score, "lm_eval.{first}.acc"),
    "added parameters": (_count_added, ""),
    "LongBench": (_long, "long_context.{last}"),
    "median rank": (_ranks, "effective_rank_median"),
}
"""How a metric is derived and the name that it is made of, by words of the metric.

The tasks of a mean are in `tasks_of`; added parameters are known of every run.
"""

_RANKS: Final = """
WITH rank AS (
    SELECT g.cell, g.seed, p.layer, p.point['sequence'] AS sequence, p.value
    FROM v_probe p JOIN grid_trial g USING (trial) JOIN trial t USING (trial)
    WHERE g.grid = $grid AND g.cell IN ($own, $base) AND p.name = 'effective_rank_median' AND t.status = 'ok'
      AND isfinite(p.value)
    QUALIFY p.step = max(p.step) OVER (PARTITION BY p.trial)
)
SELECT a.seed, 100 * avg((a.value > b.value)::INT) AS higher
FROM rank a JOIN rank b USING (seed, layer, sequence)
WHERE a.cell = $own AND b.cell = $base AND layer = (SELECT max(layer) FROM rank) + 1 - $last
GROUP BY a.seed ORDER BY a.seed
"""
