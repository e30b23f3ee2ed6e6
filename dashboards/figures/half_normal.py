"""Effects of a grid with one seed against half-normal quantiles: what lies above the line of the others stands out."""

from typing import Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import change, in_odds, plain
from dashboards.data.seed_averages import Scale
from dashboards.figures.canvas import canvas, one_line, points
from dashboards.theme.styles import INK, MUTED, REST, ROPE, level_styles
from store.statistics import HalfNormal

_LARGE, _LARGEST = level_styles(("margin", "simultaneous margin")).values()
_MOST_NAMES: Final = 12
KINDS: Final = {
    "simultaneous margin": ("beyond the simultaneous margin", _LARGEST._replace(marker="diamond")),
    "margin": ("beyond the margin", _LARGE._replace(marker="square")),
    "": ("as large as noise may be", REST._replace(marker="circle-open")),
    "not tested": ("not tested", REST._replace(marker="circle")),
}
"""Words and point style for each kind of contrast."""


def contrasts(found: HalfNormal) -> pl.DataFrame:
    """The contrasts that can be told apart, the largest first: contrast, order, effect, size, quantile, beyond."""
    known = found.contrasts.drop_nulls("size").drop("aliased_with")
    return known.with_columns(pl.col("beyond").fill_null("not tested"))


def units_of(scale: Scale) -> str:
    """Write the unit behind the word "size"; '' for the measure's own unit."""
    return {"log": ", in logarithms", "logit": ", in log odds", "linear": ""}[scale]


def draw_half_normal(found: HalfNormal, scale: Scale) -> go.Figure:
    """A point per contrast; the line is noise alone, the rules are Lenth's margins; what is beyond has its name."""
    frame = contrasts(found)
    figure = canvas(420, x="half-normal quantile", y=f"size of the effect{units_of(scale)}")
    widest = max(frame["quantile"].to_list(), default=1.0) * 1.06
    if found.pseudo_error is not None:
        noise = {"x": [0, widest], "y": [0, widest * found.pseudo_error], "mode": "lines", "hoverinfo": "skip"}
        figure.add_scatter(**noise, line={"color": ROPE, "width": 1.5})
    # names of rules stand at opposite ends: the rules may be near each other
    for level, name, x, side, dash in (
        (found.margin, "margin", 0, "left", "dot"),
        (found.simultaneous, "simultaneous margin", 1, "right", "dash"),
    ):
        if level is not None:
            figure.add_hline(y=level, line={"color": MUTED, "width": 1, "dash": dash})
            look = {"showarrow": False, "xanchor": side, "yanchor": "bottom", "font": {"size": 12}}
            figure.add_annotation(x=x, xref="paper", y=level, text=name, **look)
    top = max([*frame["size"].to_list(), found.simultaneous or 0.0], default=1.0) or 1.0
    frame = frame.with_columns(pl.Series("name", _names(frame, widest, top), pl.String))
    for kind, (_, style) in KINDS.items():
        rows = frame.filter(pl.col("beyond") == kind)
        if not rows.is_empty():
            tooltips = [
                f"{plain(name)}<br>{change(effect, scale)}{in_odds(scale)}"
                for name, effect in rows.select("contrast", "effect").iter_rows()
            ]
            text = {"text": rows["name"].to_list(), "textposition": "middle left"}
            trace = points(rows["quantile"], rows["size"], style, tooltips, legendgroup=kind or "noise", **text)
            mode = "markers+text" if any(rows["name"]) else "markers"
            figure.add_trace(trace.update(mode=mode, textfont={"size": 12, "color": INK}))
    figure.update_xaxes(range=[0, widest * 1.12])
    return figure.update_yaxes(range=[0, top * 1.08])


def _names(frame: pl.DataFrame, widest: float, top: float) -> list[str]:
    """Choose a label for each point: the largest beyond a margin are named, without overlaps."""
    letter, line = 0.0085 * widest, 0.045 * top  # shares of the figure, in a narrow window
    boxes: list[tuple[float, float, float]] = []
    found: list[str] = []
    for contrast, beyond, x, y in frame.select("contrast", "beyond", "quantile", "size").iter_rows():
        left = x - len(contrast) * letter
        free = all(abs(y - other) > line or left > end or x < start for start, end, other in boxes)
        named = free and len(boxes) < _MOST_NAMES and beyond in ("simultaneous margin", "margin")
        found.append(one_line(contrast) if named else "")
        boxes += [(left, x, y)] if named else []
    return found
