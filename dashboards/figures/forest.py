"""Rows with intervals: paired differences from the baseline with the margin of equality, and failure rates."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import in_odds, plain, runs_words
from dashboards.data.grid_context import CellLook, in_order
from dashboards.figures.canvas import (
    break_name,
    canvas,
    describe_change,
    finite,
    interval_point,
    name_rows,
    one_line,
    ratio_ticks,
    rope_of,
    rows_height,
)
from dashboards.theme.styles import ROPE
from store import Store
from store.analysis.verdicts import GridMeasure, failure_rates

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
    rope = rope_of(measure)
    figure.add_vrect(x0=-rope, x1=rope, fillcolor=ROPE + "26", line={"width": 0}, layer="below")
    figure.add_vline(x=0, line={"color": ROPE, "width": 1})
    for place, row in enumerate(found.iter_rows(named=True)):
        if row["difference"] is not None:
            figure.add_trace(_row(place, row, look, measure.scale))
    name_rows(figure, ticks)
    figure.update_xaxes(range=[-limit, limit], **({} if measure.scale == "linear" else ratio_ticks(limit)))
    return figure


def is_cut(found: pl.DataFrame, measure: GridMeasure) -> bool:
    """Whether an interval reaches beyond the axis."""
    ends = finite(found["low"].to_list() + found["high"].to_list())
    return any(abs(end) > _limit(found, measure) for end in ends)


def _title(measure: GridMeasure) -> str:
    return f"difference{in_odds(measure.scale)}{'' if measure.scale == 'linear' else ' (log axis)'}"


def _tick(row: Mapping[str, Any], look: CellLook, words: Mapping[str, str], rows: int) -> str:
    name = look.names[row["cell"]]
    unpaired = ", unpaired" if row["method"] == "Welch" else ""
    if rows > _ROOMY:
        return f"{one_line(name)}{unpaired}  {words[row['verdict']][0]}"
    return f"{break_name(name)}<br><span style='font-size:12px'>{words[row['verdict']]}{unpaired}</span>"


def _row(place: int, row: Mapping[str, Any], look: CellLook, scale: str) -> go.Scatter:
    cell, style = row["cell"], look.styles[row["cell"]]
    told = f"{plain(look.names[cell])}<br>{describe_change(row['difference'], row, scale)}<br>{runs_words(row)}"
    line = {"color": style.color, "width": 1.5}
    more = {"legendgroup": cell, "customdata": [[cell]], "marker_size": 10, "marker_line": line}
    return interval_point(place, row, style, told, "difference", **more)


def _limit(found: pl.DataFrame, measure: GridMeasure) -> float:
    """Half the width of the axis: every difference, and of the intervals as much as leaves the differences legible."""
    rope = rope_of(measure)
    centres = [abs(value) for value in finite(found["difference"].to_list())]
    ends = [abs(value) for value in finite(found["low"].to_list() + found["high"].to_list())]
    widest = max([*centres, 2 * rope])
    return 1.08 * max(widest, min(max([*ends, 0.0]), 3 * widest))


def rates(store: Store, grid: str, cells: Sequence[str]) -> pl.DataFrame:
    """The failure rate of every cell that has one: cell, ended, failed, rate, low, high (Wilson, 95 %), p_holm.

    The grid needs a baseline and a measure. In the order of `cells`, or where more than fit into a picture have a rate
    the highest ones first.
    """
    found = in_order(failure_rates(store, grid).filter(pl.col("ended") > 0), cells)
    if found.height > MOST_ROWS:
        found = found.sort("rate", descending=True, maintain_order=True).head(MOST_ROWS)
    return found.select("cell", "ended", "failed", "rate", "low", "high", "p_holm")


def draw_rates(found: pl.DataFrame, look: CellLook) -> go.Figure:
    """A point with its interval per cell."""
    figure = canvas(rows_height(found.height, 30), x="share that failed")
    for place, row in enumerate(found.iter_rows(named=True)):
        told = f"{row['failed']} of {row['ended']}"
        style = look.styles[row["cell"]]
        figure.add_trace(interval_point(place, row, style, told, "rate", legendgroup=row["cell"]))
    names = [break_name(look.names[cell]) for cell in found["cell"]]
    figure.update_xaxes(range=[-0.03, 1.03], tickformat=".0%")
    name_rows(figure, names)
    return figure
