"""The canvas of every figure, its axes and ticks, points and error bars, and texts that fit."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import change, number, plain
from ablate.dashboards.data.seed_averages import Scale
from ablate.dashboards.theme.styles import AXIS, FONT, INK, LINE, MUTED, PAPER, Style
from ablate.grid.names import shorten
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.statistics.scales import margin

TEXT_SIZE: Final = 13  # pixels; the smallest text in any figure is one less
_LETTERS: Final = 100  # letters of a line of the title of a level axis; pages break it where a figure is narrow
_PANEL_LETTERS: Final = 44  # the same of a panel among others
_TAG: Final = re.compile(r"<(?!br>)[^>]*>")
_LETTER: Final = 6.4  # pixels of a letter of the names of rows
TOP: Final = 12  # pixels above the panels of a figure


def canvas(height: int, *, x: str | None = None, y: str | None = None, figure: go.Figure | None = None) -> go.Figure:
    """An empty figure of `height` pixels with titled axes (texts of any origin), or `figure` with the same look."""
    layout = {
        "template": go.layout.Template(),
        "height": height,
        "autosize": True,
        "margin": {"l": 8, "r": 16, "t": TOP, "b": 8},
        "paper_bgcolor": "#00000000",
        "plot_bgcolor": "#00000000",
        "font": {"family": FONT, "size": TEXT_SIZE, "color": MUTED},
        "hoverlabel": {
            "bgcolor": PAPER,
            "bordercolor": AXIS,
            "font": {"family": FONT, "size": TEXT_SIZE, "color": INK},
        },
        "hovermode": "closest",
        "dragmode": "zoom",
        "showlegend": False,
        "modebar": {"bgcolor": "#00000000", "color": AXIS, "activecolor": INK, "orientation": "h"},
    }
    quiet = {"gridcolor": LINE, "linecolor": AXIS, "zeroline": False, "automargin": True, "tickcolor": AXIS}
    letters = _LETTERS if figure is None else _PANEL_LETTERS
    title = {"text": x and in_lines(x, letters), "standoff": 10, "font": {"size": TEXT_SIZE}}
    xaxis = {"title": title, "showline": True, "ticks": "outside", "ticklen": 4, **quiet}
    title = {"text": y and upright(y, height), "standoff": 12, "font": {"size": TEXT_SIZE}}
    yaxis = {"title": title, **quiet}
    if figure is None:
        return go.Figure(layout={**layout, "xaxis": xaxis, "yaxis": yaxis})  # updates of a figure are slow
    return figure.update_layout(layout).update_xaxes(xaxis).update_yaxes(yaxis)


def upright(title: str, height: int) -> str:
    """The title of the upright axis of a panel of `height` pixels as plotly shows it literally, in lines that fit."""
    ends, letter, longest_word = 60, 7, 16  # pixels above and below the axis, pixels of a letter, letters
    return in_lines(title, max((height - ends) // letter, longest_word))


def in_lines(title: str, letters: int) -> str:
    """A title as plotly shows it literally, in lines of so many letters at most."""
    return "<br>".join(plain(line) for line in wrap(title, letters))


def error_bars(
    values: Iterable[float | None],
    low: Iterable[float | None],
    high: Iterable[float | None],
    color: str | None = None,
    *,
    thickness: float = 1.8,
    width: int = 5,
) -> dict[str, Any]:
    """Asymmetric error bars of plotly; a point without a finite interval has none."""
    up, down = list[float | None](), list[float | None]()
    for value, least, most in zip(values, low, high, strict=True):
        known = finite([value, least, most])
        up.append(known[2] - known[0] if len(known) == 3 else None)
        down.append(known[0] - known[1] if len(known) == 3 else None)
    style = {"thickness": thickness, "width": width, "color": color, "visible": any(end is not None for end in up)}
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, **style}


def points(
    x: Iterable[Any], y: Iterable[Any], style: Style, tooltips: Iterable[str] | None = None, **more: Any
) -> go.Scatter:
    """Points of 9 pixels (`marker_size`) in a style, with a tooltip each; `more` has arguments of plotly."""
    hover = {}
    if tooltips is not None:
        hover = {"customdata": list(tooltips), "hovertemplate": "%{customdata}<extra></extra>"}
    marks = {"mode": "markers", "marker": {"symbol": style.marker, "size": 9, "color": style.color}}
    return go.Scatter(x=list(x), y=list(y), **{**marks, **hover, **more})


def describe_estimate(
    row: tuple[float | None, float | None, float | None, int | None], words: Callable[[float | None], str] = number
) -> str:
    """A value (row: value, low, high, n) and, in a second line, its interval and n, as far as they are known."""
    value, low, high, n = row
    span = f"{words(low)} to {words(high)}" if low is not None and high is not None else ""
    more = ", ".join(filter(None, (span, "" if n is None else f"n {n}")))
    return "<br>".join(filter(None, (words(value), more)))


def rope_of(measure: GridMeasure) -> float:
    """The margin that counts as equal, in units of the scale."""
    return margin(measure.rope, measure.scale)


def name_rows(figure: go.Figure, names: Sequence[str]) -> None:
    """Write a name beside each row, the first row at the top."""
    ends, places = [max(len(names), 1) - 0.4, -0.6], list(range(len(names)))
    figure.update_yaxes(range=ends, tickvals=places, ticktext=names, tickfont={"color": INK}, showgrid=False)


def finite(values: Sequence[float | None]) -> list[float]:
    """The values that can be drawn."""
    return [value for value in values if value is not None and math.isfinite(value)]


def value_axis(frame: pl.DataFrame, scale: Scale) -> dict[str, Any]:
    """An axis that shows every `value` of the frame, and of the intervals `low`, `high` what leaves values legible.

    An interval gets the span of the values beyond them, on the log scale a factor of 10.
    """
    ends = _ends(frame, scale)
    kind = "log" if scale == "log" else "linear"
    if ends is None:
        return {"type": kind}
    low, high = ends
    if kind == "linear":
        pad = 0.05 * (high - low)
        return {"type": kind, "range": [low - pad, high + pad]}
    pad = 0.04 * max(math.log10(high / low), 0.3)
    logs = [math.log10(low) - pad, math.log10(high) + pad]
    values = log_ticks(10 ** logs[0], 10 ** logs[1])
    return {"type": kind, "range": logs, "tickvals": values, "ticktext": [tick_text(value) for value in values]}


def is_cut(frame: pl.DataFrame, scale: Scale) -> bool:
    """True if an interval reaches beyond `value_axis`."""
    ends = _ends(frame, scale)
    edges = finite(frame["low"].to_list() + frame["high"].to_list())
    return ends is not None and any(edge < ends[0] or edge > ends[1] for edge in edges)


def _ends(frame: pl.DataFrame, scale: Scale) -> tuple[float, float] | None:
    values, edges = finite(frame["value"].to_list()), finite(frame["low"].to_list() + frame["high"].to_list())
    if scale == "log":
        values, edges = [math.log(value) for value in values if value > 0], [math.log(e) for e in edges if e > 0]
    if not values:
        return None
    low, high = min(values), max(values)
    room = math.log(10) if scale == "log" else (high - low) or math.inf
    kept = [min(max(edge, low - room), high + room) for edge in edges]
    low, high = min([low, *kept]), max([high, *kept])
    if scale == "log":
        return math.exp(low), math.exp(high)
    return (low, high) if high > low else None


def log_ticks(low: float, high: float) -> list[float]:
    """At most nine round numbers between two positive ones, dense enough to read a curve by."""
    if high - low < 1e-9 * high:
        return [float(f"{end:.4g}") for end in (low, high)]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) >= 4:
            return ticks[:: math.ceil(len(ticks) / 9)]
    power = math.floor(math.log10(high - low))
    for step in (each * 10.0**power for each in (5, 2, 1, 0.5, 0.2, 0.1)):
        ticks = [float(f"{at * step:.12g}") for at in range(math.ceil(low / step), math.floor(high / step) + 1)]
        if len(ticks) >= 3:
            break
    return ticks


def tick_text(value: float) -> str:
    """'0.003', '20', '10⁻⁶'."""
    if 1e-4 <= value < 1e6:
        return f"{value:,.10g}"
    exponent = math.floor(math.log10(value) + 1e-9)
    lead = value / 10.0**exponent
    power = f"10<sup>{exponent}</sup>"
    return power if abs(lead - 1) < 1e-6 else f"{lead:.3g}·{power}"


def break_name(name: str, longest: int = 26) -> str:
    """A long name as plotly shows it literally: in lines broken between its parts; long parts lose their middle."""
    lines: list[str] = []
    for part in name.split(" · "):
        if lines and len(lines[-1]) + len(part) + 3 <= longest:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    shown = (shorten([line], max(longest, 40))[0] for line in lines)
    return "<br>".join(map(plain, shown))  # cut first: a cut through an entity would show half of it


def one_line(names: Sequence[str], longest: int = 56) -> list[str]:
    """Names as plotly shows them literally, in a line each; long ones lose their middle and stay different."""
    return [plain(name) for name in shorten(names, longest)]


def cut(name: str, most: int) -> str:
    """The first `most` letters, the last of them an ellipsis where there are more."""
    return name if len(name) <= most else name[: most - 1] + "…"


def least_width(figure: go.Figure) -> int:
    """Pixels below which panels, names side by side, or texts behind rows cannot be read; else 0.

    Names before rows do not count: pages put them above the bars where there is no room.
    """
    panel, second_axis, name, at_the_sides = 295, 70, 12, 160  # pixels
    domains = {axis.domain[0] for axis in figure.select_xaxes() if axis.domain is not None}
    second = any(axis.side == "right" for axis in figure.select_yaxes())
    panels = (panel + second * second_axis) * len(domains) if len(domains) > 1 else 0
    named = [len(axis.tickvals) for axis in figure.select_xaxes() if axis.type == "category" and axis.tickvals]
    names = name * max(named, default=0)
    texts = [axis.ticktext for axis in figure.select_yaxes() if axis.ticktext and axis.side == "right"]
    letters = [max(len(line) for text in each for line in _TAG.sub("", text).split("<br>")) for each in texts]
    rows = round(_LETTER * sum(letters)) + panel // 2 if texts else 0
    beside = figure.layout.margin.r or 0  # names at the ends of lines
    labelled = panel + beside if beside > at_the_sides / 2 else int((figure.layout.meta or {}).get("least_width", 0))
    return max(panels, names + at_the_sides if names > panel else 0, rows, labelled)


def standalone(figure: go.Figure, title: str, *, legend: bool = False) -> go.Figure:
    """The figure with its title, and with `legend` an entry per `legendgroup` of named traces; changed in place."""
    groups: set[str] = set()
    for trace in figure.data:
        group = getattr(trace, "legendgroup", None)
        if group is not None:
            listed = legend and bool(group and trace.name) and trace.showlegend is not False and group not in groups
            trace.showlegend = listed
            groups |= {str(group)} if listed else set()
    above, below = 46, 26 * -(-len(groups) // 4)  # pixels for the title, and for rows of four entries of the legend
    return figure.update_layout(
        title={"text": plain(title), "x": 0, "xref": "paper", "font": {"size": 15, "color": INK}},
        height=(figure.layout.height or 400) + above + below,
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        showlegend=bool(groups),
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        margin_t=above + figure.layout.margin.t - TOP,
        margin_b=8 + below,
    )


_RATIOS: Final = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 30, 100, 1e3, 1e4, 1e6)


def ratio_ticks(limit: float, each_side: int = 3) -> dict[str, Any]:
    """Ticks of an axis from -limit to limit, at most `each_side` on either side of zero, and not crowded."""
    chosen: list[float] = []
    apart = limit / each_side
    for value in map(math.log, reversed(_RATIOS)):  # the outermost first
        if apart <= value <= 0.97 * limit and (not chosen or value <= chosen[-1] - apart):
            chosen.append(value)
    values = [*(-value for value in chosen), 0.0, *reversed(chosen)]
    return {"tickvals": values, "ticktext": ["equal" if value == 0 else change(value, "log") for value in values]}
