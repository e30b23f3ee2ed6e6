"""Histograms with mean and median (paper 000, figure 3)."""

from collections.abc import Mapping
from typing import Final

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import number
from ablate.dashboards.figures.canvas import break_name, finite
from ablate.dashboards.figures.lines import Series
from ablate.dashboards.figures.panels import panels, title_panels
from ablate.dashboards.theme.styles import INK, MUTED

_STRIP: Final = 190  # pixels of a panel


def of_bins(frame: pl.DataFrame) -> pl.DataFrame:
    """The counts that `draw_histogram` takes, of bins of one width that are known by their middles.

    `frame` has series, x (the middle, rising) and value (the count).
    """
    half = min(frame["x"].unique().sort().diff().drop_nulls(), default=1.0) / 2
    x = pl.col("x")
    return frame.select("series", (x - half).alias("low"), (x + half).alias("high"), count="value")


def draw_histogram(
    counts: pl.DataFrame, rules: pl.DataFrame, series: Mapping[str, Series], *, x: str, y: str
) -> go.Figure:
    """A panel per series: bars of counts, a full rule at the mean and a dashed one at the median.

    `counts` has series, low, high, count; `rules` has series, mean, median for some. `x` and `y` are
    titles.
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
                y=count,
                width=0.94 * (high - low),
                name=break_name(series[key].name),
                marker={"color": series[key].style.color + "a6", "line": {"width": 0}},
                text=[f"{number(a)} to {number(b)}: {n:,}" for a, b, n in zip(low, high, count, strict=True)],
                textposition="none",
                hovertemplate="%{text}",
                **shared,
            )
        )
        ends = [0.0, 1.06 * (float(count.max()) or 1.0)]
        for middle in rules.filter(pl.col("series") == key).iter_rows(named=True):
            for name, dash, color in (("mean", "solid", INK), ("median", "dash", MUTED)):
                if finite([middle[name]]):
                    rule = go.Scatter(x=[middle[name]] * 2, y=ends, mode="lines", **shared)
                    words = {"text": [f"{name} {number(middle[name])}"] * 2, "hovertemplate": "%{text}<extra></extra>"}
                    figure.add_trace(rule.update(line={"color": color, "dash": dash, "width": 1.6}, **words))
    return figure.update_yaxes(type="linear", rangemode="tozero")
