"""Names at the right ends of lines, which keep off each other."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.figures.canvas import one_line
from ablate.dashboards.theme.styles import Style

_APART: Final = 15  # pixels between the middles of two names
_SIZE: Final = 12  # pixels
_LETTER: Final = 6.6  # pixels of a letter
_LONGEST: Final = 32  # letters of a name
_AXIS: Final = 60  # pixels of a figure that are no part of its panels


def height_for(names: int, height: int) -> int:
    """Return the height of a panel in which so many names have room, `height` or more."""
    return max(height, _APART * names + _AXIS)


def label_ends(
    figure: go.Figure,
    frame: pl.DataFrame,
    named: Mapping[str, tuple[str, Style, str]],
    axis: Mapping[str, Any],
    place: Mapping[str, str],
    height: int,
) -> None:
    """Write the name of each series beside the end of its line, in its colour, in a margin at the right.

    `named` has name, style and `legendgroup` of the series to name. Without a range the axis has no ends to stand at.
    """
    rows = frame.drop_nulls("value").filter(pl.col("series").is_in(list(named)), pl.col("value").is_finite())
    last = rows.group_by("series", maintain_order=True).last()
    if "range" not in axis or last.is_empty():
        return
    low, high = axis["range"]
    logarithmic = axis["type"] == "log"
    units = (last["value"].log10() if logarithmic else last["value"]).to_numpy()
    size, inset = height - _AXIS, _SIZE / 2  # plotly hides a name whose middle is outside the range
    wanted = (units - low) / (high - low) * size - inset
    apart = np.array(spread(wanted.tolist(), _APART, size - 2 * inset)) + inset
    ends = low + apart / size * (high - low)
    names = one_line([named[key][0] for key in last["series"]], _LONGEST)
    for key, name, end in zip(last["series"], names, ends, strict=True):
        _, style, group = named[key]
        text = go.Scatter(x=[rows["x"].max()], y=[10**end if logarithmic else end], text=[f" {name}"], mode="text")
        text.update(textposition="middle right", textfont={"color": style.color, "size": _SIZE}, cliponaxis=False)
        figure.add_trace(text.update(legendgroup=group, hoverinfo="skip", showlegend=False, **place))
    room = round(_LETTER * (max(map(len, names)) + 1))
    figure.update_layout(margin_r=max(room, figure.layout.margin.r or 0))


def spread(places: Sequence[float], apart: float, size: float) -> list[float]:
    """Return places in the same order, `apart` from each other, within 0 to `size` and near where they were.

    More than fit stand closer.
    """
    from scipy.optimize import isotonic_regression  # slow to import

    apart = min(apart, size / max(len(places) - 1, 1))
    order = np.argsort(places, kind="stable")
    steps = apart * np.arange(len(places))
    # least squares under a fixed order: the isotonic regression of the places less their steps
    free = isotonic_regression(np.asarray(places, dtype=float)[order] - steps).x
    moved = np.empty(len(places))
    moved[order] = np.clip(free, 0, size - steps[-1]) + steps
    return [float(place) for place in moved]
