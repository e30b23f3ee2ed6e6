"""Paired differences from the baseline with their intervals and the region of practical equivalence."""

import math
from collections.abc import Mapping
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import change, in_odds, plain, runs_words
from dashboards.data.grid_context import CellLook
from dashboards.figures.canvas import break_name, canvas, finite, one_line, ratio_ticks, rows_height
from dashboards.theme.styles import INK, ROPE
from store.analysis.verdicts import GridMeasure

MOST_ROWS: Final = 32
_ROOMY: Final = 12
"""Up to here a row has a line for its verdict; beyond, its icon only."""


def differences(verdicts: pl.DataFrame, measure: GridMeasure, most: int = MOST_ROWS) -> pl.DataFrame:
    """The rows of `verdicts` that the forest plot shows: all, or those least likely to be without a difference.

    Returns:
        cell, difference, low, high (in the measure's scale: log ratios or plain), pairs, method, runs, baseline_runs,
        verdict; in the order of `verdicts`, or where some are left out the best first and cells without a difference
        last.
    """
    numbers = ("difference", "low", "high", "pairs", "method", "runs", "baseline_runs")
    found = verdicts.select("cell", *numbers, "verdict", "p")
    if found.height > most:
        kept = found.sort("p", nulls_last=True, maintain_order=True).head(most)
        found = kept.sort("difference", descending=measure.better == "higher", nulls_last=True, maintain_order=True)
    return found.drop("p")


def draw_differences(found: pl.DataFrame, look: CellLook, measure: GridMeasure, words: Mapping[str, str]) -> go.Figure:
    """One row per cell; `words` maps a verdict to what stands under the name."""
    ticks = [_tick(row, look, words, found.height) for row in found.iter_rows(named=True)]
    lines = max((tick.count("<br>") for tick in ticks), default=0)
    figure = canvas(rows_height(found.height, 28 + 18 * lines if lines else 24), x=_title(measure))
    limit = _limit(found, measure)
    rope = measure.rope if measure.scale == "linear" else math.log1p(measure.rope)
    figure.add_vrect(x0=-rope, x1=rope, fillcolor=ROPE + "26", line={"width": 0}, layer="below")
    figure.add_vline(x=0, line={"color": ROPE, "width": 1})
    places = list(range(found.height))
    for place, row in zip(places, found.iter_rows(named=True), strict=True):
        if row["difference"] is not None:
            figure.add_trace(_row(place, row, look, measure.scale))
    figure.update_yaxes(
        range=[found.height - 0.5, -0.5],
        tickvals=places,
        ticktext=ticks,
        tickfont={"color": INK},
        showgrid=False,
    )
    figure.update_xaxes(range=[-limit, limit], **({} if measure.scale == "linear" else ratio_ticks(limit)))
    return figure


def is_cut(found: pl.DataFrame, measure: GridMeasure) -> bool:
    """Whether an interval reaches beyond the axis."""
    ends = finite(found["low"].to_list() + found["high"].to_list())
    return any(abs(end) > _limit(found, measure) for end in ends)


def _title(measure: GridMeasure) -> str:
    return {"log": "difference (log axis)", "logit": "difference in odds (log axis)", "linear": "difference"}[
        measure.scale
    ]


def _tick(row: Mapping[str, Any], look: CellLook, words: Mapping[str, str], rows: int) -> str:
    name = look.names[row["cell"]]
    unpaired = ", unpaired" if row["method"] == "Welch" else ""
    if rows > _ROOMY:
        return f"{one_line(name)}{unpaired}  {words[row['verdict']][0]}"
    return f"{break_name(name)}<br><span style='font-size:12px'>{words[row['verdict']]}{unpaired}</span>"


def _row(place: int, row: Mapping[str, Any], look: CellLook, scale: str) -> go.Scatter:
    style = look.styles[row["cell"]]
    known = row["low"] is not None and row["high"] is not None
    bar = (
        {
            "type": "data",
            "symmetric": False,
            "thickness": 1.8,
            "width": 5,
            "color": style.color,
            "array": [row["high"] - row["difference"]],
            "arrayminus": [row["difference"] - row["low"]],
        }
        if known
        else None
    )
    text = change(row["difference"], scale) + in_odds(scale)
    span = f"<br>{change(row['low'], scale)} to {change(row['high'], scale)}" if known else ""
    return go.Scatter(
        x=[row["difference"]],
        y=[place],
        error_x=bar,
        mode="markers",
        legendgroup=row["cell"],
        customdata=[[row["cell"]]],
        marker={"symbol": style.marker, "size": 10, "color": style.color, "line": {"color": style.color, "width": 1.5}},
        hovertemplate=f"{plain(look.names[row['cell']])}<br>{text}{span}<br>{runs_words(row)}<extra></extra>",
    )


def _limit(found: pl.DataFrame, measure: GridMeasure) -> float:
    """Half the width of the axis: every difference, and of the intervals as much as leaves the differences legible."""
    rope = measure.rope if measure.scale == "linear" else math.log1p(measure.rope)
    centres = [abs(value) for value in finite(found["difference"].to_list())]
    ends = [abs(value) for value in finite(found["low"].to_list() + found["high"].to_list())]
    widest = max([*centres, 2 * rope])
    return 1.08 * max(widest, min(max([*ends, 0.0]), 3 * widest))
