"""Find the cells of a grid that match a printed cell.

A printed cell has an operator with arguments, some layers, a model and a setup. The grid has to vary what the table
varies. The operator is compared by its parts, everything else by the spec or by the level of an axis. If the grid
varies what the table keeps fixed, the cells that agree match. Else the fact may differ, and
`store.analysis.published_matching.differs` reports it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from dashboards.data.grid_context import GridContext
from store.analysis.our_results import Own, Results
from store.analysis.published_matching import OF_MEASUREMENT, agrees, another, named
from store.published.tables import PublishedCell

_SPOKEN: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("model", "size", "scale"),
    "learning rate": ("learning rate", "lr"),
    "batch": ("batch", "batch size"),
    "fixed token": ("fixed token", "intervention"),
    "heads": ("heads", "n heads"),
    "feedforward": ("feedforward", "activation"),
    "backbone": ("backbone", "model"),
}
"""Names of axes that speak of a fact, where they are not the fact's own name."""

_FIELD: Final[Mapping[str, str]] = {"length": "probing.length"}
"""Facts that one field alone is about, of those that are called so: `task.length` is of training."""

_WRITTEN: Final[Mapping[str, str]] = {"fixed token": "fixed {}"}
"""How else a level says a fact."""

Levels = Mapping[str, Mapping[str, str]]
"""By cell: axis -> level."""


Placed = tuple[Sequence[Own], str]
"""Cells of the grid, in its order, or why there is none."""


def levels(about: GridContext) -> Levels:
    """The level of every axis, by cell; axes in the order of the grid."""
    found = about.store.sql(
        "SELECT DISTINCT g.cell, a.position, a.name, "
        "g.axes->>('$.\"' || replace(a.name, '\"', '\\\"') || '\"') AS level "
        "FROM grid_trial g JOIN axis a USING (grid) WHERE g.grid = $grid ORDER BY g.cell, a.position",
        {"grid": about.grid},
    )
    by_cell: dict[str, dict[str, str]] = {}
    for cell, _, name, level in found.iter_rows():
        if level is not None:
            by_cell.setdefault(cell, {})[name] = level
    return by_cell


def speaks(axis: Mapping[str, str], fact: str) -> bool:
    """Whether an axis of a grid's header is about a fact of a printed cell, such as "weight decay"."""
    if fact in _FIELD and "." in axis["path"]:
        return bool(axis["path"] == _FIELD[fact])
    words = {name.replace("_", " ").casefold() for name in (axis["name"], axis["path"].rpartition(".")[2])}
    return bool(words & {fact, *_SPOKEN.get(fact, ())})


class Apart(NamedTuple):
    """The facts in which the cells of a table differ."""

    facts: Mapping[str, Collection[str]]
    """Texts by fact; only facts of which there are several, or that some cells lack."""
    operators: bool
    """Whether one model is shown with several operators."""


def apart(table: Sequence[PublishedCell]) -> Apart:
    """Find the facts in which the cells of a table differ."""
    run = [cell for cell in table if cell.operator is not None] or table
    told = [_facts(cell) for cell in table]
    texts = {name: {facts.get(name) for facts in told} for name in {name for facts in told for name in facts}}
    texts["model"] = {cell.model for cell in run}  # a model that somebody else trained tells no operators apart
    facts = {name: {text for text in of if text is not None} for name, of in texts.items() if len(of) > 1}
    models: dict[str, set[str | None]] = {}
    for cell in table:
        models.setdefault(cell.model, set()).add(cell.operator)
    return Apart(facts, any(len(of - {None}) > 1 for of in models.values()))


def place(cell: PublishedCell, table: Apart, about: GridContext, found: Results, by_cell: Levels) -> Placed:
    """The cells of the grid that stand where `cell` of a table is printed, in the grid's order."""
    own, why = _of_operator(cell, found)
    cells = [each for each in own if not another(cell, each)]
    if not cells:
        return [], another(cell, own[0]) if own else why
    said, facts = cell.operator is not None, _facts(cell)
    for fact in dict.fromkeys([*table.facts, *facts]):
        axes = [axis["name"] for axis in about.header["axes"] if speaks(axis, fact)]
        heres = {each.cell: _heres(each, fact, axes, by_cell) for each in cells}
        agreeing = [each for each in cells if fact in facts and _says(heres[each.cell], fact, facts[fact])]
        if fact not in table.facts:
            said, cells = said or (fact == "model" and bool(agreeing)), agreeing or cells
        elif fact == "model" and said and table.operators and not axes:
            cells = agreeing or cells
        elif fact not in facts:
            texts = table.facts[fact]
            cells = [each for each in cells if not any(_says(heres[each.cell], fact, text) for text in texts)]
        elif not any(heres.values()):
            return [], f"the grid has no axis for {fact}"
        else:
            said, cells = True, agreeing
        if not cells:
            return [], f"no cell of the grid has {fact} {facts.get(fact, 'as usual')}"
    if not said:
        return [], "nothing in the grid says that it is this model"
    order = {each.cell: i for i, each in enumerate(about.cells)}
    return sorted(cells, key=lambda each: order.get(each.cell, len(order))), ""


def _of_operator(cell: PublishedCell, found: Results) -> Placed:
    if cell.operator is None:
        return list(found.cells.values()), "the grid has no cell yet"
    wanted = cell.operator, tuple(sorted(cell.arguments.items()))
    own = [each for each in found.cells.values() if wanted in found.operators.get(each.cell, ())]
    return own, f"no cell of the grid is {named(cell)}"


def _heres(own: Own, fact: str, axes: Sequence[str], by_cell: Levels) -> list[str]:
    """Return the values of a fact in the spec of a cell and in its levels of `axes`."""
    levels_ = by_cell.get(own.cell, {})
    spec = [own.said[fact]] if fact in own.said else []
    return spec + [levels_[axis] for axis in axes if axis in levels_]


def _says(heres: Sequence[str], fact: str, text: str) -> bool:
    written = (text, _WRITTEN.get(fact, "{}").format(text))
    return any(agrees(here, each) for here in heres for each in written)


def _facts(cell: PublishedCell) -> dict[str, str]:
    """Return the facts of a printed cell without operator and layers, which `another` compares."""
    return {**{name: text for name, text in cell.setup.items() if name not in OF_MEASUREMENT}, "model": cell.model}
