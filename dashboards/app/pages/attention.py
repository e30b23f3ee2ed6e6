"""Attention: the weights themselves, of one run and one sequence; a click on a head shows its map with tokens."""

import json
from collections.abc import Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from dashboards.app.address import Address
from dashboards.app.page import AppPage, PageView, Slot, SlotContent, grid_of, memoise
from dashboards.app.parts import Control, options
from dashboards.data.formatting import count, join_words
from dashboards.data.user_errors import Unknown, require
from dashboards.figures import attention
from dashboards.figures.attention import MOST_TOKENS, Maps
from store.analysis.artefacts import StoredArray, artefacts, with_artefacts

_KIND: Final = "attention_maps"


class AttentionAddress(Address):
    """A run, a sequence, a step, and a head."""

    cell: str | None = None
    """Its name; None is the first that has maps."""
    seed: int | None = None
    """None is the cell's first that has maps."""
    sequence: int = 1
    """Counted from 1."""
    step: int | None = None
    """None is the last."""
    head: str | None = None
    """LAYER.HEAD; None is the first of the first layer."""


class AttentionSelection(NamedTuple):
    """The chosen maps."""

    trial: str
    cell: str
    seed: int
    files: Sequence[StoredArray]
    steps: Sequence[int]
    step: int


@memoise
def _runs(view: PageView) -> pl.DataFrame:
    """Trials that are to have maps, with the names of their cells; those that are done first."""
    about = grid_of(view)
    found = with_artefacts(view.store, about.grid, _KIND)
    places = {cell.cell: i for i, cell in enumerate(about.cells)}
    kept = found.with_columns(
        pl.col("cell").replace_strict(dict(about.look.names), default=None, return_dtype=pl.String).alias("name"),
        pl.col("cell").replace_strict(places, default=None, return_dtype=pl.Int64).alias("place"),
    )
    return kept.sort((pl.col("status") != "ok"), "place", "seed")


def _select_run(view: PageView) -> AttentionSelection:
    """The run and its files. Raises Unknown where there is no such run, or it has none."""
    about, address, runs = grid_of(view), view.address, _runs(view)
    if runs.is_empty():
        raise Unknown(
            f"no trial of {about.grid!r} keeps attention maps; list the probe in its spec: "
            "Trial(probing=Probing(probes=(AttentionMaps(sequences=2), ...)))"
        )
    for field, column in (("cell", "name"), ("seed", "seed")):
        wanted = getattr(address, field)
        if wanted is not None:
            require(
                f"{about.grid!r} with attention maps", field, wanted, runs[column].unique(maintain_order=True).to_list()
            )
            runs = runs.filter(pl.col(column) == wanted)
    for trial, name, seed in runs.select("trial", "name", "seed").head(8).iter_rows():
        files = artefacts(view.store, trial)
        steps = sorted({each.step for each in files if attention.layers_of(files, each.step)})
        if steps:
            step = require("this run", "step", steps[-1] if address.step is None else address.step, steps)
            return AttentionSelection(trial, name, seed, files, steps, step)
    raise Unknown("no run that is meant has left maps yet; they are written at every evaluation")


@memoise
def _maps(view: PageView) -> tuple[AttentionSelection, Maps]:
    looked = _select_run(view)
    found = view.store.sql("SELECT (spec->'$.task')::VARCHAR FROM trial WHERE trial = $trial", {"trial": looked.trial})
    task = dict(json.loads(found.item() or "{}"))
    return looked, attention.read_maps(view.store, looked.files, looked.step, view.address.sequence, task)


def _head(view: PageView, maps: Maps) -> tuple[int, int]:
    """The layer and head that the address says. Raises Unknown for one that is not there."""
    said = view.address.head or f"{maps.layers[0]}.0"
    layer, _, head = said.partition(".")
    if not (layer.isdigit() and head.isdigit() and int(layer) in maps.layers and int(head) < maps.weights.shape[1]):
        raise Unknown(
            f"a head is LAYER.HEAD with layers {maps.layers[0]} to {maps.layers[-1]} and heads 0 to "
            f"{maps.weights.shape[1] - 1}; got {said!r}"
        )
    return int(layer), int(head)


def _which(looked: AttentionSelection, view: PageView) -> str:
    return f"{looked.cell}, seed {looked.seed}, sequence {view.address.sequence}, step {looked.step:,}."


def _mosaic(view: PageView) -> SlotContent:
    looked, maps = _maps(view)
    found = attention.summary(maps)
    signed = bool((maps.weights < 0).any())
    colors = " Orange is above zero, blue below." if signed else ""
    caption = (
        f"{_which(looked, view)} Each picture is a head: keys to the right, queries down. Opacity is the square root "
        f"of a weight over the largest.{colors}"
    )
    own = len(maps.keys) - len(maps.queries)
    if own:
        caption += f" Without the weight of {join_words(list(maps.keys[:own]))}."
    lost = int((~np.isfinite(maps.weights)).sum())
    if lost:
        caption += f" {count(lost, 'weight')} not finite: left empty."
    hint = "A click on a head shows its map."
    return SlotContent(attention.draw_mosaic(maps, _head(view, maps)), caption, found, hint=hint)


def _map(view: PageView) -> SlotContent:
    looked, maps = _maps(view)
    layer, head = _head(view, maps)
    found = attention.one_map(maps, layer, head)
    row = attention.summary(maps).row(by_predicate=(pl.col("layer") == layer) & (pl.col("head") == head), named=True)
    own = len(maps.keys) - len(maps.queries)
    beside = f" Sums are with {join_words(list(maps.keys[:own]))}." if own else ""
    many = len(maps.queries) > MOST_TOKENS
    blocks = f" Means of blocks of tokens, since there are more than {MOST_TOKENS}." if many else ""
    sums = attention.sum_words(row["sum_low"], row["sum_high"])
    caption = (
        f"Layer {layer}, head {head}. {_which(looked, view)} Colours follow the square root of a weight's size. "
        f"{sums}{beside}{blocks}"
    )
    return SlotContent(attention.draw_map(maps, layer, head), caption, found)


def _controls(view: PageView) -> Sequence[Control]:
    runs = _runs(view)
    if runs.is_empty():
        return ()
    looked, maps = _maps(view)
    names = list(dict.fromkeys(runs.sort("place")["name"]))
    seeds = [str(seed) for seed in runs.filter(pl.col("name") == looked.cell)["seed"].sort()]
    heads = {
        f"{layer}.{head}": f"layer {layer}, head {head}"
        for layer, head in product(maps.layers, range(maps.weights.shape[1]))
    }
    many = [str(i + 1) for i in range(maps.sequences)]
    return (
        Control("cell", "Cell", "choice", options(names), usual=looked.cell, resets=("seed", "step")),
        Control("seed", "Seed", "choice", options(seeds), usual=str(looked.seed), resets=("step",)),
        Control("sequence", "Sequence", "choice", options(many), usual="1"),
        Control("step", "Step", "choice", options(map(str, looked.steps)), usual=str(looked.step)),
        Control("head", "Head", "choice", heads, "Or click on one", usual=next(iter(heads))),
    )


ATTENTION = AppPage(
    name="attention",
    title="Attention",
    letter="a",
    about="Where does each head of a run look?",
    address=AttentionAddress,
    controls=_controls,
    slots=(Slot("mosaic", "All heads", _mosaic, sets="head"), Slot("map", "One head", _map)),
)
