"""What a grid measured of a printed value, by seed and in the printed unit: recorded under a name, or derived.

Derived are the means of accuracies over tasks, relative gains over softmax, added parameters, scores of sets of long
texts by their names, and the ranks of 002, table 5; the definitions are those of the papers' captions.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from dashboards.subject import Subject
from store.published.own import Own, Results, results
from store.published.reading import Cell, cells
from store.published.setting import pointed

Runs = Mapping[int, float]
"""Value by seed."""

_REASONING: Final = ("winogrande", "arc_easy", "arc_challenge")
_GROUP: Final = {"six": None, "eight": None, "three": True, "five": False}
"""How many tasks a mean is over, by the word in its name: all of the paper's, those of reasoning, the others."""


class Measured(NamedTuple):
    """What is beside a printed value."""

    runs: Runs
    point: str = ""
    """Where it was measured, in words."""
    why: str = ""
    """Why there is none."""


class Measuring(NamedTuple):
    """Everything of a grid that a table can ask for."""

    about: Subject
    found: Results
    names: Sequence[str]
    """All measurements that any trial of the grid has recorded."""


def measuring(about: Subject, table: Sequence[Cell]) -> Measuring:
    """Read of a grid what the cells of a table are of."""
    recorded = about.store.sql(
        "SELECT DISTINCT name FROM v_final WHERE grid = $grid UNION SELECT DISTINCT p.name FROM v_probe p "
        "JOIN grid_trial g USING (trial) WHERE g.grid = $grid ORDER BY name",
        {"grid": about.grid},
    )["name"].to_list()
    wanted = {cell.measurement for cell in table if cell.measurement is not None}
    wanted |= {name for cell in table for name in tasks_of(cell)}
    derived = tuple(f"lm_eval.{cell.metric.split()[0]}" for cell in table if cell.measurement is None)
    wanted |= {name for name in recorded if name.startswith(("long_context.", *derived))}
    return Measuring(about, results(about.store, about.grid, wanted), recorded)


def measured(cell: Cell, own: Own, base: Own | None, given: Measuring) -> Measured:
    """The values of `own` for what is printed at `cell`; `base` is the softmax of the same place, for gains."""
    if cell.measurement is not None:
        return _recorded(cell, cell.measurement, own, given)
    for words, derive in _DERIVED.items():
        if words in cell.metric:
            return derive(cell, own, base, given)
    return Measured({}, why=f"nothing here measures it: {cell.metric}")


def tasks_of(cell: Cell) -> Sequence[str]:
    """Of a mean over tasks, the measurements that it is the mean of; else nothing."""
    known = re.fullmatch(r"mean accuracy of (\w+)(?: \w+)? tasks", cell.metric)
    if known is None:
        return ()
    reasoning = _GROUP[known[1]]
    found = _tasks(cell.paper)
    if reasoning is None:
        return found
    return tuple(name for name in found if (name.split(".")[1] in _REASONING) == reasoning)


@cache
def _tasks(paper: str) -> tuple[str, ...]:
    """The accuracies of a paper's first table, of whose mean its other tables speak."""
    first = (each.measurement for each in cells() if each.paper == paper and each.paper_table == "T1")
    return tuple(dict.fromkeys(name for name in first if name is not None and name.split(".")[0] in _ACCURACIES))


_ACCURACIES: Final = ("lm_eval", "multiple_choice_acc_full")


def _recorded(cell: Cell, name: str, own: Own, given: Measuring) -> Measured:
    points = given.found.points(own.cell, name, cell.point)
    if not points:
        where = f" at {pointed(cell.point)}" if cell.point else ""
        return Measured({}, why=f"no finished run has {name}{where}")
    runs = given.found.values[own.cell, name][points[0]]
    return Measured({seed: value / cell.factor for seed, value in runs.items()}, pointed(dict(points[0])))


def _mean(cell: Cell, own: Own, base: Own | None, given: Measuring) -> Measured:
    del base
    names = tasks_of(cell)
    lacking = [name for name in names if (own.cell, name) not in given.found.values]
    if lacking:
        return Measured({}, why=f"no finished run has {lacking[0]}")
    parts = [next(iter(given.found.values[own.cell, name].values())) for name in names]
    seeds = set.intersection(*(set(part) for part in parts))
    return Measured({seed: _PERCENT * sum(part[seed] for part in parts) / len(parts) for seed in sorted(seeds)})


def _score(cell: Cell, own: Own, base: Own | None, given: Measuring) -> Measured:
    """Of a task whose exact set the paper does not say: the one that was judged."""
    del base
    name = _score_name(cell, given)
    if name is None:
        return Measured({}, why=f"no finished run has a score of {cell.metric.split()[0]}")
    at = {"fewshot": float(cell.setup["shots"])} if "shots" in cell.setup else {}
    points = given.found.points(own.cell, name, at)
    if not points:
        return Measured({}, why=f"no finished run has {name} at {pointed(at)}")
    runs = given.found.values[own.cell, name][points[0]]
    return Measured({seed: _PERCENT * value for seed, value in runs.items()}, pointed(dict(points[0])))


def _score_name(cell: Cell, given: Measuring) -> str | None:
    wanted = f"lm_eval.{cell.metric.split()[0]}"
    return next((each for each in given.names if each.startswith(wanted) and each.endswith(".acc")), None)


def _gain(cell: Cell, own: Own, base: Own | None, given: Measuring) -> Measured:
    """Per cent of softmax's value, seed by seed."""
    if base is None:
        return Measured({}, why="the grid has no softmax to gain on")
    one, other = (_score(cell, each, None, given) for each in (own, base))
    both = {seed: 100 * (value / other.runs[seed] - 1) for seed, value in one.runs.items() if other.runs.get(seed)}
    return Measured(both, one.point, one.why or other.why or "softmax has no value of the same seed")


def _added(cell: Cell, own: Own, base: Own | None, given: Measuring) -> Measured:
    del cell, base
    found = given.about.store.sql(
        "SELECT g.seed, t.operator_parameters / 1e6 AS millions FROM grid_trial g JOIN trial t USING (trial) "
        "WHERE g.grid = $grid AND g.cell = $cell AND t.status = 'ok' AND t.operator_parameters IS NOT NULL",
        {"grid": given.about.grid, "cell": own.cell},
    )
    return Measured(dict(found.iter_rows()), why="no finished run")


def _long(cell: Cell, own: Own, base: Own | None, given: Measuring) -> Measured:
    """The set of long texts that is named like the paper's: `long_context.passage_count` is PassageCount."""
    del base
    wanted = _letters(cell.metric.removeprefix("LongBench "))
    for name in given.names:
        if _letters(name.removeprefix("long_context.")).startswith(wanted) and name.startswith("long_context."):
            points = given.found.values.get((own.cell, name), {})
            for point, runs in points.items():
                return Measured({seed: _PERCENT * value for seed, value in runs.items()}, pointed(dict(point)))
    return Measured({}, why=f"no finished run has a set of long texts called {wanted}")


def _ranks(cell: Cell, own: Own, base: Own | None, given: Measuring) -> Measured:
    """The share of sequences whose effective rank is above softmax's, at a layer from the end, of the same seed."""
    if base is None:
        return Measured({}, why="the grid has no softmax to compare ranks with")
    found = given.about.store.sql(
        _RANKS,
        {"grid": given.about.grid, "own": own.cell, "base": base.cell, "last": int(cell.setup["layer from the end"])},
    )
    return Measured(
        dict(found.iter_rows()), why="no two finished runs of a seed have effective_rank_median by sequence"
    )


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


_PERCENT: Final = 100

_DERIVED: Final[Mapping[str, Callable[[Cell, Own, Own | None, Measuring], Measured]]] = {
    "mean accuracy": _mean,
    "relative gain": _gain,
    "lambada score": _score,
    "added parameters": _added,
    "LongBench": _long,
    "median rank": _ranks,
}
"""By words of the metric."""

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
