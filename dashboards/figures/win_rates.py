"""Which cell beats which: of the seeds that two cells share, the share on which one is better."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import count
from dashboards.data.grid_context import CellLook
from dashboards.figures.heat import Ramp, draw_heat
from store import Store
from store.analysis.verdicts import GridMeasure, runs


def win_rates(store: Store, grid: str, measure: GridMeasure, cells: Sequence[str]) -> pl.DataFrame:
    """Every one of `cells` against every other, in their order.

    Returns:
        cell, against, and counts of the seeds of both: planned, n (both have values), failed (one failed, or ended with
        no finite number, and the other has a value), both_failed. value is the share of the n on which `cell` is
        better; a tie is half a win; null without shared seeds and on the diagonal.
    """
    found = runs(store, grid, measure).filter(pl.col("cell").is_in(list(cells)))
    value, ended, no = pl.col("value"), pl.col("status") == "ok", pl.lit(value=False)
    lost = ((pl.col("status") == "failed") | (ended & ~value.is_finite())).fill_null(no).alias("lost")
    ours = found.select("cell", "seed", pl.when(ended & value.is_finite()).then(value).alias("value"), lost)
    theirs = ours.rename({"cell": "against", "value": "other", "lost": "other_lost"})
    gain = (pl.col("other") - value) * (1.0 if measure.better == "lower" else -1.0)
    one_lost = (pl.col("lost") & pl.col("other").is_not_null()) | (pl.col("other_lost") & value.is_not_null())
    counts = {
        "planned": pl.len(),
        "n": gain.is_not_null().sum(),
        "failed": one_lost.sum(),
        "both_failed": (pl.col("lost") & pl.col("other_lost")).sum(),
    }
    shares = (
        ours.join(theirs, on="seed")
        .filter(pl.col("cell") != pl.col("against"))
        .group_by("cell", "against")
        .agg(
            *(each.cast(pl.Int64).alias(name) for name, each in counts.items()),
            ((gain > 0) + 0.5 * (gain == 0)).mean().alias("value"),
        )
    )
    one = pl.Series("cell", list(cells), pl.String).to_frame()
    every = one.join(one.rename({"cell": "against"}), how="cross", maintain_order="left_right")
    found = every.join(shares, on=["cell", "against"], how="left", maintain_order="left")
    return found.with_columns(pl.col(*counts).fill_null(0))


def draw_win_rates(found: pl.DataFrame, look: CellLook) -> go.Figure:
    """A row per cell: blue where it loses to the column on most seeds, orange where it wins; a star: some failed."""
    names = [look.names[cell] for cell in dict.fromkeys(found["cell"])]
    rows = [
        {
            "x": look.names[row["against"]],
            "y": look.names[row["cell"]],
            "value": row["value"],
            "text": None if row["value"] is None else f"{row['value']:.0%}{'*' if row['failed'] else ''}",
            "note": None if row["cell"] == row["against"] else _seeds(row),
            "reason": _reason(row),
        }
        for row in found.iter_rows(named=True)
    ]
    kinds: dict[str, Any] = {**dict.fromkeys(("text", "note", "reason"), pl.String), "value": pl.Float64}
    levels = {"x": pl.Enum(names), "y": pl.Enum(names)}
    ramp = Ramp(0.0, 1.0, diverging=True, high_is_better=True, title="won", words=_percent)
    return draw_heat(pl.DataFrame(rows, schema_overrides=kinds | levels), ramp, x="against", y="")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _seeds(row: Mapping[str, Any]) -> str:
    one = f"; on {row['failed']} one of the two failed" if row["failed"] else ""
    both = f"; on {row['both_failed']} both failed" if row["both_failed"] else ""
    return f"{row['n']} of {count(row['planned'], 'planned seed')}{one}{both}"


def _reason(row: Mapping[str, Any]) -> str | None:
    if row["cell"] == row["against"]:
        return "not applicable"
    if row["value"] is not None:
        return None
    if row["failed"]:
        return "failed: no seed on which both have a value"
    if row["both_failed"]:
        some = f"{row['both_failed']} of {count(row['planned'], 'planned seed')}"
        return f"failed: both on {'every seed' if row['both_failed'] == row['planned'] else some}"
    return "not run: no seed with both values"
