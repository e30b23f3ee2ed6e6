"""Results of a grid to compare with published values: cells, operators, measurements."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from ablate.store.analysis.verdicts import GridMeasure, runs
from ablate.store.state import State
from ablate.store.statistics.arms import Arm, arms
from ablate.store.store import Store

Point = tuple[tuple[str, float], ...]


class Own(NamedTuple):
    """A cell of the grid."""

    cell: str
    label: str
    task: Mapping[str, Any]
    placement: str
    rest: str  # its spec without operator, placement and probes: what an arm shares with the one it is compared with
    parameters: int | None
    steps: int | None
    tokens: float | None
    said: Mapping[str, str] = {}
    """Facts of the spec that papers use to tell setups apart, in their words: `{"heads": "8"}`."""
    probed: int | None = None  # positions of the sequences that probes look at; None where the spec does not say


class Results(NamedTuple):
    """Everything that a comparison asks of a grid."""

    cells: Mapping[str, Own]  # in the order of the plan
    operators: Mapping[str, Collection[tuple[str, Point | tuple[tuple[str, str], ...]]]]
    """By cell: operators of papers that it is, each with the arguments that a paper gives."""
    values: Mapping[tuple[str, str], Mapping[Point, Mapping[int, float]]]
    """By cell and measurement, by point: the last value by seed. Probes are means over layers and heads."""
    arms: Mapping[str, Arm]
    """By cell: its runs, with the value of some other measurement (`read_arms`); empty before any run has finished."""

    def of_operator(self, operator: str, arguments: Mapping[str, str], task: str | None) -> list[Own]:
        """Cells that are this operator with these arguments, on tasks of this kind."""
        wanted = operator, tuple(sorted(arguments.items()))
        made = [own for own in self.cells.values() if wanted in self.operators.get(own.cell, ())]
        return [own for own in made if own.task.get("kind") == task]

    def points(self, cell: str, name: str, point: Mapping[str, float]) -> list[Point]:
        """Points of a measurement of a cell that agree with `point`, which may leave out coordinates."""
        measured = self.values.get((cell, name), {})
        return [each for each in sorted(measured) if point.items() <= dict(each).items()]

    def arm(self, cell: str, name: str, point: Point) -> Arm:
        arm, values = self.arms[cell], self.values.get((cell, name), {}).get(point, {})
        runs = arm.runs.items()
        measured = {
            seed: run._replace(value=values.get(seed) if run.state == State.DONE else None) for seed, run in runs
        }
        return arm._replace(runs=measured)


def results(store: Store, grid: str, names: Collection[str]) -> Results:
    """Read of `grid` what is there of the measurements `names`, without arms."""
    store.grid(grid)
    cells = {row["cell"]: _own(row) for row in store.sql(_CELLS, {"grid": grid}).iter_rows(named=True)}
    operators: dict[str, set[Any]] = {}
    for cell, operator, arguments in store.sql(_OPERATORS, {"grid": grid}).iter_rows():
        operators.setdefault(cell, set()).add((operator, tuple(sorted(json.loads(arguments).items()))))
    values: dict[tuple[str, str], dict[Point, dict[int, float]]] = {}
    for cell, seed, name, point, value in store.sql(_VALUES, {"grid": grid, "names": list(names)}).iter_rows():
        at = tuple(sorted(json.loads(point).items()))
        values.setdefault((cell, name), {}).setdefault(at, {}).setdefault(seed, value)
    return Results(cells, operators, values, {})


def _own(row: Mapping[str, Any]) -> Own:
    spec = json.loads(row["spec"])
    where = spec.get("placement") or {}
    share, side = where.get("share", 1.0), where.get("side", "top")
    all_layers = share == 1 and side in ("top", "bottom")
    placement = "all layers" if all_layers else f"{side} {100 * share:g} %" if share < 1 else f"{side} layers"
    rest = {name: part for name, part in spec.items() if name not in ("operator", "placement", "seed")}
    if isinstance(probing := rest.get("probing"), Mapping):  # probes look at a model, and change nothing of it
        rest["probing"] = {name: part for name, part in probing.items() if name != "probes"}
    sizes = row["parameters"], row["steps"], row["tokens"]
    shared = json.dumps(rest, sort_keys=True)
    length, context = _at(spec, "probing.length"), _at(spec, "task.context")  # texts have so many tokens
    probed = length if length is None or context is None else min(length, context)
    task = spec.get("task") or {}
    return Own(row["cell"], row["label"], task, placement, shared, *sizes, facts(spec), probed)


_PATHS: Final[Mapping[str, str]] = {
    "heads": "model.heads",
    "weight decay": "training.optimiser.weight_decay",
    "learning rate": "training.optimiser.lr",
    "positions": "model.positions.kind",
    "feedforward": "model.feedforward",
    "backbone": "model.name",
}
_POSITIONS: Final = {"none": "nope", "sinusoidal": "absolute", "learned": "learnable", "t5": "relative_t5"}
"""Kinds of positions that paper 004 calls otherwise."""


def facts(spec: Mapping[str, Any]) -> dict[str, str]:
    """The facts of a trial's spec that papers use to tell setups apart, in the words of their tables, by name."""
    words = {}
    for fact, path in _PATHS.items():
        value = _at(spec, path)
        if value is not None:
            words[fact] = _POSITIONS.get(str(value), str(value)) if fact == "positions" else str(value)
    if _at(spec, "model.head_outputs") == "added":
        words["heads"] = "addition"
    if _at(spec, "model.sink_tokens"):
        words["sink token"] = "learned"
    intervention = _at(spec, "task.intervention")
    if isinstance(intervention, Mapping) and intervention.get("kind") == "fixed_token":
        words["fixed token"] = str(intervention["position"])
    layers, heads = _at(spec, "model.layers"), _at(spec, "model.heads")
    if layers is not None and heads is not None:
        words["model"] = f"{layers} layer{'s' * (layers != 1)}, {heads} head{'s' * (heads != 1)}"
    return words


def _at(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def read_arms(store: Store, grid: str) -> Mapping[str, Arm]:
    """The runs as verdicts see them, by any measurement that there is: who failed, with what budget and code."""
    any_of = "SELECT name, to_json(point)::VARCHAR AS point FROM v_final WHERE grid = $grid ORDER BY ALL LIMIT 1"
    some = store.sql(any_of, {"grid": grid}).rows()
    return arms(runs(store, grid, GridMeasure(some[0][0], json.loads(some[0][1])))) if some else {}


_CELLS: Final = """
SELECT g.cell, any_value(g.label) AS label, any_value(t.spec)::VARCHAR AS spec, max(t.parameters) AS parameters,
       max(t.step) FILTER (WHERE t.state = 'done') AS steps, max(c.tokens)::DOUBLE AS tokens
FROM grid_trial g JOIN trial t USING (trial) LEFT JOIN v_cost c ON c.grid = g.grid AND c.trial = g.trial
WHERE g.grid = $grid AND t.spec IS NOT NULL GROUP BY g.cell ORDER BY min(g.position)
"""

_OPERATORS: Final = """
SELECT DISTINCT o.cell, o.operator, to_json(o.arguments)::VARCHAR AS arguments
FROM v_published_operator o JOIN grid_trial g USING (cell) WHERE g.grid = $grid
"""

_VALUES: Final = """
SELECT cell, seed, name, to_json(point)::VARCHAR AS point, value FROM (
    SELECT cell, seed, source, name, point, value FROM v_final WHERE grid = $grid AND list_contains($names, name)
    UNION ALL
    SELECT g.cell, g.seed, 'probe', p.name, p.point, avg(p.value)
    FROM v_probe p JOIN grid_trial g USING (trial) JOIN trial t USING (trial)
    WHERE g.grid = $grid AND t.state = 'done' AND list_contains($names, p.name)
    GROUP BY p.trial, g.cell, g.seed, p.name, p.point, p.step
    QUALIFY p.step = max(p.step) OVER (PARTITION BY p.trial, p.name)
) ORDER BY source
"""
