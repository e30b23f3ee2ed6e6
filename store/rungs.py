"""What the trials of a grid had measured at a step on the way, which those that pause there are ranked by."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grid.errors import SpecError
from store import queries

if TYPE_CHECKING:
    from store.store import Store


def values_at(store: "Store", grid: str, name: str, point: Mapping[str, float], step: int) -> dict[str, float]:
    """By trial of `grid` the value of the evaluation `name` at `point` and `step`, or of the training metric.

    Trials that have none are left out.

    Raises:
        SpecError: several points of the evaluation agree with `point`.
    """
    condition, parameters = queries.agrees(point)
    found = store.sql(
        f"""
        SELECT DISTINCT e.trial, e.value, e.point FROM v_evaluation e JOIN grid_trial g USING (trial)
        WHERE g.grid = $grid AND e.name = $name AND e.step = $step AND {condition}
        """,
        {"grid": grid, "name": name, "step": step, **parameters},
    )
    if found["trial"].n_unique() < found.height:
        raise SpecError(f"{name!r} has several points that agree with {dict(point)}; say in the measure at which one")
    if found.is_empty():
        found = store.sql(
            """
            SELECT DISTINCT m.trial, m.value FROM v_metric m JOIN grid_trial g USING (trial)
            WHERE g.grid = $grid AND m.name = $name AND m.step = $step
            """,
            {"grid": grid, "name": name, "step": step},
        )
    return {str(row["trial"]): float(row["value"]) for row in found.iter_rows(named=True)}
