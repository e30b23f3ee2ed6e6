"""Recorded probes as averages: over training, by layer, by head, along a coordinate; learned numbers by head.

A probe has rows by layer and head, and where it looks at several places, by a point: `importance` at each position,
`sink_share` at each eps. A `ProbeReading` says which of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import number, plain
from ablate.dashboards.data.grid_context import Appearance, in_order
from ablate.dashboards.data.seed_averages import Scale, over_seeds
from ablate.dashboards.data.user_errors import require
from ablate.dashboards.figures.canvas import break_name, canvas, error_bars, points, value_axis
from ablate.dashboards.theme.styles import REST
from ablate.store import Store
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.state import State

AVERAGED: Final = ("depth", "sequence")
"""Coordinates that are averaged over: a depth is a layer, and single sequences are shown along them alone."""


class ProbeReading(NamedTuple):
    """A probe at one place, in one layer or all, at one step or the last."""

    grid: str
    name: str
    at: Mapping[str, float | None]  # by coordinate the value; None is where rows have no such coordinate
    step: int | None = None  # None is the last step of trials that are done
    layer: int | Literal["last"] | None = None  # None is all layers; "last" is the last one of each run

    def where(self, *, without: str = "", last: bool = True, finite: bool = True) -> tuple[str, dict[str, Any]]:
        """The condition of its rows and its parameters; not of the coordinate `without`, nor of a step but the last.

        Rows are those with a finite value, or with `finite` false all others.
        """
        parameters: dict[str, Any] = {"grid": self.grid, "probe": self.name}
        parts = ["g.grid = $grid", "p.name = $probe", f"isfinite(p.value) IS {'' if finite else 'NOT '}TRUE"]
        for i, (axis, value) in enumerate(sorted(self.at.items())):
            if axis != without:
                parameters |= {f"axis{i}": axis} | ({} if value is None else {f"at{i}": value})
                parts.append(f"p.point[$axis{i}] " + ("IS NULL" if value is None else f"= $at{i}"))
        if self.layer == "last":
            parts.append("p.layer = (SELECT max(layer) FROM v_probe WHERE trial = p.trial AND name = p.name)")
        elif self.layer is not None:
            parts.append("p.layer = $layer")
            parameters["layer"] = self.layer
        if last and self.step is not None:
            parts.append("p.step = $step")
            parameters["step"] = self.step
        ended = last and self.step is None
        parts.append("t.state = 'done' AND p.step = t.step" if ended else "t.state IS DISTINCT FROM 'failed'")
        return " AND ".join(parts), parameters


BINS: Final = "sum"  # the coordinate whose values are the middles of bins, by which a probe counts
_FROM: Final = "v_probe p JOIN grid_trial g USING (trial) JOIN trial t USING (trial)"


def names(store: Store, grid: str) -> list[str]:
    """Everything that probes recorded in a grid, sorted."""
    recorded = store.sql(
        "SELECT DISTINCT name FROM probe SEMI JOIN (FROM grid_trial WHERE grid = $grid) USING (trial) ORDER BY name",
        {"grid": grid},
    )
    return [str(name) for name in recorded["name"]]


def differing(store: Store, grid: str) -> pl.DataFrame:
    """How far each probe tells cells apart at the end of training.

    Columns: name, share, cells (how many recorded it), low, low_cell, high, high_cell.

    `share` is the part of the variance over runs, of means over layers, heads and places, that cells explain; null
    where nothing varies, and where no cell has two runs. `low` and `high` are the least and the greatest mean of a
    cell. The largest share comes first.
    """
    runs = store.sql(
        f"SELECT p.name, g.cell, p.trial, avg(p.value) AS value FROM {_FROM} WHERE g.grid = $grid "
        "AND t.state = 'done' AND p.step = t.step AND isfinite(p.value) GROUP BY ALL ORDER BY ALL",
        {"grid": grid},
    )
    value, cell = pl.col("value"), pl.col("cell")
    squares = runs.select(
        "name",
        whole=(value - value.mean().over("name")) ** 2,
        within=(value - value.mean().over("name", "cell")) ** 2,
        repeated=pl.len().over("name", "cell") > 1,
    )
    whole, within = pl.col("whole").sum(), pl.col("within").sum()
    shares = squares.group_by("name").agg(
        share=pl.when(whole > 1e-18, pl.col("repeated").any()).then(1 - within / whole)
    )
    cells = runs.group_by("name", "cell", maintain_order=True).agg(value.mean()).sort("value", maintain_order=True)
    ends = {"low": value.first(), "low_cell": cell.first(), "high": value.last(), "high_cell": cell.last()}
    probes = shares.join(cells.group_by("name").agg(pl.len().alias("cells"), **ends), on="name")
    return probes.sort(pl.col("share").round(3), "name", descending=[True, False], nulls_last=True)


class Places(NamedTuple):
    """Where a probe looked."""

    coordinates: Mapping[str, Sequence[float]]  # values of each coordinate of its points, rising
    bare: Mapping[str, bool]  # true for each coordinate that some rows lack
    steps: Sequence[int]
    layers: Sequence[int]  # empty where it looks at whole models
    heads: bool  # whether it tells heads apart


def places(store: Store, grid: str, name: str) -> Places:
    """Where the probe `name` looked in trials of a grid. Raises Unknown if it recorded nothing there."""
    of = "probe p JOIN grid_trial g USING (trial) WHERE g.grid = $grid AND p.name = $probe"
    parameters = {"grid": grid, "probe": name}
    points = store.sql(f"SELECT DISTINCT map_entries(p.point) AS point FROM {of}", parameters)["point"].to_list()
    if not points:
        require(f"grid {grid!r}", "recorded row", name, names(store, grid))
    read = [{entry["key"]: float(entry["value"]) for entry in point} for point in points]
    axes = sorted({axis for point in read for axis in point})
    coordinates = {axis: sorted({point[axis] for point in read if axis in point}) for axis in axes}
    bare = {axis: any(axis not in point for point in read) for axis in axes}
    lists = "list(DISTINCT p.step ORDER BY p.step), list(DISTINCT p.layer ORDER BY p.layer)"
    steps, layers, heads = store.sql(f"SELECT {lists}, count(p.head) FROM {of}", parameters).row(0)
    return Places(coordinates, bare, steps, [layer for layer in layers if layer is not None], bool(heads))


def choose_places(places: Places, said: Mapping[str, str]) -> dict[str, float | None]:
    """Where to look, by coordinate: as `said`, or where rows are without it, or at its first value. Raises Unknown."""
    for axis in said:
        require("this probe", "coordinate", axis, places.coordinates)
    chosen: dict[str, float | None] = {}
    for axis, values in places.coordinates.items():
        if axis in said:
            at = {f"{value:g}": value for value in values}
            chosen[axis] = at[require("this probe", axis, said[axis], at)]
        elif axis not in AVERAGED:
            chosen[axis] = None if places.bare[axis] else values[0]
    return chosen


def not_finite(
    store: Store, reading: ProbeReading, cells: Sequence[str], *, without: str = "", last: bool = True
) -> int:
    """How many values of `cells` every reduction here leaves out as not finite; else as `ProbeReading.where`."""
    where, parameters = reading.where(without=without, last=last, finite=False)
    parameters |= {"cells": list(cells)}
    lost = store.sql(f"SELECT count(*) AS n FROM {_FROM} WHERE {where} AND list_contains($cells, g.cell)", parameters)
    return int(lost["n"][0])


def along(
    store: Store, reading: ProbeReading, cells: Sequence[str], axis: str, band: Literal["seeds", "heads"] = "seeds"
) -> pl.DataFrame:
    """The mean along `axis`, over all layers and heads, or the layer of the reading: cell, x, n, value, low, high.

    `axis` is "step", "layer" or a coordinate. `low` and `high` are the t interval over seeds, or the mean over heads
    (each averaged over seeds) less and plus their standard deviation; n counts seeds, or heads. Along `BINS`, a bin
    that a layer or a run of the cell lacks counts 0.
    """
    x = {"step": "p.step", "layer": "p.layer::BIGINT"}.get(axis, "p.point[$along]")
    where, parameters = reading.where(without=axis, last=axis != "step")
    parameters |= {"along": axis} if "$along" in x else {}
    each, kind = ("p.trial", "interval") if band == "seeds" else ("p.layer, p.head", "spread")
    source = (
        f"SELECT g.cell, {each}, {x} AS x, avg(p.value) AS value FROM {_FROM} WHERE {where} AND {x} IS NOT NULL "
        "GROUP BY ALL"
    )
    if axis == BINS:
        rows = f"SELECT g.cell, p.trial, p.layer, {x} AS x, p.value FROM {_FROM} WHERE {where} AND {x} IS NOT NULL"
        source = f"""
            WITH counted AS ({rows}),
                 runs AS (SELECT cell, trial, count(DISTINCT layer) AS layers FROM counted GROUP BY ALL),
                 bins AS (SELECT DISTINCT cell, x FROM counted)
            SELECT cell, trial, x, coalesce(sum(value), 0) / any_value(layers) AS value
            FROM runs JOIN bins USING (cell) LEFT JOIN counted USING (cell, trial, x) GROUP BY cell, trial, x
        """
    return in_order(store.sql(over_seeds(source, ["cell", "x"], "linear", kind), parameters), cells, "x")  # type: ignore[arg-type]


def by_head(store: Store, reading: ProbeReading, cells: Sequence[str]) -> pl.DataFrame:
    """Every layer and head, averaged over seeds: cell, layer, head, n, lost, value, low, high."""
    where, parameters = reading.where()
    source = (
        f"SELECT g.cell, p.layer::BIGINT AS layer, p.head::BIGINT AS head, avg(p.value) AS value FROM {_FROM} "
        f"WHERE {where} AND p.layer IS NOT NULL AND p.head IS NOT NULL GROUP BY g.cell, p.trial, p.layer, p.head"
    )
    averages = store.sql(over_seeds(source, ["cell", "layer", "head"], "linear"), parameters)
    return in_order(averages, cells, "layer", "head")


def against(store: Store, reading: ProbeReading, measure: GridMeasure, cells: Sequence[str]) -> pl.DataFrame:
    """Every run that is ok and has both: cell, seed, trial, x (the probe), y (the measure); by cell as given."""
    where, parameters = reading.where()
    probed = store.sql(f"SELECT p.trial, avg(p.value) AS x FROM {_FROM} WHERE {where} GROUP BY p.trial", parameters)
    values = store.final(reading.grid, measure.name, measure.point).filter(pl.col("state") == State.DONE)
    rows = values.join(probed, on="trial").select("cell", "seed", "trial", "x", y="value")
    rows = rows.filter(pl.col("y").is_finite() & ((pl.col("y") > 0) | (measure.scale != "log")))
    return in_order(rows, cells, "seed")


def by_cell(frame: pl.DataFrame, scale: Scale) -> pl.DataFrame:
    """The frame of `against` averaged over seeds: cell, n, x, y; y as a geometric mean on the log scale."""
    y = pl.col("y").log().mean().exp() if scale == "log" else pl.col("y").mean()
    return frame.group_by("cell", maintain_order=True).agg(pl.len().alias("n"), pl.col("x").mean(), y)


def rank_correlation(x: pl.Series, y: pl.Series) -> float | None:
    """Spearman's rho, ties at their average rank; None below three pairs, or where one side does not vary."""
    if len(x) < 3 or x.n_unique() < 2 or y.n_unique() < 2:
        return None
    rho = pl.select(pl.corr(x.rank(), y.rank())).item()
    return None if rho is None else float(rho)


def draw_against(frame: pl.DataFrame, appearance: Appearance, *, x: str, y: str, scale: Scale) -> go.Figure:
    """Small points are runs, large ones their cells; cells beyond those with a style of their own are grey."""
    figure = canvas(400, x=x, y=y)
    averages = by_cell(frame, scale)
    for (cell,), rows in frame.group_by("cell", maintain_order=True):
        key, style = str(cell), appearance.styles[str(cell)]
        shared = {"name": break_name(appearance.names[key]), "legendgroup": "" if style == REST else key}
        mean = averages.row(by_predicate=pl.col("cell") == key, named=True)
        words = f"{plain(appearance.names[key])}<br>{number(mean['x'])}, {number(mean['y'])}, n {mean['n']}"
        each = [f"{x:.4g}, {y:.4g}<br>seed {seed}" for x, y, seed in rows.select("x", "y", "seed").iter_rows()]
        small = {"marker_size": 5, "marker_color": style.color + "80"}
        figure.add_trace(points(rows["x"], rows["y"], style, each, **small, **shared))
        figure.add_trace(points([mean["x"]], [mean["y"]], style, [words], marker_size=12, **shared))
    ends = frame.select(pl.col("y").alias("value"), *(pl.lit(None, pl.Float64).alias(end) for end in ("low", "high")))
    figure.update_yaxes(**value_axis(ends, scale))
    return figure


_PREFIX: Final = "number."


def numbers(store: Store, grid: str, cells: Sequence[str]) -> pl.DataFrame:
    """Every learned number of `cells` at the last step of their ok trials, averaged over seeds.

    Returns:
        cell, name (without the prefix "number."), layer, head (-1 where all heads share it), n, lost, value, low,
        high; by cell in the given order, then name, layer, head.
    """
    source = f"""
        SELECT g.cell, substr(p.name, {len(_PREFIX) + 1}) AS name, coalesce(p.layer, -1) AS layer,
               coalesce(p.head, -1) AS head, p.value
        FROM v_probe p JOIN grid_trial g USING (trial) JOIN trial t USING (trial)
        WHERE g.grid = $grid AND t.state = 'done' AND starts_with(p.name, '{_PREFIX}')
        QUALIFY p.step = max(p.step) OVER (PARTITION BY p.trial, p.name)
    """
    averages = store.sql(over_seeds(source, ["cell", "name", "layer", "head"], "linear"), {"grid": grid})
    return in_order(averages, cells, "name", "layer", "head")


def draw_numbers(frame: pl.DataFrame, appearance: Appearance) -> go.Figure:
    """One number: a point with its interval per cell, layer and head; heads stand side by side within their layer."""
    figure = canvas(300, x="layer")  # a layer takes 0.6 of the distance between two
    cells = list(dict.fromkeys(frame["cell"]))
    slots = (max(frame["head"], default=-1) + 1 or 1) * len(cells)
    for turn, cell in enumerate(cells):
        rows, style = frame.filter(pl.col("cell") == cell), appearance.styles[cell]
        place = (pl.col("head").clip(0) * len(cells) + turn + 0.5) / slots - 0.5
        tooltips = [
            f"{value:.3g}<br>{'all heads' if head < 0 else f'head {head}'}, n {n}"
            for value, head, n in rows.select("value", "head", "n").iter_rows()
        ]
        bars = error_bars(rows["value"], rows["low"], rows["high"], style.color, thickness=1.4, width=3)
        x = rows.select(pl.col("layer") + 0.6 * place)["layer"]
        names = {"name": break_name(appearance.names[cell]), "legendgroup": cell}
        figure.add_trace(points(x, rows["value"], style, tooltips, error_y=bars, marker_size=8, **names))
    layers = frame["layer"].unique().sort().to_list()
    texts = ["all" if layer < 0 else str(layer) for layer in layers]
    return figure.update_xaxes(tickvals=layers, ticktext=texts, ticks="")
