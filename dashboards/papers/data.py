"""Read recorded values, averaged by the database to the points of a line: series, x, n, value, low, high."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import polars as pl

from dashboards.data.grid_context import GridContext
from dashboards.data.seed_averages import Scale, over_seeds
from dashboards.figures.lines import Series
from dashboards.figures.probe_curves import ProbeReading, along, by_layer, names, over_training
from dashboards.papers.cell_matching import levels, speaks
from dashboards.theme.styles import operator_styles
from store.database.queries import agrees

Spread = Literal["seeds", "heads"]
"""A band: the 95 % t interval over seeds, or one standard deviation over heads of their means over seeds."""

_VALUES: Final = ("value", "low", "high")


def series_of(about: GridContext, cells: Sequence[str] = ()) -> dict[str, Series]:
    """The series of cells, by their keys; by default of those that pictures of single cells show."""
    return {cell: Series(about.look.names[cell], about.look.styles[cell]) for cell in cells or about.drawn}


def named_series(names: Sequence[str]) -> dict[str, Series]:
    """Series that are no cells; the first is neutral."""
    styles = operator_styles(names, names[0]) if names else {}
    return {name: Series(name, styles[name]) for name in names}


def read_probe(
    about: GridContext,
    name: str,
    x: str,
    *,
    at: Mapping[str, float] | None = None,
    spread: Spread = "seeds",
    last: bool = False,
) -> pl.DataFrame:
    """A probe of the drawn cells along `x`: "layer", "step", or a coordinate of its points.

    Layers and heads that are not told apart are averaged within a run; runs are those that are ok, at their last step.
    `last` is the last layer of each cell alone. Without any row the frame is empty.
    """
    if name not in names(about.store, about.grid):
        return pl.DataFrame(
            schema={"series": pl.String, "x": pl.Float64, "n": pl.Int64, **dict.fromkeys(_VALUES, pl.Float64)}
        )
    parts = []
    for layer, cells in (_last_layers(about, name) if last else {None: about.drawn}).items():
        reading = ProbeReading(about.grid, name, dict(at or {}), layer=layer)
        if x == "step":
            parts.append(over_training(about.store, reading, cells))
        elif x == "layer":
            parts.append(by_layer(about.store, reading, cells, spread))
        else:
            parts.append(along(about.store, reading, cells, x, spread))
    found = pl.concat(parts).rename({"cell": "series"}).cast({"x": pl.Float64})
    return in_series(found, about.drawn)


def _last_layers(about: GridContext, name: str) -> Mapping[int | None, Sequence[str]]:
    """The drawn cells by their last layer that a probe looked at: models of a grid may be of several depths."""
    found = about.store.sql(
        "SELECT g.cell, max(p.layer) AS layer FROM v_probe p JOIN grid_trial g USING (trial) WHERE g.grid = $grid "
        "AND p.name = $name AND p.layer IS NOT NULL GROUP BY g.cell",
        {"grid": about.grid, "name": name},
    )
    by_layer: dict[int | None, list[str]] = {}
    for cell, layer in found.iter_rows():
        by_layer.setdefault(layer, []).append(cell)
    return by_layer or {None: about.drawn}


def read_measurement(
    about: GridContext, name: str, x: str, *, at: Mapping[str, float] | None = None, scale: Scale = "linear"
) -> pl.DataFrame:
    """A measurement of the drawn cells along a coordinate of its points, the others as in `at` or averaged."""
    condition, parameters = agrees(at or {})
    rows = (
        "SELECT cell AS series, point[$along] AS x, avg(value) AS value FROM v_final WHERE grid = $grid "
        "AND name = $name AND source = 'evaluation' AND point[$along] IS NOT NULL "
        f"AND {condition} GROUP BY cell, trial, point[$along]"
    )
    given = {"grid": about.grid, "name": name, "along": x, **parameters}
    return in_series(about.store.sql(over_seeds(rows, _KEYS, scale), given), about.drawn)


def read_evaluation(about: GridContext, name: str) -> pl.DataFrame:
    """An evaluation of the drawn cells at every step at which there was one, its points averaged: x is the step."""
    rows = (
        "SELECT g.cell AS series, e.step AS x, avg(e.value) AS value FROM v_evaluation e "
        "JOIN grid_trial g USING (trial) JOIN trial t USING (trial) WHERE g.grid = $grid AND e.name = $name "
        "AND t.status = 'ok' GROUP BY g.cell, e.trial, e.step"
    )
    given = {"grid": about.grid, "name": name}
    return in_series(about.store.sql(over_seeds(rows, _KEYS, "linear"), given), about.drawn)


def read_final(about: GridContext, name: str, *, at: Mapping[str, float] | None = None) -> pl.DataFrame:
    """Average the final value of every cell over seeds: a measurement over its points, or a probe over its heads.

    Returns:
        series (the cell), n, lost, value, low, high.
    """
    condition, parameters = agrees(at or {})
    rows = f"""
        SELECT cell AS series, trial, avg(value) AS value FROM (
            SELECT cell, trial, value FROM v_final WHERE grid = $grid AND name = $name AND {condition}
            QUALIFY source = min(source) OVER ()    -- an evaluation before a metric of the same name
        ) GROUP BY cell, trial
        UNION ALL
        SELECT g.cell, g.trial, avg(p.value) FROM (
            SELECT trial, layer, head, point, value FROM v_probe WHERE name = $name
            QUALIFY step = max(step) OVER (PARTITION BY trial)
        ) p JOIN grid_trial g USING (trial) JOIN trial t USING (trial)
        WHERE g.grid = $grid AND t.status = 'ok' AND {condition} GROUP BY g.cell, g.trial
    """
    found = about.store.sql(
        over_seeds(f"SELECT series, value FROM ({rows})", ["series"], "linear"),
        {"grid": about.grid, "name": name, **parameters},
    )
    return in_series(found, [cell.cell for cell in about.cells], x=False)


def in_series(found: pl.DataFrame, order: Sequence[str], *, x: bool = True) -> pl.DataFrame:
    """The rows of the series in `order`, by rising x; what has no value is left out."""
    place = {name: i for i, name in enumerate(order)}
    kept = found.filter(pl.col("series").is_in(list(order)) & pl.col("value").is_not_null())
    rank = pl.col("series").replace_strict(place, default=None, return_dtype=pl.Int64)
    return kept.sort(rank, *(["x"] if x else []))


def by_level(about: GridContext, fact: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the level of every cell on the axis about `fact`, and its name without that level.

    Cells are in the grid's order. Without such an axis both are empty.
    """
    axes = [axis["name"] for axis in about.header["axes"] if speaks(axis, fact)]
    if not axes:
        return {}, {}
    given = levels(about)
    level = {cell.cell: given[cell.cell].get(axes[0], "–") for cell in about.cells if cell.cell in given}
    rest = {
        cell: " · ".join(of for axis, of in given[cell].items() if axis != axes[0] and len(_of(given, axis)) > 1)
        for cell in level
    }
    return level, rest


def _of(given: Mapping[str, Mapping[str, str]], axis: str) -> set[str | None]:
    return {axes.get(axis) for axes in given.values()}


_KEYS: Final = ["series", "x"]
_PER_TOKEN: Final = frozenset({"text", "grammar", "distillation"})
"""Kinds of tasks whose loss is nats per token."""


def loss_unit(about: GridContext) -> str:
    """Return the unit of `loss`: that of the grid's measure, else that of its tasks, else empty."""
    if about.measure is not None and about.measure.name == "loss":
        return about.unit
    found = about.store.sql(
        "SELECT DISTINCT t.spec->>'$.task.kind' AS kind FROM grid_trial g JOIN trial t USING (trial) "
        "WHERE g.grid = $grid",
        {"grid": about.grid},
    )
    return "nats per token" if set(found["kind"]) <= _PER_TOKEN else ""


def in_unit(words: str, unit: str) -> str:
    """ "loss, nats per token"; without a unit the words alone."""
    return f"{words}, {unit}" if unit else words
