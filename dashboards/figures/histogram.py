"""Histograms with mean and median (papers 000, figure 3, and 003, figure 8), and groups of bars with intervals."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import number, plain
from dashboards.figures.canvas import break_name, canvas, describe_estimate, error_bars, finite
from dashboards.figures.lines import Series
from dashboards.figures.panels import panels, title_panels
from dashboards.theme.styles import INK, MUTED, PAPER

_STRIP: Final = 190  # pixels of a panel


def of_bins(found: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The counts and the rules that `draw_histogram` takes, of bins of one width that are known by their middles.

    `found` has series, x (the middle, rising) and value (the count). Mean and median are those of the middles.
    """
    half = min(found["x"].unique().sort().diff().drop_nulls(), default=1.0) / 2
    x, n = pl.col("x"), pl.col("value")
    counts = found.select("series", (x - half).alias("low"), (x + half).alias("high"), n.alias("count"))
    kept = found.filter(n > 0)
    means = kept.group_by("series", maintain_order=True).agg(n=n.sum(), mean=(x * n).sum() / n.sum())
    upper = kept.filter(n.cum_sum().over("series") >= n.sum().over("series") / 2)
    medians = upper.group_by("series", maintain_order=True).agg(median=x.first())
    return counts, means.join(medians, on="series", maintain_order="left")


def draw_histogram(
    counts: pl.DataFrame, rules: pl.DataFrame, series: Mapping[str, Series], *, x: str, y: str, log: bool = False
) -> go.Figure:
    """A panel per series: bars of counts, a full rule at the mean and a dashed one at the median.

    `counts` has series, low, high, count; `rules` has series, mean, median for some. A `log` axis leaves empty bins
    out. `x` and `y` are titles.
    """
    order = list(dict.fromkeys(counts["series"]))
    figure, places = panels(max(len(order), 1), _STRIP, columns=2, x=x, y=y)
    if len(order) > 1:
        title_panels(figure, places, [series[key].name for key in order])
    for key, place in zip(order, places, strict=False):
        rows = counts.filter(pl.col("series") == key)
        shared = {"legendgroup": series[key].group or key, **place}
        low, high, count = (rows[name].to_numpy() for name in ("low", "high", "count"))
        figure.add_trace(
            go.Bar(
                x=(low + high) / 2,
                y=np.where(count > 0, count, np.nan) if log else count,
                width=0.94 * (high - low),
                name=break_name(series[key].name),
                marker={"color": series[key].style.color + "a6", "line": {"width": 0}},
                text=[f"{number(a)} to {number(b)}: {n:,}" for a, b, n in zip(low, high, count, strict=True)],
                textposition="none",
                hovertemplate="%{text}",
                **shared,
            )
        )
        lowest = float(count[count > 0].min(initial=1.0)) / 2 if log else 0.0
        ends = [lowest, 1.06 * (float(count.max()) or 1.0)]
        for middle in rules.filter(pl.col("series") == key).iter_rows(named=True):
            for name, dash, color in (("mean", "solid", INK), ("median", "dash", MUTED)):
                if finite([middle[name]]):
                    rule = go.Scatter(x=[middle[name]] * 2, y=ends, mode="lines", **shared)
                    words = {"text": [f"{name} {number(middle[name])}"] * 2, "hovertemplate": "%{text}<extra></extra>"}
                    figure.add_trace(rule.update(line={"color": color, "dash": dash, "width": 1.6}, **words))
    return figure.update_yaxes(**({"type": "log"} if log else {"type": "linear", "rangemode": "tozero"}))


_PATTERNS: Final = ("", "/", "x", ".", "\\", "-", "|", "+")
_MOST_LABELS: Final = 24


def draw_bars(found: pl.DataFrame, series: Mapping[str, Series], *, x: str, y: str) -> go.Figure:
    """A bar of `value` per group and series, with its interval; a value that is missing leaves its place free.

    `found` has group, series, value, and perhaps n, low, high, in order. `x` and `y` are titles.
    """
    figure = canvas(380, x=x, y=y)
    groups = list(dict.fromkeys(found["group"]))
    for place, key in enumerate(dict.fromkeys(found["series"])):
        rows = found.filter(pl.col("series") == key).to_dict(as_series=False)
        values = [each if finite([each]) else None for each in rows["value"]]
        n, low, high = (rows.get(name) or [None] * len(values) for name in ("n", "low", "high"))
        color, shape = series[key].style.color, _PATTERNS[place % len(_PATTERNS)]
        pattern = {"shape": shape, "fillmode": "overlay", "fgcolor": PAPER, "size": 6, "solidity": 0.2}
        figure.add_trace(
            go.Bar(
                x=[groups.index(group) for group in rows["group"]],
                y=values,
                name=break_name(series[key].name),
                legendgroup=key,
                marker={"color": color, "line": {"color": color, "width": 1}, "pattern": pattern},
                error_y=error_bars(values, low, high, thickness=1.4, width=3),
                hovertext=[plain(str(group)) for group in rows["group"]],
                customdata=[*map(describe_estimate, zip(values, low, high, n, strict=True))],
                hovertemplate="%{hovertext}: %{customdata}",
            )
        )
    figure.update_layout(barmode="group", bargap=0.25, bargroupgap=0.06)
    every = max(1, -(-len(groups) // _MOST_LABELS))
    ticks = [break_name(str(group), 14) for group in groups[::every]]
    return figure.update_xaxes(tickvals=list(range(0, len(groups), every)), ticktext=ticks, ticks="", showgrid=False)
