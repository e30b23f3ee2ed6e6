"""Read a grid as frames: series (cells, in the grid's order), x (rising), perhaps y, n, value, low, high."""

from collections.abc import Mapping, Sequence
from typing import Literal

import polars as pl

from ablate.dashboards.data.grid_context import GridContext
from ablate.dashboards.data.seed_averages import Scale, over_seeds
from ablate.dashboards.figures.lines import Series
from ablate.dashboards.figures.probe_curves import ProbeReading, along, by_head
from ablate.dashboards.figures.shift import average_points
from ablate.dashboards.theme.styles import name_styles
from ablate.papers.figures.cell_matching import is_about, levels
from ablate.store.analysis.row_labels import clip_interval
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.database.queries import agrees

Spread = Literal["seeds", "heads"]
"""A band: the 95 % t interval over seeds, or one standard deviation over heads of their means over seeds."""
Point = Mapping[str, float]


def named_series(names: Sequence[str]) -> dict[str, Series]:
    """Make series that are no cells; the first is neutral."""
    styles = name_styles(names, {}, names[0]) if names else {}
    return {name: Series(name, styles[name]) for name in dict.fromkeys(names)}


def read_probe(
    context: GridContext, name: str, x: str, *, at: Point | None = None, spread: Spread = "seeds", last: bool = False
) -> pl.DataFrame:
    """Read a probe of the drawn cells along "layer", "step", "head" (y is the layer) or a coordinate of its points.

    Other layers, heads and points are averaged within a run. With `last`, only the last layer of each model counts.
    """
    reading = ProbeReading(context.grid, name, dict(at or {}), layer="last" if last else None)
    if x == "head":
        averages = by_head(context.store, reading, context.drawn).rename({"head": "x", "layer": "y"})
    else:
        averages = clip_interval(context.header, along(context.store, reading, context.drawn, x, spread), name)
    return _sort(averages.rename({"cell": "series"}), context.drawn)


def read_measurement(
    context: GridContext, name: str, *axes: str, at: Point | None = None, scale: Scale = "linear"
) -> pl.DataFrame:
    """Read a measurement of the drawn cells along one coordinate or two; others are fixed by `at` or averaged."""
    measure = GridMeasure(name, point=dict(at or {}), scale=scale)
    averages = average_points(context.store, context.grid, measure, axes, context.drawn)
    return _sort(averages.rename({"cell": "series"}), context.drawn)


def read_evaluation(context: GridContext, name: str) -> pl.DataFrame:
    """Read an evaluation of the drawn cells by step, averaged over its points."""
    rows = (
        "SELECT g.cell AS series, e.step AS x, avg(e.value) AS value FROM v_evaluation e "
        "JOIN grid_trial g USING (trial) JOIN trial t USING (trial) WHERE g.grid = $grid AND e.name = $name "
        "AND t.state = 'done' GROUP BY g.cell, e.trial, e.step"
    )
    averages = context.store.sql(over_seeds(rows, ["series", "x"], "linear"), {"grid": context.grid, "name": name})
    return _sort(averages, context.drawn)


def read_final(context: GridContext, name: str, *, at: Point | None = None) -> pl.DataFrame:
    """Read the final value of every cell, without x: a measurement over its points, or a probe over its heads."""
    condition, parameters = agrees(at or {})
    rows = f"""
        SELECT cell AS series, avg(value) AS value FROM (
            SELECT cell, trial, value FROM v_final WHERE grid = $grid AND name = $name AND {condition}
            QUALIFY source = min(source) OVER ()    -- an evaluation before a metric of the same name
        ) GROUP BY cell, trial
        UNION ALL
        SELECT g.cell, avg(p.value) FROM (
            SELECT trial, layer, head, point, value FROM v_probe WHERE name = $name
            QUALIFY step = max(step) OVER (PARTITION BY trial)
        ) p JOIN grid_trial g USING (trial) JOIN trial t USING (trial)
        WHERE g.grid = $grid AND t.state = 'done' AND {condition} GROUP BY g.cell, g.trial
    """
    arguments = {"grid": context.grid, "name": name, **parameters}
    averages = context.store.sql(over_seeds(rows, ["series"], "linear"), arguments)
    return clip_interval(context.header, _sort(averages, [cell.cell for cell in context.cells]), name)


def _sort(frame: pl.DataFrame, cells: Sequence[str]) -> pl.DataFrame:
    """Keep the rows of `cells` with a value, in the order of `cells`, then by y and x."""
    kept = frame.filter(pl.col("series").is_in(list(cells)) & pl.col("value").is_not_null())
    axes = [name for name in ("y", "x") if name in frame.columns]
    place = pl.col("series").cast(pl.Enum(list(dict.fromkeys([*cells, *frame["series"]]))))
    return kept.with_columns(pl.col(axes).cast(pl.Float64)).sort(place, *axes)


def split_cells(context: GridContext, fact: str) -> pl.DataFrame:
    """Split cells by the axis about `fact`: series (the cell), level, rest (levels of others that vary); else empty."""
    axis = next((axis["name"] for axis in context.header["axes"] if is_about(axis, fact)), None)
    by_cell = levels(context) if axis is not None else {}
    names = {name: {of.get(name) for of in by_cell.values()} for each in by_cell.values() for name in each}
    rest = [name for name, values in names.items() if len(values) > 1 and name != axis]
    rows = [
        (cell.cell, own.get(str(axis), "–"), " · ".join(own[name] for name in own if name in rest))
        for cell in context.cells
        if (own := by_cell.get(cell.cell)) is not None
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(("series", "level", "rest"), pl.String), orient="row")


def loss_words(context: GridContext, words: str = "loss") -> str:
    """`words` with the unit of the loss, if it is known: that of the grid's measure, else that of its tasks."""
    unit = context.unit
    if context.measure is None or context.measure.name != "loss":
        tasks = context.store.sql(
            "SELECT DISTINCT t.spec->>'$.task.kind' AS kind FROM grid_trial g JOIN trial t USING (trial) "
            "WHERE g.grid = $grid",
            {"grid": context.grid},
        )
        unit = "nats per token" if set(tasks["kind"]) <= {"text", "grammar", "distillation"} else ""
    return f"{words}, {unit}" if unit else words
