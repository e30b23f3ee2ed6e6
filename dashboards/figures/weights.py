"""Weights of an operator on one row of logits beside softmax's, and its score over the logit."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import number, plain
from ablate.dashboards.data.grid_context import CellLook
from ablate.dashboards.figures.canvas import break_name, canvas, points
from ablate.dashboards.figures.lines import Drawing, draw_lines, of_cells
from ablate.dashboards.theme.styles import INK, REST, Style, operator_styles
from ablate.grid.operator_view import Profile, ScoreCurve

SOFTMAX: Final = "softmax"
LEARNED_KEY: Final = "learned key"
_HEIGHT: Final = 340


def weight_rows(
    rows: Sequence[Profile], usual: Sequence[float | None], logits: Sequence[float], apart: str
) -> pl.DataFrame:
    """One row per group of heads and key, and per weight that is no key's.

    `usual` are softmax's weights, None where they are not shown; `apart` is what the weight of the ground belongs to.

    Returns:
        heads, key (from 1; null for what is no key), name, logit (nats), weight, softmax; by heads, then key.
    """
    found: list[tuple[str, int | None, str, float | None, float, float | None]] = []
    for row in rows:
        keys = enumerate(zip(row.keys, logits, usual, strict=True), 1)
        found += [(row.heads, key, f"key {key}", z, weight, other) for key, (weight, z, other) in keys]
        beside = ((apart, row.ground), (LEARNED_KEY, row.extra))
        found += [(row.heads, None, name, None, weight, None) for name, weight in beside if weight is not None]
    kinds: Any = {"heads": pl.String, "key": pl.Int64, "name": pl.String}
    return pl.DataFrame(found, kinds | dict.fromkeys(("logit", "weight", "softmax"), pl.Float64), orient="row")


def head_styles(heads: Sequence[str], label: str, known: Mapping[str, Style]) -> dict[str, Style]:
    """A look for every group of heads; where all are alike, that of the operator."""
    if len(heads) != 1:
        return operator_styles(heads)
    own = known.get(label) if label.lower() != SOFTMAX else None
    return {heads[0]: own or operator_styles([" "])[" "]}


def draw_weights(found: pl.DataFrame, styles: Mapping[str, Style]) -> go.Figure:
    """Bars of weights per key, a dash for softmax's; what is no key stands apart at the right."""
    keys = found.filter(pl.col("heads") == found["heads"][0]).sort("key", nulls_last=True)
    places = {name: place + (key is None) for place, (name, key) in enumerate(keys["name", "key"].rows())}
    figure = canvas(_HEIGHT, x="key and its logit (nats)", y="weight")
    for (heads,), rows in found.group_by("heads", maintain_order=True):
        style = styles[str(heads)]
        figure.add_trace(
            go.Bar(
                x=[places[name] for name in rows["name"]],
                y=rows["weight"].to_list(),
                legendgroup=str(heads),
                marker={"color": style.color},
                text=[plain(name) for name in rows["name"]],
                textposition="none",
                hovertemplate=(f"{plain(str(heads))}<br>" if heads else "") + "%{text}: %{y:.4g}<extra></extra>",
            )
        )
    usual = keys.drop_nulls("softmax")
    told = [f"softmax: {value:.4g}" for value in usual["softmax"]]
    dash = {"symbol": "line-ew", "size": 24, "color": INK, "line": {"color": INK, "width": 2}}
    if told:
        x = [places[name] for name in usual["name"]]
        figure.add_trace(points(x, usual["softmax"], REST, told, marker=dash, legendgroup=SOFTMAX))
    figure.update_layout(barmode="group", bargap=0.35)
    texts = [break_name(name, 14) if z is None else number(z) for name, z in keys["name", "logit"].rows()]
    figure.update_xaxes(tickvals=list(places.values()), ticktext=texts, showgrid=False, ticks="")
    return figure.update_yaxes(zeroline=True, zerolinecolor=INK, zerolinewidth=1)


def score_rows(curves: Sequence[ScoreCurve], usual: Sequence[float | None], logits: Sequence[float]) -> pl.DataFrame:
    """One row per logit of softmax's score and of every group of heads: series, x, value (null where not finite)."""
    lines = {SOFTMAX: usual} | {curve.heads: curve.values for curve in curves}
    found = [(name, x, value) for name, values in lines.items() for x, value in zip(logits, values, strict=True)]
    return pl.DataFrame(found, {"series": pl.String, "x": pl.Float64, "value": pl.Float64}, orient="row")


def draw_scores(found: pl.DataFrame, look: CellLook) -> go.Figure:
    """A line per group of heads and softmax's; the axis shows the operator's own, where softmax's would flatten it."""
    drawing = Drawing(_HEIGHT, width=2)
    figure = draw_lines(found, of_cells(look), x="logit a (nats)", y="score f(a)", drawing=drawing)
    own = found.filter(pl.col("series") != SOFTMAX)["value"].drop_nulls().to_list()
    if own:
        low, high = min([*own, 0.0]), max([*own, 0.0])
        pad = 0.06 * ((high - low) or 1.0)
        figure.update_yaxes(range=[low - pad, high + pad])
    return figure
