"""Cells compared seed by seed: pairs of runs, and which cell beats which."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import change, count, in_odds, number
from ablate.dashboards.data.grid_context import Appearance
from ablate.dashboards.figures.canvas import break_name, canvas, points, value_axis
from ablate.dashboards.figures.heat import Ramp, draw_heat
from ablate.dashboards.theme.styles import DIVERGING, INK
from ablate.store import Store
from ablate.store.analysis.verdicts import GridMeasure, runs, tune_runs
from ablate.store.state import State
from ablate.store.statistics.scales import forward

GAIN: Final = (DIVERGING[0], "solid")  # colour and dash of the lines of seeds on which the cell is better
LOSS: Final = (DIVERGING[-1], "dot")  # the same where it is worse


def pair_runs(values: pl.DataFrame, measure: GridMeasure, cell: str, baseline: str) -> pl.DataFrame:
    """The finished runs of two cells by seed, of the runs `values` that are compared.

    Returns:
        seed, value, baseline_value (null where that run has none), difference in units of the scale (log ratios, of
        odds, or plain; null unless both are there and the scale takes them).
    """
    finished = values.filter(pl.col("state") == State.DONE, pl.col("value").is_finite())
    ours, theirs = (finished.filter(pl.col("cell") == each).select("seed", "value") for each in (cell, baseline))
    both = ours.join(theirs.rename({"value": "baseline_value"}), on="seed", how="full", coalesce=True).sort("seed")
    one, other = (
        forward(both[name].cast(pl.Float64).fill_null(float("nan")).to_numpy(), measure.scale)
        for name in ("value", "baseline_value")
    )
    return both.with_columns(pl.Series("difference", one - other).fill_nan(None))


def draw_paired(
    frame: pl.DataFrame, appearance: Appearance, cells: tuple[str, str], measure: GridMeasure, title: str
) -> go.Figure:
    """Points of the second of `cells`, the baseline, at the left, then of the first; a line joins runs of a seed."""
    figure = canvas(380, y=title)
    for value, base in frame.drop_nulls(["value", "baseline_value"]).select("value", "baseline_value").iter_rows():
        better = value < base if measure.better == "lower" else value > base
        color, dash = GAIN if better else LOSS
        line = {"line": {"color": color, "dash": dash, "width": 1.6}, "legendgroup": "gain" if better else "loss"}
        figure.add_scatter(x=[0, 1], y=[base, value], mode="lines", hoverinfo="skip", **line)
    for place, cell, column in ((0, cells[1], "baseline_value"), (1, cells[0], "value")):
        rows = frame.drop_nulls(column)
        told = []
        for row in rows.iter_rows(named=True):
            size = f"<br>{change(row['difference'], measure.scale)}{in_odds(measure.scale)}"
            known = place and row["difference"] is not None
            told.append(f"seed {row['seed']}: {number(row[column])}{size if known else ''}")
        figure.add_trace(
            points([place] * rows.height, rows[column], appearance.styles[cell], told, marker_size=10, legendgroup=cell)
        )
    names = [break_name(appearance.names[cell]) for cell in reversed(cells)]
    figure.update_xaxes(range=[-0.5, 1.5], tickvals=[0, 1], ticktext=names, tickfont={"color": INK}, ticks="")
    values = pl.concat([frame.select(value=name) for name in ("value", "baseline_value")]).drop_nulls()
    return figure.update_yaxes(**value_axis(values.with_columns(low="value", high="value"), measure.scale))


def win_rates(store: Store, grid: str, measure: GridMeasure, cells: Sequence[str]) -> pl.DataFrame:
    """Every one of `cells` against every other, in their order; tuned settings by the runs that verdicts compare.

    Returns:
        cell, against, and counts of the seeds of both: planned, n (both have finite values), unusable (one ended
        without one, and the other has one), both_unusable. value is the share of the n on which `cell` is better; a tie
        is half a win; null without shared seeds and on the diagonal.
    """
    planned: dict[str, set[int]] = {cell: set() for cell in cells}
    lost: dict[str, set[int]] = {cell: set() for cell in cells}
    values: dict[str, dict[int, float]] = {cell: {} for cell in cells}
    compared = tune_runs(store, grid, runs(store, grid, measure), measure).values
    measured = compared.filter(pl.col("cell").is_in(list(cells)))
    for cell, seed, state, value in measured.select("cell", "seed", "state", "value").iter_rows():
        planned[cell].add(seed)
        if value is not None and math.isfinite(value):
            values[cell][seed] = value
        elif value is not None or state == State.FAILED:
            lost[cell].add(seed)
    rows = []
    for cell, other in product(cells, cells):
        seeds = planned[cell] & planned[other] if cell != other else set()
        pairs = [
            (values[cell][seed], values[other][seed]) for seed in seeds & values[cell].keys() & values[other].keys()
        ]
        wins = [0.5 if a == b else float((a < b) == (measure.better == "lower")) for a, b in pairs]
        unusable = len(seeds & lost[cell] & values[other].keys()) + len(seeds & lost[other] & values[cell].keys())
        both = len(seeds & lost[cell] & lost[other])
        share = sum(wins) / len(wins) if wins else None
        rows.append((cell, other, len(seeds), len(pairs), unusable, both, share))
    counts = dict.fromkeys(("planned", "n", "unusable", "both_unusable"), pl.Int64)
    schema = {"cell": pl.String, "against": pl.String, **counts, "value": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


def draw_win_rates(frame: pl.DataFrame, appearance: Appearance) -> go.Figure:
    """A row per cell: blue where it beats the column on most seeds, orange where it loses; a star: seeds left out."""
    names = [appearance.names[cell] for cell in dict.fromkeys(frame["cell"])]
    rows = [
        {
            "x": appearance.names[row["against"]],
            "y": appearance.names[row["cell"]],
            "value": row["value"],
            "text": None if row["value"] is None else f"{row['value']:.0%}{'*' if row['unusable'] else ''}",
            **_explain(row),
        }
        for row in frame.iter_rows(named=True)
    ]
    kinds: dict[str, Any] = {**dict.fromkeys(("text", "note", "reason"), pl.String), "value": pl.Float64}
    levels = {"x": pl.Enum(names), "y": pl.Enum(names)}
    ramp = Ramp(0.0, 1.0, diverging=True, title="won", words="{:.0%}".format)
    return draw_heat(pl.DataFrame(rows, schema_overrides=kinds | levels), ramp, x="against", y="")


def _explain(row: Mapping[str, Any]) -> dict[str, str | None]:
    """The note with the seeds behind an entry, and the reason why it has no value."""
    if row["cell"] == row["against"]:
        return {"note": None, "reason": "not applicable"}
    unusable, both, planned = row["unusable"], row["both_unusable"], count(row["planned"], "planned seed")
    note = f"{row['n']} of {planned}"
    note += f"; on {unusable} one of the two ended without a finite value" if unusable else ""
    note += f"; on {both} both did" if both else ""
    reason = None
    if row["value"] is None and unusable:
        reason = "no finite value: no seed on which both have one"
    elif row["value"] is None and both:
        reason = f"no finite value: both on {'every seed' if both == row['planned'] else f'{both} of {planned}'}"
    elif row["value"] is None:
        reason = "not run: no seed with both values"
    return {"note": note, "reason": reason}
