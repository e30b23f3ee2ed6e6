"""The cells of a grid that are trained longer: those of its recorded plan, or a baseline and the best variant."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import polars as pl

from ablate.grid import Grid
from ablate.grid.errors import NotFoundError, SpecError, StoreError
from ablate.store.analysis.verdicts import GridMeasure, measure_of, runs, verdicts
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout
from ablate.store.state import ENDED
from ablate.store.store import Store


def choose_longer(layout: Layout, grid: Grid) -> Grid:
    """Return a grid that trains cells longer with the keys of these, once all trials of its recorded plan have ended.

    Cells that the plan names stay, whatever later results say, unless the grid has no such cells any more.
    """
    if grid.longer is None or grid.chosen:
        return grid
    header: Mapping[str, Any] = {}
    with suppress(NotFoundError, StoreError):  # there is no such grid yet, or it is damaged and written anew
        header = read_json(layout.grid_header(grid.name))
    cells = {key.hex() for key, _ in grid.enumeration.cells}
    chosen = tuple((header.get("longer") or {}).get("of", ()))
    if header and not (chosen and {*chosen} <= cells):
        chosen = _find_best(layout, grid)
    return replace(grid, chosen=chosen if {*chosen} <= cells else ())


def _find_best(layout: Layout, grid: Grid) -> tuple[str, ...]:
    """Return the baseline of the best variant, and the variant; nothing while trials are outstanding."""
    fields = {} if grid.measure is None else grid.measure.data()
    changes = {name: fields[name] for name in GridMeasure._fields if name in fields}
    with Store.open(layout.root) as store:
        try:
            measure = measure_of(store, grid.name, changes)
            ended = runs(store, grid.name, measure)["state"].is_in(ENDED).all()
            judged = verdicts(store, grid.name, measure=changes)
        except (NotFoundError, SpecError):  # the recorded plan, or no trial yet, has the baseline or the measure
            return ()
    judged = judged.filter(pl.col("verdict") != "no verdict").drop_nulls("difference")
    if not ended or judged.is_empty():
        return ()
    best = judged.sort("difference", descending=measure.better == "higher", maintain_order=True).row(0, named=True)
    return best["baseline"], best["cell"]
