"""Main effects: what each level of each axis adds against the mean of the grid."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.canvas import broken, canvas, finite
from dashboards.figures.ratio_axis import ratio_ticks
from dashboards.html import plain
from dashboards.theme import INK, MUTED, ROPE
from dashboards.words import change
from store import Store
from store.statistics import main_effects
from store.verdicts import Measure, runs

TOGETHER: Final = " = "  # joins the names of axes that take the same levels in every cell
_COLUMN: Final = "axis: "
_BLUE: Final = "#0072b2"


def effects(store: Store, grid: str, measure: Measure) -> pl.DataFrame:
    """Main effects over the axes of `grid`, of those that the cells at hand can tell apart.

    Axes that always move together (zipped ones) are one factor, named after all of them: apart, none of them has an
    effect that could be estimated.

    Returns:
        factor, level, n, effect, low, high, percent, as `store.statistics.main_effects`; axes in the grid's order.
    """
    values = runs(store, grid, measure)
    rows = [json.loads(row) for row in values["axes"]]
    columns = {axis["name"]: [_level(row.get(axis["name"])) for row in rows] for axis in store.grid(grid)["axes"]}
    factors = {_COLUMN + TOGETHER.join(names): columns[names[0]] for names in moving_together(columns)}
    if not factors or not finite(values["value"].to_list()):
        return pl.DataFrame(schema={"factor": pl.String, "level": pl.String, "n": pl.Int64, "effect": pl.Float64})
    wide = values.with_columns(pl.Series(name, of, pl.String) for name, of in factors.items())
    found = main_effects(wide, list(factors), scale=measure.scale, alpha=measure.alpha)
    told = found.with_columns(pl.col("factor").str.strip_prefix(_COLUMN)).filter(pl.col("effect").is_not_null())
    several = told.filter(pl.len().over("factor") > 1)
    return _in_order(several, store.grid(grid)["axes"])


def _in_order(found: pl.DataFrame, axes: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    labels = [label for axis in axes for label in axis["labels"]]
    factors = list(dict.fromkeys(found["factor"]))
    keys = [
        (factors.index(factor), labels.index(level) if level in labels else len(labels))
        for factor, level in found.select("factor", "level").iter_rows()
    ]
    return found[sorted(range(found.height), key=keys.__getitem__)]


def moving_together(columns: Mapping[str, Sequence[str | None]]) -> list[list[str]]:
    """The names of columns grouped by equal contents; columns that do not vary are left out."""
    found: dict[tuple[str | None, ...], list[str]] = {}
    for name, values in columns.items():
        if len({value for value in values if value is not None}) > 1:
            found.setdefault(tuple(values), []).append(name)
    return list(found.values())


def _level(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def draw_effects(found: pl.DataFrame, measure: Measure) -> go.Figure:
    """One row per level, a block per axis, with the interval of the additive model."""
    places, headings, height = _places(found)
    figure = canvas(
        round(60 + 28 * height), x="against the mean of the grid" + (" (log axis)" if _log(measure) else "")
    )
    figure.add_vline(x=0, line={"color": ROPE, "width": 1})
    rows = found.iter_rows(named=True)
    for place, row in zip(places, rows, strict=True):
        figure.add_trace(_row(place, row, measure.scale))
    for place, factor in headings:
        figure.add_annotation(
            x=0,
            xref="paper",
            y=place,
            text=f"<b>{plain(factor)}</b>",
            showarrow=False,
            xanchor="left",
            font={"color": MUTED, "size": 12},
        )
    levels = [broken(plain(level)) for level in found["level"]]
    figure.update_yaxes(
        range=[height - 0.4, -0.6], tickvals=places, ticktext=levels, tickfont={"color": INK}, showgrid=False
    )
    if _log(measure):
        figure.update_xaxes(**_percent_ticks(found))
    return figure


def _log(measure: Measure) -> bool:
    return measure.scale == "log"


def _places(found: pl.DataFrame) -> tuple[list[float], list[tuple[float, str]], float]:
    """Where the rows stand, where the headings stand, and how many lines that makes."""
    places: list[float] = []
    headings: list[tuple[float, str]] = []
    line = 0.0
    for factor in dict.fromkeys(found["factor"]):
        headings.append((line, factor))
        line += 1
        for _ in range(found.filter(pl.col("factor") == factor).height):
            places.append(line)
            line += 1
        line += 0.4
    return places, headings, line


def _row(place: float, row: Mapping[str, Any], scale: str) -> go.Scatter:
    known = row["low"] is not None
    bar = (
        {
            "type": "data",
            "symmetric": False,
            "thickness": 1.8,
            "width": 5,
            "color": _BLUE,
            "array": [row["high"] - row["effect"]],
            "arrayminus": [row["effect"] - row["low"]],
        }
        if known
        else None
    )
    span = f"<br>{change(row['low'], scale)} to {change(row['high'], scale)}" if known else ""
    return go.Scatter(
        x=[row["effect"]],
        y=[place],
        error_x=bar,
        mode="markers",
        marker={"size": 9, "color": _BLUE},
        hovertemplate=f"{change(row['effect'], scale)}{span}<br>n {row['n']}<extra></extra>",
    )


def _percent_ticks(found: pl.DataFrame) -> dict[str, Any]:
    ends = finite(found["effect"].to_list() + found["low"].to_list() + found["high"].to_list())
    limit = 1.08 * max(abs(end) for end in ends)
    return {"range": [-limit, limit], **ratio_ticks(limit)}
