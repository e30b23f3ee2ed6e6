"""Any result of SQL as points, lines, bars or a heat map: the reader says which columns."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import plain
from ablate.dashboards.data.result_table import plain as as_plain
from ablate.dashboards.data.user_errors import Unknown
from ablate.dashboards.figures.canvas import canvas, cut
from ablate.dashboards.figures.heat import draw_heat, heat_ramp
from ablate.dashboards.theme.styles import REST, SEQUENTIAL, Style, name_styles, shared_style

Kind = Literal["points", "lines", "bars", "heat"]

MOST_POINTS: Final = 5_000  # rows that are drawn
MOST_GROUPS: Final = 12  # groups with a look of their own
MOST_SQUARES: Final = 40_000  # most cells of a heat map

_MOST_ACROSS: Final = 6  # names side by side; with more, the chart lies on its side
_MOST_ROWS: Final = 60  # names of a chart that does, each with a row of 18 pixels
_LONGEST: Final = 40


class ChartColumns(NamedTuple):
    """Which columns of a result are drawn."""

    x: str
    y: str
    colour: str | None = None  # groups points, lines and bars; is the value in a heat map


def select_rows(result: pl.DataFrame, kind: Kind, columns: ChartColumns) -> pl.DataFrame:
    """Select the drawn rows of a result.

    Returns:
        x (a number, or text), y (of a heat map a number or text, else a number), and of a heat map value, else group
        (text, null without a column for it). Rows without a finite number to draw are left out; those of points, lines
        and bars stand by group in the order of their first rows, of lines by rising x.

    Raises:
        Unknown: a column is not there, or has no numbers where they are needed.
    """
    for name in columns:
        if name is not None and name not in result.columns:
            raise Unknown(f"the result has no column {name!r}; it has {', '.join(result.columns)}")
    result = result.head(MOST_POINTS)
    x = _axis(result[columns.x]).alias("x")
    if kind == "heat":
        if columns.colour is None:
            raise Unknown("the heat map has no column of numbers for its colours; choose one as colour")
        value = _numbers(result[columns.colour]).alias("value")
        squares = pl.DataFrame([x, _axis(result[columns.y]).alias("y"), value]).drop_nulls()
        across, down = squares["x"].n_unique(), squares["y"].n_unique()
        if across * down > MOST_SQUARES:
            raise Unknown(
                f"a heat map of {across:,} times {down:,} squares cannot be read; round x or y into buckets, so that "
                f"there are at most {MOST_SQUARES:,}"
            )
        return squares
    texts = [None] * result.height if columns.colour is None else _texts(result[columns.colour])
    group = pl.Series("group", texts, dtype=pl.String)
    drawn = pl.DataFrame([x, _numbers(result[columns.y]).alias("y"), group]).drop_nulls(["x", "y"])
    drawn = drawn.with_row_index("rank").with_columns(pl.col("rank").min().over("group"))
    keys = ["rank", "x"] if kind == "lines" and drawn["x"].dtype.is_numeric() else ["rank"]
    return drawn.sort(keys, maintain_order=True).drop("rank")


def numeric(result: pl.DataFrame) -> list[str]:
    """The columns that can be drawn as numbers."""
    return [name for name, kind in result.schema.items() if kind.is_numeric()]


def group_styles(drawn: pl.DataFrame, known: Mapping[str, Style]) -> dict[str, Style]:
    """The look of every group: as elsewhere if it is an operator or a cell, and none of its own beyond the first."""
    names = [name for name in dict.fromkeys(drawn["group"]) if name is not None]
    first = names[:MOST_GROUPS]
    own = name_styles(sorted(first), known)
    return {name: own[name] if name in first else REST for name in names}


def draw_chart(
    drawn: pl.DataFrame, kind: Kind, columns: ChartColumns, styles: Mapping[str, Style], *, log: Sequence[str] = ()
) -> go.Figure:
    """The figure of what `select_rows` found; `log` holds the axes, "x" and "y", that have a log scale.

    With more than six texts as x, it lies on its side, so that they can be read.
    """
    if kind == "heat":
        ramp = heat_ramp(drawn["value"], plain(cut(str(columns.colour), _LONGEST)))
        return draw_heat(drawn, ramp, x=columns.x, y=columns.y)
    levels = [] if drawn["x"].dtype.is_numeric() else list(dict.fromkeys(drawn["x"]))
    lies = len(levels) > _MOST_ACROSS
    some = levels[:: max(1, -(-len(levels) // (_MOST_ROWS if lies else 24)))]
    height = max(420, 120 + 18 * len(some)) if lies else 420
    figure = canvas(height, x=columns.y, y=columns.x) if lies else canvas(height, x=columns.x, y=columns.y)
    for (name,), rows in drawn.group_by("group", maintain_order=True):
        figure.add_trace(_trace(rows, kind, name, styles, lies=lies))
    figure.update_layout(barmode="group")
    across, up = (figure.update_yaxes, figure.update_xaxes) if lies else (figure.update_xaxes, figure.update_yaxes)
    if levels:
        ticks = [plain(cut(str(level), _LONGEST)) for level in some]
        order = {"autorange": "reversed"} if lies else {}
        across(type="category", categoryarray=levels, tickvals=some, ticktext=ticks, **order)
    elif "x" in log:
        across(type="log")
    if "y" in log:
        up(type="log")
    return figure


def _trace(
    rows: pl.DataFrame, kind: Kind, name: str | None, styles: Mapping[str, Style], *, lies: bool
) -> go.Scatter | go.Bar:
    style = styles.get(name, REST) if name is not None else _SINGLE
    said = f"{plain(cut(name, _LONGEST))}<br>" if name is not None else ""
    x, y = ("y", "x") if lies else ("x", "y")
    shared = {
        x: rows["x"].to_list(),
        y: rows["y"].to_list(),
        "legendgroup": name or "",
        "hovertext": [plain(f"{each:.6g}" if isinstance(each, float) else str(each)) for each in rows["x"]],
        "hovertemplate": f"{said}%{{hovertext}}<br>%{{{y}:.6g}}<extra></extra>",
    }
    if kind == "bars":
        return go.Bar(**shared, marker_color=style.color, orientation="h" if lies else "v")
    mode = "markers" if kind == "points" else "lines+markers" if rows.height <= 30 else "lines"
    marker = {"color": style.color, "symbol": style.marker, "size": 7}
    line = {"color": style.color, "dash": style.dash, "width": 2}
    return go.Scatter(**shared, mode=mode, marker=marker, line=line)


_SINGLE: Final = shared_style(SEQUENTIAL[3])  # style of a chart without groups


def _axis(column: pl.Series) -> pl.Series:
    """Numbers as they are, null where they are not finite; anything else as text."""
    return _numbers(column) if column.dtype.is_numeric() else _texts(column)


def _numbers(column: pl.Series) -> pl.Series:
    if not column.dtype.is_numeric():
        raise Unknown(f"the column {column.name!r} has no numbers to draw; choose another, or CAST(... AS DOUBLE)")
    values = column.cast(pl.Float64, strict=False).to_frame()
    return values.select(pl.when(pl.all().is_finite()).then(pl.all())).to_series()


def _texts(column: pl.Series) -> pl.Series:
    words = ["null" if value is None else str(as_plain(value)) for value in column.to_list()]
    return pl.Series(column.name, words, dtype=pl.String)
