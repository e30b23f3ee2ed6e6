"""Which cells of a grid stand where a paper prints a value.

A printed cell is of an operator with arguments, in some layers, of a model, under a setup. What the table varies has
to be said by the grid, too: the operator by what it is made of, everything else by a level of an axis. What the table
keeps fixed may be another here; `store.published.setting.differs` tells it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from dashboards.subject import Subject
from store.published.own import Own, Results
from store.published.reading import Cell
from store.published.setting import named

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

_OF_MEASUREMENT: Final = frozenset({"shots", "layer from the end", "biases"})
"""Facts that the measurement, its point or the operator says already."""

Levels = Mapping[str, Mapping[str, str]]
"""By cell: axis -> level."""


class Placed(NamedTuple):
    """Cells of the grid, in its order, or why there is none."""

    cells: Sequence[Own]
    why: str = ""


def levels(about: Subject) -> Levels:
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
    words = {name.replace("_", " ").casefold() for name in (axis["name"], axis["path"].rpartition(".")[2])}
    return bool(words & {fact, *_SPOKEN.get(fact, ())})


def agrees(level: str, text: str) -> bool:
    """Whether a level of an axis is what a paper writes: "0.10" is "0.1", "fixed 1" is "1", "Rotary" is "rotary"."""
    one, other = level.strip().casefold(), text.strip().casefold()
    if one == other or one.rpartition(" ")[2] == other:
        return True
    try:
        return float(one) == float(other)
    except ValueError:
        return "".join(filter(str.isalnum, one)) == "".join(filter(str.isalnum, other))


class Apart(NamedTuple):
    """What tells the cells of a table apart."""

    facts: Mapping[str, Collection[str]]
    """Texts by fact; only facts of which there are several, or that some cells lack."""
    operators: bool
    """Whether one model is shown with several operators."""


def apart(table: Sequence[Cell]) -> Apart:
    """What the cells of a table are told apart by."""
    told = [_facts(cell) for cell in table]
    texts = {name: {facts.get(name) for facts in told} for name in {name for facts in told for name in facts}}
    facts = {name: {text for text in of if text is not None} for name, of in texts.items() if len(of) > 1}
    models: dict[str, set[str | None]] = {}
    for cell in table:
        models.setdefault(cell.model, set()).add(cell.operator)
    return Apart(facts, any(len(of - {None}) > 1 for of in models.values()))


def place(cell: Cell, table: Apart, about: Subject, found: Results, by_cell: Levels) -> Placed:
    """The cells of the grid that stand where `cell` of a table is printed."""
    own = _of_operator(cell, found)
    if not own.cells:
        return own
    cells, said, facts = own.cells, cell.operator is not None, _facts(cell)
    if "placement" in table.facts and cell.placement is not None:
        cells = [each for each in cells if each.placement == cell.placement]
        if not cells:
            return Placed([], f"no cell of the grid has it in {cell.placement}")
    for fact, texts in table.facts.items():
        axes = [axis["name"] for axis in about.header["axes"] if speaks(axis, fact)]
        if fact == "placement" or (fact == "model" and said and table.operators and not axes):
            continue
        if fact not in facts:
            cells = [each for each in cells if not any(_has(each, axes, text, by_cell) for text in texts)]
        elif not axes:
            return Placed([], f"the grid has no axis for {fact}")
        else:
            said, cells = True, [each for each in cells if _has(each, axes, facts[fact], by_cell)]
        if not cells:
            return Placed([], f"no cell of the grid has {fact} {facts.get(fact, 'as usual')}")
    return Placed(cells) if said else Placed([], "nothing in the grid says that it is this model")


def _of_operator(cell: Cell, found: Results) -> Placed:
    if cell.operator is None:
        return Placed(list(found.cells.values()), "the grid has no cell yet")
    wanted = cell.operator, tuple(sorted(cell.arguments.items()))
    own = [each for each in found.cells.values() if wanted in found.operators.get(each.cell, ())]
    return Placed(own, f"no cell of the grid is {named(cell)}")


def _has(own: Own, axes: Sequence[str], text: str, by_cell: Levels) -> bool:
    return any(agrees(by_cell.get(own.cell, {}).get(axis, ""), text) for axis in axes)


def _facts(cell: Cell) -> dict[str, str]:
    facts = {name: text for name, text in cell.setup.items() if name not in _OF_MEASUREMENT}
    return {**facts, "model": cell.model, **({} if cell.placement is None else {"placement": cell.placement})}
