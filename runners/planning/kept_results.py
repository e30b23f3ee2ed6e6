"""Check before a grid is planned anew that no finished trial leaves its tables."""

import re
from collections.abc import Iterator, Sequence

from ablate.grid import Grid
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.output import format_count
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state

_BEGINNING = re.compile(rb'\{"trial":"([0-9a-f]{32})","cell":"([0-9a-f]{32})","seed":(-?\d+),')
"""The first fields of a trial line; a line without them is damaged."""


class ReplacesResults(SpecError):
    """Finished trials would leave the tables of a grid."""


def require_kept(layout: Layout, grids: Sequence[Grid]) -> None:
    """Raise ReplacesResults if a recorded plan has finished trials that the grid of its name does not have."""
    for grid in grids:
        gone = sum(_may_be_finished(layout, key) for key in find_dropped(layout, grid))
        if gone:
            trials = f"{format_count(gone, 'finished trial')} {'is' if gone == 1 else 'are'}"
            raise ReplacesResults(
                f"grid {grid.name!r} was planned otherwise before, and {trials} not in its new plan: no table would "
                "show them; nothing was changed. `ablate run SPEC --replace` takes them out of the grid; another name "
                "of the grid, or another --campaign, keeps both"
            )


def _may_be_finished(layout: Layout, key: str) -> bool:
    try:
        return trial_state(layout, key).result is not None
    except EnvironmentProblem:  # its directory cannot be read now
        return True


def find_dropped(layout: Layout, grid: Grid) -> Iterator[str]:
    """Yield the keys of the recorded trials of `grid` whose cell or seed it does not have: both determine a trial."""
    path = layout.grid_trials(grid.name)
    if not path.is_file():
        return
    cells, seeds = {each.cell for each in grid.cells()}, set(grid.seeds)
    with path.open("rb") as lines:
        for match in map(_BEGINNING.match, lines):
            if match and (match[2].decode() not in cells or int(match[3]) not in seeds):
                yield match[1].decode()
