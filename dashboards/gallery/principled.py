"""The design table of 001, Principled Attention, which has no results of its own."""

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from dashboards.figures.table import table_latex, table_sheet
from dashboards.gallery.item import Drawn, Item
from dashboards.subject import Subject
from store.statistics import summarise, t_interval

NUMBERS: Final = {
    "β": "gate.strength",
    "γ": "normaliser.threshold",
    "α": "margin.amplification",
    "v₀": "readout.ground_value",
}
"""The paper's names, and the fields that axes vary."""


def _design(about: Subject) -> Drawn:
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
        (name, level, *_marginal(runs, axis["name"], level, log=about.measure.scale == "log"))
        for name, axis in axes
        for level in levels
        if level in axis["labels"]
    ]
    found = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    average = "Geometric mean" if about.measure.scale == "log" else "Mean"
    caption = (
        f"{average} of {about.measure.name} over seeds of the mean over the other numbers' levels; ± is half the 95 % "
        "t interval over seeds. The paper prints the design alone: a number has these levels of granularity."
    )
    latex = table_latex(found, f"The design of paper 001: {caption}")
    return Drawn(caption, found, sheet=table_sheet(found), latex=latex)


def _marginal(runs: pl.DataFrame, axis: str, level: str, *, log: bool) -> tuple[object, ...]:
    """mean, spread, n, planned, missing, why, best: n counts seeds."""
    at = runs.filter(pl.col("axes").map_elements(lambda text: str(json.loads(text).get(axis)) == level, pl.Boolean))
    kept = at.filter(pl.col("value").is_finite() & ((pl.col("value") > 0) if log else pl.lit(value=True)))
    planned = at["seed"].n_unique()
    values = kept.select("seed", pl.col("value").log() if log else pl.col("value")).group_by("seed").mean()["value"]
    if values.is_empty():
        return None, None, 0, planned, "failed" if planned else "unmeasured", "no run has a value", False
    found = summarise(values.to_numpy().astype(np.float64))
    mean = float(found.mean)
    half = mean - float(t_interval(found, 0.05)[0]) if len(values) > 1 and float(found.sd) else None
    if log:
        half = None if half is None else float(np.exp(mean + half) - np.exp(mean))
        mean = float(np.exp(mean))
    return mean, half, len(values), planned, None, None, False


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
