"""The design table of 001, Principled Attention, which has no results of its own."""

import json
from typing import Any, Final

import polars as pl

from dashboards.data.captions import describe_measure
from dashboards.data.formatting import count
from dashboards.data.grid_context import GridContext
from dashboards.data.seed_averages import Scale
from dashboards.figures.table import table_latex, table_sheet
from dashboards.papers.item import Drawn
from dashboards.papers.paper_tables import average

NUMBERS: Final = {
    "β": "gate.strength",
    "γ": "normaliser.threshold",
    "α": "margin.amplification",
    "v₀": "readout.ground_value",
}
"""The paper's names, and the fields that axes vary."""
HEADINGS: Final = {"constant": "Constant", "layer": "Per-Layer", "head": "Per-Head", "query": "Per-Query"}
"""The paper's names of levels of granularity."""


def draw_design(about: GridContext) -> Drawn:
    """The measure of the grid by level of each number, the other numbers averaged over."""
    if about.measure is None:
        return Drawn(message="The grid has no measure that its cells could be compared by.")
    axes = [
        (name, axis)
        for name, field in NUMBERS.items()
        for axis in about.header["axes"]
        if axis["path"].removesuffix(".per").endswith(field) or axis["name"].startswith(field.partition(".")[2])
    ]
    if not axes:
        return Drawn(message="No axis of this grid varies beta, gamma, alpha or v0.")
    given = about.store.sql(
        "SELECT trial, axes::VARCHAR AS axes FROM grid_trial WHERE grid = $grid", {"grid": about.grid}
    )
    runs = about.store.final(about.grid, about.measure.name, about.measure.point).join(given, on="trial")
    levels = [json.loads(text) for text in runs["axes"]]
    rows = []
    for name, axis in axes:
        for label in axis["labels"]:
            at = runs.filter([str(each.get(axis["name"])) == label for each in levels])
            place = {"row": name, "column": HEADINGS.get(label, label), "best": False}
            rows.append(place | _average_level(at, about.measure.scale))
    found = pl.DataFrame(rows, schema_overrides={"spread": pl.Float64, "note": pl.String}, infer_schema_length=None)
    mean = "Geometric mean" if about.measure.scale == "log" else "Mean"
    caption = (
        f"{mean} of {describe_measure(about.measure, about.unit)} over seeds of the mean over the other numbers' "
        "levels; ± is half the 95 % t interval over seeds. Where runs failed or are missing, the mean is of the "
        "others, and says of how many: it is not comparable with its neighbours. The paper prints the design alone. "
        "Its constants are hyperparameters, and its constant v₀ is fixed."
    )
    latex = table_latex(found, f"The design of paper 001: {caption}")
    return Drawn(caption, found, sheet=table_sheet(found), latex=latex)


def _average_level(at: pl.DataFrame, scale: Scale) -> dict[str, Any]:
    """The columns of `table_sheet`; n counts seeds, and the note counts runs if some have no value."""
    value, log = pl.col("value"), scale == "log"
    kept = at.filter((pl.col("status") == "ok") & value.is_finite() & ((value > 0) if log else pl.lit(value=True)))
    values = kept.group_by("seed").agg(value.log().mean().exp() if log else value.mean())["value"].to_list()
    mean, _, high = average(values, scale, least=2)
    failed, ended = (int((at["status"] == each).sum()) for each in ("failed", "ok"))
    missing, why = "failed", f"{failed} of {count(at.height, 'run')} failed; no other has a usable value"
    if failed + ended < at.height:
        missing, why = "unfinished", f"{at.height - failed - ended} of {count(at.height, 'run')} not finished"
    return {
        "mean": mean,
        "spread": None if mean is None or high is None or high == mean else high - mean,
        "n": len(values),
        "planned": at["seed"].n_unique(),
        "missing": None if values else missing,
        "why": None if values else why,
        "note": f"{kept.height} of {count(at.height, 'run')}" if 0 < kept.height < at.height else None,
    }
