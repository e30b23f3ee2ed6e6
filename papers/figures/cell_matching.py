"""Find the cells of a grid that match a printed cell.

The grid has to vary what the table varies. The operator is compared by its parts, everything else by the spec or by the
level of an axis. For a fact that the table keeps fixed, cells that agree are taken if there are any; else all, and
`ablate.papers.matching.published_matching.differs` reports it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from ablate.dashboards.data.grid_context import GridContext
from ablate.papers.matching.our_results import Own, Results
from ablate.papers.matching.published_matching import OF_MEASUREMENT, agrees, another, named
from ablate.store.analysis.effects import levels_of
from ablate.store.published.tables import PublishedCell

_AXIS_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("size", "scale"),
    "learning rate": ("lr",),
    "batch": ("batch size",),
    "fixed token": ("intervention",),
    "heads": ("n heads",),
    "feedforward": ("activation",),
    "backbone": ("model",),
}
"""Names of axes about a fact, beside the fact's own name."""

Levels = Mapping[str, Mapping[str, str]]  # by cell: axis -> level
Match = tuple[Sequence[Own], str]  # cells of the grid, in its order, or why there is none


def levels(context: GridContext) -> Levels:
    """The level of every axis, by cell; axes in the order of the grid."""
    query = "SELECT cell, min(axes::VARCHAR) AS axes FROM grid_trial WHERE grid = $grid GROUP BY cell ORDER BY cell"
    cells = context.store.sql(query, {"grid": context.grid})
    columns = levels_of(context.header, cells["axes"].to_list())
    rows = [{name: level for name, of in columns.items() if (level := of[at])} for at in range(cells.height)]
    return dict(zip(cells["cell"], rows, strict=True))


def is_about(axis: Mapping[str, str], fact: str) -> bool:
    """True if an axis of a grid's header varies a fact of printed cells, such as "weight decay"."""
    names = {name.replace("_", " ").casefold() for name in (axis["name"], axis["path"].rpartition(".")[2])}
    return bool(names & {fact, *_AXIS_NAMES.get(fact, ())})


class Variation(NamedTuple):
    """The facts in which the cells of a table differ."""

    facts: Mapping[str, Collection[str]]  # texts by fact, of facts that have several texts or that some cells lack
    operators: bool  # true if one model is shown with several operators


def variation(table: Sequence[PublishedCell]) -> Variation:
    """Find the facts in which the cells of a table differ."""
    run = [cell for cell in table if cell.operator is not None] or table
    setups = [_facts(cell) for cell in table]
    names = dict.fromkeys(name for facts in setups for name in facts)
    texts = {name: {facts.get(name) for facts in setups} for name in names}
    texts["model"] = {cell.model for cell in run}  # a model that somebody else trained tells no operators apart
    facts = {name: {text for text in of if text is not None} for name, of in texts.items() if len(of) > 1}
    models: dict[str, set[str]] = {}
    for cell in run:
        models.setdefault(cell.model, set()).add(str(cell.operator))
    return Variation(facts, any(len(of) > 1 for of in models.values()))


def match(cell: PublishedCell, table: Variation, context: GridContext, results: Results, by_cell: Levels) -> Match:
    """Find the cells of the grid that match a printed cell of a table, in the grid's order."""
    own, why = list(results.cells.values()), "the grid has no cell yet"
    if cell.operator is not None:
        wanted = cell.operator, tuple(sorted(cell.arguments.items()))
        own, why = (
            [each for each in own if wanted in results.operators.get(each.cell, ())],
            f"no cell of the grid is {named(cell)}",
        )
    cells = [each for each in own if not another(cell, each)]
    if not cells:
        return [], another(cell, own[0]) if own else why
    identified, facts = cell.operator is not None, _facts(cell)
    for fact in dict.fromkeys([*table.facts, *facts]):
        axes = [axis["name"] for axis in context.header["axes"] if is_about(axis, fact)]
        values = {each.cell: _values(each, fact, axes, by_cell) for each in cells}
        agreeing = [each for each in cells if fact in facts and _says(values[each.cell], fact, facts[fact])]
        if fact not in table.facts:
            identified, cells = identified or (fact == "model" and bool(agreeing)), agreeing or cells
        elif fact == "model" and identified and table.operators and not axes:
            cells = agreeing or cells
        elif fact not in facts:
            texts = table.facts[fact]
            cells = [each for each in cells if not any(_says(values[each.cell], fact, text) for text in texts)]
        elif not any(values.values()):
            return [], f"the grid has no axis for {fact}"
        else:
            identified, cells = True, agreeing
        if not cells:
            return [], f"no cell of the grid has {fact} {facts.get(fact, 'as usual')}"
    if not identified:
        return [], "nothing in the grid says that it is this model"
    order = {each.cell: i for i, each in enumerate(context.cells)}
    return sorted(cells, key=lambda each: order.get(each.cell, len(order))), ""


def _values(own: Own, fact: str, axes: Sequence[str], by_cell: Levels) -> list[str]:
    """Return the values of a fact in the spec of a cell and in its levels of `axes`, without their brackets."""
    at = by_cell.get(own.cell, {})
    levels = [at[axis].partition(" (")[0] for axis in axes if axis in at]
    return [*([own.said[fact]] if fact in own.said else []), *levels]


def _says(values: Sequence[str], fact: str, text: str) -> bool:
    texts = (text, f"fixed {text}") if fact == "fixed token" else (text,)
    return any(agrees(value, each) for value in values for each in texts)


def _facts(cell: PublishedCell) -> dict[str, str]:
    """Return the facts of a printed cell without operator and layers, which `another` compares."""
    return {**{name: text for name, text in cell.setup.items() if name not in OF_MEASUREMENT}, "model": cell.model}
