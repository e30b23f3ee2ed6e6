"""The knock-outs of a grid's cells as recorded, and the stages in which cells differ, read from a store."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, Final, NamedTuple

from ablate.store.analysis.tuned_verdicts import nuisance_axes
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.database import queries
from ablate.store.store import Store


class Change(NamedTuple):
    """The change that a knock-out makes in one run, as recorded."""

    own: float
    change: float
    se_items: float | None
    items: int | None


Rows = Mapping[str, Mapping[int, Change]]
"""Changes by the middle of the row's name, such as "margin", "all" or "refit", and by seed."""


def read_changes(store: Store, grid: str, by: GridMeasure) -> dict[str, Rows]:
    """Return the changes of a measure in each cell that has its own value beside."""
    condition, parameters = queries.agrees(by.point)
    listed = store.sql(
        f"""
        SELECT cell, seed, name, value, se_items, items FROM v_final
        WHERE grid = $grid AND source = 'evaluation' AND starts_with(name, 'knockout.') AND ends_with(name, $ending)
            AND {condition}
        """,
        {"grid": grid, "ending": f".{by.name}", **parameters},
    )
    values: dict[str, dict[str, dict[int, tuple[float, float | None, int | None]]]] = {}
    for cell, seed, name, value, error, items in listed.iter_rows():
        stages = name.removeprefix("knockout.").removesuffix(f".{by.name}")
        values.setdefault(cell, {}).setdefault(stages, {})[seed] = (value, error, items)
    return {
        cell: {
            stages: {seed: Change(own["none"][seed][0], *row) for seed, row in rows.items() if seed in own["none"]}
            for stages, rows in own.items()
        }
        for cell, own in values.items()
        if "none" in own
    }


class Operators(NamedTuple):
    """The operator of a cell as JSON, that of its other layers, which layers have which, and the rest of its spec.

    Another experiment has its fields as `operator` and `others`, and nothing `elsewhere`.
    """

    operator: dict[str, Any]
    elsewhere: dict[str, Any]
    layers: dict[str, Any]
    others: Mapping[str, Any] = {}
    """Fields that a comparison keeps, without those over which cells are tuned."""

    @property
    def has_stages(self) -> bool:
        """True for a `Trial`, false for another experiment."""
        return bool(self.elsewhere)

    @property
    def foreign(self) -> bool:
        """True if a layer has a mixer, or the backbone is foreign: only these have a kind."""
        return any("kind" in each for each in (self.operator, self.elsewhere, self.others.get("model") or {}))


def read_operators(store: Store, grid: str) -> dict[str, Operators]:
    """Return the operators of each cell, or its fields where it has none."""
    header = store.grid(grid)
    tuned = [axis["path"].split(".") for axis in header["axes"] if axis["name"] in nuisance_axes(header)]
    listed = store.sql(
        "SELECT g.cell, any_value(t.spec)::VARCHAR FROM grid_trial g JOIN trial t USING (trial) "
        "WHERE g.grid = $grid GROUP BY g.cell",
        {"grid": grid},
    )
    operators = {}
    for cell, text in listed.iter_rows():
        spec = json.loads(text or "{}")
        fields = spec["config"] if spec.get("kind") == "logged" else spec
        others = {name: value for name, value in fields.items() if name not in ("seed", "execution")}
        operator, layers = others.get("operator"), others.get("placement")
        own = Operators(others, {}, {}, others)
        if isinstance(operator, dict) and isinstance(layers, dict) and isinstance(layers.get("rest"), dict):
            del others["operator"], others["placement"]
            own = Operators(operator, layers.pop("rest"), layers, others)
        for path in tuned:
            _remove(others, path)
        operators[cell] = own
    return operators


def _remove(fields: Any, path: Sequence[str]) -> None:
    for name in path[:-1]:
        fields = fields.get(name) if isinstance(fields, dict) else None
    if isinstance(fields, dict):
        fields.pop(path[-1], None)


def differing(ours: Operators, theirs: Operators) -> set[str]:
    """Stages in which two cells differ; all that either changes if their operators are in other layers.

    Without operators, the paths of fields, such as "lr" and "model.gate".
    """
    if not ours.has_stages:
        return {*_differing_paths(ours.operator, theirs.operator)}
    pairs = [(ours.operator, theirs.operator), (ours.elsewhere, theirs.elsewhere)]
    if ours.layers != theirs.layers:
        pairs += [(ours.operator, ours.elsewhere), (theirs.operator, theirs.elsewhere)]
    return {stage for one, other in pairs for stage in one if stage != "name" and one[stage] != other.get(stage)}


def _differing_paths(ours: Mapping[str, Any], theirs: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield paths of fields that differ; a choice, which has a kind, is one field."""
    for name in {**ours, **theirs}:
        one, other = ours.get(name), theirs.get(name)
        if isinstance(one, dict) and isinstance(other, dict) and "kind" not in one:
            yield from _differing_paths(one, other, f"{before}{name}.")
        elif one != other:
            yield before + name


def is_blank(fields: Mapping[str, Any], path: str) -> bool:
    """Return True if a field says that there is nothing to leave out: it is not there, False, 0, None or "none"."""
    value: Any = fields
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return not value or value == "none" or (isinstance(value, dict) and value.get("kind") == "none")


def is_finer(ours: Operators, theirs: Operators, stages: Collection[str]) -> bool:
    """Return True if the stages differ in where their numbers are shared and in nothing else."""
    return ours.layers == theirs.layers and all(
        _differ_in_sharing(one[stage], other[stage])
        for one, other in ((ours.operator, theirs.operator), (ours.elsewhere, theirs.elsewhere))
        for stage in stages
        if one.get(stage) != other.get(stage)
    )


_LEVELS: Final[Mapping[tuple[str, ...], str]] = {
    (): "constant",
    ("layer",): "layer",
    ("layer", "head"): "head",
    ("layer", "head", "query"): "query",
    ("layer", "head", "token"): "token",
}
"""Usual names of granularities, as `ablate.variants.granularity` has them."""


def name_levels(operators: Operators, stage: str) -> set[str]:
    """Name the granularity of a stage's numbers as rows of `mean-<stage>-<level>` do, in every order of its fields."""
    names = set()
    for choice in (operators.operator.get(stage), operators.elsewhere.get(stage)):
        numbers = [each for each in (choice or {}).values() if isinstance(each, dict) and "per" in each]
        axes = [tuple(each["per"]) for each in numbers]
        known = [_LEVELS.get(each, "+".join(each)) for each in axes]
        orders = [[known[0]]] if len({*known}) == 1 else permutations(known)
        names |= {"-".join(order) for order in orders if known}
    return names


def _differ_in_sharing(ours: Any, theirs: Any) -> bool:
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return False
    names = {name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)}
    if "per" in names:
        return names <= {"per", "learned", "projection_std", "bias"}
    return bool(names) and all(_differ_in_sharing(ours.get(name), theirs.get(name)) for name in names)
