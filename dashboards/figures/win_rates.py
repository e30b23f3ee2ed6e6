"""Which cell beats which: of the seeds that two cells share, the share on which one is better."""

from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.heat import draw_heat
from dashboards.figures.heat_cells import Ramp
from dashboards.subject import Look
from dashboards.words import count
from store import Store
from store.verdicts import Measure, runs


def win_rates(store: Store, grid: str, measure: Measure, cells: Sequence[str]) -> pl.DataFrame:
    """Every one of `cells` against every other.

    Returns:
        cell, against, n (shared seeds with both values), value (share on which `cell` is better; a tie is half a win;
        null without shared seeds and on the diagonal), in the order of `cells`.
    """
    found = runs(store, grid, measure).filter(
        pl.col("status") == "ok", pl.col("value").is_finite(), pl.col("cell").is_in(list(cells))
    )
    values = found.select("cell", "seed", "value")
    other = values.rename({"cell": "against", "value": "theirs"})
    sign = 1.0 if measure.better == "lower" else -1.0
    gain = sign * (pl.col("theirs") - pl.col("value"))
    won = pl.when(gain == 0).then(0.5).when(gain > 0).then(1.0).otherwise(0.0)
    shares = (
        values.join(other, on="seed")
        .filter(pl.col("cell") != pl.col("against"))
        .group_by("cell", "against")
        .agg(pl.len().alias("n"), won.mean().alias("value"))
    )
    every = pl.DataFrame(
        [(cell, against) for cell in cells for against in cells],
        schema={"cell": pl.String, "against": pl.String},
        orient="row",
    )
    return every.join(shares, on=["cell", "against"], how="left", maintain_order="left").with_columns(
        pl.col("n").fill_null(0).cast(pl.Int64)
    )


def draw_win_rates(found: pl.DataFrame, look: Look) -> go.Figure:
    """A row per cell: blue where it loses to the column on most seeds, orange where it wins."""
    cells = list(dict.fromkeys(found["cell"]))
    names = _apart([look.names[cell] for cell in cells])
    name = dict(zip(cells, names, strict=True))
    rows = [
        (
            name[against],
            name[cell],
            value,
            None if value is None else f"{value:.0%}",
            count(n, "seed"),
            "not applicable" if cell == against else None if value is not None else "not run: no seed in common",
        )
        for cell, against, n, value in found.select("cell", "against", "n", "value").iter_rows()
    ]
    kinds = dict.fromkeys(("x", "y", "value", "text", "note", "reason"), pl.String) | {"value": pl.Float64}
    frame = pl.DataFrame(rows, schema=kinds, orient="row").with_columns(pl.col("x", "y").cast(pl.Enum(names)))
    ramp = Ramp(0.0, 1.0, diverging=True, title="won", words=lambda value: "–" if value is None else f"{value:.0%}")
    return draw_heat(frame, ramp, x="against", y="")


def _apart(names: Sequence[str]) -> list[str]:
    """Names that are each there once; one that comes again is numbered."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found
