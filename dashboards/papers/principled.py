"""The design table of 001, Principled Attention, which has no results of its own."""

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from dashboards.data.captions import describe_measure
from dashboards.data.formatting import count
from dashboards.data.grid_context import GridContext
from dashboards.data.seed_averages import Scale
from dashboards.figures.table import table_latex, table_sheet
from dashboards.papers.item import Drawn, Item
from store.statistics import summarise, t_interval

NUMBERS: Final = {
    "β": "gate.strength",
    "γ": "normaliser.threshold",
    "α": "margin.amplification",
    "v₀": "readout.ground_value",
}
"""The paper's names, and the fields that axes vary."""
HEADINGS: Final = {"constant": "Constant", "layer": "Per-Layer", "head": "Per-Head", "query": "Per-Query"}
"""The paper's names of levels of granularity."""


def _design(about: GridContext) -> Drawn:
    """The measure of the grid by level of each number, the other numbers averaged over."""
    if about.measure is None:
        return Drawn(message="The grid has no measure that its cells could be judged by.")
    axes = [
        (name, axis)
        for name, field in NUMBERS.items()
        for axis in about.header["axes"]
        if axis["path"].removesuffix(".per").endswith(field) or axis["name"].startswith(field.partition(".")[2])
    ]
    if not axes:
        return Drawn(message="No axis of this grid varies beta, gamma, alpha or v0.")
    runs = about.store.final(about.grid, about.measure.name, about.measure.point)
    given = about.store.sql(
        "SELECT trial, axes::VARCHAR AS axes FROM grid_trial WHERE grid = $grid", {"grid": about.grid}
    )
    runs = runs.join(given, on="trial")
    levels = list(dict.fromkeys(label for _, axis in axes for label in axis["labels"]))
    rows = [
        (name, HEADINGS.get(level, level), *_marginal(runs, (axis["name"], level), about.measure.scale))
        for name, axis in axes
        for level in levels
        if level in axis["labels"]
    ]
    found = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    average = "Geometric mean" if about.measure.scale == "log" else "Mean"
    caption = (
        f"{average} of {describe_measure(about.measure, about.unit)} over seeds of the mean over the other numbers' "
        "levels; ± is half the 95 % t interval over seeds. Where runs failed or are missing, the mean is of the "
        "others, and says of how many: it is not comparable with its neighbours. The paper prints the design alone. "
        "Its constants are hyperparameters, and its constant v₀ is fixed."
    )
    return Drawn(
        caption, found, sheet=table_sheet(found), latex=table_latex(found, f"The design of paper 001: {caption}")
    )


def _marginal(runs: pl.DataFrame, level: tuple[str, str], scale: Scale) -> tuple[object, ...]:
    """mean, spread, n, planned, missing, why, best, note; n counts seeds, the note runs where some have no value."""
    axis, label = level
    at = runs.filter(pl.col("axes").map_elements(lambda text: str(json.loads(text).get(axis)) == label, pl.Boolean))
    usable = pl.col("value").is_finite() & ((pl.col("value") > 0) if scale == "log" else pl.lit(value=True))
    kept = at.filter((pl.col("status") == "ok") & usable)
    planned = at["seed"].n_unique()
    if kept.is_empty():
        return None, None, 0, planned, *_explain_missing(at), False, None
    forwards = pl.col("value").log() if scale == "log" else pl.col("value")
    values = kept.select("seed", forwards).group_by("seed").mean()["value"]
    found = summarise(values.to_numpy().astype(np.float64))
    mean = float(found.mean)
    half = mean - float(t_interval(found, 0.05)[0]) if len(values) > 1 and float(found.sd) else None
    if scale == "log":
        half = None if half is None else float(np.exp(mean + half) - np.exp(mean))
        mean = float(np.exp(mean))
    note = f"{kept.height} of {count(at.height, 'run')}" if kept.height < at.height else None
    return mean, half, len(values), planned, None, None, False, note


def _explain_missing(at: pl.DataFrame) -> tuple[str, str]:
    """Why a level has no value: missing, why."""
    if at.is_empty():
        return "unmeasured", "the grid has no such cell"
    failed, ended = (int((at["status"] == each).sum()) for each in ("failed", "ok"))
    if failed + ended < at.height:
        return "unfinished", f"{at.height - failed - ended} of {count(at.height, 'run')} not finished"
    return "failed", f"{failed} of {count(at.height, 'run')} failed; no other has a usable value"


_SCHEMA: Final = {
    "row": pl.String,
    "column": pl.String,
    "mean": pl.Float64,
    "spread": pl.Float64,
    "n": pl.Int64,
    "planned": pl.Int64,
    "missing": pl.String,
    "why": pl.String,
    "best": pl.Boolean,
    "note": pl.String,
}

ITEMS: Final[Sequence[Item]] = (
    Item(
        "001",
        "table",
        None,
        "Granularity of every number",
        "rows: numbers; columns: constant, per layer, per head, per query",
        ("mse",),
        _design,
        "specs/principled.py",
    ),
)
