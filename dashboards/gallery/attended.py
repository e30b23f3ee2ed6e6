"""Attention maps of the gallery: the mean over the heads of one layer, a panel per cell."""

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboards.figures.heat import heat_ramp
from dashboards.gallery.drawing import drawn_heat, lacking
from dashboards.gallery.item import Drawn
from dashboards.subject import Subject

Layer = Literal["middle", "last"]


def attention_panels(about: Subject, *, layer: Layer, most: int = 64) -> Drawn:
    """The maps of the first sequence of the first seed that has any, its first `most` tokens.

    "middle" is the layer above the middle of the depth: layer 8 of the 16 that paper 000 shows.
    """
    parts = []
    for cell in about.drawn:
        weights = _weights(about, cell, layer)
        if weights is not None:
            parts.append(_cells(weights[:most, :most], about.look.names[cell]))
    if not parts:
        return lacking("attention_maps")
    found = pl.concat(parts)
    caption = (
        f"Weight of each key (across) for each query (down) in the {layer} layer, mean over its heads; the first "
        "sequence of one seed. Rows need not sum to 1."
    )
    signed = bool((found["value"] < 0).any())
    return drawn_heat(found, heat_ramp(found["value"], "weight", diverging=signed), x="key", y="query", caption=caption)


def _cells(weights: npt.NDArray[np.float64], name: str) -> pl.DataFrame:
    """panel, x (key), y (query, from above), value; keys that a query cannot see have no row."""
    queries, keys = np.tril_indices(len(weights))
    frame = {"x": keys + 1, "y": [str(query + 1) for query in queries], "value": weights[queries, keys]}
    return pl.DataFrame(frame).select(pl.lit(name).alias("panel"), "x", "y", "value")


def _weights(about: Subject, cell: str, layer: Layer) -> npt.NDArray[np.float64] | None:
    """The mean over heads, [T, T]; None where no finished run of the cell kept any."""
    runs = about.store.sql(
        "SELECT g.trial, max(a.attempt) AS attempt, t.step FROM grid_trial g JOIN trial t USING (trial) "
        "JOIN attempt a USING (trial) WHERE g.grid = $grid AND g.cell = $cell AND t.status = 'ok' AND a.status = 'ok' "
        "GROUP BY g.trial, g.seed, t.step ORDER BY g.seed",
        {"grid": about.grid, "cell": cell},
    )
    for trial, attempt, step in runs.iter_rows():
        folder = about.store.layout.artefact(trial, attempt, step, "attention-00").parent
        files = sorted(folder.glob(f"attention-[0-9]*-{step:09d}.npz"))
        if files:
            with np.load(files[-1] if layer == "last" else files[len(files) // 2]) as arrays:
                weights: npt.NDArray[np.float64] = np.asarray(arrays["weights"], dtype=np.float64)[0].mean(0)
                return weights
    return None
