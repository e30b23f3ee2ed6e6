"""The controls of a grid in its plan: what they cost, and the code that adds those that are missing."""

import json
from collections.abc import Iterator

from ablate.grid import Grid
from ablate.grid.durations import format_hours
from ablate.runners.output import format_count
from ablate.runners.planning.duration import Estimate


def control_lines(grid: Grid, times: Estimate, to_do: int) -> Iterator[str]:
    """Yield lines about the controls of a grid that compares cells, given the time of all `to_do` trials."""
    if grid.measure is None or grid.baseline is None:
        return
    seeds, offered = len(tuple(grid.seeds)), grid.offered
    known = to_do - times.unknown
    hours = times.hours / known if times.hours and known > 0 else None

    def cost(cells: int) -> str:
        duration = "" if hours is None else f", about {format_hours(hours * cells * seeds, times.unit)}"
        return f"{format_count(cells, 'cell')}, {format_count(cells * seeds, 'trial')}{duration}"

    if offered.cells:
        yield f"controls: {cost(len(offered.cells))} of these"
    if offered.absent:
        labels = [*dict.fromkeys(offered.absent.values())]
        wanted = [] if grid.controls == "auto" else [each for each in grid.controls if isinstance(each, str)]
        code = json.dumps([*wanted, *labels], ensure_ascii=False) if grid.controls else '"auto"'
        yield f"controls that are missing: {', '.join(labels)}"
        yield f"  write Grid(..., controls={code}) to add {cost(len(offered.absent))}"
    yield from offered.unfit
