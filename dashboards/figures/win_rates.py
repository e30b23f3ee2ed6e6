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
    """Every one of `cells` against every other.

    Returns:
        cell, against, planned (seeds of both), n (of these, those with both values), failed (of these, those on which
        one of the two failed, or ended with no finite number, and the other has a value), both_failed (those on which
        both did), value (share of the n on which `cell` is better; a tie is half a win; null without shared seeds and
        on the diagonal), in the order of `cells`.
    """
    found = runs(store, grid, measure).filter(pl.col("cell").is_in(list(cells)))
    ended = pl.col("status") == "ok"
    ours = found.select(
        "cell",
        "seed",
        pl.when(ended & pl.col("value").is_finite()).then("value").alias("value"),
        ((pl.col("status") == "failed") | (ended & ~pl.col("value").is_finite())).fill_null(value=False).alias("lost"),
    )
    theirs = ours.rename({"cell": "against", "value": "other", "lost": "other_lost"})
    gain = (pl.col("other") - pl.col("value")) * (1.0 if measure.better == "lower" else -1.0)
    known = gain.is_not_null()
    survived = (pl.col("lost") & pl.col("other").is_not_null()) | (pl.col("other_lost") & pl.col("value").is_not_null())
    shares = (
        ours.join(theirs, on="seed")
        .filter(pl.col("cell") != pl.col("against"))
        .group_by("cell", "against")
        .agg(
            pl.len().cast(pl.Int64).alias("planned"),
            known.sum().cast(pl.Int64).alias("n"),
            survived.sum().cast(pl.Int64).alias("failed"),
            (pl.col("lost") & pl.col("other_lost")).sum().cast(pl.Int64).alias("both_failed"),
            ((gain > 0) + 0.5 * (gain == 0)).mean().alias("value"),
        )
    )
    one = pl.Series("cell", list(cells), pl.String).to_frame()
    every = one.join(one.rename({"cell": "against"}), how="cross", maintain_order="left_right")
    return every.join(shares, on=["cell", "against"], how="left", maintain_order="left").with_columns(
        pl.col("planned", "n", "failed", "both_failed").fill_null(0)
    )


def draw_win_rates(found: pl.DataFrame, look: CellLook) -> go.Figure:
    """A row per cell: blue where it loses to the column on most seeds, orange where it wins; a star: some failed."""
    cells = list(dict.fromkeys(found["cell"]))
    names = _apart([look.names[cell] for cell in cells])
    name = dict(zip(cells, names, strict=True))
    rows = [
        (
            name[row["against"]],
            name[row["cell"]],
            row["value"],
            None if row["value"] is None else f"{row['value']:.0%}{'*' if row['failed'] else ''}",
            None if row["cell"] == row["against"] else _seeds(row),
            _reason(row),
        )
        for row in found.iter_rows(named=True)
    ]
    kinds = dict.fromkeys(("x", "y", "value", "text", "note", "reason"), pl.String) | {"value": pl.Float64}
    frame = pl.DataFrame(rows, schema=kinds, orient="row").with_columns(pl.col("x", "y").cast(pl.Enum(names)))
    ramp = Ramp(0.0, 1.0, diverging=True, title="won", words=lambda value: "–" if value is None else f"{value:.0%}")
    return draw_heat(frame, ramp, x="against", y="")


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
    return "not run: no seed with both values" if row["planned"] else "not run: no seed in common"


def _apart(names: Sequence[str]) -> list[str]:
    """Names that are each there once; one that comes again is numbered."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found
