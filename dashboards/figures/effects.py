"""Main effects: what each level of each axis adds against the mean of the grid."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.captions import change_title
from dashboards.data.formatting import plain
from dashboards.figures.canvas import (
    break_name,
    canvas,
    describe_change,
    finite,
    interval_point,
    name_rows,
    ratio_ticks,
)
from dashboards.theme.styles import MUTED, REST, ROPE, VERDICT_STYLES, Style
from store import Store
from store.analysis.effects import analysis, effects as main_effects
from store.analysis.verdicts import GridMeasure, runs

_BY_SIGN: Final = {-1: VERDICT_STYLES["better"], 0: REST, 1: VERDICT_STYLES["worse"]}
"""Style of an interval below zero, over it and above it, if lower is better."""


def effects(store: Store, grid: str, measure: GridMeasure) -> pl.DataFrame:
    """Main effects over the axes of `grid`, of those that the cells at hand can tell apart.

    Returns:
        factor, level, n, effect, low, high, percent, as `store.analysis.effects.effects`; the axis with the largest
        effect first, and of each axis the best level.
    """
    if not finite(runs(store, grid, measure)["value"].to_list()):
        return pl.DataFrame(schema={"factor": pl.String, "level": pl.String, "n": pl.Int64, "effect": pl.Float64})
    found = main_effects(store, grid, measure=measure._asdict()).filter(pl.col("effect").is_not_null())
    largest = pl.col("effect").abs().max().over("factor")
    place = pl.col("factor").replace_strict({name: i for i, name in enumerate(dict.fromkeys(found["factor"]))})
    order = [largest, place, pl.col("effect") * (1 if measure.better == "lower" else -1)]
    return found.filter(pl.len().over("factor") > 1).sort(order, descending=[True, False, False], maintain_order=True)


def notes(store: Store, grid: str, measure: GridMeasure) -> list[str]:
    """Collect notes on main effects: what the analysis left out, and why effects of an axis are partial."""
    found = analysis(store, grid, measure=measure._asdict())
    said = found.terms.filter(pl.col("note") != "").select("term", "note").rows()
    return [*found.notes, *(f"for {term}: {note}" for term, note in said)]


def _style(row: Mapping[str, Any], measure: GridMeasure) -> Style:
    if row["low"] is None or row["high"] is None:
        return REST
    sign = (row["low"] > 0) - (row["high"] < 0)
    return _BY_SIGN[sign if measure.better == "lower" else -sign]


def draw_effects(found: pl.DataFrame, measure: GridMeasure, unit: str = "") -> go.Figure:
    """One row per level, a block per axis, with the interval of the additive model."""
    factors: Sequence[str] = found["factor"].to_list()
    # a heading before the levels of each axis takes a line, and so does nearly half of one behind them
    block = {factor: i for i, factor in enumerate(dict.fromkeys(factors))}
    places = [i + 1 + 1.4 * block[factor] for i, factor in enumerate(factors)]
    log = measure.scale != "linear"
    title = change_title(measure, unit, "effect on")
    figure = canvas(round(60 + 28 * (len(places) + 1.4 * len(block))), x=title)
    figure.add_vline(x=0, line={"color": ROPE, "width": 1})
    for place, row in zip(places, found.iter_rows(named=True), strict=True):
        tooltip = f"{describe_change(row['effect'], row, measure.scale)}<br>n {row['n']}"
        figure.add_trace(interval_point(place, row, _style(row, measure), tooltip, "effect"))
    heading = {"x": 0, "xref": "paper", "showarrow": False, "xanchor": "left", "font": {"color": MUTED, "size": 12}}
    for factor in block:
        figure.add_annotation(y=places[factors.index(factor)] - 1, text=f"<b>{plain(factor)}</b>", **heading)
    name_rows(figure, [break_name(level) for level in found["level"]], places)
    if log:
        ends = finite(found["effect"].to_list() + found["low"].to_list() + found["high"].to_list())
        limit = 1.08 * max(abs(end) for end in ends)
        figure.update_xaxes(range=[-limit, limit], **ratio_ticks(limit))
    return figure
