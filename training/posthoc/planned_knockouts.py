"""Plan the knock-outs of finished trials from the grids that have them."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from ablate.grid import Measure, spec_error
from ablate.grid.errors import AblateError, SpecError
from ablate.store.analysis.measurements import find_measure
from ablate.store.store import Store
from ablate.training.evaluations.knockout import Knockout
from ablate.training.evaluations.knockout_plan import plan_cells
from ablate.training.trial import NO_STAGES
from ablate.variants import Operator, Placement


class PlannedKnockouts(NamedTuple):
    """Knock-outs by trial, and why other trials have none."""

    planned: Mapping[str, Sequence[Knockout]]
    problems: Mapping[str, AblateError]


def find_knockouts(
    store: Store, trials: Collection[str], measure: str | None, *, refit_each: bool = False
) -> PlannedKnockouts:
    """Plan knock-outs of `measure`, written as in commands; None: that of each grid.

    With `refit_each`, a plan of the refits after each knock-out follows.
    """
    query = "SELECT DISTINCT grid, cell, trial FROM grid_trial WHERE list_contains($trials, trial) ORDER BY ALL"
    listed = store.sql(query, {"trials": list(trials)})
    planned: dict[str, dict[tuple[object, ...], Knockout]] = {}
    none = SpecError("no grid with a measure has this trial; name a measure with --measure NAME")
    problems: dict[str, AblateError] = dict.fromkeys(trials, none)
    for grid in listed["grid"].unique(maintain_order=True):
        rows = listed.filter(grid=grid).select("cell", "trial").rows()
        try:
            cells = _plan_grid(store, grid, measure)
        except AblateError as error:
            problems |= {trial: error for _, trial in rows}
            continue
        for cell, trial in rows:
            if cells is not None and cell not in cells:
                problems[trial] = SpecError(NO_STAGES)
            elif cells is not None:
                of = planned.setdefault(trial, {})
                place = (cells[cell].name, *sorted(cells[cell].point.items()))
                of[place] = of[place].join(cells[cell]) if place in of else cells[cell]
    refits = {
        trial: [own for each in of.values() if refit_each and (own := each.refits())] for trial, of in planned.items()
    }
    return PlannedKnockouts(
        {trial: [*each.values(), *refits[trial]] for trial, each in planned.items()},
        {trial: error for trial, error in problems.items() if trial not in planned},
    )


def _plan_grid(store: Store, grid: str, measure: str | None) -> dict[str, Knockout] | None:
    """Plan the cells of a grid whose layers have attention alone; None for a grid without a measure."""
    header = store.grid(grid)
    own = header["measure"]
    if measure is not None:
        chosen = find_measure(store, grid, measure)
        own = {"name": chosen.name, "point": chosen.point}
    if own is None:
        return None
    several = header.get("baselines") or {}
    wanted = Measure(name=own["name"], point=own["point"])
    return plan_cells(wanted, lambda cell: several.get(cell, header["baseline"]), _operators(store, grid))


def _operators(store: Store, grid: str) -> dict[str, Sequence[Operator]]:
    """Read the operators of the layers of each cell with attention alone; SpecError if one is not known here."""
    listed = store.sql(
        """
        SELECT g.cell, CAST(any_value(t.spec) AS VARCHAR) FROM grid_trial g JOIN trial t USING (trial)
        WHERE g.grid = $grid AND (t.spec->'placement') IS NOT NULL GROUP BY g.cell ORDER BY min(g.position)
        """,
        {"grid": grid},
    )
    operators: dict[str, Sequence[Operator]] = {}
    for cell, text in listed.rows():
        spec = json.loads(text)
        if any("kind" in each for each in (spec["model"], spec["operator"], spec["placement"]["rest"])):
            continue  # a mixer or a foreign backbone
        try:
            operator, placement = Operator.model_validate(spec["operator"]), Placement.model_validate(spec["placement"])
        except ValidationError as error:
            raise spec_error(error, "Operator") from error
        layers = placement.operators(operator, spec["model"]["layers"])
        operators[cell] = tuple(each for each in layers if isinstance(each, Operator))
    return operators
