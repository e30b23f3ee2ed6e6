"""The cells of the grids a command is about, walked once before anything is written.

The walk collects the operator and the code of each cell. It also checks that the trials record the grid's measure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from grid import Grid, Planned, Spec
from grid.errors import SpecError
from runners.planning.measure_check import check_measure
from runners.provenance.code import Codes
from runners.slow_notice import slow_notice


class About(NamedTuple):
    """Operator and sources of a cell."""

    operator: str
    """The key of its operator; of operators without one, the label."""
    sources: Mapping[str, str]
    """The hash of every source that its trials run."""


@final
@dataclass(frozen=True)
class GridCells:
    """Every cell of some grids."""

    codes: Codes
    about: Mapping[tuple[str, str], About]
    """By grid and cell."""
    examples: Mapping[tuple[str, str], Spec]
    """The first trial of each operator, by grid and the operator's key."""


@slow_notice("planning: looking at every cell")
def walk(grids: Sequence[Grid], look: Callable[[str, Planned], None] | None = None) -> GridCells:
    """Look at every cell of `grids`, and write nothing; `look` is told the grid's name and the cell's first trial.

    Raises:
        SpecError: a grid is invalid, two have the same name, or the measure of one is nothing its trials record.
    """
    _require_names(grids)
    codes = Codes()
    about: dict[tuple[str, str], About] = {}
    examples: dict[tuple[str, str], Spec] = {}
    for grid in grids:
        judged: dict[tuple[str, ...], list[Spec]] = {}
        for planned in grid.cells():
            operator = getattr(planned.trial, "operator", None)
            key = operator.key if isinstance(operator, Spec) else planned.operator
            about[grid.name, planned.cell] = About(key, codes.sources(planned.trial))
            examples.setdefault((grid.name, key), planned.trial)
            if look is not None:
                look(grid.name, planned)
            judges = _judges(planned.trial)
            judged.setdefault(tuple(each.key for each in judges), judges)
        check_measure(grid, [judges for judges in judged.values() if judges])
    return GridCells(codes, about, examples)


def _judges(trial: Spec) -> list[Spec]:
    """Return the task and the evaluations of a trial."""
    task = getattr(trial, "task", None)
    return [task, *getattr(trial, "evaluations", ())] if isinstance(task, Spec) else []


def _require_names(grids: Sequence[Grid]) -> None:
    if not grids:
        raise SpecError("a run needs at least one grid; got none")
    names = [grid.name for grid in grids]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SpecError(f"grids of one run have different names; {twice[0]!r} is given twice: rename one")
