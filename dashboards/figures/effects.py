"""Differences between levels of each axis, with seeds as the sample."""

import plotly.graph_objects as go
import polars as pl

from dashboards.data.captions import ICONS, mark_verdict
from dashboards.data.grid_context import CellLook
from dashboards.figures import forest
from dashboards.figures.canvas import finite
from store import Store
from store.analysis.effects import effects as effects_of
from store.analysis.verdicts import GridMeasure, runs
from store.statistics import SeedContrasts


def effects(store: Store, grid: str, measure: GridMeasure) -> SeedContrasts | None:
    """The effects that the cells at hand can tell, the best first, axes before pairs of axes; None without a value."""
    if not finite(runs(store, grid, measure)["value"].to_list()):
        return None
    found = effects_of(store, grid, measure=measure._asdict())
    descending = [False, measure.better == "higher"]
    ordered = found.effects.drop_nulls("effect").sort("order", "effect", descending=descending, maintain_order=True)
    return found._replace(effects=ordered)


def draw_effects(found: pl.DataFrame, measure: GridMeasure, unit: str = "") -> go.Figure:
    """One row per level, with the level that it is compared with, both intervals and the verdict."""
    named = zip(*found.select("factor", "level", "against").get_columns(), strict=True)
    names = {str(at): f"{factor} · {level} against {against}" for at, (factor, level, against) in enumerate(named)}
    rows = found.rename({"effect": "difference", "n": "pairs"}).with_columns(
        cell=pl.Series(list(names), dtype=pl.String), method=pl.lit("paired t")
    )
    words = {word: mark_verdict(word) for word in ICONS}
    return forest.draw_differences(rows, CellLook(names, {}), measure, words, unit)
