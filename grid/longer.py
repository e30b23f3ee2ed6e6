"""Cells that are trained longer, to see whether a difference lasts: a baseline and the best variant.

Which variant is the best, only results say. A run looks it up, and passes the keys of both as `Grid.chosen`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import InstanceOf

from ablate.grid.axis import Scalar
from ablate.grid.control import CellTrial
from ablate.grid.errors import SpecError
from ablate.grid.experiment import Experiment
from ablate.grid.own_methods import ask
from ablate.grid.path import has, value_at
from ablate.grid.spec import Spec, cell_key


class LongerCell(NamedTuple):
    """A cell that is another one trained longer."""

    of: str
    """The key of the other."""
    label: str
    trial: Experiment
    levels: Mapping[str, Scalar]


def check_longer(grid: str, base: Experiment, longer: object, *, compares: bool) -> None:
    """Raise `SpecError` unless the cells of a grid can be trained `longer` times as long."""
    if longer is None:
        return
    if type(longer) is not int or longer < 2:
        raise SpecError(f"grid {grid!r} has longer={longer!r}, no whole number from 2 on; write longer=2")
    if not compares:
        raise SpecError(
            f"grid {grid!r} has longer={longer}, and no measure or no baseline to train longer for; add both"
        )
    if type(base).longer is Experiment.longer:
        raise SpecError(
            f"grid {grid!r} has longer={longer}, and its {type(base).__name__} has no longer(factor); write it, or "
            "leave longer= out"
        )
    _train_longer(base, longer, f"the base of grid {grid!r}")


def find_longer(
    chosen: Iterable[CellTrial], cells: Mapping[str, str], paths: Mapping[str, str], longer: int
) -> tuple[dict[str, str], dict[str, LongerCell]]:
    """Return the key of each chosen cell with that of the same trained longer, and those of the latter to be added.

    `cells` are those that the grid has: key -> label. `paths` are those of its axes by name; an axis whose field
    differs does not apply to the longer cell. Raises `SpecError` for a cell that cannot be trained longer.
    """
    of, added = dict[str, str](), dict[str, LongerCell]()
    for cell in chosen:
        trial = _train_longer(cell.trial, longer, f"the cell {cell.label!r}")
        key = of[cell.cell] = cell_key(trial)
        if key not in cells:
            label = f"{cell.label}, {longer} times as long"
            changed = [name for name, path in paths.items() if _differ(path, cell.trial, trial)]
            added[key] = LongerCell(cell.cell, label, trial, {**cell.levels, **dict.fromkeys(changed)})
    return of, added


def _train_longer(trial: Experiment, longer: int, what: str) -> Experiment:
    kept = f"{what} cannot be trained {longer} times as long"
    try:
        changed: Experiment = ask(trial.longer, InstanceOf[type(trial)], "the experiment", longer)  # type: ignore[misc]
    except SpecError as error:
        raise SpecError(f"{kept}: {error}") from error
    if cell_key(changed) == cell_key(trial):
        raise SpecError(f"{kept}: longer() returns it as it was; change the field that says how long")
    return changed


def _differ(path: str, before: Spec, after: Spec) -> bool:
    there = has(path)
    return there(before) and there(after) and value_at(before, path) != value_at(after, path)
