"""The verdicts of a grid, read from its store: the grid's own measure and baseline, unless others are named."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.store.analysis.once import once
from ablate.store.analysis.tuned_verdicts import (
    ComparedRuns,
    add_choices,
    require_choice,
    require_known,
    selected_levels,
    tune,
)
from ablate.store.database import queries, quoting
from ablate.store.files.code_versions import versions_used
from ablate.store.files.plans import added_cells
from ablate.store.state import OF_FILES, State
from ablate.store.statistics import Baseline, Better, Scale, compare, failures
from ablate.store.statistics.arms import arms
from ablate.store.statistics.compare import Variance
from ablate.store.statistics.scales import back, fits, forward
from ablate.store.store import Store


class GridMeasure(NamedTuple):
    """The measure of a grid; the fields are those of the grid header's `measure`, and its `variance`."""

    name: str
    point: Mapping[str, float] = {}
    scale: Scale = "log"
    better: Better = "lower"
    rope: float = 0.05
    alpha: float = 0.05
    variance: Variance = "own"
    """The grid's, chosen before its results."""


def verdicts(
    store: Store,
    grid: str,
    *,
    baseline: str | None = None,
    measure: Mapping[str, Any] | None = None,
) -> pl.DataFrame:
    """One row per cell that is no baseline: the columns of `compare`, then how many compared runs are in each state.

    `baseline` is a cell key or a label, by default the grid's; `measure` replaces single fields of the grid's measure,
    such as `{"point": {"sigma_x": 1, "sigma_f": 10}}`. `family` is the number of comparisons that share the alpha.
    Cells that differ on nuisance axes alone are one row, with the columns of `add_choices`.
    Raises NotFoundError for an unknown grid, baseline or measure and SpecError for a measure without meaning.
    """
    return _judge_grid(store, grid, measure_of(store, grid, measure), baseline)


@once
def _judge_grid(store: Store, grid: str, measure: GridMeasure, baseline: str | None) -> pl.DataFrame:
    compared = compared_runs(store, grid, measure, baseline)
    judged = compare_runs(compared, measure)
    counts = [(compared.values["state"] == state).cast(pl.Int64).alias(state) for state in OF_FILES]
    progress = compared.values.select("cell", *counts).group_by("cell").sum()
    judged = judged.join(progress, on="cell", how="left", maintain_order="left")
    return queries.in_plan_order(store.sql, store.grid(grid), judged)


@once
def compared_runs(store: Store, grid: str, measure: GridMeasure, baseline: str | None = None) -> ComparedRuns:
    """The runs that verdicts compare; of a grid with nuisance axes, as `tune` chooses them."""
    bases, scale, better = baselines_of(store, grid, baseline), measure.scale, measure.better
    return tune(runs(store, grid, measure), store.grid(grid), bases, scale=scale, better=better)


def tune_runs(store: Store, grid: str, values: pl.DataFrame, measure: GridMeasure) -> ComparedRuns:
    """Choose what verdicts compare of `values`, runs of a grid that needs no baseline, by its nuisance axes."""
    header = store.grid(grid)
    bases = baselines_of(store, grid, None) if header["baseline"] else {}
    return tune(values, header, bases, scale=measure.scale, better=measure.better)


def tune_over(store: Store, grid: str, over: Sequence[str]) -> Store:
    """Return the store as if the axes `over` of a grid were nuisance axes.

    Raises SpecError if `over` has an unknown axis, has nothing to choose, or leaves nothing to compare.
    """
    require_known(over, store.grid(grid))
    tuned = store.tuned_over(grid, over)
    require_choice(over, compared_runs(tuned, grid, measure_of(tuned, grid, None)), tuned.grid(grid))
    return tuned


def baseline_rows(compared: ComparedRuns, measure: GridMeasure) -> list[dict[str, Any]]:
    """Return cell, label, value (the mean, as of `compare`), runs (with a value) and planned of every baseline.

    And `selected`, as of `add_choices`; None where nothing is tuned.
    """
    rows, baseline = [], compared.baseline
    for cell, arm in arms(compared.values).items():
        if cell == baseline if isinstance(baseline, str) else cell not in baseline:
            own = arm.values(arm.measured)
            known = own.size and fits(own, measure.scale)
            mean = back(float(forward(own, measure.scale).mean()), measure.scale) if known else None
            choice = compared.choices.get(cell)
            selected = None if choice is None else selected_levels(choice)
            counts = {"runs": own.size, "planned": len(arm.runs), "selected": selected}
            rows.append({"cell": cell, "label": arm.label, **counts, "value": mean})
    return rows


def compare_runs(compared: ComparedRuns, by: GridMeasure) -> pl.DataFrame:
    """Compare by a grid's measure; with the columns of `add_choices` if levels were chosen."""
    rule: dict[str, Any] = {name: getattr(by, name) for name in ("scale", "better", "rope", "alpha", "variance")}
    judged = compare(compared.values, baseline=compared.baseline, **rule)
    return add_choices(judged, compared.choices) if compared.choices else judged


def failure_rates(store: Store, grid: str) -> pl.DataFrame:
    """One row per cell of the grid, baseline included: the columns of `failures`. Raises as `verdicts` does."""
    measure = measure_of(store, grid, None)
    return failures(runs(store, grid, measure), baseline=baselines_of(store, grid, None), alpha=measure.alpha)


def measure_of(store: Store, grid: str, changes: Mapping[str, Any] | None) -> GridMeasure:
    """The measure of the grid with single fields replaced. Raises SpecError for a field or name that is not there."""
    known = list(GridMeasure._fields)
    for name in changes or {}:
        if name not in known:
            raise SpecError(f"{name!r} is no field of a measure; there are {known}{suggest_name(name, known)}")
    header = store.grid(grid)
    variance = header.get("variance", "own")
    if (asked := (changes or {}).get("variance", variance)) != variance:
        raise SpecError(
            f"variance={asked!r} is not that of grid {grid!r}, {variance!r}; it is chosen in the Grid, before any "
            "result"
        )
    both = {**(header["measure"] or {}), **(changes or {}), "variance": variance}
    fields = {name: value for name, value in both.items() if name in known and value is not None}
    if "name" not in fields:
        listed = store.list_names(grid, "v_final")
        have = f"; its runs have {_some(listed)}" if listed else ""
        raise SpecError(f"grid {grid!r} has no measure; {_advise(header, 'measure=Measure(name=...)')}{have}")
    for axis, value in fields.get("point", {}).items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise SpecError(f"the point of the measure has {value!r} for {axis!r}; give a finite number")
    return GridMeasure(**fields)


def baselines_of(store: Store, grid: str, wanted: str | None) -> Baseline:
    """The baseline of cells: `wanted`, the grid's baseline, or each cell's if the grid has several."""
    several: Mapping[str, str] = store.grid(grid).get("baselines") or {}
    return several if several and wanted is None else baseline_of(store, grid, wanted)


@once
def matched_axes(store: Store, grid: str) -> list[str]:
    """The axes on which baselines of a grid differ and cells agree with their own; nuisance axes are none."""
    header = store.grid(grid)
    levels = "SELECT DISTINCT json_extract_string(axes, $member) FROM grid_trial"
    query = f"{levels} WHERE grid = $grid AND list_contains($cells, cell)"
    cells = [*set((header.get("baselines") or {}).values())]
    asked = {name: {"grid": grid, "member": quoting.member(name), "cells": cells} for name in header.get("matched", ())}
    return [name for name, parameters in asked.items() if store.sql(query, parameters).height > 1]


def baseline_of(store: Store, grid: str, wanted: str | None) -> str:
    """The cell key of `wanted`, a key or a label, or of the grid's baseline, the first of several."""
    header = store.grid(grid)
    name = header["baseline"] if wanted is None else wanted
    query = "SELECT label, cell FROM grid_trial WHERE grid = $grid GROUP BY ALL ORDER BY min(position)"
    listed = store.sql(query, {"grid": grid})
    cells = dict(listed.iter_rows())
    if name is None and "matched" in header:
        same = ", ".join(header["matched"]) or "levels"
        raise SpecError(f"no cell of grid {grid!r} has a baseline of the same {same}; log it, or choose baseline=LABEL")
    if name is None:
        argument = "baseline=LABEL" if header.get("logged") else 'baseline={"operator": "softmax"} or the like'
        raise SpecError(f"grid {grid!r} has no baseline; {_advise(header, argument)}; it has {_some(list(cells))}")
    if name not in cells and name not in cells.values():
        store.require_plan(grid)
        hint = suggest_name(name, list(cells))
        raise NotFoundError(f"grid {grid!r} has no cell {name!r}; it has {_some(list(cells))}{hint}")
    return str(cells.get(name, name))


def setting_of(store: Store, grid: str, compared: ComparedRuns, wanted: str) -> str:
    """The key of the compared cell that `wanted` means: the label of a tuned setting, or a key or label of any cell."""
    settings = dict(compared.values.select("label", "cell").iter_rows())
    key = settings.get(wanted) or baseline_of(store, grid, wanted)
    return compared.stands_for.get(key, key)


def _advise(header: Mapping[str, Any], argument: str) -> str:
    if header.get("logged"):
        return f"say Campaign(...).grid({header['grid']!r}, {argument}) once"
    overrides = f" with {' '.join(header['overrides'])}" if header.get("overrides") else ""
    return f"write {argument} into its Grid and run it again{overrides}, which trains nothing anew"


def _some(names: Iterable[str]) -> str:
    return some([*map(repr, names)], 8)


def runs(store: Store, grid: str, measure: GridMeasure) -> pl.DataFrame:
    """The runs of the grid's variants and baselines: rows of `every_run`. Raises as it does."""
    return without_added(every_run(store, grid, measure), store.grid(grid))


def without_added(values: pl.DataFrame, header: Mapping[str, Any]) -> pl.DataFrame:
    """Leave out the cells of a grid that are no variants; they are in no family of comparisons with the baseline."""
    added = list(added_cells(header))
    return values.filter(~pl.col("cell").is_in(added)) if added else values


@once
def every_run(store: Store, grid: str, measure: GridMeasure) -> pl.DataFrame:
    """Every planned run of the grid in execution order, as `compare` takes them, with the axes as JSON.

    `value` is the measure at the last step, null unless the run is done. `budget` is the number of steps. `code` has
    all versions of the code that the run was trained with. Runs whose line of the plan is lost are pending. Raises
    NotFoundError if no run that ended well has the measure, SpecError if its point is ambiguous.
    """
    values, unreadable = store.final(grid, measure.name, measure.point), store.unreadable(grid)
    if values["value"].null_count() == values.height and (values["state"] == State.DONE).sum() > len(unreadable):
        raise NotFoundError(_no_such_measure(store, grid, measure))
    trials = store.sql(_ABOUT, {"grid": grid})
    frame = values.join(_append_versions(trials), on="trial", how="left", maintain_order="left")
    frame = frame.join(_digests(store, grid), on="trial", how="left", maintain_order="left")
    frame = frame.with_columns(unreadable=pl.col("trial").is_in(unreadable))
    columns = ("trial", "cell", "label", "operator", "seed", "axes", "state", "value")
    frame, header = (
        frame.select(*columns, "budget", "code", "wall_s", "gpu", "unreadable", "reported"),
        store.grid(grid),
    )
    if header.get("logged") or frame.height >= header["trials"]:
        return frame
    cells = frame.select("cell", "label", "operator", "axes").unique("cell", maintain_order=True)
    planned = cells.join(pl.DataFrame({"seed": header["seeds"]}).cast(frame.schema["seed"]), how="cross")
    lost = planned.join(frame, on=["cell", "seed"], how="anti").with_columns(state=pl.lit(State.PENDING))
    return pl.concat([frame, lost], how="diagonal")


def _append_versions(trials: pl.DataFrame) -> pl.DataFrame:
    """Replace `made`, the attempts that made a result, by `code`: the sources that have several versions in this grid.

    Trials of different operators are made of different definitions; that alone is no mixture.
    """
    used: list[dict[str, set[str]]] = []
    versions: dict[str, set[str]] = {}
    for attempts in trials["made"].to_list():
        used.append({})
        for each in attempts or ():
            sources = json.loads(each["sources"]) if each["sources"] else None
            made = versions_used(sources, each["code"], each["path"])
            for name, version in made.items():
                used[-1].setdefault(name, set()).add(version)
                versions.setdefault(name, set()).add(version)
    mixed = sorted(name for name, hashes in versions.items() if len(hashes) > 1) or ["code"]
    codes = [
        "; ".join(f"{name} {' and '.join(sorted(each[name]))}" for name in mixed if name in each)
        or ("one version" if each else None)
        for each in used
    ]
    return trials.drop("made").with_columns(pl.Series("code", codes, pl.String))


def _digests(store: Store, grid: str) -> pl.DataFrame:
    """Return a digest of all values that each program of the grid reported."""
    if store.sql(f"SELECT 1 {_PROGRAMS} LIMIT 1", {"grid": grid}).is_empty():
        return pl.DataFrame(schema={"trial": pl.String, "reported": pl.String})
    return store.sql(_REPORTED, {"grid": grid})


def _no_such_measure(store: Store, grid: str, measure: GridMeasure) -> str:
    query = "SELECT DISTINCT name, point::VARCHAR AS point FROM v_final WHERE grid = $grid ORDER BY ALL"
    listed = store.sql(query, {"grid": grid})
    names = listed["name"].unique(maintain_order=True).to_list()
    if measure.name not in names:
        hint = suggest_name(measure.name, names)
        return f"no finished run of grid {grid!r} has {measure.name!r}; they have {some(names, 12)}{hint}"
    points = listed.filter(name=measure.name)["point"]
    return (
        f"no finished run of grid {grid!r} has {measure.name!r} at {dict(measure.point)}; "
        f"they have {len(points)} points, such as {points[0]}"
    )


_PROGRAMS: Final = (
    "FROM grid_trial g JOIN trial t USING (trial) WHERE g.grid = $grid AND t.state = 'done' "
    "AND t.spec->>'kind' = 'command'"
)
_REPORTED: Final = f"""
SELECT trial, CAST(sum(CAST(hash(name, step, point, value) AS HUGEINT)) AS VARCHAR) AS reported
FROM (
    SELECT trial, name, step, NULL::VARCHAR AS point, value FROM v_metric
    UNION ALL SELECT trial, name, step, point::VARCHAR, value FROM v_evaluation
)
WHERE NOT starts_with(name, 'system.') AND trial IN (SELECT g.trial {_PROGRAMS}) GROUP BY trial
"""

_ABOUT: Final = f"""
WITH {queries.MADE_BY},
version AS (
    SELECT trial, list(DISTINCT {{'sources': sources::VARCHAR, 'code': code, 'path': path}}) AS made
    FROM attempt JOIN made_by USING (trial) WHERE attempt BETWEEN first AND last GROUP BY trial
)
SELECT g.trial, g.axes::VARCHAR AS axes, version.made,
       CAST(CASE WHEN t.state = 'done' THEN t.step END AS DOUBLE) AS budget,
       CASE WHEN t.state = 'done' THEN t.wall_s END AS wall_s, made.gpu
FROM grid_trial g LEFT JOIN trial t USING (trial) LEFT JOIN version USING (trial)
LEFT JOIN (
    SELECT a.trial, starts_with(a.device, 'cuda') AS gpu
    FROM attempt a JOIN finished f ON f.trial = a.trial AND f.last = a.attempt
) made USING (trial)
WHERE g.grid = $grid
"""
