"""Attention maps of the gallery: the mean over the heads of one layer, a panel per cell."""

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboards.figures.attention import layers_of
from dashboards.figures.heat import heat_ramp
from dashboards.gallery.drawing import drawn_heat, lacking
from dashboards.gallery.item import Drawn
from dashboards.subject import Subject
from store.artefacts import arrays, artefacts

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
    """panel, x (key), y (query, from above), value (null for keys that a query cannot see), reason."""
    queries, keys = np.indices(weights.shape).reshape(2, -1)
    frame = {"x": keys + 1, "y": [str(query + 1) for query in queries], "value": weights.ravel()}
    later = pl.Series(keys > queries)
    return pl.DataFrame(frame).select(
        pl.lit(name).alias("panel"),
        "x",
        "y",
        pl.when(~later).then("value").alias("value"),
        pl.when(later).then(pl.lit("masked: a later key")).alias("reason"),
    )


def _weights(about: Subject, cell: str, layer: Layer) -> npt.NDArray[np.float64] | None:
    """The mean over heads, [T, T]; None where no finished run of the cell kept any.

    Raises:
        StoreError: a file of maps is torn or altered.
    """
    runs = about.store.sql(
        "SELECT g.trial FROM grid_trial g JOIN trial t USING (trial) WHERE g.grid = $grid AND g.cell = $cell "
        "AND t.status = 'ok' ORDER BY g.seed",
        {"grid": about.grid, "cell": cell},
    )
    for trial in runs["trial"]:
        files = artefacts(about.store, trial)
        layers = layers_of(files, max((each.step for each in files), default=0))
        if layers:
            place = len(layers) - 1 if layer == "last" else len(layers) // 2
            held = arrays(about.store, list(layers.values())[place])
            weights: npt.NDArray[np.float64] = np.asarray(held["weights"], dtype=np.float64)[0].mean(0)
            return weights
    return None
