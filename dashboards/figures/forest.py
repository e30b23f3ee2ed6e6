"""Rows with intervals: paired differences from the baseline and between levels of axes, and failure rates."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.captions import ICONS, change_title, mark_verdict
from ablate.dashboards.data.formatting import change, in_odds, plain, runs_words
from ablate.dashboards.data.grid_context import MOST_ROWS, Appearance, best_first, in_order
from ablate.dashboards.figures.canvas import (
    break_name,
    canvas,
    describe_estimate,
    error_bars,
    finite,
    name_rows,
    one_line,
    points,
    ratio_ticks,
    rope_of,
    value_axis,
)
from ablate.dashboards.theme.styles import ROPE, VERDICT_STYLES
from ablate.store import Store
from ablate.store.analysis import effects as analysed
from ablate.store.analysis.once import once
from ablate.store.analysis.verdicts import GridMeasure, failure_rates, runs
from ablate.store.statistics import SeedContrasts

CORRECTED: Final = ("corrected_low", "corrected_high")  # the interval that decides
INTERVALS: Final = "Thick bar: {} % interval of one comparison. Thin: corrected for all of them; it decides."
"""Explains both intervals, for a caption."""
ARROWS: Final = " An arrow marks a bar that goes on beyond the axis."
"""The same where `is_cut`."""
_LINE: Final = 26  # letters of a name in one line
_ROOMY: Final = 12  # up to here names may have several lines
_EMPTY: Final = 74  # pixels of a figure without its rows
_LEAST_ROWS: Final = 2  # with fewer, plotly draws the title of the axis over its numbers


def worth_showing(rows: pl.DataFrame, measure: GridMeasure, of: str = "difference") -> pl.DataFrame:
    """The rows that a forest plot shows, in their order: all, or the best by `of` and those of smallest p.

    The row of all variants together (order 0) is one of them.
    """
    if rows.height <= MOST_ROWS:
        return rows
    best = pl.col(of).rank("ordinal", descending=measure.better == "higher")
    rank = pl.min_horizontal(best, pl.col("p").rank("ordinal"))
    first = pl.when(pl.col("order") == 0).then(0).otherwise(rank) if "order" in rows.columns else rank
    chosen = rows.with_row_index("at_").sort(first, nulls_last=True, maintain_order=True).head(MOST_ROWS)
    return chosen.sort("at_").drop("at_")


def describe_rows(drawn: int, of: int) -> str:
    """Say which rows are shown unless all are, for a caption."""
    return f" Shown: {drawn} of {of:,}, those that are best or have the smallest p." if drawn < of else ""


def differences(verdicts: pl.DataFrame, measure: GridMeasure) -> pl.DataFrame:
    """The rows of `verdicts` that the forest plot shows.

    Returns:
        cell, difference, low, high, corrected_low, corrected_high (in the measure's scale: log ratios or plain), pairs,
        method, runs, baseline_runs, verdict; the best first and cells without a difference last.
    """
    numbers = ("difference", "low", "high", *CORRECTED, "pairs", "method", "runs", "baseline_runs")
    shown = worth_showing(verdicts.select("cell", *numbers, "verdict", "p"), measure)
    return best_first(shown, measure).drop("p")


def draw_differences(
    frame: pl.DataFrame,
    appearance: Appearance,
    measure: GridMeasure,
    words: Mapping[str, str],
    unit: str = "",
    longest: int = _LINE,
) -> go.Figure:
    """One row per cell with both of its intervals; `words` maps a verdict to what stands at its right.

    Names of more than `longest` letters have several lines. Rows in the optional column `heading` are names alone.
    """
    rows, scale = list(frame.iter_rows(named=True)), measure.scale
    roomy = len(rows) <= _ROOMY
    names = [appearance.names[row["cell"]] for row in rows]
    names = [break_name(name, longest) for name in names] if roomy else one_line(names)
    names = [f"<b>{name}</b>" if row.get("heading") else name for name, row in zip(names, rows, strict=True)]
    names = [name + (", unpaired" if row["method"] == "Welch" else "") for name, row in zip(names, rows, strict=True)]
    title = change_title(measure, unit, "difference in")
    figure = canvas(_height(names, 30 if roomy else 18), x=title)
    limit, rope = _limit(frame, measure), rope_of(measure)
    figure.add_vrect(x0=-rope, x1=rope, fillcolor=ROPE + "26", line={"width": 0}, layer="below")
    figure.add_vline(x=0, line={"color": ROPE, "width": 1})
    for place, row in enumerate(rows):
        if row["difference"] is not None:
            figure.add_traces(_row(place, row, appearance, scale))
    name_rows(figure, names)
    figure.add_traces(_arrows(rows, axis_range(frame, measure)))
    outcomes = [
        "" if row.get("heading") else f"<b>{change(row['difference'], scale)}</b>  {words[row['verdict']]}"
        for row in rows
    ]
    right = {"overlaying": "y", "side": "right", "ticks": "", "showline": False, "matches": "y", "ticktext": outcomes}
    right["ticklabelstandoff"] = 6  # room for an arrow
    figure.update_layout(yaxis2={**figure.layout.yaxis.to_plotly_json(), **right})
    figure.add_trace(go.Scatter(x=[0] * len(rows), y=[*range(len(rows))], yaxis="y2", mode="none", hoverinfo="skip"))
    return figure.update_xaxes(range=axis_range(frame, measure), **({} if scale == "linear" else ratio_ticks(limit)))


def _arrows(rows: Sequence[Mapping[str, Any]], limits: tuple[float, float]) -> list[go.Scatter]:
    """An arrow at the edge of the axis for every bar that goes on beyond it."""
    drawn = []
    for place, row in enumerate(rows):
        ends = finite([row[name] for name in ("low", "high", *CORRECTED)]) or [0.0]
        marks = {
            "triangle-left": (limits[0], min(ends) < limits[0]),
            "triangle-right": (limits[1], max(ends) > limits[1]),
        }
        for symbol, (edge, goes_on) in marks.items():
            marker = {"symbol": symbol, "color": VERDICT_STYLES[row["verdict"]].color, "size": 9}
            mark = go.Scatter(x=[edge], y=[place], mode="markers", marker=marker, hoverinfo="skip", cliponaxis=False)
            drawn += [mark] if goes_on else []
    return drawn


def axis_range(frame: pl.DataFrame, measure: GridMeasure) -> tuple[float, float]:
    """Return the ends of the axis: all differences, intervals as far as these stay legible, and the margin."""
    limit, rope = _limit(frame, measure), rope_of(measure)
    ends = [-2 * rope, 2 * rope, *finite(frame["difference"].to_list()), *_all_ends(frame)]
    return max(-limit, 1.08 * min(ends)), min(limit, 1.08 * max(ends))


def is_cut(frame: pl.DataFrame, measure: GridMeasure) -> bool:
    """True if an interval reaches beyond the axis."""
    return max(map(abs, _all_ends(frame)), default=0.0) > _limit(frame, measure)


def _all_ends(frame: pl.DataFrame) -> list[float]:
    return finite([end for name in ("low", "high", *CORRECTED) for end in frame[name].to_list()])


def _row(place: int, row: Mapping[str, Any], appearance: Appearance, scale: str) -> list[go.Scatter]:
    """The point of the cell with the corrected interval, which decides, and a thick bar for this comparison alone.

    Bars have the colour of the verdict, and so has the point of a row that is no cell.
    """
    cell, style = row["cell"], VERDICT_STYLES[row["verdict"]]
    mark = appearance.styles.get(cell, style)
    tooltip = [plain(appearance.names[cell]), f"{change(row['difference'], scale)}{in_odds(scale)}"]
    for ends, words in ((("low", "high"), ""), (CORRECTED, "corrected: ")):
        low, high = (row[end] for end in ends)
        if low is not None and high is not None:
            tooltip.append(f"{words}{change(low, scale)} to {change(high, scale)}")
    tooltip.append(runs_words(row))
    thin = error_bars([row["difference"]], [low], [high], style.color, thickness=1.2, width=4)
    hover: dict[str, Any] = {"hovertemplate": f"{'<br>'.join(tooltip)}<extra></extra>", "customdata": [[cell]]}
    line = {"color": mark.color, "width": 1.5}
    point = points([row["difference"]], [place], mark, error_x=thin, marker_size=10, marker_line=line, **hover)
    thick = {"x": [row["low"], row["high"]], "y": [place, place], "mode": "lines", "hoverinfo": "skip"}
    return [go.Scatter(**thick, line={"color": style.color, "width": 4}), point]


def _height(names: Sequence[str], row: int = 30) -> int:
    """Pixels of a figure with a row per name, each as high as the name with the most lines needs."""
    lines = max((name.count("<br>") for name in names), default=0)
    return _EMPTY + (18 * lines + row) * max(len(names), _LEAST_ROWS)


def _limit(frame: pl.DataFrame, measure: GridMeasure) -> float:
    """Half the width of the axis: every difference, and of the intervals as much as leaves the differences legible."""
    centres = [abs(value) for value in finite(frame["difference"].to_list())]
    widest = max([*centres, 2 * rope_of(measure)])
    return 1.08 * max(widest, min(max(map(abs, _all_ends(frame)), default=0.0), 3 * widest))


@once
def effects(store: Store, grid: str, measure: GridMeasure) -> SeedContrasts | None:
    """The effects by axis, the best first: all variants, axes, pairs of axes; None without a value.

    `doubt` says which checks of the cells of a claim answer no or unknown.
    """
    if not finite(runs(store, grid, measure)["value"].to_list()):
        return None
    contrasts = analysed.effects(store, grid, measure=measure._asdict())
    rows = analysed.sort_by_axis(contrasts.effects, "effect", measure.better)
    told = analysed.tell_doubts_of_levels(store, grid, rows, measure=measure._asdict())
    return contrasts._replace(effects=rows.with_columns(pl.Series("doubt", told, pl.String)))


def draw_effects(frame: pl.DataFrame, measure: GridMeasure, unit: str = "") -> go.Figure:
    """The levels of each axis below its name and the level that they are compared with; both intervals and verdicts."""
    known = frame.drop_nulls("effect").rename({"effect": "difference", "n": "pairs"})
    parts, names = list[pl.DataFrame](), list[str]()
    for (order, factor, against), rows in known.group_by("order", "factor", "against", maintain_order=True):
        if has_levels := order in (0, 1):  # all variants, or an axis
            parts.append(pl.DataFrame({"verdict": ["no verdict"], "heading": [True]}))
            names.append(f"{factor}, against {against}")
        parts.append(rows)
        names += [str(level) if has_levels else str(factor) for level in rows["level"]]
    drawn = pl.concat([known.clear(), *parts], how="diagonal").with_columns(
        cell=pl.Series(map(str, range(len(names))), dtype=pl.String), method=pl.lit("paired t")
    )
    words = {word: mark_verdict(word) for word in ICONS}
    appearance = Appearance(dict(zip(drawn["cell"], names, strict=True)), {})
    figure = draw_differences(drawn, appearance, measure, words, unit, longest=40)
    return figure.update_traces(customdata=None)  # rows are no cells that a click could open


def rates(store: Store, grid: str, cells: Sequence[str]) -> pl.DataFrame:
    """The failure rate of every cell that has one: cell, ended, failed, rate, low, high (Wilson, 95 %), p_holm.

    The grid needs a baseline and a measure. In the order of `cells`, or where more than fit into a picture have a rate
    the highest ones first.
    """
    failures = in_order(failure_rates(store, grid).filter(pl.col("ended") > 0), cells)
    if failures.height > MOST_ROWS:
        failures = failures.sort("rate", descending=True, maintain_order=True).head(MOST_ROWS)
    return failures.select("cell", "ended", "failed", "rate", "low", "high", "p_holm")


def draw_rates(frame: pl.DataFrame, appearance: Appearance) -> go.Figure:
    """A point with its interval per cell."""
    told = [f"{failed} of {ended}" for failed, ended in frame.select("failed", "ended").iter_rows()]
    figure = draw_values(frame.rename({"rate": "value"}), appearance, "share that failed", told)
    return figure.update_xaxes(range=[-0.03, 1.03], tickformat=".0%")


def draw_values(
    frame: pl.DataFrame, appearance: Appearance, title: str, tooltips: Sequence[str] | None = None
) -> go.Figure:
    """A row per cell with its value and interval: cell, value, low, high, and n unless there are `tooltips`."""
    names = [break_name(appearance.names[cell]) for cell in frame["cell"]]
    figure = canvas(_height(names), x=title)
    for place, row in enumerate(frame.iter_rows(named=True)):
        style = appearance.styles[row["cell"]]
        told = tooltips[place] if tooltips else describe_estimate((row["value"], row["low"], row["high"], row["n"]))
        bars = error_bars([row["value"]], [row["low"]], [row["high"]], style.color)
        shared = {"hovertemplate": f"{told}<extra></extra>", "legendgroup": row["cell"]}
        figure.add_trace(points([row["value"]], [place], style, error_x=bars, **shared))
    name_rows(figure, names)
    return figure.update_xaxes(**value_axis(frame, "linear"))
