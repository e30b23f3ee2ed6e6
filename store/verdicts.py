"""The verdicts of a grid, read from its store: the grid's own measure and baseline, unless others are named."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import polars as pl

from grid.errors import NotFoundError, SpecError
from grid.spec import did_you_mean
from store.statistics import Better, Scale, compare, failures, main_effects

if TYPE_CHECKING:
    from store.store import Store

_AXIS: Final = "axis: "  # keeps an axis that is called `seed` or `value` apart from the columns of that name


class Measure(NamedTuple):
    """What a grid is judged by; see the grid header."""

    name: str
    point: Mapping[str, float] = {}
    scale: Scale = "linear"
    better: Better = "lower"
    rope: float = 0.0
    alpha: float = 0.05


class Subject(NamedTuple):
    """A grid ready to be judged."""

    grid: str
    measure: Measure
    baseline: str | None
    axes: Sequence[Mapping[str, Any]]


def verdicts(
    store: "Store", grid: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> pl.DataFrame:
    """One row per cell other than the baseline: the columns of `compare`, then ok, failed, running, pending.

    `baseline` is a cell key or a label, by default the grid's; `measure` replaces single fields of the grid's measure,
    such as `{"point": {"sigma_x": 1, "sigma_f": 10}}`. `family` is the number of comparisons that share the 5 %.
    Raises NotFoundError for an unknown grid, baseline or measure and SpecError for a measure without meaning.
    """
    about = subject(store, grid, measure)
    values = runs(store, about)
    rules = about.measure
    found = compare(
        values,
        baseline=baseline_cell(values, about, baseline),
        scale=rules.scale,
        better=rules.better,
        rope=rules.rope,
        alpha=rules.alpha,
    )
    counts = [(values["status"] == status).cast(pl.Int64).alias(status) for status in _STATUSES]
    progress = values.select("cell", *counts).group_by("cell").sum()
    return found.join(progress, on="cell", how="left", maintain_order="left")


def failure_rates(store: "Store", grid: str, *, baseline: str | None = None) -> pl.DataFrame:
    """One row per cell of the grid, baseline included: the columns of `failures`. Raises as `verdicts` does."""
    about = subject(store, grid, None)
    values = runs(store, about)
    return failures(values, baseline=baseline_cell(values, about, baseline), alpha=about.measure.alpha)


def effects(store: "Store", grid: str, *, measure: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Main effects over the axes of the grid: the columns of `main_effects`, axes and levels in the grid's order.

    `factor` is the name of the axis. Raises as `verdicts` does, and SpecError for a zero on the log scale.
    """
    about = subject(store, grid, measure)
    values = runs(store, about)
    names = [str(axis["name"]) for axis in about.axes]
    levels = [json.loads(text) for text in values["axes"].to_list()]
    columns = [pl.Series(_AXIS + name, [_level(row.get(name)) for row in levels], pl.String) for name in names]
    found = main_effects(
        values.with_columns(columns),
        [_AXIS + name for name in names],
        scale=about.measure.scale,
        alpha=about.measure.alpha,
    ).with_columns(pl.col("factor").str.strip_prefix(_AXIS))
    place = {
        (axis["name"], label): (i, j) for i, axis in enumerate(about.axes) for j, label in enumerate(axis["labels"])
    }
    unknown = (len(names), 0)
    order = sorted(range(found.height), key=lambda i: (*place.get((found["factor"][i], found["level"][i]), unknown), i))
    return found[order]


def _level(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


_STATUSES: Final = ("ok", "failed", "running", "pending")


def subject(store: "Store", grid: str, measure: Mapping[str, Any] | None) -> Subject:
    """The grid with its measure, single fields replaced by those of `measure`."""
    found = store.sql(f"SELECT header FROM grid WHERE grid = {_text(grid)}")["header"].to_list()
    if not found:
        known = store.sql("SELECT grid FROM grid ORDER BY grid")["grid"].to_list()
        raise NotFoundError(f"there is no grid {grid!r}; the campaign has {known}{did_you_mean(grid, known)}")
    header = json.loads(found[0])
    return Subject(grid, _measure(grid, header.get("measure") or {}, measure or {}), header["baseline"], header["axes"])


def _measure(grid: str, own: Mapping[str, Any], other: Mapping[str, Any]) -> Measure:
    for name in other:
        if name not in Measure._fields:
            known = list(Measure._fields)
            raise SpecError(f"a measure has the fields {known}; got {name!r}{did_you_mean(name, known)}")
    fields = {name: value for name, value in {**own, **other}.items() if name in Measure._fields and value is not None}
    if "name" not in fields:
        raise SpecError(f"grid {grid!r} names no measure; name one, such as measure={{'name': 'loss'}}")
    return Measure(**fields)


def baseline_cell(values: pl.DataFrame, about: Subject, wanted: str | None) -> str:
    """The cell key of the baseline: `wanted` as a key or a label, or the grid's own."""
    cells = dict(values.select("label", "cell").unique().iter_rows())
    name = wanted if wanted is not None else about.baseline
    if name is None:
        raise SpecError(f"grid {about.grid!r} has no baseline; name one of {sorted(cells)}")
    if name in cells.values():
        return name
    if name not in cells:
        raise NotFoundError(
            f"grid {about.grid!r} has no cell {name!r}; it has {sorted(cells)}{did_you_mean(name, list(cells))}"
        )
    return str(cells[name])


def runs(store: "Store", about: Subject) -> pl.DataFrame:
    """Every planned run, in execution order: cell, label, operator, seed, axes, status, value, budget, code.

    `value` is that of the measure at the last step, null where the run has none; `budget` the steps it took; `code`
    the versions of the code that took part in it.
    """
    found = store.sql(
        _RUNS.format(grid=_text(about.grid), name=_text(about.measure.name), point=_at(about.measure.point))
    )
    if found["value"].null_count() == found.height and (found["status"] == "ok").any():
        raise NotFoundError(_no_such_measure(store, about))
    return found


def _at(point: Mapping[str, float]) -> str:
    """A condition on the map `point`; maps are compared by entries, as equality of maps would mind their order."""
    terms = [f"cardinality(point) = {len(point)}"]
    for axis, value in point.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise SpecError(f"a point of a measure has finite numbers; got {value!r} for {axis!r}")
        terms.append(f"point[{_text(axis)}] = {float(value)!r}::DOUBLE")
    return " AND ".join(terms)


def _no_such_measure(store: "Store", about: Subject) -> str:
    listed = store.sql(f"SELECT DISTINCT name, point FROM v_final WHERE grid = {_text(about.grid)} ORDER BY name")
    names = list(dict.fromkeys(listed["name"].to_list()))
    measure = about.measure
    if measure.name not in names:
        hint = did_you_mean(measure.name, names)
        return f"no finished run of grid {about.grid!r} has {measure.name!r}; there are {names}{hint}"
    points = listed.filter(pl.col("name") == measure.name)["point"].to_list()
    example = {entry["key"]: entry["value"] for entry in points[0]}
    return (
        f"no finished run of grid {about.grid!r} has {measure.name!r} at {dict(measure.point)}; "
        f"it has {len(points)} points, such as {example}"
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# An evaluation goes before a metric of the same name. The code of a resumed run is that of all attempts up to the one
# that finished.
_RUNS: Final = """
WITH final AS (
    SELECT trial, arg_min(value, source) AS value FROM v_final
    WHERE grid = {grid} AND name = {name} AND {point} GROUP BY trial
),
finished AS (
    SELECT trial, arg_min(attempt, attempt) AS attempt, arg_min(resumed_attempt IS NOT NULL, attempt) AS resumed
    FROM attempt WHERE status = 'ok' GROUP BY trial
),
code AS (
    SELECT a.trial, string_agg(DISTINCT coalesce(a.code, 'unknown'), ' ' ORDER BY coalesce(a.code, 'unknown')) AS code
    FROM attempt a JOIN finished f ON f.trial = a.trial
        AND (a.attempt = f.attempt OR (f.resumed AND a.attempt < f.attempt))
    GROUP BY a.trial
)
SELECT g.cell, g.label, g.operator, g.seed, g.axes::VARCHAR AS axes, coalesce(t.status, 'pending') AS status,
       final.value, CAST(CASE WHEN t.status = 'ok' THEN t.step END AS DOUBLE) AS budget, code.code
FROM grid_trial g
LEFT JOIN trial t USING (trial) LEFT JOIN final USING (trial) LEFT JOIN code USING (trial)
WHERE g.grid = {grid} ORDER BY g.position
"""
