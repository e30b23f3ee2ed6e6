"""Main effects: what each level of each axis adds against the mean of the grid."""

from collections.abc import Mapping
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import change, in_odds, plain
from dashboards.figures.canvas import break_name, canvas, error_bars, finite, name_rows, ratio_ticks
from dashboards.theme.styles import MUTED, ROPE
from store import Store
from store.analysis.effects import analysis, effects as main_effects
from store.analysis.verdicts import GridMeasure, runs

_BLUE: Final = "#0072b2"


def effects(store: Store, grid: str, measure: GridMeasure) -> pl.DataFrame:
    """Main effects over the axes of `grid`, of those that the cells at hand can tell apart.

    Returns:
        factor, level, n, effect, low, high, percent, as `store.analysis.effects.effects`; axes in the grid's order.
    """
    if not finite(runs(store, grid, measure)["value"].to_list()):
        return pl.DataFrame(schema={"factor": pl.String, "level": pl.String, "n": pl.Int64, "effect": pl.Float64})
    found = main_effects(store, grid, measure=measure._asdict()).filter(pl.col("effect").is_not_null())
    return found.filter(pl.len().over("factor") > 1)


def notes(store: Store, grid: str, measure: GridMeasure) -> list[str]:
    """Collect notes on main effects: what the analysis left out, and why effects of an axis are partial."""
    found = analysis(store, grid, measure=measure._asdict())
    said = found.terms.filter(pl.col("note") != "").select("term", "note").rows()
    return [*found.notes, *(f"for {term}: {note}" for term, note in said)]


def draw_effects(found: pl.DataFrame, measure: GridMeasure) -> go.Figure:
    """One row per level, a block per axis, with the interval of the additive model."""
    places, headings, height = _places(found)
    figure = canvas(round(60 + 28 * height), x=_title(measure))
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
            align="left",
            font={"color": MUTED, "size": 12},
        )
    levels = [break_name(level) for level in found["level"]]
    name_rows(figure, levels, places)
    if _log(measure):
        figure.update_xaxes(**_percent_ticks(found))
    return figure


def _log(measure: GridMeasure) -> bool:
    return measure.scale != "linear"


def _title(measure: GridMeasure) -> str:
    return f"against the mean{in_odds(measure.scale)}{' (log axis)' if _log(measure) else ''}"


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
    span = f"<br>{change(row['low'], scale)} to {change(row['high'], scale)}" if row["low"] is not None else ""
    return go.Scatter(
        x=[row["effect"]],
        y=[place],
        error_x=error_bars([row["effect"]], [row["low"]], [row["high"]], _BLUE),
        mode="markers",
        marker={"size": 9, "color": _BLUE},
        hovertemplate=f"{change(row['effect'], scale)}{in_odds(scale)}{span}<br>n {row['n']}<extra></extra>",
    )


def _percent_ticks(found: pl.DataFrame) -> dict[str, Any]:
    ends = finite(found["effect"].to_list() + found["low"].to_list() + found["high"].to_list())
    limit = 1.08 * max(abs(end) for end in ends)
    return {"range": [-limit, limit], **ratio_ticks(limit)}
