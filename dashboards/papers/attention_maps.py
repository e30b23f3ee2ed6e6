"""Attention maps of the gallery: the mean over the heads of one layer, a panel per cell."""

from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboards.data.formatting import join_words
from dashboards.data.grid_context import GridContext
from dashboards.figures.attention import layers_of
from dashboards.figures.heat import heat_ramp
from dashboards.papers.drawing import drawn_heat, lacking
from dashboards.papers.item import Drawn
from store.analysis.artefacts import arrays, artefacts

Layer = Literal["middle", "last"]

_BESIDE: Final = ("extra", "ground")
"""Weights that no token has: of a learned key, of a ground state or a sink."""


class _Map(NamedTuple):
    weights: npt.NDArray[np.float64]
    """The mean over heads, [queries, keys]."""
    beside: npt.NDArray[np.float64] | None
    """Weight of keys that are no tokens, [queries]; None if there are none."""
    layer: int
    """Counted from 1, as papers do."""
    layers: int


def attention_panels(about: GridContext, *, layer: Layer, most: int = 64, more: str = "") -> Drawn:
    """The maps of the first sequence of the first seed that has any, its first `most` tokens.

    "middle" is the last layer of the lower half: layer 8 of the 16 that paper 000 shows.
    """
    maps = {cell: given for cell in about.drawn if (given := _map(about, cell, layer)) is not None}
    if not maps:
        return lacking("attention_maps")
    beside = any(each.beside is not None for each in maps.values())
    found = pl.concat([_cells(each, most, about.look.names[cell], beside=beside) for cell, each in maps.items()])
    of = dict.fromkeys(f"layer {each.layer} of {each.layers}" for each in maps.values())
    first = " Key 0 is no token: a sink, a ground state or a learned key." if beside else ""
    caption = (
        f"Weight of each key (across) for each query (down) in {join_words(list(of))}, mean over its heads; the first "
        f"sequence of one seed.{first} The weights of tokens need not sum to 1.{more}"
    )
    signed = bool((found["value"] < 0).any())
    return drawn_heat(found, heat_ramp(found["value"], "weight", diverging=signed), x="key", y="query", caption=caption)


def _cells(given: _Map, most: int, name: str, *, beside: bool) -> pl.DataFrame:
    """panel, x (key), y (query, from above), value (null for keys that a query cannot see), reason.

    With `beside` key 0 has what lies beside the tokens.
    """
    weights = given.weights[:most, :most]
    queries, keys = np.indices(weights.shape).reshape(2, -1)
    frame = {"x": keys + 1, "y": [str(query + 1) for query in queries], "value": weights.ravel()}
    later = pl.Series(keys > queries)
    found = pl.DataFrame(frame).select(
        pl.lit(name).alias("panel"),
        "x",
        "y",
        pl.when(~later).then("value").alias("value"),
        pl.when(later).then(pl.lit("masked: a later key")).alias("reason"),
    )
    if not beside:
        return found
    reason = "masked: nothing lies beside its tokens" if given.beside is None else None
    rows = [
        (name, 0, str(query + 1), None if given.beside is None else float(given.beside[query]), reason)
        for query in range(len(weights))
    ]
    return pl.concat([pl.DataFrame(rows, schema=found.schema, orient="row"), found])


def _map(about: GridContext, cell: str, layer: Layer) -> _Map | None:
    """None where no finished run of the cell kept any.

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
            place = place_of(layer, len(layers))
            held = arrays(about.store, list(layers.values())[place])
            first = {name: np.asarray(held[name], dtype=np.float64)[0].mean(0) for name in held}
            lies = [first[name] for name in _BESIDE if name in first]
            return _Map(first["weights"], np.sum(lies, axis=0) if lies else None, place + 1, len(layers))
    return None


def place_of(layer: Layer, layers: int) -> int:
    """Which of so many layers is meant, counted from 0."""
    return layers - 1 if layer == "last" else (layers - 1) // 2
