"""Read what a grid recorded, averaged by the database to the points of a line or the cells of a map.

Frames have series (the cell), x, perhaps y, n, value, low and high; cells stand in the order of the grid, x rises.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import polars as pl

from dashboards.data.grid_context import GridContext
from dashboards.data.seed_averages import Scale, over_seeds
from dashboards.figures.lines import Series
from dashboards.figures.probe_curves import ProbeReading, along, by_head, names
from dashboards.figures.shift import average_points
from dashboards.papers.cell_matching import levels, speaks
from dashboards.theme.styles import operator_styles
from store.analysis.verdicts import GridMeasure
from store.database.queries import agrees

Spread = Literal["seeds", "heads"]
"""A band: the 95 % t interval over seeds, or one standard deviation over heads of their means over seeds."""
_PER_TOKEN: Final = frozenset({"text", "grammar", "distillation"})
"""Kinds of tasks whose loss is nats per token."""


def series_of(about: GridContext) -> dict[str, Series]:
    """The cells that pictures of single cells show, by their keys."""
    return {cell: Series(about.look.names[cell], about.look.styles[cell]) for cell in about.drawn}


def named_series(names: Sequence[str]) -> dict[str, Series]:
    """Series that are no cells; the first is neutral."""
    styles = operator_styles(names, names[0]) if names else {}
    return {name: Series(name, styles[name]) for name in dict.fromkeys(names)}


def read_probe(
    about: GridContext,
    name: str,
    x: str,
    *,
    at: Mapping[str, float] | None = None,
    spread: Spread = "seeds",
    last: bool = False,
) -> pl.DataFrame:
    """A probe of the drawn cells along `x`: "layer", "step", "head" (with y the layer), or a coordinate of its points.

    Other layers, heads and points are averaged within a run; runs are those that are ok, at their last step. `last`
    is the last layer of each cell alone. Without any row the frame is empty.
    """
    if name not in names(about.store, about.grid):
        values = dict.fromkeys(("x", "y", "value", "low", "high"), pl.Float64)
        return pl.DataFrame(schema={"series": pl.String, "n": pl.Int64, **values})
    parts = []
    for layer, cells in (_last_layers(about, name) if last else {None: about.drawn}).items():
        reading = ProbeReading(about.grid, name, dict(at or {}), layer=layer)
        if x == "head":
            parts.append(by_head(about.store, reading, cells).rename({"head": "x", "layer": "y"}))
        else:
            parts.append(along(about.store, reading, cells, x, spread))
    return _in_series(pl.concat(parts).rename({"cell": "series"}), about.drawn)


def _last_layers(about: GridContext, name: str) -> Mapping[int | None, Sequence[str]]:
    """The drawn cells by their last layer that a probe looked at: models of a grid may be of several depths."""
    found = about.store.sql(
        "SELECT layer, list(cell) FROM (SELECT g.cell, max(p.layer) AS layer FROM v_probe p "
        "JOIN grid_trial g USING (trial) WHERE g.grid = $grid AND p.name = $name AND p.layer IS NOT NULL "
        "GROUP BY g.cell) GROUP BY layer",
        {"grid": about.grid, "name": name},
    )
    return dict(found.iter_rows()) or {None: about.drawn}


def read_measurement(
    about: GridContext, name: str, *axes: str, at: Mapping[str, float] | None = None, scale: Scale = "linear"
) -> pl.DataFrame:
    """A measurement of the drawn cells along one coordinate of its points or two, the others as in `at` or averaged."""
    measure = GridMeasure(name, point=dict(at or {}), scale=scale)
    found = average_points(about.store, about.grid, measure, axes, about.drawn)
    return _in_series(found.rename({"cell": "series"}), about.drawn)


def read_evaluation(about: GridContext, name: str) -> pl.DataFrame:
    """An evaluation of the drawn cells at every step at which there was one, its points averaged: x is the step."""
    rows = (
        "SELECT g.cell AS series, e.step AS x, avg(e.value) AS value FROM v_evaluation e "
        "JOIN grid_trial g USING (trial) JOIN trial t USING (trial) WHERE g.grid = $grid AND e.name = $name "
        "AND t.status = 'ok' GROUP BY g.cell, e.trial, e.step"
    )
    found = about.store.sql(over_seeds(rows, ["series", "x"], "linear"), {"grid": about.grid, "name": name})
    return _in_series(found, about.drawn)


def read_final(about: GridContext, name: str, *, at: Mapping[str, float] | None = None) -> pl.DataFrame:
    """The final value of every cell, without x: a measurement over its points, or a probe over its heads."""
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
    given = {"grid": about.grid, "name": name, **parameters}
    found = about.store.sql(over_seeds(f"SELECT series, value FROM ({rows})", ["series"], "linear"), given)
    return _in_series(found, [cell.cell for cell in about.cells])


def _in_series(found: pl.DataFrame, cells: Sequence[str]) -> pl.DataFrame:
    """The rows of `cells` that have a value, in the order of `cells`, then by x and y."""
    kept = found.filter(pl.col("series").is_in(list(cells)) & pl.col("value").is_not_null())
    place = pl.col("series").cast(pl.Enum(list(dict.fromkeys([*cells, *found["series"]]))))
    axes = [name for name in ("y", "x") if name in found.columns]
    return kept.with_columns(pl.col(axes).cast(pl.Float64)).sort(place, *axes)


def split_cells(about: GridContext, fact: str) -> pl.DataFrame:
    """series (every cell, in the grid's order), level (on the axis about `fact`), rest (its other levels that vary).

    Empty if no axis is about the fact.
    """
    axes = [axis["name"] for axis in about.header["axes"] if speaks(axis, fact)]
    given = levels(about) if axes else {}
    several = {name for name in _names(given) if len({axes.get(name) for axes in given.values()}) > 1}
    rows = [
        (
            cell.cell,
            own.get(axes[0], "–"),
            " · ".join(level for name, level in own.items() if name in several - {axes[0]}),
        )
        for cell in about.cells
        if (own := given.get(cell.cell)) is not None
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(("series", "level", "rest"), pl.String), orient="row")


def _names(given: Mapping[str, Mapping[str, str]]) -> set[str]:
    return {name for axes in given.values() for name in axes}


def loss_words(about: GridContext, words: str = "loss") -> str:
    """`words` with the unit of the loss, if it is known: that of the grid's measure, else that of its tasks."""
    if about.measure is not None and about.measure.name == "loss":
        unit = about.unit
    else:
        found = about.store.sql(
            "SELECT DISTINCT t.spec->>'$.task.kind' AS kind FROM grid_trial g JOIN trial t USING (trial) "
            "WHERE g.grid = $grid",
            {"grid": about.grid},
        )
        unit = "nats per token" if set(found["kind"]) <= _PER_TOKEN else ""
    return f"{words}, {unit}" if unit else words
