"""What probes see against what a grid is judged by: a point per run, a mark per cell, and their rank correlation."""

import plotly.graph_objects as go
import polars as pl

from dashboards.figures import probed
from dashboards.figures.canvas import broken, canvas, value_axis
from dashboards.html import plain
from dashboards.seeds import Scale
from dashboards.subject import Look, in_order
from dashboards.theme import REST
from dashboards.words import number
from store import Store
from store.verdicts import Measure


def against(store: Store, reading: probed.Reading, measure: Measure, cells: list[str]) -> pl.DataFrame:
    """Every run that is ok and has both: cell, seed, trial, x (the probe), y (the measure); by cell as given."""
    values = store.final(reading.grid, measure.name, measure.point).filter(pl.col("status") == "ok")
    found = values.join(probed.of_trials(store, reading).rename({"value": "x"}), on="trial")
    rows = found.rename({"value": "y"}).select("cell", "seed", "trial", "x", "y").filter(pl.col("y").is_finite())
    return in_order(rows.filter(pl.col("y") > 0) if measure.scale == "log" else rows, cells, "seed")


def by_cell(found: pl.DataFrame, scale: Scale) -> pl.DataFrame:
    """The frame of `against` averaged over seeds: cell, n, x, y; y as a geometric mean on the log scale."""
    y = pl.col("y").log().mean().exp() if scale == "log" else pl.col("y").mean()
    return found.group_by("cell", maintain_order=True).agg(pl.len().alias("n"), pl.col("x").mean(), y)


def rank_correlation(x: pl.Series, y: pl.Series) -> float | None:
    """Spearman's rho, ties at their average rank; None below three pairs, or where one side does not vary."""
    if len(x) < 3 or x.n_unique() < 2 or y.n_unique() < 2:
        return None
    found = pl.select(pl.corr(x.rank(), y.rank())).item()
    return None if found is None else float(found)


def draw_against(found: pl.DataFrame, look: Look, *, x: str, y: str, scale: Scale) -> go.Figure:
    """Small points are runs, large ones their cells; cells beyond those with a style of their own are grey."""
    figure = canvas(400, x=x, y=y)
    averages = by_cell(found, scale)
    for (cell,), rows in found.group_by("cell", maintain_order=True):
        key, style = str(cell), look.styles[str(cell)]
        shared = {"name": broken(look.names[key]), "legendgroup": "" if style == REST else key}
        mean = averages.row(by_predicate=pl.col("cell") == key, named=True)
        words = f"{plain(look.names[key])}<br>{number(mean['x'])}, {number(mean['y'])}, n {mean['n']}<extra></extra>"
        figure.add_trace(
            go.Scatter(
                x=rows["x"].to_list(),
                y=rows["y"].to_list(),
                mode="markers",
                marker={"symbol": style.marker, "size": 5, "color": style.color + "80"},
                text=[f"seed {seed}" for seed in rows["seed"]],
                hovertemplate="%{x:.4g}, %{y:.4g}<br>%{text}",
                **shared,
            )
        )
        figure.add_trace(
            go.Scatter(
                x=[mean["x"]],
                y=[mean["y"]],
                mode="markers",
                marker={"symbol": style.marker, "size": 12, "color": style.color},
                hovertemplate=words,
                **shared,
            )
        )
    ends = found.select(pl.col("y").alias("value"), *(pl.lit(None, pl.Float64).alias(end) for end in ("low", "high")))
    figure.update_yaxes(**value_axis(ends, scale))
    return figure
